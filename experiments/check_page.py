"""What ``experiments.check`` prints: plain text, one part at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.table import Column, format_table

LEVEL_COLUMNS = (
    Column("level"),
    Column("source"),
    Column("family"),
    Column("dtype"),
    Column("device"),
    Column("runtime"),
    Column("vocabulary"),
    Column("padding_rows", "without a token"),
    Column("outputs"),
    Column("positions"),
)
PAIR_COLUMNS = (
    Column("levels"),
    Column("tokenizer"),
    Column("vocabulary"),
    Column("special", "special tokens"),
    Column("end_of_text", "end of text"),
    Column("positions"),
)
MEMORY_COLUMNS = (
    Column("level"),
    Column("weights"),
    Column("packed", "packed copy"),
    Column("per_token", "keys and values per token"),
    Column("cache", "at this batch and length"),
)
DEVICE_COLUMNS = (Column("device"), Column("needed"), Column("free"), Column("share", "share of it", ".1%"))
EDGE_COLUMNS = (
    Column("edge"),
    Column("gamma"),
    Column("cost_ratio", "c", ".3f"),
    Column("block_ratio", "wide pass", ".2f"),
    Column("alpha_0", "alpha at T=0 [95%]", ".3f", ("alpha_0_low", "alpha_0_high")),
    Column("alpha_1", "alpha at T=1 [95%]", ".3f", ("alpha_1_low", "alpha_1_high")),
    Column("expected_0", "alone at T=0", ".2f"),
    Column("expected_1", "at T=1", ".2f"),
)
IDENTITY = (3, 5)  # rungs whose ties are shown even where they pass
EDGE_NOTE = """\
c: one-token pass of the draft / of the verifier. wide pass: verifier's pass over gamma + 1 tokens / over one.
alpha: expected acceptance of a draft token, along {tokens} tokens of the target's own text after each of {prompts}
prompts, every level at that temperature; for a look-up, the share of its guesses that are right, where it has one.
alone: speedup the edge would give its verifier if every token were accepted with the same chance,
(1 - alpha^(gamma+1)) / ((1 - alpha) (gamma c + wide pass))."""


def heading(text: str) -> str:
    """A line that begins a part."""
    return f"\n{text}"


def first_part(data: Mapping[str, Any]) -> str:
    """What is known before any weight is read."""
    edges = [f"L{k}->L{k + 1}: {edge}" for k, edge in enumerate(data["edges"])]
    lines = [
        f"chain {data['chain']}: {len(data['levels'])} levels" + (", " + "; ".join(edges) if edges else ""),
        heading("levels"),
        format_table(data["levels"], LEVEL_COLUMNS),
    ]
    if data["pairs"]:
        lines += [heading("pairs of levels (lower / upper)"), format_table(data["pairs"], PAIR_COLUMNS)]
    batch, length = data["config"]["batch"], data["length"]
    lines += [
        heading(f"memory at batch {batch}, {length} tokens a row, activations not counted"),
        format_table([_memory_row(row) for row in data["levels"]], MEMORY_COLUMNS),
        "",
        format_table([_device_row(row) for row in data["devices"]], DEVICE_COLUMNS),
    ]
    lines += _listed("to live with", data["warnings"]) + _listed("not known before loading", data["unknown"])
    return "\n".join(lines)


def profile_part(profile: Mapping[str, Any]) -> str:
    """Passes and edges."""
    passes = profile["passes"]
    columns: list[Column | str] = [
        "level",
        *(Column(f"ms_{w}", f"{w} tokens, ms" if w > 1 else "1 token, ms", ".2f") for w in profile["widths"]),
    ]
    busy = ""
    if profile["busy"]:
        busy = f" (warning: {profile['busy_elsewhere']:.0%} of the machine was busy with something else)"
    lines = [
        heading(f"profile: median of {profile['repeats']} passes after {profile['context']} tokens, batch 1{busy}"),
        format_table(passes, columns),
    ]
    if profile["edges"]:
        note = EDGE_NOTE.format(prompts=profile["prompts"], tokens=profile["tokens"])
        lines += ["", format_table(profile["edges"], EDGE_COLUMNS), note]
    return "\n".join(lines)


def rung_text(rung: Mapping[str, Any]) -> str:
    """A rung in a line, what failed in it, and every check of identity with its ties; why, if it was skipped."""
    lines = [f"  {rung['outcome']}: {rung['title']} ({len(rung['checks'])} checks, {rung['seconds']:.1f} s)"]
    lines += [f"    {rung['skipped']}"] if rung["skipped"] else []
    for check in rung["checks"]:
        if rung["number"] in IDENTITY or not check["passed"]:
            lines.append(f"    {'ok' if check['passed'] else 'FAILED'}: {check['name']}: {check['detail']}")
    return "\n".join(lines)


def certificate_note(certificate: Mapping[str, Any]) -> str:
    """What it was made of, and how often a correct decoder would fail it."""
    rate = f"a correct decoder fails one of these with probability {certificate['false_alarm']:.1g} at most"
    return "\n".join(f"  {line}" for line in (certificate["note"], rate if certificate["rungs"] else "") if line)


def last_part(data: Mapping[str, Any]) -> str:
    """The verdict with every reason, and what to do next."""
    lines = [""]
    if data["problems"]:
        lines += ["refused because", *(f"  - {problem}" for problem in _flat(data["problems"]))]
    else:
        lines.append("ok")
    return "\n".join([*lines, f"next: {data['next']}"])


def size(count: float | None) -> str | None:
    """Bytes for people; ``None`` stays."""
    if count is None:
        return None
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count:g} B"


def _memory_row(level: Mapping[str, Any]) -> dict[str, Any]:
    weights = "shared" if level["shares_weights"] else size(level["weight_bytes"])
    packed = size(level["packed_bytes"]) if level["packed_bytes"] else None
    cache, per_token = size(level["cache_bytes"]), size(level["cache_bytes_per_token"])
    return {"level": level["level"], "weights": weights, "packed": packed, "per_token": per_token, "cache": cache}


def _device_row(device: Mapping[str, Any]) -> dict[str, Any]:
    needed = device["weight_bytes"] + device["packed_bytes"] + device["cache_bytes"]
    more = "" if device["complete"] else "at least "
    limit = device["limit_bytes"]
    share = needed / limit if limit else None
    return {"device": device["device"], "needed": f"{more}{size(needed)}", "free": size(limit), "share": share}


def _listed(title: str, lines: Sequence[str]) -> list[str]:
    return [heading(title), *(f"  - {line}" for line in _flat(lines))] if lines else []


def _flat(lines: Sequence[str]) -> list[str]:
    """Each on one line of its own, however it was written."""
    return [" ".join(line.split()) for line in lines]

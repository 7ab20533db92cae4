"""Sentences made from the numbers: which claims need how many devices, and what overlap buys and does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from experiments.what_if_chains import LLAMA2, PAIR_27, TRIPLE, published
from experiments.what_if_needs import CLAIMS, FAMILIES
from ssd.plan.h200 import MEMORY, SHAPES

Rows = Sequence[Mapping[str, Any]]
MAIN = "compiled"  # the column of pass times the sentences are about unless they say otherwise
TIMES_WORDS = {
    "graph": "in a CUDA graph",
    "compiled_70b_graph": "compiled but for the target",
    "compiled": "compiled",
    "floor": "at the bandwidth floor",
}
CURVE_WORDS = {
    "published": "hits as published",
    "pessimistic": "pessimistic hits",
    "always": "every outcome prepared for",
}


def pick(rows: Rows, **wanted: Any) -> list[Mapping[str, Any]]:
    """Rows whose fields have these values."""
    return [r for r in rows if all(r.get(k) == v for k, v in wanted.items())]


def findings(rows: Rows, reach: Rows, needs: Rows) -> list[str]:
    """All sentences that the rows support; a part that was not run has none."""
    cases, grid, hits, batch = (pick(rows, part=p) for p in ("cases", "map", "hits", "batch"))
    made: list[str] = []
    if cases and grid:
        made += [pair_claim(cases, reach), serial_claim(cases, reach, grid), overlapped_claim(cases, reach, grid)]
        made += [devices_needed(reach), memory()]
    if cases:
        made += [per_device(cases), one_device(cases), third_device(cases), pair_or_triple(cases), insertion(needs)]
    if hits:
        made.append(hit_rates(hits))
    if batch:
        made.append(batches(batch))
    return made


def pair_claim(cases: Rows, reach: Rows) -> str:
    """What 2.8x needs."""
    goal = CLAIMS[0].speedup
    serial = _each_times(pick(reach, goal=goal, schedule="serial"))
    two = [f"{_needed(r)} ({CURVE_WORDS[r['curve']]})" for r in pick(reach, goal=goal, schedule="pipelined", devices=2)]
    low, high = published(LLAMA2, "Alpaca"), published(LLAMA2, "GSM8K")
    now = _span(pick(cases, chain=PAIR_27, schedule="serial", devices=1, times=MAIN), ("low", "high"))
    return (
        f"{goal}x with one draft ({PAIR_27}, levels in turn, one device) needs an acceptance of {serial}; the "
        f"published {low:.2f} to {high:.2f} gives {now} at compiled pass times. With the draft on a second device it "
        f"needs {' or '.join(two)}, which is {goal / 2:.1f}x per device."
    )


def serial_claim(cases: Rows, reach: Rows, grid: Rows) -> str:
    """What 4.1x needs."""
    goal = CLAIMS[1].speedup
    own = pick(reach, goal=goal, schedule="serial")
    parts = [f"{_line(pick(own, times=t), grid)} {words}" for t, words in TIMES_WORDS.items() if pick(own, times=t)]
    now = _span(pick(cases, chain=TRIPLE, schedule="serial", devices=1, times=MAIN), ("low", "high"))
    implied = pick(cases, chain=TRIPLE, schedule="serial", devices=1, times=MAIN, column="implied")[0]
    return (
        f"{goal}x with {TRIPLE} and levels in turn needs of 7B→70B: {'; '.join(parts)}. At the published rates it "
        f"gives {now} compiled, and {implied['speedup']:.2f} at the rate that a 2.8x pair implies."
    )


def overlapped_claim(cases: Rows, reach: Rows, grid: Rows) -> str:
    """What 4.7x needs."""
    goal = CLAIMS[2].speedup
    parts = []
    for devices in (1, 2, 3):
        own = pick(reach, goal=goal, schedule="pipelined", devices=devices, times=MAIN)
        lines = [f"{_line(pick(own, curve=c), grid)} ({w})" for c, w in CURVE_WORDS.items() if pick(own, curve=c)]
        parts.append(f"on {_count(devices)} {', '.join(lines)}")
    now = _span(
        pick(cases, chain=TRIPLE, schedule="pipelined", devices=2, times=MAIN, curve="published"), ("low", "high")
    )
    three = _span(
        pick(cases, chain=TRIPLE, schedule="pipelined", devices=3, times=MAIN, curve="published"), ("low", "high")
    )
    return (
        f"{goal}x with {TRIPLE} overlapped needs of 7B→70B, compiled: {'; '.join(parts)}. At the published rates and "
        f"hits it gives {now} on two devices, {three} on three."
    )


def devices_needed(reach: Rows) -> str:
    """The fewest devices at which each claim is reached with rates no higher than published ones."""
    top = published(LLAMA2, "GSM8K")
    parts = []
    for claim in CLAIMS:
        own = [r for r in pick(reach, goal=claim.speedup, times=MAIN) if (r["lower"] or 0) <= 0.75]
        fewest = {}
        for curve in ("", *CURVE_WORDS):
            reached = [r["devices"] for r in own if (r["curve"] or "") == curve and r["needed"] and r["needed"] <= top]
            if reached:
                fewest[curve] = min(reached)
        words = [f"{_count(n)}{' with ' + CURVE_WORDS[c] if c else ' in turn'}" for c, n in fewest.items()]
        parts.append(f"{claim.words}: {', '.join(words) if words else 'no number of devices up to one per level'}")
    return f"With 7B→70B at {top:.2f} and 1B→7B at .75 or less, compiled, these are enough. {'. '.join(parts)}."


def memory() -> str:
    """What fits on one device."""
    small, middle, target = (SHAPES[s].bytes / 1e9 for s in FAMILIES["LLaMA-2"])
    fits, wrong = small + target, middle + target
    assert fits < MEMORY / 1e9 < wrong
    return (
        f"In bfloat16 7B and 70B together are {wrong:.0f} GB, more than the {MEMORY / 1e9:.0f} GB of one H200 before "
        f"any keys and values, so one-device rows with a 7B are about time alone; 1B and 70B, {fits:.0f} GB, fit."
    )


def per_device(cases: Rows) -> str:
    """Whether another device is better spent on overlap."""
    ratios = _against_serial(cases, lambda r: r["schedule"] == "pipelined" and r["devices"] > 1, "per_device")
    better = sum(x > 1 for x in ratios)
    return (
        f"Per device overlap gives {min(ratios):.2f} to {max(ratios):.2f} of what the same chain in turn gives on one: "
        f"in {better} of {len(ratios)} cases more. It buys latency, not throughput."
    )


def one_device(cases: Rows) -> str:
    """Overlap on two streams of one device."""
    ratios = _against_serial(cases, lambda r: r["schedule"] == "pipelined" and r["devices"] == 1, "speedup")
    better = sum(x > 1 for x in ratios)
    return (
        f"On one device overlap gains in {better} of {len(ratios)} cases and is {min(ratios):.2f} to {max(ratios):.2f} "
        f"of taking turns (median {median(ratios):.2f}): two streams hid a fifth of the drafting where that was "
        f"measured, and work for outcomes that do not happen costs more."
    )


def third_device(cases: Rows) -> str:
    """Three devices against two."""
    ratios = []
    for r in pick(cases, schedule="pipelined", devices=3):
        two = pick(cases, schedule="pipelined", devices=2, **{k: r[k] for k in ("chain", "column", "times", "curve")})
        ratios.append(r["speedup"] / two[0]["speedup"])
    return (
        f"A third device, so that the lowest level works ahead too, changes the speedup by a factor of "
        f"{min(ratios):.2f} to {max(ratios):.2f} (median {median(ratios):.2f}): once drafting is "
        f"hidden, faster drafting is not seen."
    )


def pair_or_triple(cases: Rows) -> str:
    """The chain against the better pair of its family, in turn and overlapped."""
    parts = []
    for family in dict.fromkeys(r["family"] for r in cases):
        own = pick(cases, family=family, times=MAIN)
        for words, wanted in (
            ("in turn", {"schedule": "serial", "devices": 1}),
            ("on two devices", {"schedule": "pipelined", "devices": 2, "curve": "published"}),
        ):
            shown = pick(own, **wanted)
            columns = dict.fromkeys(r["column"] for r in shown if len(r["alphas"]) > 1)
            ratios = [_ratio_to_pair(shown, column) for column in columns]
            parts.append(f"{family} {words} {min(ratios):.2f} to {max(ratios):.2f}")
    return f"Best triple ÷ best pair of its family at compiled pass times: {'; '.join(parts)}."


def _ratio_to_pair(rows: Rows, column: str) -> float:
    """Best triple of a column over the best pair: of the same column, or of the only one a pair has."""
    triples = [r["speedup"] for r in rows if len(r["alphas"]) > 1 and r["column"] == column]
    pairs = [r["speedup"] for r in rows if len(r["alphas"]) == 1 and r["column"] in (column, "assumed")]
    return max(triples) / max(pairs)


def insertion(needs: Rows) -> str:
    """Where the middle level begins to pay."""
    parts = []
    for r in pick(needs, times=MAIN):
        needed = "none" if r["needed"] is None else f"{r['needed']:.3f}"
        verdict = "pays" if r["pays"] else "does not pay"
        parts.append(
            f"{r['family']} {r['lower']:.2f} below and {r['direct']:.3f} direct: {needed}, "
            f"taken {r['assumed']:.3f}, {verdict}"
        )
    return f"Acceptance from which the middle level pays, levels in turn, compiled: {'; '.join(parts)}."


def hit_rates(hits: Rows) -> str:
    """What guesses buy."""
    parts = []
    for curve in dict.fromkeys(r["curve"] for r in hits):
        free = {r["budgets"][-1]: r for r in pick(hits, curve=curve, fan_out=None)}
        best = max(free.values(), key=lambda r: r["speedup"])
        few, many = free[min(free)], free[max(free)]
        parts.append(
            f"{CURVE_WORDS[curve]}: {few['hit_rates'][-1]:.0%} of rounds hit with {min(free)} row, "
            f"{many['hit_rates'][-1]:.0%} with {max(free)}; fastest at {best['budgets'][-1]} rows "
            f"({best['speedup']:.2f} against {few['speedup']:.2f})"
        )
    return f"Rows drafted ahead, {TRIPLE} on two devices: {'. '.join(parts)}."


def batches(batch: Rows) -> str:
    """Where the gain ends."""
    parts = []
    for chain in dict.fromkeys(r["chain"] for r in batch):
        for knee in dict.fromkeys(r["knee"] for r in batch):
            words = (
                "if time grows where arithmetic must bind" if knee is None else f"if time grows beyond {knee:g} tokens"
            )
            serial = {r["batch"]: r["speedup"] for r in pick(batch, chain=chain, knee=knee, schedule="serial")}
            two = {r["batch"]: r["speedup"] for r in pick(batch, chain=chain, knee=knee, schedule="pipelined")}
            ends = (
                f"{min(serial)} to {max(serial)} rows: in turn {serial[min(serial)]:.2f} to {serial[max(serial)]:.2f}"
            )
            parts.append(
                f"{chain} {words}, {ends}, overlapped on two devices {two[min(two)]:.2f} to {two[max(two)]:.2f}"
            )
    return f"Batch: {'; '.join(parts)}."


def _against_serial(cases: Rows, chosen: Callable[[Mapping[str, Any]], bool], field: str) -> list[float]:
    serial = {(r["chain"], r["column"], r["times"]): r["speedup"] for r in pick(cases, schedule="serial", devices=1)}
    return [r[field] / serial[r["chain"], r["column"], r["times"]] for r in cases if chosen(r)]


def _needed(row: Mapping[str, Any]) -> str:
    if row["needed"] is None:
        return f"more than is mapped (at most {row['most']:.1f}x)"
    return f"{row['needed']:.2f}{' or less' if row['at_most'] else ''}"


def _each_times(rows: Rows) -> str:
    return ", ".join(f"{_needed(r)} {TIMES_WORDS[r['times']]}" for r in rows)


def _line(rows: Rows, grid: Rows) -> str:
    """What a line of the map needs for lower rates of .60 and .75, or of its own ends."""
    known = [r for r in rows if r["lower"] in (0.6, 0.75)] or [rows[0], rows[-1]]
    found = sorted({_needed(r) for r in known if r["needed"] is not None})
    most = max(r["alphas"][-1] for r in grid)
    if not found:
        return f"not reached up to {most:.2f} (at most {max(r['most'] for r in known):.1f}x)"
    return " to ".join(found) + (
        "" if len([r for r in known if r["needed"]]) == len(known) else f", or not up to {most:.2f}"
    )


def _span(rows: Rows, columns: Sequence[str]) -> str:
    found = sorted(r["speedup"] for r in rows if r["column"] in columns)
    return f"{found[0]:.2f} to {found[-1]:.2f}"


def _count(devices: int) -> str:
    return ("one device", "two devices", "three devices")[devices - 1]

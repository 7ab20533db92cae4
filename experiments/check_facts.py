"""What ``experiments.check`` finds, as plain rows for its page and its JSON file."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch

from ssd.bench.chain_check import Inspection, LevelFacts
from ssd.bench.chain_profile import TEMPERATURES, ChainProfile, EdgeProfile, expected_speedup, interval
from ssd.bench.compatibility import vocabulary
from ssd.bench.level_pairs import compare_pairs, padding_rows
from ssd.bench.memory_plan import LOOK_UP, DevicePlan, LevelPlan, cache_bytes, plan_devices, plan_level
from ssd.bench.method_spec import EdgeSpec
from ssd.core.positional import context_limit

LENGTH = 1024


def before_weights(found: Inspection, batch: int, wanted: int | None) -> dict[str, Any]:
    """Levels, pairs, memory, warnings and problems, from configurations alone.

    Args:
        wanted: tokens of a row; ``None``: ``LENGTH``, or as many as the target has positions for.
    """
    plans = [_plan(k, level) for k, level in enumerate(found.levels)]
    limits = [None if x.config is None else context_limit(x.config) for x in found.levels]
    length = wanted or min(LENGTH, limits[-1] or LENGTH)
    caches = [cache_bytes(plan, batch, length, limit) for plan, limit in zip(plans, limits, strict=True)]
    devices = plan_devices(
        [
            (x.spec.device, _weights_of(x, k), plans[k], caches[k])
            for k, x in enumerate(found.levels)
            if x.spec is not None and not x.is_ngram
        ]
    )
    problems = [*found.problems, *(p.problem for p in plans if p.problem)]
    problems += [_too_small(d, batch, length) for d in devices if not d.fits]
    if limits[-1] is not None and length > limits[-1] + 1:  # the last token is never fed back
        problems.append(f"length: {length} tokens a row do not fit the target's position limit {limits[-1]}")
    return {
        "length": length,
        "levels": [_level_row(k, found, plans[k], caches[k]) for k in range(len(plans))],
        "edges": [_edge_text(e) for e in found.edges],
        "pairs": [asdict(pair) for pair in compare_pairs(found)],
        "devices": [asdict(plan) for plan in devices],
        "warnings": list(found.warnings),
        "unknown": [p.unknown for p in plans if p.unknown],
        "problems": list(dict.fromkeys(problems)),
    }


def _plan(k: int, level: LevelFacts) -> LevelPlan:
    if level.is_ngram:
        return LOOK_UP
    if level.spec is None or level.source is None or level.config is None:
        return LevelPlan(unknown=f"level {k}: its configuration cannot be read")
    label = f"level {k} ({level.source})"
    own = level.spec
    return plan_level(level.source, level.config, getattr(torch, own.dtype), label, own.runtime, own.device)


def _weights_of(level: LevelFacts, k: int) -> str:
    """Levels of equal source, dtype and device hold the same weights."""
    return f"{level.source} {level.spec.dtype}" if level.spec and level.source else f"level {k}"


def _level_row(k: int, found: Inspection, plan: LevelPlan, cache: int | None) -> dict[str, Any]:
    level = found.levels[k]
    earlier = [
        _weights_of(x, j) for j, x in enumerate(found.levels[:k]) if x.spec and x.spec.device == device_name(level)
    ]
    config = level.config
    return {
        "level": f"L{k}",
        "source": level.source and str(level.source),
        "family": None if config is None else config.get_text_config(decoder=True).model_type,
        "dtype": None if level.spec is None or level.is_ngram else level.spec.dtype,
        "device": device_name(level),
        "vocabulary": None if config is None else vocabulary(config),
        "padding_rows": padding_rows(level, found.tokenizer),
        "outputs": plan.outputs,
        "positions": None if config is None else context_limit(config),
        "end_of_text": level.end_ids,
        "weight_bytes": plan.weight_bytes,
        "shares_weights": _weights_of(level, k) in earlier,
        "runtime": None if level.spec is None or level.is_ngram else level.spec.runtime,
        "packed_bytes": plan.packed_bytes,
        "cache_bytes_per_token": plan.cache_bytes_per_token,
        "cache_bytes": cache,
    }


def device_name(level: LevelFacts) -> str | None:
    """Where a level is; a look-up is nowhere in particular."""
    return None if level.spec is None or level.is_ngram else level.spec.device


def _edge_text(edge: EdgeSpec | None) -> str:
    if edge is None:
        return "cannot be read"
    value = "" if edge.window_value is None else f" {edge.window_value:g}"
    return f"gamma {edge.gamma}, {edge.window}{value}, {edge.verification}"


def _too_small(device: DevicePlan, batch: int, length: int) -> str:
    packed = f"{device.packed_bytes} of packed copies of them, " if device.packed_bytes else ""
    return (
        f"memory: {device.device} has {device.limit_bytes} bytes free, and its levels need {device.needed_bytes} "
        f"({device.weight_bytes} of weights, {packed}"
        f"{device.cache_bytes} of keys and values at batch {batch}, length {length})"
    )


def profile_facts(profile: ChainProfile, levels: int) -> dict[str, Any]:
    """Milliseconds by level and width, and a row per edge."""
    widths = sorted({width for _, width in profile.seconds})
    timed = [k for k in range(levels) if (k, 1) in profile.seconds]
    return {
        "repeats": profile.repeats,
        "context": profile.context,
        "widths": widths,
        "passes": [{"level": f"L{k}", **{f"ms_{w}": profile.seconds[k, w] * 1e3 for w in widths}} for k in timed],
        "edges": [_edge_row(edge) for edge in profile.edges],
    }


def _edge_row(edge: EdgeProfile) -> dict[str, Any]:
    row: dict[str, Any] = {
        "edge": f"L{edge.edge}->L{edge.edge + 1}",
        "gamma": edge.gamma,
        "cost_ratio": edge.cost_ratio,
        "block_ratio": edge.block_ratio,
    }
    for t in TEMPERATURES:
        found = edge.overlap.get(t)
        if found is None:
            continue
        low, high = interval(found) or (None, None)
        name = f"alpha_{t:g}"
        row |= {name: found.value, f"{name}_low": low, f"{name}_high": high, f"{name}_positions": found.n}
        if edge.cost_ratio is not None:
            row[f"expected_{t:g}"] = expected_speedup(found.value, edge.gamma, edge.cost_ratio, edge.block_ratio)
    return row

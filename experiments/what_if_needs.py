"""Which acceptance a claim needs: where the speedups of the map cross it, and where a triple begins to pay."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any, NamedTuple

from experiments.what_if_case import Case, World, serial_speedup
from experiments.what_if_cases import TIMES
from experiments.what_if_chains import CHAINS
from experiments.what_if_search import best_serial
from ssd.plan.bisection import bisect

Rows = Iterable[Mapping[str, Any]]


class Claim(NamedTuple):
    """A speedup that is claimed, and for what."""

    speedup: float
    levels: int
    schedule: str
    words: str


CLAIMS = (
    Claim(2.8, 2, "serial", "2.8x for the pair 7B→70B"),
    Claim(4.1, 3, "serial", "4.1x for the chain, levels taking turns"),
    Claim(4.7, 3, "pipelined", "4.7x for the chain, overlapped"),
)
FAMILIES = {
    "LLaMA-2": ("1B", "7B", "70B"),
    "Llama-3": ("Llama-3.2-1B", "Llama-3.1-8B", "Llama-3.1-70B"),
}


def crossing(points: Sequence[tuple[float, float]], goal: float) -> tuple[float | None, bool]:
    """The rate from which speedups reach ``goal``, log-linear between (rate, speedup) points in order of rate.

    Returns:
        The rate, ``None`` if no point reaches the goal; and whether already the first does, so that less may do.
    """
    if points[0][1] >= goal:
        return points[0][0], True
    for (a, below), (b, above) in pairwise(points):
        if above >= goal:
            return a + (b - a) * math.log(goal / below) / math.log(above / below), False
    return None, False


def reach_rows(rows: Rows) -> list[dict[str, Any]]:
    """For each claim and line of the map, the rate of the upper edge it needs; the pair's overlapped lines too."""
    found = []
    key = ("chain", "lower", "times", "schedule", "devices", "curve")
    lines = [dict(r) | {"lower": r["alphas"][0] if len(r["alphas"]) > 1 else None} for r in rows]
    for values, group in groupby(lines, key=lambda r: tuple(r[name] for name in key)):
        line = list(group)
        for claim in CLAIMS:
            if len(line[0]["alphas"]) + 1 != claim.levels or (
                claim.levels > 2 and claim.schedule != line[0]["schedule"]
            ):
                continue
            needed, at_most = crossing([(r["alphas"][-1], r["speedup"]) for r in line], claim.speedup)
            found.append({"goal": claim.speedup} | dict(zip(key, values, strict=True)) | {
                "needed": needed, "at_most": at_most, "most": max(r["speedup"] for r in line),
                "per_device": None if needed is None else claim.speedup / line[0]["devices"],
            })  # fmt: skip
    return found


def needs_rows(world: World) -> list[dict[str, Any]]:
    """Per family, column of acceptance and of pass times: the rate of the upper edge at which the triple begins to pay.

    It pays where it beats both pairs at their best when levels take turns, the pair of the middle level at the same
    rate. ``needed`` is ``None`` where it never does.
    """
    found = []
    for family, shapes in FAMILIES.items():
        triple, low_pair = CHAINS["→".join(shapes)], CHAINS["→".join((shapes[0], shapes[2]))]
        for i, column in enumerate(triple.columns):
            rival = low_pair.columns[min(i, len(low_pair.columns) - 1)]
            for times in TIMES[family]:
                low = _best(Case(low_pair.shapes, rival.alphas, times, world=world))
                needed = _begins(shapes, column.alphas[0], low, times, world)
                found.append({
                    "family": family, "column": column.name, "times": times, "lower": column.alphas[0],
                    "direct": rival.alphas[0], "direct_speedup": low, "needed": needed, "assumed": column.alphas[1],
                    "pays": needed is not None and column.alphas[1] >= needed,
                })  # fmt: skip
    return found


def _begins(shapes: tuple[str, ...], lower: float, low_pair: float, times: str, world: World) -> float | None:
    def gap(alpha: float) -> float:
        triple = _best(Case(shapes, (lower, alpha), times, world=world))
        return triple - max(low_pair, _best(Case(shapes[1:], (alpha,), times, world=world)))

    least, most = 0.4, 0.97
    if gap(most) <= 0:
        return None
    return least if gap(least) > 0 else bisect(gap, least, most, 1e-3)


def _best(case: Case) -> float:
    return serial_speedup(case, best_serial(case).gammas)

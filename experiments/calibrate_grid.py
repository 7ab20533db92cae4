"""Which temperatures a calibration tries, and what to say of those at the end of the grid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

from experiments.calibrate_config import CalibrateSpec
from experiments.calibrate_rows import EQUAL
from ssd.calibrate.choice import Vector, refined
from ssd.calibrate.overlap_table import OverlapTable


def grid_of(spec: CalibrateSpec, temperature: float) -> list[float]:
    """Temperatures that the first pass tries on every level: the grid and the row's own; a greedy row has one."""
    return sorted({*spec.grid, temperature}) if temperature > 0 else [0.0]


def best_of_pairs(table: OverlapTable, levels: int, target: float) -> list[set[float]]:
    """Per draft level the temperatures of the best cells of its pairs, the verifier at the row's temperature."""
    found: list[set[float]] = [set() for _ in range(levels - 1)]
    for draft, verifier in combinations(range(levels), 2):
        found[draft].add(table.best_draft(draft, verifier, target).draft_temperature)
    return found


def finer(
    grid: Sequence[float], vectors: Mapping[str, Vector], points: int, best: Sequence[set[float]] = ()
) -> list[list[float]]:
    """Temperatures of the second pass: around every chosen one and every best one, the verifier's too, and the row's.

    Args:
        best: per draft level, see ``best_of_pairs``; no chosen vector need be at a pair's best.
    """
    target = vectors[EQUAL][-1]
    found = [[target]]
    for k in reversed(range(len(vectors[EQUAL]) - 1)):
        centres = {v[k] for v in vectors.values()} | (best[k] if best else set())
        near = (t for centre in centres for t in refined(grid, centre, points))
        found.insert(0, sorted({*near, *found[0]}))
    return found


def temperatures_of(vectors: Mapping[str, Vector]) -> list[list[float]]:
    """Per level every temperature that a comparison of the vectors needs: their own, and their verifiers'."""
    levels = len(next(iter(vectors.values())))
    own: list[set[float]] = [{v[k] for v in vectors.values()} for k in range(levels)]
    return [sorted(own[k] | (own[k + 1] if k + 1 < levels else set())) for k in range(levels)]


def at_the_end(vectors: Mapping[str, Vector], grid: Sequence[float], names: Sequence[str]) -> list[str]:
    """A line for every chosen temperature beyond which the grid has none, so that a better one may lie there.

    Below 0 there is none to try.
    """
    ends = {max(grid): "highest"} | ({min(grid): "lowest"} if min(grid) > 0 else {})
    return [
        f"{vector}: the temperature of {name}, {t:g}, is the {ends[t]} of the grid"
        for vector, own in vectors.items()
        for name, t in zip(names[:-1], own, strict=False)
        if vector != EQUAL and t in ends
    ]

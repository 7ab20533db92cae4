"""Which temperatures a chain's draft levels get: edge by edge from the target down, or all at once. No torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, product

import numpy as np

from ssd.bench.statistics import Array, Estimate, paired_bootstrap, ratio_of_totals
from ssd.calibrate.overlap_table import Cell, OverlapTable
from ssd.plan.acceptance import Acceptance, Constant
from ssd.plan.candidates import best_gammas
from ssd.plan.chain_recursion import Memo
from ssd.plan.edge_plan import EdgePlan
from ssd.plan.pass_times import Profile
from ssd.plan.prediction import predict

Vector = tuple[float, ...]  # temperature of every level, the target's last
Speed = Callable[[Sequence[float]], float]  # expected acceptance per edge -> predicted tokens per second
EXHAUSTIVE = 2  # draft levels up to which every vector is tried
RESAMPLES = 200  # of the predicted gain: every one takes two predictions


def edge_cells(vector: Sequence[float]) -> list[Cell]:
    """The cell of every edge of a chain at these temperatures."""
    return [Cell(k, k + 1, s, t) for k, (s, t) in enumerate(pairwise(vector))]


def edge_alphas(table: OverlapTable, vector: Sequence[float]) -> list[float]:
    """Expected acceptance of every edge of a chain at these temperatures."""
    return [table.value(cell) for cell in edge_cells(vector)]


def equal(levels: int, target: float) -> Vector:
    """Every level at the target's temperature, which is what a chain without settings of its own does."""
    return (target,) * levels


def top_down(table: OverlapTable, levels: int, target: float) -> Vector:
    """Each draft level at the temperature that its verifier, whose own is settled first, accepts most of.

    A level stays at its verifier's temperature unless the interval of the gain over prompts lies above 0. A single
    prompt has no interval, and so changes nothing. Where the verifier's own temperature was not tried, the best is
    taken.
    """
    vector: Vector = (target,)
    for k in reversed(range(levels - 1)):
        above = vector[0]
        best = table.best_draft(k, k + 1, above)
        same = Cell(k, k + 1, above, above)
        if best != same and same in table.sums and not exceeds(table.difference(best, same), 0.0):
            best = same
        vector = (best.draft_temperature, *vector)
    return vector


def joint(table: OverlapTable, levels: int, target: float, speed: Speed) -> Vector:
    """The temperatures with most predicted tokens per second.

    All stay equal unless the interval over prompts of the predicted speed, divided by that of equal temperatures,
    lies above 1; a single prompt has no interval, and so changes nothing.

    Up to two draft levels every vector in the table is tried. Deeper chains change one level at a time, from
    all equal and from ``top_down``, until no single change is an improvement.
    """
    start = equal(levels, target)
    if levels - 1 <= EXHAUSTIVE:
        found = list(_vectors(table, levels, target))
    else:
        found = [_ascend(table, vector, speed) for vector in (start, top_down(table, levels, target))]
    best = _best(table, [start, *found], speed)
    return best if best == start or exceeds(predicted_gain(table, best, start, speed), 1.0) else start


def exceeds(gain: Estimate, nothing: float) -> bool:
    """Whether the interval of a gain lies above ``nothing``; without an interval it is not known to."""
    return gain.low is not None and gain.low > nothing


def predicted_gain(table: OverlapTable, ours: Vector, theirs: Vector, speed: Speed) -> Estimate:
    """Predicted speed of one vector divided by that of another, the same prompts drawn for both."""
    cells = [*edge_cells(ours), *edge_cells(theirs)]
    rows = np.concatenate([table.rows(cell) for cell in cells], axis=1)  # [P, 2 per cell]

    def ratio(totals: Array) -> Array:
        alphas = ratio_of_totals(totals.reshape(*totals.shape[:-1], len(cells), 2))  # [..., cells]
        flat = alphas.reshape(-1, len(cells))
        half = len(cells) // 2
        found: Array = np.array([speed(row[:half]) / speed(row[half:]) for row in flat.tolist()])
        return found.reshape(alphas.shape[:-1])

    return paired_bootstrap(ratio, rows, n=RESAMPLES)


def _best(table: OverlapTable, vectors: Sequence[Vector], speed: Speed) -> Vector:
    """The first of the fastest."""
    return max(vectors, key=lambda v: speed(edge_alphas(table, v)))


def _vectors(table: OverlapTable, levels: int, target: float) -> Iterator[Vector]:
    """Every vector all of whose edges are in the table."""
    for drafts in product(*(table.temperatures(k) for k in range(levels - 1))):
        vector = (*drafts, target)
        if all(cell in table.sums for cell in edge_cells(vector)):
            yield vector


def _ascend(table: OverlapTable, vector: Vector, speed: Speed) -> Vector:
    """Change one level at a time until nothing is faster."""
    while True:
        changed = [(*vector[:k], t, *vector[k + 1 :]) for k in range(len(vector) - 1) for t in table.temperatures(k)]
        changed = [own for own in changed if all(cell in table.sums for cell in edge_cells(own))]
        best = _best(table, [vector, *changed], speed)
        if best == vector:
            return vector
        vector = best


def refined(grid: Sequence[float], best: float, points: int) -> list[float]:
    """``points`` temperatures evenly between ``best`` and each of its neighbours on the grid, and those three.

    Raises:
        ValueError: if ``best`` is not on the grid.
    """
    ordered = sorted(set(grid))
    if best not in ordered:
        raise ValueError(f"grid: {best!r} is not one of {', '.join(map(str, ordered))}")
    at = ordered.index(best)
    near = ordered[max(0, at - 1) : at + 2]
    found = {float(round(t, 4)) for a, b in pairwise(near) for t in np.linspace(a, b, points + 2)}
    return sorted(found | set(near))


def predicted_speed(profile: Profile, edges: Sequence[EdgePlan], largest_gamma: int | None = None) -> Speed:
    """Tokens per second that ``ssd.plan`` predicts, at one rate per edge.

    Args:
        profile: pass times of all levels.
        edges: of the chain.
        largest_gamma: choose the best draft lengths up to it for every vector of rates, with the windows of
            ``edges``; ``None`` keeps the chain's own.

    Raises:
        ValueError: if an edge verifies by block, whose acceptance is no mean of overlaps.
    """
    for k, edge in enumerate(edges):
        if edge.verification != "token":
            raise ValueError(
                f"chain.edges[{k}].verification: {edge.verification!r}, but overlaps predict 'token' verification only"
            )
    memo: Memo = {}

    def speed(alphas: Sequence[float]) -> float:
        rates: list[Acceptance] = [Constant(min(1.0, alpha)) for alpha in alphas]
        if largest_gamma is None:
            return 1 / predict(profile, edges, rates, memo=memo).seconds_per_token
        windows = tuple(dict.fromkeys(edge.window for edge in edges))
        found = best_gammas(profile, rates, windows=windows, largest=largest_gamma, memo=memo)
        return 1 / found.prediction.seconds_per_token

    return speed

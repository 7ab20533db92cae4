"""What a chain of device rounds should take, from pass times alone: nothing around the passes is counted."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from experiments.gpu_bench_cases import LARGEST, TARGET, WIDTHS, Case
from ssd.plan.acceptance import Constant
from ssd.plan.chain_recursion import Memo
from ssd.plan.edge_plan import EdgePlan, longest_block
from ssd.plan.pass_times import PassTimes, Profile
from ssd.plan.prediction import predict

_BLOCKS: Memo = {}  # laws of blocks, shared by all predictions


@dataclass(frozen=True)
class Predicted:
    """Expectations of a case at its draft lengths.

    Attributes:
        gammas: per edge; rounds on every edge but the lowest.
        round_seconds: of a target round.
        tau: tokens of a row per target round.
        speedup: over AR at the same batch.
        passes: (level, width) -> passes per target round.
    """

    gammas: tuple[int, ...]
    round_seconds: float
    tau: float
    speedup: float
    passes: dict[tuple[str, int], int]


def edges_of(gammas: Sequence[int]) -> tuple[EdgePlan, ...]:
    """Edges whose target rounds need no host: steps at the bottom, rounds above."""
    return tuple(EdgePlan(g, "rounds" if k else "at_least") for k, g in enumerate(gammas))


def static_passes(
    levels: Sequence[str], gammas: Sequence[int], widths: Sequence[int] = WIDTHS
) -> Counter[tuple[str, int]]:
    """(level, width) -> passes of one target round as ``ssd.runtime.device_rounds`` makes them."""
    edges = edges_of(gammas)

    def of_round(k: int, before: int) -> Iterator[tuple[str, int]]:
        if k:
            for i in range(gammas[k - 1]):
                yield from of_round(k - 1, k - 1 if i else before)
        fed = before - k + 1 + longest_block(edges[:k])
        yield levels[k], next((w for w in widths if w >= fed), fed)

    return Counter(of_round(len(gammas), len(gammas)))


@lru_cache(maxsize=4096)
def expected_tokens(alphas: tuple[float, ...], gammas: tuple[int, ...]) -> float:
    """Tokens of a row per target round, by the chain recursion of ``ssd.plan``."""
    flat = Profile(tuple(PassTimes.flat(f"L{k}", 1.0) for k in range(len(alphas) + 1)))  # times change no token
    return predict(flat, edges_of(gammas), [Constant(a) for a in alphas], memo=_BLOCKS).tau


def predicted(case: Case, gammas: Sequence[int], times: Mapping[str, PassTimes], batch: int) -> Predicted:
    """The expectation for one vector of draft lengths.

    Raises:
        ValueError: naming the level whose pass times are missing.
    """
    for name in (*case.levels, TARGET):
        if name not in times:
            raise ValueError(f"pass times: none of {name} in the records; run stage passes first")
    passes = static_passes(case.levels, gammas)
    seconds = sum(n * times[level].at(width, batch) for (level, width), n in passes.items())
    tau = expected_tokens(case.alphas, tuple(gammas))
    ar = times[TARGET].at(1, batch)
    return Predicted(tuple(gammas), seconds, tau, ar * tau / seconds, dict(passes))


def best(case: Case, times: Mapping[str, PassTimes], batch: int = 1) -> Predicted:
    """The draft lengths with the highest predicted speedup whose widest pass is among ``WIDTHS``."""
    lowest, above = LARGEST
    depth = len(case.alphas)
    tried = itertools.product(range(1, lowest + 1), *[range(1, above + 1)] * (depth - 1)) if depth else [()]
    fitting = [g for g in tried if longest_block(edges_of(g)) + 1 <= WIDTHS[-1]]
    return max((predicted(case, g, times, batch) for g in fitting), key=lambda p: p.speedup)

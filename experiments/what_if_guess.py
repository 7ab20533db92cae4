"""A first guess at the time of an overlapped round, in closed form: where the search by simulation begins.

It only has to find the right neighbourhood; no number of it is reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from experiments.what_if_case import ALWAYS, CURVES, Case, Choice, machine_of, profile_of
from ssd.plan.acceptance import Constant
from ssd.plan.edge_plan import EdgePlan
from ssd.plan.lookahead import Ahead, allocate, outcome_chances
from ssd.plan.prediction import predict

UNEVEN = 1.2  # rows drafted ahead end after different numbers of rounds, and the last one counts


class Serial(NamedTuple):
    """A chain with levels in turn: per level seconds of a pass and passes per round of the target, and its tau."""

    seconds: tuple[float, ...]
    passes: tuple[float, ...]
    tau: float
    lengths: tuple[float, ...]  # mean draft per edge


@lru_cache(maxsize=65536)
def serial(case: Case, gammas: tuple[int, ...]) -> Serial:
    """``case`` is the serial one: every schedule on any devices asks for the same."""
    p = predict(profile_of(case), [EdgePlan(g) for g in gammas], [Constant(a) for a in case.alphas], case.batch)
    passes = tuple(n * p.tau for n in p.passes_per_token)
    seconds = tuple(s * case.batch * p.tau / n for s, n in zip(p.seconds, passes, strict=True))
    emitted = (1.0, *(t or 1.0 for t in p.taus))  # tokens per pass of each level
    lengths = tuple(passes[k] / passes[k + 1] * emitted[k] for k in range(len(gammas)))
    return Serial(seconds, passes, p.tau, lengths)


@lru_cache(maxsize=65536)
def hit_chance(curve: str, budget: int, alpha: float, length: int) -> float:
    """Chance that the outcome of a draft of ``length`` tokens was prepared for with ``budget`` rows."""
    if curve == ALWAYS:
        return 1.0
    chances = outcome_chances([alpha] * length)
    guesses = allocate(Ahead(CURVES[curve], budget), chances, [True] * len(chances))
    ends = ["recovered"] * length + ["bonus"]
    return sum(p * CURVES[curve](g, end) for p, g, end in zip(chances, guesses, ends, strict=True))


def guessed_speedup(case: Case, alone: Case, choice: Choice) -> float:
    """Speedup over plain decoding, roughly.

    Args:
        alone: the serial case on one device with everything else the same.
    """
    s, levels, demand = serial(alone, choice.gammas), profile_of(case).levels, machine_of(case).demand
    top = len(choice.gammas)

    def widened(k: int, rows: int) -> float:
        width = 1 if k == 0 else choice.gammas[k - 1] + 1
        return s.seconds[k] * levels[k].at(width, rows * case.batch) / levels[k].at(width, case.batch)

    def block(k: int, rows: int) -> float:
        """Seconds of a draft of level k, ``rows`` of them side by side."""
        rounds = s.passes[k] / s.passes[k + 1] * (UNEVEN if rows > 1 and k else 1.0)
        return rounds * round_seconds(k, rows)

    def round_seconds(k: int, rows: int) -> float:
        own = widened(k, rows)
        if k == 0:
            return own
        budget, plain = choice.budgets[k - 1], block(k - 1, rows)
        if not budget:
            return own + plain
        ahead = block(k - 1, rows * budget) + widened(k - 1, rows)
        hit = hit_chance(case.curve, budget, case.alphas[k - 1], max(1, round(s.lengths[k - 1])))
        both = min(own, ahead)
        slowed = both * (max(1.0, demand[k] + demand[k - 1]) - 1) if case.devices == 1 else 0.0
        return hit * (max(own, ahead) + slowed) + (1 - hit) * (own + slowed + plain)

    return s.tau * levels[top].at(1, case.batch) / round_seconds(top, 1)


def best_guess(case: Case, alone: Case, choices: Sequence[Choice]) -> Choice:
    """The choice that is guessed to be fastest."""
    return max(choices, key=lambda choice: guessed_speedup(case, alone, choice))

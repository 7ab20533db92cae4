"""The best draft lengths and rows drafted ahead for a case: exact for serial, by simulation for pipelined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product

from experiments.what_if_case import Case, Choice, gain, serial_speedup
from experiments.what_if_guess import best_guess
from ssd.plan.chain_recursion import Memo

LOWEST = tuple(range(1, 9))  # draft lengths tried on the lowest edge of a chain
UPPER = (*range(1, 9), 10, 12, 14, 16, 20, 24)
BUDGETS = (1, 2, 4, 8, 16)  # rows drafted ahead of the target
LOW_BUDGETS = (0, 1, 2, 4)  # the same below it
SEARCH_SEED = 90_001  # apart from those that are reported, so that luck in the search is not
Place = tuple[int, ...]


def climb(
    score: Callable[[Place], float], ladders: Sequence[Sequence[int]], start: Place, margin: float = 0.0
) -> Place:
    """The values of a place that no step on one ladder betters by more than ``margin`` (relative).

    Args:
        score: of one value per ladder, larger is better; asked once per place.
        ladders: values in order.
        start: a value of each ladder.
    """
    known: dict[Place, float] = {}

    def of(indices: Place) -> float:
        if indices not in known:
            known[indices] = score(tuple(ladder[i] for ladder, i in zip(ladders, indices, strict=True)))
        return known[indices]

    here = tuple(ladder.index(value) for ladder, value in zip(ladders, start, strict=True))
    moved = True
    while moved:
        moved = False
        for axis, ladder in enumerate(ladders):
            for step in (1, -1):
                while 0 <= here[axis] + step < len(ladder):
                    there = (*here[:axis], here[axis] + step, *here[axis + 1 :])
                    if of(there) <= of(here) * (1 + margin):
                        break
                    here, moved = there, True
    return tuple(ladder[i] for ladder, i in zip(ladders, here, strict=True))


def gamma_ladders(edges: int) -> list[tuple[int, ...]]:
    """Draft lengths tried per edge; the lowest edge of a pair is its upper one too."""
    return [LOWEST if k == 0 < edges - 1 else UPPER for k in range(edges)]


def best_serial(case: Case, start: Sequence[int] | None = None) -> Choice:
    """The best draft lengths of the serial schedule, by the exact prediction."""
    edges, memo = len(case.alphas), Memo()
    first = tuple(start) if start is not None else (2, 5)[-edges:] if edges < 3 else (2,) * (edges - 1) + (5,)
    gammas = climb(lambda g: serial_speedup(case, g, memo), gamma_ladders(edges), first)
    return Choice(gammas, (0,) * edges)


def best_pipelined(case: Case, tokens: int, start: Choice | None = None) -> Choice:
    """A choice for the pipelined schedule that no single step betters noticeably, by simulation.

    It begins at a guess made in closed form, or at ``start`` if that does better. Where two levels share a worker the
    lower one cannot work ahead of the other, and its budget is 0.

    Args:
        tokens: simulated per try.
        start: another place to begin, from a case that is like this one.
    """
    edges = len(case.alphas)
    alone = replace(case, schedule="serial", curve="", devices=1)
    apart = case.devices == edges + 1
    budgets = [LOW_BUDGETS if apart else (0,) for _ in range(edges - 1)] + [BUDGETS]
    ladders = [*gamma_ladders(edges), *budgets]

    def score(place: Place) -> float:
        choice = Choice(place[:edges], place[edges:])
        exact = serial_speedup(case, choice.gammas)
        return exact * gain(case, choice, tokens, SEARCH_SEED)[0]

    places = [Choice(place[:edges], place[edges:]) for place in product(*ladders)]
    guess = best_guess(case, alone, places)
    first = (*guess.gammas, *guess.budgets)
    if start is not None:
        other = (*start.gammas, *(b if b in x else x[0] for b, x in zip(start.budgets, budgets, strict=True)))
        first = max((first, other), key=score)
    found = climb(score, ladders, first, margin=0.01)
    return Choice(found[:edges], found[edges:])

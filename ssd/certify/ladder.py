"""The ladder: which function climbs each rung, and the walk up that no failing rung ends."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ssd.certify.result import Check, Climb, Rung

Given = Mapping[str, Any]
Arguments = Mapping[int, Given | Callable[[], Given]]


class NotApplicableError(Exception):
    """A rung has nothing to check on this chain; the message says why."""


class InconclusiveError(NotApplicableError):
    """A rung looked and could not tell; the message says why. Never a pass."""


@dataclass(frozen=True)
class Place:
    """A rung before it is climbed.

    Attributes:
        title: what holds if it passes.
        function: ``module:function`` that returns its checks.
    """

    title: str
    function: str


@dataclass(frozen=True)
class Step:
    """A rung about to be climbed."""

    number: int
    title: str
    climb: Climb


RUNGS: dict[int, Place] = {
    0: Place("The books balance", "ssd.certify.bookkeeping:check_bookkeeping"),
    1: Place("The algorithm has the target's law, by enumeration", "ssd.certify.enumeration:check_enumeration"),
    2: Place("The decoder does what the algorithm says, token for token", "ssd.certify.twin_equality:check_twin"),
    3: Place("At temperature 0 this chain gives the target's text", "ssd.certify.identity:check_identity"),
    4: Place("At temperature above 0 this chain has the target's law", "ssd.certify.law:check_law"),
    5: Place("In 16 bit, outputs part at rounding ties only", "ssd.certify.forensics:check_forensics"),
    6: Place("Outputs are as good as the target's", "ssd.certify.quality:check_quality"),
}
INCONCLUSIVE = "inconclusive: "


def steps(numbers: Iterable[int], arguments: Arguments) -> list[Step]:
    """The rungs of the ladder that are asked for, from the bottom up.

    Args:
        numbers: keys of ``RUNGS``.
        arguments: what each rung's function is called with, by rung; absent for none. A function is asked when its
            rung is climbed, so that what it loads can fail that rung alone.

    Raises:
        ValueError: naming the number that is no rung.
    """
    chosen = sorted(set(numbers))
    for number in chosen:
        if number not in RUNGS:
            raise ValueError(f"rungs: {number!r} is not one of {', '.join(map(str, RUNGS))}")
    return [Step(n, RUNGS[n].title, _climb(RUNGS[n].function, arguments.get(n, {}))) for n in chosen]


def _climb(function: str, arguments: Given | Callable[[], Given]) -> Climb:
    """The call of a rung's function, which is imported when it is climbed."""

    def climb() -> Sequence[Check]:
        module, _, name = function.partition(":")
        found: Callable[..., Sequence[Check]] = getattr(importlib.import_module(module), name)
        return found(**(arguments() if callable(arguments) else arguments))

    return climb


def climb_all(
    ladder: Sequence[Step],
    after: Callable[[Rung], None] = lambda rung: None,
    before: Callable[[Step], None] = lambda step: None,
) -> list[Rung]:
    """Every rung, climbed in turn; one that raises is a rung that failed, and the next is climbed all the same.

    Args:
        ladder: what to climb.
        after: called with each rung as soon as it is known, so that nothing is lost if a later one ends the process.
        before: called with each step before it is climbed.
    """
    found = []
    for step in ladder:
        before(step)
        found.append(climb_one(step))
        after(found[-1])
    return found


def climb_one(step: Step) -> Rung:
    """A rung and how long it took; an exception is a failed check that names it."""
    began = time.perf_counter()
    checks: tuple[Check, ...] = ()
    skipped = None
    try:
        checks = tuple(step.climb())
        if not checks:
            skipped = f"{INCONCLUSIVE}the rung returned no check"
    except NotApplicableError as reason:
        skipped = f"{INCONCLUSIVE if isinstance(reason, InconclusiveError) else ''}{reason}"
    except Exception as error:
        detail = f"{type(error).__name__}: {' '.join(str(error).split()) or 'no message'}"
        checks = (Check("ran to its end", False, 0.0, 1, detail),)
    return Rung(step.number, step.title, checks, time.perf_counter() - began, skipped)

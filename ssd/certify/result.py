"""What a certificate consists of: checks, and the rungs of the ladder they belong to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """Outcome of one check.

    Attributes:
        name: what was checked, short and unique within its rung.
        passed: the verdict.
        false_alarm: probability that a correct decoder fails it; 0 where nothing is left to chance.
        n: how many cases, tokens or sequences it looked at; a check over nothing is refused.
        detail: one sentence with the figures behind the verdict.
        value: the deciding figure, if it is one number: a p-value, a distance, a count.
    """

    name: str
    passed: bool
    false_alarm: float
    n: int
    detail: str
    value: float | None = None

    def __post_init__(self) -> None:
        if self.n < 1:
            raise ValueError(f"check {self.name!r}: it looked at {self.n} cases, so it says nothing")
        if not 0 <= self.false_alarm < 1:
            raise ValueError(f"check {self.name!r}: false_alarm {self.false_alarm!r} is outside [0, 1)")


@dataclass(frozen=True)
class Rung:
    """One rung of the ladder, climbed.

    Attributes:
        number: place on the ladder.
        title: what holds if it passes.
        checks: at least one, unless ``skipped``.
        seconds: wall time it took.
        skipped: why nothing could be checked, such as no 16-bit level in the chain; a skipped rung
            is shown as skipped, never as passed.
    """

    number: int
    title: str
    checks: tuple[Check, ...]
    seconds: float
    skipped: str | None = None

    def __post_init__(self) -> None:
        if bool(self.checks) == (self.skipped is not None):
            raise ValueError(f"rung {self.number}: either checks or a reason to skip it, got {self.checks!r}")

    @property
    def passed(self) -> bool:
        """Whether every check passed; False when skipped."""
        return bool(self.checks) and all(check.passed for check in self.checks)

    @property
    def false_alarm(self) -> float:
        """Bound on the probability that a correct decoder fails the rung: the sum over its checks."""
        return min(1.0, sum(check.false_alarm for check in self.checks))


Climb = Callable[[], Sequence[Check]]

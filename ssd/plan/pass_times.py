"""What a pass of each level takes: the measured input of every prediction."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ssd.plan.chain_recursion import Array

Seconds = Mapping[tuple[int, int], float] | Callable[[int, int], float]
RARE = 1e-9  # a width this share of the passes or less needs no measured time


@dataclass(frozen=True)
class PassTimes:
    """Seconds of one pass of a level over ``width`` tokens in each of ``batch`` rows.

    Attributes:
        name: of the level.
        seconds: (width, batch) -> seconds, measured or computed. Between measured widths and between measured
            batch sizes it is interpolated linearly.
        overhead: seconds around each pass outside the model (sampling, verification, launches).
        bytes: of its weights; ``None`` if unknown.
        device: where it runs; levels of one device can never overlap.
        look_up: an n-gram level: it makes no passes, and ``seconds`` counts once per proposal (width 1).
        coverage: chance that a look-up finds anything; 1 for a model.
        extrapolate: continue the line through the two widest measured points beyond them.
    """

    name: str
    seconds: Seconds
    overhead: float = 0.0
    bytes: int | None = None
    device: str = "0"
    look_up: bool = False
    coverage: float = 1.0
    extrapolate: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.overhead < math.inf:
            raise ValueError(f"level {self.name}: overhead {self.overhead!r} is not a number of seconds >= 0")
        if not self.look_up and self.coverage != 1.0:
            raise ValueError(f"level {self.name}: coverage {self.coverage!r}, but only a look-up can find nothing")
        if not 0 <= self.coverage <= 1:
            raise ValueError(f"level {self.name}: coverage {self.coverage!r} is outside [0, 1]")
        if callable(self.seconds):
            return
        if not self.seconds:
            raise ValueError(f"level {self.name}: no pass was measured")
        for key, value in self.seconds.items():
            if min(key) < 1 or not 0 <= value < math.inf:
                raise ValueError(f"level {self.name}: seconds[{key}] = {value!r}; widths, batches >= 1, seconds >= 0")

    @staticmethod
    def flat(name: str, seconds: float, overhead: float = 0.0, device: str = "0") -> PassTimes:
        """A level whose pass takes the same time at any width and batch."""
        return PassTimes(name, lambda width, batch: seconds, overhead, device=device)

    @staticmethod
    def of_widths(name: str, seconds: Mapping[int, float], batch: int = 1, overhead: float = 0.0) -> PassTimes:
        """A level measured at several widths of one batch size."""
        return PassTimes(name, {(width, batch): s for width, s in seconds.items()}, overhead)

    def scaled(self, factor: float) -> PassTimes:
        """The same level with every pass and its overhead ``factor`` times as long."""
        seconds: Seconds
        if callable(self.seconds):
            measured = self.seconds
            seconds = lambda width, batch: factor * measured(width, batch)  # noqa: E731
        else:
            seconds = {key: factor * value for key, value in self.seconds.items()}
        return replace(self, seconds=seconds, overhead=factor * self.overhead)

    def at(self, width: int, batch: int = 1) -> float:
        """Seconds of one pass, overhead included.

        Raises:
            ValueError: if that batch size was not measured, or the width lies outside what was.
        """
        if callable(self.seconds):
            return self.seconds(width, batch) + self.overhead
        known = sorted(w for w, b in self.seconds if b == batch)
        if not known:
            less, more = self._batches_around(batch)
            share = (batch - less) / (more - less)
            return (1 - share) * self.at(width, less) + share * self.at(width, more)
        if width < known[0] or (width > known[-1] and not (self.extrapolate and len(known) > 1)):
            raise ValueError(f"level {self.name}: width {width} is outside the measured {known[0]}..{known[-1]}")
        if width > known[-1]:
            (low, high), beyond = known[-2:], width - known[-1]
            slope = (self.seconds[high, batch] - self.seconds[low, batch]) / (high - low)
            return self.seconds[high, batch] + slope * beyond + self.overhead
        return float(np.interp(width, known, [self.seconds[w, batch] for w in known])) + self.overhead

    @property
    def largest_batch(self) -> float:
        """Most rows whose passes were measured; infinite where seconds are computed."""
        return math.inf if callable(self.seconds) else max(b for _, b in self.seconds)

    def _batches_around(self, batch: int) -> tuple[int, int]:
        assert not callable(self.seconds)
        less = [b for _, b in self.seconds if b < batch]
        more = [b for _, b in self.seconds if b > batch]
        if not less or not more:
            raise ValueError(f"level {self.name}: no pass was measured for batch {batch}")
        return max(less), min(more)

    def total(self, passes: Array, batch: int = 1) -> float:
        """Seconds of ``passes`` [X], expected numbers of passes by width."""
        least = RARE * passes.sum()
        return sum(float(n) * self.at(width, batch) for width, n in enumerate(passes) if n > least)


@dataclass(frozen=True)
class Profile:
    """The levels of a chain from the smallest draft to the target, with their pass times."""

    levels: tuple[PassTimes, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", tuple(self.levels))
        if not self.levels:
            raise ValueError("profile.levels: at least the target is needed")
        names = self.names
        if len(set(names)) < len(names):
            raise ValueError(f"profile.levels: names must differ, got {', '.join(names)}")
        for k, level in enumerate(self.levels):
            if level.look_up and (k > 0 or len(self.levels) == 1):
                raise ValueError(f"profile.levels[{k}] ({level.name}): a look-up can only draft, at level 0")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the levels."""
        return tuple(level.name for level in self.levels)

    def select(self, names: Sequence[str]) -> Profile:
        """The sub-chain of these levels, in the order of this profile.

        Raises:
            ValueError: for a name that is not here.
        """
        for name in names:
            if name not in self.names:
                raise ValueError(f"profile: no level is called {name!r}; there are {', '.join(self.names)}")
        return Profile(tuple(level for level in self.levels if level.name in names))

    def with_scaled(self, name: str, factor: float) -> Profile:
        """This profile with one level's passes ``factor`` times as long."""
        self.select([name, self.names[-1]])
        return Profile(tuple(x.scaled(factor) if x.name == name else x for x in self.levels))

    def ar_seconds(self, batch: int = 1) -> float:
        """Seconds per token of plain decoding with the target: one pass of width 1 adds ``batch`` tokens."""
        return self.levels[-1].at(1, batch) / batch

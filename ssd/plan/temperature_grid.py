"""Acceptance of pairs of levels at several temperatures of both, as it stands in a profile file.

The section ``temperature_grid`` of the file, which a row at temperature 0 does not have:

    {"row": 1.0, "levels": {"n-gram": [null], "L0": [1.0, 0.8, 0.9, ...], ..., "L2": [1.0]},
     "acceptance": {"L0→L2": [{"draft": 0.8, "verifier": 1.0, "passed": [31.2, ...], "counted": [48, ...]}, ...], ...}}

The first temperature of a level is its own, which is the row's unless the chain says otherwise; a look-up has none.
``passed`` and ``counted`` have an entry per tuning text: the sum over its positions of the chance that a draft token
passes, and the positions; of a look-up, over the first tokens of its proposals.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import Any, NamedTuple

import numpy as np

from ssd.plan.chain_recursion import Array

Vector = tuple[float | None, ...]  # of a chain's levels, from the lowest up; None for a look-up
Pair = tuple[str, str]


class Chosen(NamedTuple):
    """The temperatures a chain is planned with.

    Attributes:
        vector: of its levels.
        gain: predicted speed divided by that at the levels' own temperatures; 1 where these were kept.
        tried: the fastest vector that differs from the own ones, or ``None`` if there is no choice.
        tried_gain, low, high: its predicted gain with the interval over texts; no interval for a single text.
    """

    vector: Vector
    gain: float = 1.0
    tried: Vector | None = None
    tried_gain: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class TemperatureGrid:
    """What was measured.

    Attributes:
        row: temperature of the row.
        levels: temperatures of each level, its own first.
        rates: by pair and (draft's, verifier's temperature): [texts, 2] passed and counted.
    """

    row: float
    levels: Mapping[str, Vector]
    rates: Mapping[Pair, Mapping[tuple[float | None, float | None], Array]]

    def knows(self, names: Sequence[str]) -> bool:
        """Whether every edge of the chain ``names`` was measured."""
        return all(pair in self.rates for pair in pairwise(names))

    def own(self, names: Sequence[str]) -> Vector:
        """The levels' own temperatures."""
        return tuple(self.levels[name][0] for name in names)

    def vectors(self, names: Sequence[str]) -> Iterator[Vector]:
        """Every combination of the levels' temperatures, the own ones first."""
        return product(*(self.levels[name] for name in names))

    def rows(self, pair: Pair, vector: Sequence[float | None]) -> Array:
        """[texts, 2] of ``pair`` at the draft's and the verifier's temperature."""
        return self.rates[pair][vector[0], vector[1]]

    def alpha(self, pair: Pair, vector: Sequence[float | None]) -> float:
        """Passed divided by counted over all texts."""
        passed, counted = self.rows(pair, vector).sum(0)
        return float(passed / counted)

    def shift(self, pair: Pair, vector: Sequence[float | None]) -> float:
        """What these two temperatures add to the pair's mean acceptance at its own ones."""
        return self.alpha(pair, vector) - self.alpha(pair, self.own(pair))

    def without(self, pair: Pair) -> TemperatureGrid:
        """The same without a pair, whose chains then have no choice of temperatures."""
        return replace(self, rates={own: rates for own, rates in self.rates.items() if own != pair})

    def as_dict(self) -> dict[str, Any]:
        """The section of the file."""
        found = {
            f"{a}→{b}": [
                {"draft": s, "verifier": t, "passed": rows[:, 0].tolist(), "counted": rows[:, 1].tolist()}
                for (s, t), rows in rates.items()
            ]
            for (a, b), rates in self.rates.items()
        }
        return {"row": self.row, "levels": {n: list(own) for n, own in self.levels.items()}, "acceptance": found}


def read_grid(data: Mapping[str, Any], names: Sequence[str]) -> TemperatureGrid:
    """What the section says of the levels ``names``.

    Raises:
        ValueError: naming the level or pair, for one that is unknown, incomplete, or of no probabilities.
    """
    levels = {str(name): tuple(own) for name, own in data["levels"].items()}
    if list(levels) != list(names) or not all(levels.values()):
        raise ValueError(
            f"temperature_grid.levels: expected temperatures of {', '.join(names)}, got {data['levels']!r}"
        )
    rates: dict[Pair, dict[tuple[float | None, float | None], Array]] = {}
    for name, cells in data["acceptance"].items():
        draft, _, verifier = name.partition("→")
        if draft not in levels or verifier not in levels:
            raise ValueError(f"temperature_grid.acceptance.{name}: no pair of {', '.join(names)}")
        found = {(x["draft"], x["verifier"]): np.array([x["passed"], x["counted"]], dtype=float).T for x in cells}
        for key in product(levels[draft], levels[verifier]):
            if key not in found:
                raise ValueError(f"temperature_grid.acceptance.{name}: nothing at {key[0]!r} and {key[1]!r}")
            passed, counted = found[key].sum(0)
            if (found[key] < 0).any() or counted <= 0 or passed > counted * (1 + 1e-6):
                raise ValueError(f"temperature_grid.acceptance.{name}: {passed:g} of {counted:g} passed at {key!r}")
        rates[draft, verifier] = found
    return TemperatureGrid(float(data["row"]), levels, rates)

"""How wrong an input may be before the order of two plans changes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

from ssd.plan.bisection import nearest_crossing
from ssd.plan.candidates import LARGEST_GAMMA, Plan, best_gammas
from ssd.plan.pass_times import Profile
from ssd.plan.prediction import predict

GRID = 24  # intervals searched for the nearest change of sign
COARSE_GRID = 6  # the same where draft lengths are chosen anew at every point
LARGEST_FACTOR = 8.0  # latencies are varied between 1/8 and 8 times


@dataclass(frozen=True)
class Comparison:
    """What a comparison of plans takes as given.

    Attributes:
        profile: all levels.
        batch: rows decoded together.
        reoptimise: choose draft lengths anew for every changed input (slower), instead of keeping a plan's own;
            windows stay.
        largest: longest draft tried then.
        shifts: by pair, what is added to every acceptance rate that a plan has for it.
    """

    profile: Profile
    batch: int = 1
    reoptimise: bool = False
    largest: int = LARGEST_GAMMA
    shifts: Mapping[tuple[str, str], float] = field(default_factory=dict)

    def seconds(self, plan: Plan) -> float:
        """Seconds per token of a plan in this comparison, under the serial schedule."""
        profile = self.profile.select(plan.names)
        pairs = zip(pairwise(plan.names), plan.acceptance, strict=True)
        acceptance = [model.shifted(self.shifts[pair]) if pair in self.shifts else model for pair, model in pairs]
        if self.reoptimise:
            windows = (plan.edges[-1].window,) if plan.edges else ("at_least",)
            return best_gammas(profile, acceptance, self.batch, windows, self.largest).prediction.seconds_per_token
        return predict(profile, plan.edges, acceptance, self.batch).seconds_per_token

    def with_alpha(self, pair: tuple[str, str], delta: float) -> Comparison:
        """This comparison with ``delta`` added to every acceptance rate of one pair."""
        return replace(self, shifts={**self.shifts, pair: self.shifts.get(pair, 0.0) + delta})

    def with_latency(self, level: str, factor: float) -> Comparison:
        """This comparison with one level's passes ``factor`` times as long."""
        return replace(self, profile=self.profile.with_scaled(level, factor))


def flip_by_alpha(comparison: Comparison, first: Plan, second: Plan, pair: tuple[str, str]) -> float | None:
    """Smallest change of one pair's acceptance rates at which the two plans change places.

    Rates are clipped to [0, 1]. None if no change between -1 and 1 does it (for instance because neither plan uses
    the pair). Found by bisection after a search over ``GRID`` intervals on either side (``COARSE_GRID`` where draft
    lengths are chosen anew).
    """

    def gap(delta: float) -> float:
        changed = comparison.with_alpha(pair, delta)
        return changed.seconds(first) - changed.seconds(second)

    if pair not in {
        *zip(first.names, first.names[1:], strict=False),
        *zip(second.names, second.names[1:], strict=False),
    }:
        return None
    return nearest_crossing(
        gap, 1.0, COARSE_GRID if comparison.reoptimise else GRID, 2e-3 if comparison.reoptimise else 1e-4
    )


def flip_by_latency(comparison: Comparison, first: Plan, second: Plan, level: str) -> float | None:
    """Factor on one level's pass times nearest to 1 (in ratio) at which the two plans change places.

    None if no factor between 1/8 and 8 does it.
    """

    def gap(log_factor: float) -> float:
        changed = comparison.with_latency(level, math.exp(log_factor))
        return changed.seconds(first) - changed.seconds(second)

    if level not in first.names and level not in second.names:
        return None
    found = nearest_crossing(gap, math.log(LARGEST_FACTOR), GRID)
    return None if found is None else math.exp(found)

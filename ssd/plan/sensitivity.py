"""How wrong an input may be before the order of two plans changes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ssd.plan.acceptance import Acceptance
from ssd.plan.bisection import nearest_crossing
from ssd.plan.candidates import LARGEST_GAMMA, Pairwise, Plan, best_gammas, edge_acceptance
from ssd.plan.pass_times import Profile
from ssd.plan.prediction import predict

GRID = 24  # intervals searched for the nearest change of sign
LARGEST_FACTOR = 8.0  # latencies are varied between 1/8 and 8 times


@dataclass(frozen=True)
class Comparison:
    """What a comparison of plans takes as given.

    Attributes:
        profile: all levels.
        pairwise: acceptance of every pair that is needed.
        batch: rows decoded together.
        reoptimise: choose draft lengths anew for every changed input (slower), instead of keeping a plan's own.
        windows, largest: what is searched then.
    """

    profile: Profile
    pairwise: Pairwise
    batch: int = 1
    reoptimise: bool = False
    windows: tuple[str, ...] = ("at_least",)
    largest: int = LARGEST_GAMMA

    def seconds(self, plan: Plan) -> float:
        """Seconds per token of a plan in this comparison."""
        profile, acceptance = self.profile.select(plan.names), edge_acceptance(plan.names, self.pairwise)
        if self.reoptimise:
            plan = best_gammas(profile, acceptance, self.batch, self.windows, self.largest)
            return plan.prediction.seconds_per_token
        return predict(profile, plan.edges, acceptance, self.batch).seconds_per_token

    def with_alpha(self, pair: tuple[str, str], delta: float) -> Comparison:
        """This comparison with ``delta`` added to every acceptance rate of one pair."""
        if pair not in self.pairwise:
            raise ValueError(f"acceptance: nothing is known about {pair[0]} drafting for {pair[1]}")
        changed: dict[tuple[str, str], Acceptance] = dict(self.pairwise)
        changed[pair] = changed[pair].shifted(delta)
        return replace(self, pairwise=changed)

    def with_latency(self, level: str, factor: float) -> Comparison:
        """This comparison with one level's passes ``factor`` times as long."""
        return replace(self, profile=self.profile.with_scaled(level, factor))


def flip_by_alpha(comparison: Comparison, first: Plan, second: Plan, pair: tuple[str, str]) -> float | None:
    """Smallest change of one pair's acceptance rates at which the two plans change places.

    Rates are clipped to [0, 1]. None if no change between -1 and 1 does it (for instance because neither plan uses
    the pair). Found by bisection after a search over ``GRID`` intervals on either side.
    """

    def gap(delta: float) -> float:
        changed = comparison.with_alpha(pair, delta)
        return changed.seconds(first) - changed.seconds(second)

    if pair not in {
        *zip(first.names, first.names[1:], strict=False),
        *zip(second.names, second.names[1:], strict=False),
    }:
        return None
    return nearest_crossing(gap, 1.0, GRID)


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

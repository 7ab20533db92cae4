"""What a validation expects of one configuration before it is measured."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from experiments.plan_groups import Group
from ssd.plan.batch_rounds import emitted_by_text, slowest_row
from ssd.plan.edge_plan import EdgePlan
from ssd.plan.inputs import PlanInputs
from ssd.plan.pass_times import Profile
from ssd.plan.prediction import predict
from ssd.plan.residual import Features


@dataclass(frozen=True)
class Expected:
    """One configuration.

    Attributes:
        features: what it does per token for outputs of the measured length, without overheads.
        slowest_row: factor, in ``features``, by which the batch lasts longer than a row of it.
        planner: seconds per token of the batch by the model that plans: overheads as profiled, outputs without end.
    """

    features: Features
    slowest_row: float
    planner: float


def expect(inputs: PlanInputs, names: Sequence[str], edges: Sequence[EdgePlan], group: Group, tokens: int) -> Expected:
    """What is expected of the chain ``names`` with ``edges`` for outputs of ``tokens`` tokens each."""
    own, pairs = inputs.profile.select(names), list(itertools.pairwise(names))
    bare = Profile(tuple(replace(level, overhead=0.0) for level in own.levels))
    acceptance, lowest = [inputs.pairwise[pair] for pair in pairs], own.levels[0]
    found = predict(bare, edges, acceptance, group.batch, new_tokens=tokens if group.batch == 1 else None)
    factor = 1.0
    if group.batch > 1:
        shifts = [inputs.shifts.get(pair, ()) for pair in pairs]
        factor = slowest_row(emitted_by_text(edges, acceptance, lowest.coverage, shifts), tokens, group.batch)
    features = Features.of(found, group.batch, lowest.look_up, group.temperature > 0).longer(factor)
    return Expected(features, factor, predict(own, edges, acceptance, group.batch).seconds_per_token)

"""Every sub-chain's temperatures, chosen together with its draft lengths and window. No torch.

A pair's acceptance at other temperatures is its acceptance by place at its own ones, every rate moved by what the
temperatures change in the mean over the tuning texts' positions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from ssd.bench.statistics import Array, Estimate, paired_bootstrap
from ssd.calibrate.choice import EXHAUSTIVE, RESAMPLES, exceeds
from ssd.plan.acceptance import Acceptance
from ssd.plan.candidates import Plan, best_gammas, sub_chains
from ssd.plan.chain_recursion import Memo
from ssd.plan.inputs import PlanInputs
from ssd.plan.planner import Search
from ssd.plan.prediction import predict
from ssd.plan.temperature_grid import Chosen, TemperatureGrid, Vector


def choose_temperatures(inputs: PlanInputs, search: Search) -> dict[tuple[str, ...], Chosen]:
    """By sub-chain the temperatures with fewest predicted seconds per token; chains without a choice are left out.

    Each vector is taken at its own best draft lengths and window. The levels keep their own temperatures unless the
    interval over texts of the predicted speed, divided by that at the own temperatures, lies above 1; the draft
    lengths of both stay then as they are. Where there is no interval, as for a single text or where a look-up proposed
    nothing in some, the own temperatures stay.

    Up to two draft levels every vector is tried. Deeper chains choose temperatures and draft lengths in turns, from
    the own temperatures on, until neither change is faster.
    """
    grid = inputs.grid
    if grid is None:
        return {}
    known = [names for names in sub_chains(inputs.profile.names) if grid.knows(names)]
    chains = [_Chain(inputs, grid, search, names) for names in known]
    return {chain.names: _choose(chain) for chain in chains if any(chain.others())}


class _Chain:
    """One sub-chain at any temperatures."""

    def __init__(self, inputs: PlanInputs, grid: TemperatureGrid, search: Search, names: tuple[str, ...]) -> None:
        self.inputs, self.grid, self.search, self.names = inputs, grid, search, names
        self.pairs = list(pairwise(names))
        self.profile, self.own = inputs.profile.select(names), grid.own(names)
        self.memo: Memo = {}

    def others(self) -> Iterator[Vector]:
        """Every vector but the own one."""
        return (vector for vector in self.grid.vectors(self.names) if vector != self.own)

    def best(self, vector: Vector) -> Plan:
        """The plan with the best draft lengths and window at these temperatures."""
        acceptance = self.inputs.acceptance(self.names, vector)
        return best_gammas(
            self.profile, acceptance, self.search.batch, self.search.windows_of(self.names), self.search.largest,
            self.memo,
        )  # fmt: skip

    def seconds(self, plan: Plan, acceptance: Sequence[Acceptance]) -> float:
        """Seconds per token with the draft lengths and windows of ``plan``."""
        return predict(self.profile, plan.edges, acceptance, self.search.batch).seconds_per_token

    def gain(self, ours: tuple[Vector, Plan], theirs: tuple[Vector, Plan]) -> Estimate:
        """Predicted speed of ours divided by that of theirs, the same texts drawn for both."""
        edges = [
            (pair, own) for vector, _ in (ours, theirs) for pair, own in zip(self.pairs, pairwise(vector), strict=True)
        ]
        rows = np.concatenate([self.grid.rows(pair, own) for pair, own in edges], axis=1)
        at_own = [self.grid.alpha(pair, self.grid.own(pair)) for pair in self.pairs]

        def seconds(plan: Plan, totals: Array) -> float:
            rates = totals.reshape(-1, 2)
            moved = [float(passed / counted) - own for (passed, counted), own in zip(rates, at_own, strict=True)]
            models = [self.inputs.pairwise[pair].shifted(x) for pair, x in zip(self.pairs, moved, strict=True)]
            return self.seconds(plan, models)

        def ratio(totals: Array) -> Array:
            flat, half = totals.reshape(-1, rows.shape[1]), rows.shape[1] // 2
            found = np.full(len(flat), np.nan)
            for i in np.flatnonzero((flat[:, 1::2] > 0).all(axis=1)):  # in others the look-up proposed nothing
                found[i] = seconds(theirs[1], flat[i, half:]) / seconds(ours[1], flat[i, :half])
            return found.reshape(totals.shape[:-1])

        return paired_bootstrap(ratio, rows, n=RESAMPLES)


def _choose(chain: _Chain) -> Chosen:
    start = chain.best(chain.own)
    vector, plan = _every(chain) if len(chain.names) - 1 <= EXHAUSTIVE else _in_turns(chain, start)
    if plan is None or plan.prediction.seconds_per_token >= start.prediction.seconds_per_token:
        return Chosen(chain.own)
    gain = chain.gain((vector, plan), (chain.own, start))
    kept = exceeds(gain, 1.0)
    value = start.prediction.seconds_per_token / plan.prediction.seconds_per_token
    return Chosen(vector if kept else chain.own, value if kept else 1.0, vector, value, gain.low, gain.high)


def _every(chain: _Chain) -> tuple[Vector, Plan | None]:
    """The fastest vector other than the own one, of equals the first."""
    tried = ((vector, chain.best(vector)) for vector in chain.others())
    return min(tried, key=lambda found: found[1].prediction.seconds_per_token)


def _in_turns(chain: _Chain, start: Plan) -> tuple[Vector, Plan | None]:
    """Temperatures at fixed draft lengths, then draft lengths at fixed temperatures, until nothing is faster."""
    best, plan = chain.own, start
    while True:
        edges = plan
        vector = min(
            (best, *chain.grid.vectors(chain.names)),
            key=lambda v: chain.seconds(edges, chain.inputs.acceptance(chain.names, v)),
        )
        found = chain.best(vector)
        if vector == best or found.prediction.seconds_per_token >= plan.prediction.seconds_per_token:
            return best, plan if best != chain.own else None
        best, plan = vector, found

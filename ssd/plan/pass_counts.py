"""Expected passes of every level per target round, by width, for one row and for a batch of rows.

For one row this is the chain recursion with the long-run law of how far each level lags at the start of a
target round. In a batch a round lasts as long as its slowest row: finished rows ride along, so the
number of inner rounds of a block is the maximum over rows, and a pass is as wide as its widest row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb

import numpy as np

from ssd.plan.acceptance import Constant
from ssd.plan.chain_recursion import RECOVERED, Array, ChainRecursion, RoundLaw
from ssd.plan.edge_plan import EdgePlan, continues

LONGEST_LAG = 512  # target rounds without a pass of a level are followed until it lacks this many tokens
Limits = Mapping[int | None, float]  # how many tokens a row's block may hold -> probability


@dataclass(frozen=True)
class LevelWork:
    """One level's expected work per target round, per row of a batch of one.

    Attributes:
        opening: [X] passes that open a block, by width.
        inner: [X] its other passes, by width.
        tokens, drafted, tested, accepted: emitted by the level, and of the drafts it verified.
    """

    opening: Array
    inner: Array
    tokens: float
    drafted: float
    tested: float
    accepted: float

    @property
    def widths(self) -> Array:
        """[X] all passes by width."""
        return self.opening + self.inner


def level_work(chain: ChainRecursion, level: int) -> LevelWork:
    """Long-run work of a level per target round, rows alone.

    The lag at the start of a target round is a Markov chain: a round in which the level ran sets it afresh, any
    other adds what was emitted. Its stationary law turns the recursion's relative widths into widths. Source: derived
    here from ``ssd.plan.chain_recursion``.
    """
    law = chain.target_round(level)
    lag = stationary_lag(law)
    relative = law.work.first
    opening = np.convolve(relative, lag) if lag.size else np.zeros_like(relative)
    size = max(len(opening), len(law.work.again))
    opening, reopen, again = (_padded(x, size) for x in (opening, law.work.reopen, law.work.again))
    return LevelWork(opening + reopen, again, *(float(x) for x in law.work.counts))


def budget_work(chain: ChainRecursion, level: int, new_tokens: int) -> LevelWork:
    """Work of a level for outputs of exactly ``new_tokens`` tokens, per target round, the first round left out.

    The output is a block of the target under the window ``exactly``: towards its end drafts are cut to what is still
    needed. The round that holds the prompt is taken off, as the decode clock does (docs/metrics.md).
    """
    if isinstance(new_tokens, bool) or not isinstance(new_tokens, int) or new_tokens < 2:
        raise ValueError(f"new_tokens: expected an integer >= 2, got {new_tokens!r}")
    edges = (*chain.edges, EdgePlan(new_tokens, "exactly"))
    whole = ChainRecursion(edges, (*chain.acceptance, Constant(1.0)), chain.coverage, chain.memo)

    def decoding(tracked: int) -> list[Array]:
        """Opening passes, inner passes and counts after the first round."""
        total, prompt = whole.block(chain.top, None, tracked).work, whole.round(chain.top, new_tokens, tracked).work
        parts = zip(
            (total.first, total.reopen, total.again, total.counts),
            (prompt.first, prompt.reopen, prompt.again, prompt.counts),
            strict=True,
        )
        first, reopen, again, counts = (a - _padded(b, len(a)) for a, b in parts)
        # A level that ran in the first round opened its first block there; what is left of ``first`` cancels.
        return [reopen + first, again, counts]

    opening, again, counts = decoding(level)
    own = decoding(chain.top)
    rounds = float((own[0] + own[1]).sum())
    if rounds <= 0:
        raise ValueError(f"new_tokens: {new_tokens} tokens are always there after the first round")
    return LevelWork(opening / rounds, again / rounds, *(float(x) / rounds for x in counts))


def stationary_lag(law: RoundLaw) -> Array:
    """Law of the tokens a level lacks when a target round starts; empty if it never runs.

    Source: derived here; fixed point of lag = ran + idle * lag, * the convolution of laws.
    """
    ran = law.outcome.sum(axis=(0, 1))
    ran[0] = 0.0
    idle = law.outcome[:, :, 0].sum(axis=0)  # by tokens emitted
    if ran.sum() <= 1e-12:
        return np.zeros(0)
    if not idle.any():
        return np.trim_zeros(ran, "b")
    lag = np.zeros(LONGEST_LAG + 1)
    lag[: len(ran)] = ran
    for s in range(1, LONGEST_LAG + 1):  # idle rounds only look back, so one sweep solves it
        for e in np.flatnonzero(idle):
            if e < s:
                lag[s] += idle[e] * lag[s - e]
    lag /= lag.sum()
    return np.trim_zeros(lag, "b")


def batch_passes(chain: ChainRecursion, batch: int, alone: Sequence[LevelWork] | None = None) -> list[Array]:
    """Expected passes of each level by width [X], per target round of ``batch`` independent rows.

    Exact for a batch of one, and for the number of passes of any batch. With more rows the width of a pass that
    opens a block is approximate: each active row's is drawn from the law it has alone, while a finished
    row in fact catches up with what it lacks as it rides along. Source: derived here, the rounds of a block being
    the most of independent rows.

    Args:
        chain: the laws.
        batch: rows.
        alone: ``level_work`` of every level, if already there.
    """
    if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
        raise ValueError(f"batch: expected an integer >= 1, got {batch!r}")
    if alone is None:
        alone = [level_work(chain, level) for level in range(chain.top + 1)]
    if batch == 1:
        return [work.widths for work in alone]
    counter = _BatchCounter(chain, [_normalised(work.opening) for work in alone])
    return [
        np.trim_zeros(counter.round(chain.top, level, {None: 1.0}, batch, True), "b") for level in range(chain.top + 1)
    ]


class _BatchCounter:
    """Passes of a level within rounds and blocks in which some rows of the batch take part."""

    def __init__(self, chain: ChainRecursion, opening: list[Array]) -> None:
        self.chain, self.opening = chain, opening
        self.size = (
            max(len(x) for x in opening) + 1 + sum(len(chain.target_round(k).work.first) for k in range(chain.top + 1))
        )
        self._memo: dict[tuple[int, int, int], Array] = {}

    def round(self, k: int, level: int, rooms: Limits, active: int, opens: bool) -> Array:
        """Passes [X] of ``level`` in a round of level ``k`` by ``active`` rows of independent ``rooms``."""
        if level == k:
            return self._pass(k, rooms, active, opens)
        if k == 0:
            return np.zeros(self.size)
        limits: dict[int | None, float] = {}
        for room, p in rooms.items():
            limit = None if room is None else room - 1
            limits[limit] = limits.get(limit, 0.0) + p
        return self.block(k - 1, level, limits, active)

    def block(self, k: int, level: int, limits: Limits, rows: int) -> Array:
        """Passes [X] of ``level`` in blocks of level ``k`` that ``rows`` rows start together."""
        simple = set(limits) == {None}
        key = (k, level, rows)
        if simple and key in self._memo:
            return self._memo[key]
        total, opens = np.zeros(self.size), True
        for share, rooms in self._stages(k, limits):
            for active in range(1, rows + 1):
                chance = comb(rows, active) * share**active * (1 - share) ** (rows - active)
                if chance > 1e-12:
                    total += chance * self.round(k, level, rooms, active, opens)
            opens = False
        if simple:
            self._memo[key] = total
        return total

    def _stages(self, k: int, limits: Limits) -> list[tuple[float, Limits]]:
        """Per round of a block of level ``k``: chance that a row takes part, and its room if it does."""
        edge = self.chain.edges[k]
        state: dict[tuple[int | None, int], float] = {}
        for limit, p in limits.items():
            if edge.window == "exactly":
                limit = edge.gamma if limit is None else min(limit, edge.gamma)
            if limit != 0:
                present = self.chain.coverage if k == 0 else 1.0
                state[limit, 0] = state.get((limit, 0), 0.0) + p * present
        stages: list[tuple[float, Limits]] = []
        while state and (share := sum(state.values())) > 1e-12:
            rooms: dict[int | None, float] = {}
            for (limit, n), p in state.items():
                room = None if limit is None else limit - n
                rooms[room] = rooms.get(room, 0.0) + p / share
            stages.append((min(1.0, share), rooms))
            state = self._after(k, edge, state, len(stages))
        return stages

    def _after(
        self, k: int, edge: EdgePlan, state: Mapping[tuple[int | None, int], float], rounds: int
    ) -> dict[tuple[int | None, int], float]:
        """Rows that go on after one more round, by (limit, tokens)."""
        out: dict[tuple[int | None, int], float] = {}
        for (limit, n), p in state.items():
            outcome = self.chain.round(k, None if limit is None else limit - n, k).outcome.sum(axis=2)
            for end, e in zip(*np.nonzero(outcome), strict=True):
                if continues(edge, limit, n + int(e), end == RECOVERED, rounds):
                    out[limit, n + int(e)] = out.get((limit, n + int(e)), 0.0) + p * float(outcome[end, e])
        return out

    def _pass(self, k: int, rooms: Limits, active: int, opens: bool) -> Array:
        """One pass [X] of level ``k``, as wide as the widest of ``active`` independent rows."""
        row = np.zeros(self.size)
        if opens:
            row[: len(self.opening[k])] = self.opening[k]
        else:
            for room, p in rooms.items():
                drafted = self.chain.round(k, room, k).work.first
                row[1 : len(drafted) + 1] += p * drafted
        highest = np.cumsum(row) ** active
        return np.diff(highest, prepend=0.0)


def _normalised(passes: Array) -> Array:
    total = passes.sum()
    return passes / total if total > 0 else passes


def _padded(x: Array, size: int) -> Array:
    return np.pad(x, (0, size - len(x)))

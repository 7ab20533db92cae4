"""The chain recursion: what one block of each level holds and costs, without simulation.

A block of level k is a Markov chain over the number of tokens it already holds. Each step is a round:
draw a draft of d tokens from the law of level k-1's blocks, accept the first a of them, emit a + 1. The
law of (a, d) is the joint law of a lower block's length and of how much of it the verifier keeps, so the
recursion climbs from level 0, where every round is one token, to the target, of which one round is taken.
This follows ``ssd.core.decode`` step by step and is exact for the acceptance models of
``ssd.plan.acceptance``; nothing is truncated except where ``MOST_BEHIND`` says so. For windows of a fixed number of
rounds it reduces to the generating functions of arXiv 2312.11462 (see ``ssd.plan.insertion``); arXiv
2510.19705 gives expected latencies of hierarchies under independent acceptance.

How far a level lags. A level that drafted tokens which were all accepted has never been fed the last of
them, so its next pass is wider by what it lacks: with s tokens of its text missing at the end of a block
of which the verifier keeps all but m, it lacks max(1, s + 1 - m) once the verifier has added its token. The recursion
carries this number for one level at a time, the *tracked* one, jointly with the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ssd.plan.acceptance import Acceptance
from ssd.plan.edge_plan import EdgePlan, continues, longest_block

Array = NDArray[np.float64]
ENDS = ("recovered", "bonus", "plain")
RECOVERED, BONUS, PLAIN = range(3)
MOST_BEHIND = 12  # tokens a level may lack beyond which windows that clip are counted as lacking this many


class Work(NamedTuple):
    """Expected numbers for the tracked level within one block or round; they add up.

    Attributes:
        first: [X] passes that open its first block, by width less what it lacked at the start.
        reopen: [X] passes that open its later blocks, by width.
        again: [X] passes within a block after its first, by width.
        counts: [4] tokens emitted, draft tokens handed to it, tested, accepted.
    """

    first: Array
    reopen: Array
    again: Array
    counts: Array


@dataclass(frozen=True)
class BlockLaw:
    """One block of a level.

    Attributes:
        joint: [W + 1, W + 1, S + 1] probability of (tokens, tokens the verifier above keeps, what the tracked
            level then lacks); the last index is 0 while the tracked level did not run in this block.
        work: of the tracked level.
    """

    joint: Array
    work: Work


@dataclass(frozen=True)
class RoundLaw:
    """One round of a level: ``outcome`` [3 ends, tokens emitted, S + 1] and the tracked level's work."""

    outcome: Array
    work: Work


Memo = dict[tuple[object, ...], BlockLaw]


class ChainRecursion:
    """The laws of a chain's blocks and rounds.

    Args:
        edges: from the lowest edge up.
        acceptance: one per edge.
        coverage: chance that level 0 proposes anything at all (below 1 only for a look-up).
        memo: may be shared between chains; blocks of a level depend on the edges up to it alone.
    """

    def __init__(
        self,
        edges: Sequence[EdgePlan],
        acceptance: Sequence[Acceptance],
        coverage: float = 1.0,
        memo: Memo | None = None,
    ) -> None:
        if len(edges) != len(acceptance):
            raise ValueError(f"acceptance: {len(edges)} edges need one model each, got {len(acceptance)}")
        if not 0 <= coverage <= 1:
            raise ValueError(f"coverage: expected a probability in [0, 1], got {coverage!r}")
        for k, (edge, model) in enumerate(zip(edges, acceptance, strict=True)):
            if edge.verification != model.verification:
                raise ValueError(
                    f"acceptance[{k}].verification: {model.verification!r} was measured, the edge verifies by "
                    f"{edge.verification!r}"
                )
        self.edges, self.acceptance, self.coverage = tuple(edges), tuple(acceptance), coverage
        self.top = len(self.edges)
        self.memo: Memo = {} if memo is None else memo
        clips = any(e.window == "exactly" for e in self.edges[1:])
        self.behind = MOST_BEHIND if clips else self.top + 2  # largest lack that is told apart
        self._rounds: dict[tuple[int, int | None, int], RoundLaw] = {}

    def target_round(self, tracked: int) -> RoundLaw:
        """One round of the target, its draft unlimited, as seen by level ``tracked``."""
        return self.round(self.top, None, tracked)

    def block(self, k: int, limit: int | None, tracked: int) -> BlockLaw:
        """A block of level ``k`` < top that may hold ``limit`` tokens at most (None: as many as it likes)."""
        if limit is not None and limit >= longest_block(self.edges[: k + 1]):
            limit = None
        key = (self.edges[: k + 1], self.acceptance[: k + 1], self.coverage, self.behind, limit, tracked)
        if key not in self.memo:
            self.memo[key] = self._block(k, limit, tracked)
        return self.memo[key]

    def round(self, k: int, room: int | None, tracked: int) -> RoundLaw:
        """A round of level ``k`` that may emit ``room`` tokens at most."""
        if room is not None and room > longest_block(self.edges[:k]):
            room = None
        key = (k, room, tracked)
        if key not in self._rounds:
            self._rounds[key] = self._round(k, room, tracked)
        return self._rounds[key]

    def _round(self, k: int, room: int | None, tracked: int) -> RoundLaw:
        work = self._no_work(k)
        if k == 0 or room == 1:
            outcome = np.zeros((3, 2, self.behind + 1))
            outcome[PLAIN, 1, int(tracked == k)] = 1.0
            if tracked == k:
                work.first[0] = 1.0
                work.counts[0] = 1.0
            return RoundLaw(outcome, work)
        lower = self.block(k - 1, None if room is None else room - 1, k - 1 if tracked == k else tracked)
        outcome = self._verified(lower.joint, own=tracked == k)
        if tracked != k:
            return RoundLaw(outcome, lower.work)
        pairs = lower.joint.sum(axis=2)  # [d, a]
        drafts = np.arange(pairs.shape[0])
        work.first[: len(drafts)] = pairs.sum(axis=1)
        accepted = float(pairs.sum(axis=0) @ drafts)
        rejected = float(outcome[RECOVERED].sum())
        work.counts[:] = 1 + accepted, float(pairs.sum(axis=1) @ drafts), accepted + rejected, accepted
        return RoundLaw(outcome, work)

    def _verified(self, joint: Array, own: bool) -> Array:
        """Outcomes [3, tokens, S + 1] of verifying a lower block; ``own``: the verifier is the tracked level."""
        size, last = joint.shape[0], self.behind
        out = np.zeros((3, size + 1, last + 1))
        for d in range(size):
            for a in range(d + 1):
                mass = joint[d, a]
                if not mass.any():
                    continue
                end = PLAIN if d == 0 else BONUS if a == d else RECOVERED
                if own:
                    out[end, a + 1, 1] += mass.sum()
                    continue
                out[end, a + 1, 0] += mass[0]
                for lack in range(1, last + 1):
                    out[end, a + 1, min(max(1, lack + 1 - (d - a)), last)] += mass[lack]
        return out

    def _block(self, k: int, limit: int | None, tracked: int) -> BlockLaw:
        edge = self.edges[k]
        if edge.window == "exactly":
            limit = edge.gamma if limit is None else min(limit, edge.gamma)
        size = longest_block(self.edges[: k + 1]) + 1
        if limit is not None:
            size = min(size, limit + 1)
        final = np.zeros((size, size, self.behind + 1))
        work = self._no_work(k)
        if limit == 0 or (k == 0 and self.coverage < 1):
            final[0, 0, 0] = 1.0 if limit == 0 else 1 - self.coverage
        if limit == 0:
            return BlockLaw(final, work)
        state = np.zeros_like(final)  # [tokens, of which kept, lack]; all kept so far iff the first two agree
        state[0, 0, 0] = self.coverage if k == 0 else 1.0
        stages = edge.gamma if edge.window == "rounds" else 1  # only ``rounds`` has to tell rounds apart
        for stage in range(1, stages + 1):
            following = np.zeros_like(state) if edge.window == "rounds" else state
            for n in range(size):
                now = state[n]
                if not now.any():
                    continue
                law = self.round(k, None if limit is None else limit - n, tracked)
                _add_work(work, law.work, now.sum(axis=0), n, tracked == k)
                for end, e in zip(*np.nonzero(law.outcome.any(axis=2)), strict=True):
                    goes_on = continues(edge, limit, n + e, end == RECOVERED, stage)
                    self._advance(now, law.outcome[end, e], (k, n, int(e), int(end)), following if goes_on else final)
            state = following
        return BlockLaw(final, work)

    def _advance(self, now: Array, moves: Array, where: tuple[int, int, int, int], to: Array) -> None:
        """Add to ``to`` what becomes of the blocks ``now`` [kept, lack] of n tokens in a round that emits e."""
        k, n, e, end = where
        lost = now[: n + 1].sum(axis=1)[:, None] * moves
        if moves[0] > 0:  # the tracked level did not run in this round: it lacks e tokens more
            shifted = _shift(now[: n + 1], e)
            lost[:, 0] = 0.0
            lost += shifted * moves[0]
        alive, lost = lost[n], lost[:n]
        to[n + e, :n] += lost
        survival = self._survival(k, n, e, end)
        to[n + e, n : n + e] += np.outer(survival[:-1] - survival[1:], alive)
        to[n + e, n + e] += survival[-1] * alive

    def _survival(self, k: int, n: int, e: int, end: int) -> Array:
        """[e + 1] chance that the verifier above keeps the first i of the e tokens that follow n kept ones."""
        model = self.acceptance[k]
        rates = [model.at(n + i, "draft") for i in range(e - 1)] + [model.at(n + e - 1, ENDS[end])]
        chances: Array = np.multiply.accumulate(np.array([1.0, *rates]))
        return chances

    def _no_work(self, k: int) -> Work:
        width = self.behind + 2 + sum(longest_block(self.edges[: i + 1]) for i in range(k + 1))
        return Work(np.zeros(width), np.zeros(width), np.zeros(width), np.zeros(4))


def _add_work(total: Work, part: Work, lacks: Array, tokens: int, own: bool) -> None:
    """Add a round's work, done after ``tokens`` tokens with probability ``lacks`` [S + 1] of each lack.

    ``own``: it is a round of the tracked level, which opens its block with the first of them only.
    """
    mass = lacks.sum()
    _add(total.reopen, mass * part.reopen, 0)
    _add(total.again, mass * part.again, 0)
    _add(total.counts, mass * part.counts, 0)
    _add(total.first, lacks[0] * part.first, tokens)
    known = total.again if own else total.reopen
    for lack in np.flatnonzero(lacks[1:]) + 1:
        _add(known, lacks[lack] * part.first, int(lack))


def _add(total: Array, part: Array, offset: int) -> None:
    """``total[offset + i] += part[i]``; what would fall off the end is 0, arrays are made long enough."""
    size = min(len(part), len(total) - offset)
    total[offset : offset + size] += part[:size]


def _shift(blocks: Array, tokens: int) -> Array:
    """Lacks [..., S + 1] after ``tokens`` more tokens were written without the level: 0 stays, the rest grows."""
    out = np.zeros_like(blocks)
    out[..., 0] = blocks[..., 0]
    last = blocks.shape[-1] - 1
    for lack in range(1, last + 1):
        out[..., min(lack + tokens, last)] += blocks[..., lack]
    return out

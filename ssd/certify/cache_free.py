"""Every proposal of every level against the one made by whole passes, in the same place with the same uniforms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

import torch
from torch import Tensor

from ssd.certify.schedules import beside
from ssd.certify.subchains import rebuilt
from ssd.certify.whole_pass import WholePass
from ssd.core.chain import Chain
from ssd.core.clock import PassClock
from ssd.core.decode import Decoder
from ssd.core.generate import Schedule
from ssd.core.requests import Request
from ssd.core.verification import Draft
from ssd.core.windows import Block

LAW = {torch.float64: 1e-9, torch.float32: 1e-4}
"""Total variation that rounding may put between the laws of two passes, with room: measured 3e-6 in float32."""
NEVER = float("inf"), 0.0


@dataclass(frozen=True)
class Proposal:
    """What a level handed up, for the rows that asked it for something."""

    level: int
    start: Tensor  # [B]
    limit: Tensor  # [B]
    draft: Draft


@dataclass
class Comparison:
    """Proposals with a cache against those without.

    Attributes:
        proposals: how many were compared, over rows, rounds and levels.
        ties: differences that rounding explains, in words.
        faults: the others.
        distance: largest total variation between the laws of one draft token.
    """

    proposals: int = 0
    ties: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    distance: float = 0.0


class Watching(Decoder):
    """A decoder that notes its proposals."""

    def __init__(self, chain: Chain, requests: Sequence[Request]) -> None:
        super().__init__(chain, requests)
        self.seen: list[Proposal] = []

    def propose(self, k: int, start: Tensor, limit: Tensor, key: Tensor) -> Draft:
        """As the decoder."""
        draft = super().propose(k, start, limit, key)
        self.seen.append(Proposal(k, start, limit, draft))
        return draft


def of_row(seen: Sequence[Proposal], i: int) -> Iterator[tuple[int, int, list[int], Tensor | None]]:
    """(level, start, tokens, laws) of what row i was proposed, in order."""
    for p in seen:
        if p.limit[i] > 0:
            count = int(p.draft.count[i])
            laws = None if p.draft.probs is None else p.draft.probs[i, :count]
            yield p.level, int(p.start[i]), p.draft.tokens[i, :count].tolist(), laws


class Judge:
    """Every draft for the target, made a second time without caches.

    Args:
        hidden: levels below whose proposals are not handed in; a tie of theirs may change where a draft ends.

    Attributes:
        found: what the comparison came to.
    """

    def __init__(self, chain: Chain, requests: Sequence[Request], hidden: range = range(0)) -> None:
        self.chain, self.hidden = chain, hidden
        self.free = Watching(rebuilt(chain, WholePass), requests)
        self.found = Comparison()

    def compare(self, text: Tensor, mine: Sequence[Proposal], wanted: tuple[Tensor, Tensor, Tensor]) -> None:
        """Hold the proposals behind one draft against those without caches.

        Args:
            text: the decoder's before the draft.
            mine: in order.
            wanted: start, limit and key of the draft, each [B].
        """
        self.free.text.copy_(text)
        self.free.seen.clear()
        self.free.propose(self.chain.depth - 1, *wanted)
        theirs = [p for p in self.free.seen if p.level not in self.hidden]
        for i in range(len(text)):
            self._compare(i, mine, theirs)

    def _compare(self, i: int, mine: Sequence[Proposal], theirs: Sequence[Proposal]) -> None:
        """Row i's proposals up to the first that differs; later ones start from something else."""
        for own, free in zip_longest(of_row(mine, i), of_row(theirs, i)):
            if own is None or free is None or own[:2] != free[:2]:
                self.found.faults.append(f"row {i}: one of two equal drafts went on")
                return
            self.found.proposals += 1
            level, start, tokens, laws = own
            if not tokens and not free[2]:
                continue
            shared = _shared(tokens, free[2])
            near = self._laws_agree(level, laws, free[3], shared)
            if not near or tokens != free[2]:
                self._judge(i, level, start + shared, near, (tokens, free[2]), laws is None)
                return

    def _laws_agree(self, level: int, mine: Tensor | None, free: Tensor | None, shared: int) -> bool:
        """Whether the laws are the same wherever the tokens before are."""
        if mine is None or free is None:
            return (mine is None) == (free is None)
        both = min(len(mine), len(free), shared + 1)
        if both == 0:
            return True
        distance = float((mine[:both].double() - free[:both].double()).abs().sum(-1).max()) / 2
        self.found.distance = max(self.found.distance, distance)
        return distance <= LAW[self.chain.scorer(level).dtype]

    def _judge(
        self, i: int, level: int, position: int, near: bool, tokens: tuple[list[int], list[int]], greedy: bool
    ) -> None:
        """A tie where equal laws were drawn from on either side of a boundary, or two logits are as good as equal."""
        words = (
            f"row {i}, {self.chain.names[level]}, position {position}: {tokens[0]} with, {tokens[1]} without a cache"
        )
        tie = near
        if greedy:
            gap, noise = self._gap(level, i, position)
            words += f", top two logits {gap:.3g} apart" if gap < float("inf") else ""
            tie = near and (gap <= 2 * noise or any(self._tied(k, i) for k in self.hidden))
        (self.found.ties if tie else self.found.faults).append(words)

    def _gap(self, level: int, row: int, position: int) -> tuple[float, float]:
        """How far the two largest logits are apart, and how far rounding may move one; infinite for a look-up."""
        model = self.free.chain.levels[level].model
        return (model.gaps.get((row, position), float("inf")), model.noise) if isinstance(model, WholePass) else NEVER

    def _tied(self, level: int, row: int) -> bool:
        """Whether a level below had two logits as good as equal somewhere in this draft."""
        return any(
            gap <= 2 * noise
            for p in self.free.seen
            if p.level == level and p.limit[row] > 0
            for at in range(int(p.start[row]), int(p.start[row] + p.draft.count[row]))
            for gap, noise in [self._gap(level, row, at)]
        )


class Compared(Watching):
    """A decoder whose every draft for the target is judged, with all proposals behind it."""

    def __init__(self, chain: Chain, requests: Sequence[Request]) -> None:
        super().__init__(chain, requests)
        self.judge = Judge(chain, requests)

    def propose(self, k: int, start: Tensor, limit: Tensor, key: Tensor) -> Draft:
        """As the decoder; the draft of the level below the target is compared."""
        if k != self.top - 1:
            return super().propose(k, start, limit, key)
        before = self.text.clone()
        self.seen.clear()
        draft = super().propose(k, start, limit, key)
        self.judge.compare(before, self.seen, (start, limit, key))
        return draft


def _shared(a: Sequence[int], b: Sequence[int]) -> int:
    """Number of leading tokens that agree."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def compare_proposals(chain: Chain, requests: Sequence[Request], schedule: str | Schedule = "serial") -> Comparison:
    """Decode ``requests`` to their full length and compare every draft of every target round.

    Under a schedule with workers only the drafts that reach the target are seen, not those behind them.
    """
    if isinstance(schedule, str):
        decoder = Compared(chain, requests)
        _decode(decoder)
        return decoder.judge.found
    judge = Judge(beside(chain, schedule), requests, range(chain.depth - 1))
    with schedule.decoding(chain, requests, PassClock(chain.devices)) as running:
        _watch(running, judge)
        _decode(running)
    return judge.found


def _watch(decoder: Decoder, judge: Judge) -> None:
    """The judge sees every draft the decoder's target gets."""
    real = decoder.draft

    def draft(k: int, start: Tensor, room: Tensor, key: Tensor, parent: Tensor, block: Block | None) -> Draft:
        before, limit = decoder.text.clone(), (room - 1).clamp(min=0)
        made = real(k, start, room, key, parent, block)
        if k == decoder.top:
            judge.compare(before, [Proposal(k - 1, start, limit, made)], (start, limit, key))
        return made

    decoder.draft = draft  # type: ignore[method-assign]


def _decode(decoder: Decoder) -> None:
    """All rows to their full length, whatever they emit."""
    length = decoder.prompt
    ends = length + torch.tensor([r.max_new_tokens for r in decoder.requests], device=decoder.home)
    with torch.inference_mode():
        while bool((length < ends).any()):
            emitted = decoder.round(decoder.top, length, ends - length, decoder.root, decoder.prompt)
            length = length + emitted.count

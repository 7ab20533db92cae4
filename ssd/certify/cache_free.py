"""Every proposal of every level against the one made by whole passes, in the same place with the same uniforms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

import torch
from torch import Tensor

from ssd.certify.subchains import rebuilt
from ssd.certify.whole_pass import WholePass
from ssd.core.chain import Chain
from ssd.core.decode import Decoder
from ssd.core.requests import Request
from ssd.core.verification import Draft

LAW = {torch.float64: 1e-9, torch.float32: 1e-4}
"""Total variation that rounding may put between the laws of two passes, with room: measured 3e-6 in float32."""


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

    def of_row(self, i: int) -> Iterator[tuple[int, int, list[int], Tensor | None]]:
        """(level, start, tokens, laws) of what row i was proposed, in order."""
        for p in self.seen:
            if p.limit[i] > 0:
                count = int(p.draft.count[i])
                laws = None if p.draft.probs is None else p.draft.probs[i, :count]
                yield p.level, int(p.start[i]), p.draft.tokens[i, :count].tolist(), laws


class Compared(Watching):
    """A decoder whose every draft for the target is made a second time without caches.

    Attributes:
        found: what the comparison came to.
    """

    def __init__(self, chain: Chain, requests: Sequence[Request]) -> None:
        super().__init__(chain, requests)
        self.free = Watching(rebuilt(chain, WholePass), requests)
        self.found = Comparison()

    def propose(self, k: int, start: Tensor, limit: Tensor, key: Tensor) -> Draft:
        """As the decoder; the draft of the level below the target is compared."""
        if k != self.top - 1:
            return super().propose(k, start, limit, key)
        self.free.text.copy_(self.text)
        self.seen.clear()
        self.free.seen.clear()
        draft = super().propose(k, start, limit, key)
        self.free.propose(k, start, limit, key)
        for i in range(len(self.requests)):
            self._compare(i)
        return draft

    def _compare(self, i: int) -> None:
        """Row i's proposals up to the first that differs; later ones start from something else."""
        for mine, free in zip_longest(self.of_row(i), self.free.of_row(i)):
            if mine is None or free is None or mine[:2] != free[:2]:
                self.found.faults.append(f"row {i}: one of two equal drafts went on")
                return
            self.found.proposals += 1
            level, start, tokens, laws = mine
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
        model = self.free.chain.levels[level].model
        tie = near
        if greedy and isinstance(model, WholePass):
            gap = model.gaps.get((i, position), float("inf"))
            words += f", top two logits {gap:.3g} apart"
            tie = near and gap <= 2 * model.noise
        elif greedy:
            tie = False
        (self.found.ties if tie else self.found.faults).append(words)


def _shared(a: Sequence[int], b: Sequence[int]) -> int:
    """Number of leading tokens that agree."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def compare_proposals(chain: Chain, requests: Sequence[Request]) -> Comparison:
    """Decode ``requests`` to their full length and compare every draft of every target round."""
    decoder = Compared(chain, requests)
    length = decoder.prompt
    ends = length + torch.tensor([r.max_new_tokens for r in requests], device=decoder.home)
    with torch.inference_mode():
        while bool((length < ends).any()):
            emitted = decoder.round(decoder.top, length, ends - length, decoder.root, decoder.prompt)
            length = length + emitted.count
    return decoder.found

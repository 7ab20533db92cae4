"""Drafts, what is being verified of them, and the outcomes that are being prepared for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from ssd.core.requests import Round
from ssd.pipeline.messages import Ask, Reply
from ssd.pipeline.outcomes import Guess


@dataclass(frozen=True)
class Made:
    """A draft of one row.

    Attributes:
        tokens: ids of the target's vocabulary.
        probs: [W, V] its laws; ``None`` for point masses.
        best: per token, the likeliest target ids at its place.
        rounds: that made it.
        start: its position.
    """

    tokens: list[int]
    probs: Tensor | None
    best: list[list[int]]
    rounds: list[Round]
    start: int


@dataclass
class Branch:
    """An outcome that is being prepared for.

    Attributes:
        guess: the outcome.
        start, limit, parent: of the draft that will be asked for if it comes to pass.
        text: tokens from the asked round's start up to ``start``.
        place: row of the decoder that holds it.
        made: the draft, when it is there.
    """

    guess: Guess
    start: int
    limit: int
    parent: int
    text: list[int]
    place: int
    made: Made | None = None


@dataclass
class Verification:
    """What is being verified of a row, and what was prepared for it."""

    start: int
    limit: int
    parent: int
    block: tuple[int, int] | None
    made: Made
    guesses: list[list[int]] = field(default_factory=list)
    branches: list[Branch] = field(default_factory=list)

    def outcome(self, since: int, ask: Ask, row: int, text: list[int]) -> tuple[int, int] | None:
        """(accepted, next token) if what is asked for follows from this verification; ``text`` from its start on."""
        accepted = ask.start[row] - self.start - 1
        follows = since >= self.start and ask.parent[row] == self.parent
        if self.block is not None and ask.block is not None:  # all blocks of a greedy batch have one key
            follows &= ask.block[row] == (self.block[0] + accepted + 1, self.block[1] + 1)
        if follows and 0 <= accepted <= len(self.made.tokens) and text[:accepted] == self.made.tokens[:accepted]:
            return accepted, text[accepted]
        return None


def reply(made: Sequence[Made], ready: list[bool | None]) -> Reply:
    """What is sent of drafts."""
    laws = [m.probs for m in made if m.probs is not None]
    probs = None
    if laws:
        width = max(len(m.tokens) for m in made)
        if len(made) == 1:
            probs = laws[0][None]
        else:
            probs = laws[0].new_zeros(len(made), width, laws[0].shape[-1])
            for row, m in enumerate(made):
                if m.probs is not None:
                    probs[row, : len(m.probs)] = m.probs
    return Reply([m.tokens for m in made], probs, [m.rounds for m in made], ready)

"""Table levels whose passes read no value on the host, for chains whose laws are known exactly."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from bigram_chains import Bigram
from torch import Tensor

from ssd.core.chain import Chain, Edge, Level


class StaticBigram(Bigram):
    """A table by last token, plus how much the last two differ in the slots: a wrong slot is a wrong law."""

    def allocate(self, batch: int, slots: int) -> None:
        super().allocate(batch, slots)
        self.slots = torch.zeros(batch, slots, dtype=torch.int64)
        self.passes: list[tuple[int, int]] = []

    def fill(self, tokens: Tensor, start: Tensor) -> None:
        self.slots.scatter_(1, start[:, None] + torch.arange(tokens.shape[1]), tokens)

    def score(self, tokens: Tensor, start: Tensor, keep: int) -> Tensor:
        return self.score_static(tokens, start, self.slots.shape[1])[:, -keep:]

    def score_static(self, tokens: Tensor, start: Tensor, bucket: int) -> Tensor:
        """Logits [B, T, V]: the table's row of a token, shifted by the sum of all tokens before it."""
        self.passes.append((tokens.shape[1], bucket))
        self.fill(tokens, start)
        places = start[:, None] + torch.arange(tokens.shape[1])
        read = self.slots[:, :bucket].cumsum(1).gather(1, places)  # every slot up to the token's own
        return self.logits[(tokens + read) % self.embeddings]


def static_chain(tables: Sequence[Tensor], gammas: Sequence[int], verification: str = "token") -> Chain:
    """A chain of them with the window ``rounds``."""
    edges = tuple(Edge(g, "rounds", verification=verification) for g in gammas)
    return Chain(tuple(Level(StaticBigram(t)) for t in tables), edges)

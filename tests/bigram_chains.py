"""Levels whose law depends on the last token alone, so that best temperatures and overlaps are known exactly."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ssd.core.chain import Chain, Edge, Level
from ssd.core.requests import Override


class Bigram:
    """Logits [V, V] by last token; it checks that no pass sees a slot that nobody wrote."""

    def __init__(self, logits: Tensor, max_positions: int | None = None) -> None:
        self.logits = logits
        self.embeddings, self.vocab_size = logits.shape
        self.max_positions = max_positions
        self.device, self.dtype = torch.device("cpu"), logits.dtype
        self.owner: object = None
        self.written = torch.empty(0)
        self.widest = 0  # most rows of logits handed out at once

    def allocate(self, batch: int, slots: int) -> None:
        self.written = torch.zeros(batch, slots, dtype=torch.bool)

    def fill(self, tokens: Tensor, start: Tensor) -> None:
        slots = start[:, None] + torch.arange(tokens.shape[1])
        self.written.scatter_(1, slots, True)
        seen = torch.arange(self.written.shape[1]) < start[:, None] + tokens.shape[1]
        assert self.written[seen].all(), "a slot nobody wrote is visible"

    def score(self, tokens: Tensor, start: Tensor, keep: int) -> Tensor:
        self.fill(tokens, start)
        self.widest = max(self.widest, keep)
        return self.logits[tokens[:, -keep:]]


def random_logits(seed: int, vocab: int, outputs: int | None = None, spread: float = 1.5) -> Tensor:
    """[vocab, outputs] float64."""
    generator = torch.Generator().manual_seed(seed)
    return spread * torch.randn(vocab, outputs or vocab, generator=generator, dtype=torch.float64)


def bigram_chain(
    tables: Sequence[Tensor],
    edges: Sequence[Edge],
    maps: Sequence[Tensor | None] = (),
    temperatures: Sequence[float | None] = (),
) -> Chain:
    """A chain over tables of logits, the target's last."""
    maps = list(maps) or [None] * len(tables)
    own = list(temperatures) or [None] * len(tables)
    levels = [
        Level(Bigram(table), Override(t), draft_to_target=ids) for table, ids, t in zip(tables, maps, own, strict=True)
    ]
    return Chain(tuple(levels), tuple(edges))

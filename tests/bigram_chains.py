"""Levels whose law depends on the last token alone, so that best temperatures and overlaps are known exactly."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ssd.certify.row_scorer import RowScorer
from ssd.core.chain import Chain, Edge, Level
from ssd.core.requests import Override


class Bigram(RowScorer):
    """A row scorer over any table of logits [V, outputs], which notes how many rows it was asked for at once."""

    def __init__(self, logits: Tensor, max_positions: int | None = None) -> None:
        super().__init__(logits.softmax(-1).tolist())
        self.logits, self.embeddings = logits, len(logits)
        self.max_positions = max_positions
        self.dtype = logits.dtype
        self.widest = 0

    def score(self, tokens: Tensor, start: Tensor, keep: int) -> Tensor:
        self.widest = max(self.widest, keep)
        return super().score(tokens, start, keep)


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

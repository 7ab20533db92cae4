"""A level that runs elsewhere: what others need to know of it, without its weights."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ssd.core.chain import Scorer


@dataclass
class Outline:
    """The attributes of a scorer that is not here; see ``ssd.core.chain.Scorer``."""

    vocab_size: int
    embeddings: int
    max_positions: int | None
    device: torch.device
    dtype: torch.dtype
    owner: object = None

    @staticmethod
    def of(scorer: Scorer, device: torch.device) -> Outline:
        """The outline of a scorer, as if it were on ``device``."""
        return Outline(scorer.vocab_size, scorer.embeddings, scorer.max_positions, device, scorer.dtype)

    def allocate(self, batch: int, slots: int) -> None:
        """Not here."""
        raise RuntimeError("a level that runs on another worker was asked for slots")

    def fill(self, tokens: Tensor, start: Tensor) -> None:
        """Not here."""
        raise RuntimeError("a level that runs on another worker was asked for a pass")

    def score(self, tokens: Tensor, start: Tensor, keep: int) -> Tensor:
        """Not here."""
        raise RuntimeError("a level that runs on another worker was asked for a pass")

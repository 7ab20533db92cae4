"""A table model whose law depends on the last token only, fast for thousands of rows."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class RowScorer:
    """A table model whose law depends on the last token only, fast for thousands of rows.

    It checks that a query never sees a slot nobody wrote, and with ``reuse`` hands out one output
    tensor again and again, overwriting it on every call, as a captured graph does.
    """

    def __init__(self, rows: Sequence[Sequence[float]], reuse: bool = False) -> None:
        self.logits = torch.tensor(rows, dtype=torch.float64).log()  # [V, V]
        self.vocab_size = self.embeddings = self.logits.shape[1]
        self.max_positions: int | None = None
        self.device, self.dtype, self.reuse = torch.device("cpu"), torch.float64, reuse
        self.owner: object = None
        self.written = self.buffer = torch.empty(0)

    def allocate(self, batch: int, slots: int) -> None:
        """Forget everything."""
        self.written = torch.zeros(batch, slots, dtype=torch.bool)
        self.buffer = torch.empty(batch, slots, self.vocab_size, dtype=self.dtype)

    def copy(self, source: int, into: int, begin: int, end: int) -> None:
        """Slots ``begin`` .. ``end`` - 1 of row ``into`` are written where those of row ``source`` are."""
        self.written[into, begin:end] = self.written[source, begin:end]

    def fill(self, tokens: Tensor, start: Tensor) -> None:
        """Note which slots were written."""
        slots = start[:, None] + torch.arange(tokens.shape[1])
        self.written.scatter_(1, slots, True)
        seen = torch.arange(self.written.shape[1]) < start[:, None] + tokens.shape[1]
        assert self.written[: len(seen)][seen].all(), "a slot nobody wrote is visible"

    def score(self, tokens: Tensor, start: Tensor, keep: int) -> Tensor:
        """``fill``, and logits [B, keep, V] after each of the last ``keep`` tokens."""
        self.fill(tokens, start)
        logits = self.logits[tokens[:, -keep:]]
        if not self.reuse:
            return logits
        self.buffer.fill_(0.0)
        self.buffer[: len(tokens), :keep] = logits
        return self.buffer[: len(tokens), :keep]

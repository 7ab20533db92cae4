"""Table models: next-token laws looked up by the whole prefix, for the twin and for the decoder.

Any state that is wrong by one token gives other rows, so a table cannot hide a fault the way a
model that looks mostly at its last token can.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import cache

import torch
from torch import Tensor

from ssd.certify.twins import CPU, UNLIMITED, function_level
from ssd.core.reference import TwinLevel
from ssd.core.requests import Request, Sampling

PLAIN = Sampling()
Logits = Callable[[tuple[int, ...]], tuple[float, ...]]


def hashed(name: str, vocab: int, spread: float = 1.2) -> Logits:
    """Logits that are a fixed pseudo-random function of the name and the whole prefix."""

    @cache
    def logits(prefix: tuple[int, ...]) -> tuple[float, ...]:
        source = random.Random(f"{name}|{prefix}")
        return tuple(source.gauss(0.0, spread) for _ in range(vocab))

    return logits


def fixed(probs: Sequence[float]) -> Logits:
    """The same row after every prefix."""
    row = tuple(torch.tensor(probs, dtype=torch.float64).log().tolist())
    return lambda prefix: row


def blended(one: Logits, other: Logits, weight: float) -> Logits:
    """Logits between two tables, so that one drafts well for the other."""
    return lambda prefix: tuple(weight * a + (1 - weight) * b for a, b in zip(one(prefix), other(prefix), strict=True))


def table_level(
    logits: Logits,
    sampling: Sampling = PLAIN,
    ids: Sequence[int] | None = None,
    vocab: int | None = None,
    limit: int = UNLIMITED,
    request: Request | None = None,
) -> TwinLevel:
    """A twin's level over a table; arguments as in ``function_level``."""
    return function_level(logits, sampling, ids, vocab, limit, request)


class TableScorer:
    """A table behind ``fill`` and ``score``; its cache is the tokens it was fed, by position.

    A query that would see a slot nobody wrote is a LookupError.
    """

    def __init__(self, logits: Logits, vocab: int, max_positions: int | None = None) -> None:
        self.logits, self.vocab_size, self.embeddings, self.max_positions = logits, vocab, 10**9, max_positions
        self.device, self.dtype = CPU, torch.float64
        self.owner: object = None
        self.slots = torch.empty(0, 0, dtype=torch.int64)

    def allocate(self, batch: int, slots: int) -> None:
        """Forget everything; -1 marks a slot nobody wrote."""
        self.slots = torch.full((batch, slots), -1)

    def copy(self, source: int, into: int, begin: int, end: int) -> None:
        """Row ``into`` holds at positions ``begin`` .. ``end`` - 1 what row ``source`` does."""
        self.slots[into, begin:end] = self.slots[source, begin:end]

    def fill(self, tokens: Tensor, start: Tensor) -> None:
        """Keep tokens [B, T] at positions ``start`` [B] onwards."""
        self.slots.scatter_(1, start[:, None] + torch.arange(tokens.shape[1]), tokens)

    def score(self, tokens: Tensor, start: Tensor, keep: int) -> Tensor:
        """``fill``, and logits [B, keep, V] after each of the last ``keep`` tokens."""
        self.fill(tokens, start)
        ends = (start + tokens.shape[1]).tolist()
        prefixes = [
            [tuple(row[: end - keep + i + 1]) for i in range(keep)]
            for row, end in zip(self.slots[: len(tokens)].tolist(), ends, strict=True)
        ]
        if any(-1 in prefix for row in prefixes for prefix in row):
            raise LookupError("a query sees a slot nobody wrote")
        return torch.tensor([[self.logits(p) for p in row] for row in prefixes], dtype=torch.float64)

"""When a block ends: one predicate, read before a round starts.

Exactness asks that the reason for ending is known before the next token is drawn and that no
drawn token is dropped because of what it is (docs/algorithm.md); every rule below only looks at
counts, at the last round's outcome and at a distribution that precedes the next token.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class Block:
    """What a block has come to, per row [B].

    Attributes:
        count: tokens emitted.
        rounds: rounds run.
        last_max: maximum of the level's untempered softmax at the last emitted position; 1 at first.
        last_full: the last round accepted everything it was handed; true at first.
    """

    count: Tensor
    rounds: Tensor
    last_max: Tensor
    last_full: Tensor

    @staticmethod
    def empty(batch: int, device: torch.device) -> Block:
        """A block in which nothing has happened yet."""
        zero = torch.zeros(batch, dtype=torch.int64, device=device)
        return Block(zero, zero, torch.ones(batch, device=device), torch.ones_like(zero, dtype=torch.bool))


def done(window: str, gamma: int, value: float | None, block: Block) -> Tensor:
    """Rows [B] bool whose block is complete under ``window``.

    ``at_least``, ``exactly``: gamma tokens are there (``exactly`` never asks below for more than
    still fits, see ``longest``). ``rounds``: gamma rounds. ``until_correction``: gamma tokens, or a
    round that did not accept everything. ``confidence``: gamma tokens, or the level was less sure
    than ``value``.
    """
    if window == "rounds":
        return block.rounds >= gamma
    full = block.count >= gamma
    if window == "until_correction":
        return full | ~block.last_full
    if window == "confidence":
        assert value is not None
        return full | (block.last_max < value)
    return full


def longest(window: str, gamma: int, limit: Tensor) -> Tensor:
    """Most tokens [B] the block may hold, given the caller's ``limit`` [B]."""
    return limit.clamp(max=gamma) if window == "exactly" else limit

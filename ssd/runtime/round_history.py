"""What rounds did, kept on the device until somebody asks: buffers of a fixed size, written without the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ssd.core.requests import Round
from ssd.core.rounds import RoundLog
from ssd.core.sampling import Law
from ssd.core.verification import Draft, Emitted


class Fact(NamedTuple):
    """What one round did in every row of the batch.

    Attributes:
        edge: whose round it was; -1 in a chain without edges.
        block_start, start, drafted, accepted, emitted: [B], as in ``ssd.core.requests.Round``.
        overlap: [B, W]; ``None`` without a draft.
    """

    edge: int
    block_start: Tensor
    start: Tensor
    drafted: Tensor
    accepted: Tensor
    emitted: Tensor
    overlap: Tensor | None


class RoundHistory:
    """The rounds of up to ``size`` target rounds, every one of which consists of the same rounds.

    Attributes:
        turn: [1] target rounds so far, on the device.
    """

    def __init__(self, size: int, device: torch.device) -> None:
        self.size = size
        self.turn = torch.zeros(1, dtype=torch.int64, device=device)
        self._edges: list[int] = []
        self._buffers: tuple[Tensor, Tensor] | None = None

    def keep(self, facts: Sequence[Fact], going: Tensor) -> None:
        """Put a target round behind those before; rows that are not ``going`` [B] took no part."""
        numbers = torch.stack(
            [
                torch.stack([f.block_start, f.start, f.drafted, f.accepted, torch.where(going, f.emitted, 0)])
                for f in facts
            ]
        )  # [rounds, 5, B]
        widest = max((f.overlap.shape[1] for f in facts if f.overlap is not None), default=1)
        sums = torch.zeros(len(facts), len(going), widest, dtype=torch.float64, device=going.device)
        for place, fact in zip(sums.unbind(), facts, strict=True):
            if fact.overlap is not None:
                place[:, : fact.overlap.shape[1]].copy_(fact.overlap)
        if self._buffers is None:
            self._edges = [f.edge for f in facts]
            self._buffers = numbers.new_zeros(self.size, *numbers.shape), sums.new_zeros(self.size, *sums.shape)
        at = self.turn.clamp(max=self.size - 1)
        self._buffers[0].index_copy_(0, at, numbers[None])
        self._buffers[1].index_copy_(0, at, sums[None])
        self.turn.add_(1)

    def rounds(self, batch: int, untested: Callable[[int], Tensor | None]) -> list[list[Round]]:
        """Per row, its rounds in order of execution; waits for the device.

        Args:
            batch: rows.
            untested: edge -> rows [B] whose drafts were verified as a whole, ``None``: no row's.

        Raises:
            ValueError: more target rounds were run than there is room for.
        """
        turns = int(self.turn)
        if turns > self.size:
            raise ValueError(f"rounds: {turns} were run, {self.size} are kept")
        log = RoundLog()
        if self._buffers is not None:
            numbers, sums = (x[:turns].cpu() for x in self._buffers)
            whole = [untested(edge) for edge in self._edges]
            for turn in range(turns):
                for i, edge in enumerate(self._edges):
                    _add(log, edge, numbers[turn, i], sums[turn, i], whole[i])
        return log.rounds(batch)


def _add(log: RoundLog, edge: int, numbers: Tensor, sums: Tensor, untested: Tensor | None) -> None:
    block_start, start, drafted, accepted, count = numbers.unbind()
    draft = Draft(start[:, None], None, drafted) if edge >= 0 else None
    overlap = None if draft is None else sums
    emitted = Emitted(start[:, None], count, accepted, accepted == drafted, Law(None, None), overlap)
    log.add(edge, block_start, start, draft, emitted, untested)

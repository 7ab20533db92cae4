"""A model whose passes read no value on the host: what ``graph`` and ``compiled`` have in common.

Buffers keep their addresses from one allocation to the next as long as they are large enough, and a pass reads the
first ``bucket`` slots through a mask made from positions on the device. On a GPU narrow passes are recorded as
CUDA graphs; elsewhere the same code runs as it stands.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ssd.core.model import CachedModel
from ssd.runtime.buckets import bucket_of, check_places, rounded
from ssd.runtime.graphs import WIDEST, Graphs


class StaticModel(CachedModel):
    """The transformers module over static buffers; its subclass computes without the module.

    Attributes:
        slots: positions 0 .. slots - 1 may be fed since the last ``allocate``.
        capacity: slots of the buffers, at least ``slots``.
        graphs: recordings of passes; ``None`` where there are no CUDA graphs.
    """

    def __init__(self, module: Any, name: str = "model") -> None:
        super().__init__(module, name)
        self.slots = self.capacity = 0
        self.graphs = Graphs(self.score_static) if self.device.type == "cuda" else None

    def __reduce__(self) -> tuple[Any, ...]:
        """The module, for another process; keys, values and recordings stay here."""
        return type(self), (self.module, self.name)

    @torch.inference_mode()
    def allocate(self, batch: int, slots: int) -> None:
        """Forget everything and make room for ``slots`` tokens in each of ``batch`` rows.

        Buffers, and with them recordings, outlive a call for as many rows as before and no more slots than there are.
        """
        self.slots = slots
        if batch != self.cache.slots.batch or slots > self.capacity:
            self.capacity = rounded(slots)
            if self.graphs is not None:
                self.graphs.forget()
        self.cache.allocate(batch, self.capacity)

    @torch.inference_mode()
    def score(self, tokens: Tensor, start: Tensor, keep: int) -> Tensor:
        """Write tokens [B, T] at ``start`` [B] onwards; logits [B, keep, V] of the last ``keep``.

        B may be less than was allocated; then the other rows are left as they are.
        """
        reach = check_places(start.tolist(), tokens.shape[1], self.slots)
        if self.graphs is None or tokens.shape[1] > WIDEST:
            return self._compute(tokens, start, rounded(reach), keep)
        return self.graphs.run(tokens, start, bucket_of(reach, self.capacity))[:, -keep:]

    @torch.inference_mode()
    def score_static(self, tokens: Tensor, start: Tensor, bucket: int) -> Tensor:
        """Write tokens [B, T] at ``start`` [B] onwards; logits [B, T, V]. Nothing is read on the host.

        Args:
            tokens: [B, T] on the model's device; B at most what was allocated.
            start: [B] on the model's device; start + T must not exceed ``bucket``, which cannot be checked here.
            bucket: slots that attention reads; sizes from ``buckets.bucket_of`` keep recordings few.

        Raises:
            ValueError: ``bucket`` exceeds the capacity.
        """
        if bucket > self.capacity:
            raise ValueError(f"{self.name}: a bucket of {bucket} slots exceeds the {self.capacity} of its buffers")
        return self._compute(tokens, start, bucket, tokens.shape[1])

    def _compute(self, tokens: Tensor, start: Tensor, bucket: int, keep: int) -> Tensor:
        """The pass itself; ``keep`` 0 is a pass without logits."""
        positions = start[:, None] + torch.arange(tokens.shape[1], device=self.device)  # [B, T]
        slots = self.cache.slots
        slots.positions, slots.reach, slots.first = positions, bucket, None
        return self._forward(tokens, positions, max(keep, 1))

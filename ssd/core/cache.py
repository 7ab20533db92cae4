"""Keys and values addressed by position: rollback is forgetting a number.

A slot belongs to one absolute position and a query sees the slots at positions up to its own.
Writing T tokens at ``start`` overwrites whatever a rejected draft left there; slots beyond a row's
length are never visible, so nothing is ever cropped, moved or cleared during decoding.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface
from transformers.cache_utils import Cache, CacheLayerMixin

ATTENTION = "ssd_slots"


class Slots:
    """Where the tokens of the current pass go; shared by all layers of one cache."""

    def __init__(self) -> None:
        self.batch = self.size = 0
        self.reach = 0  # slots handed to attention: everything any row may see
        self.first: int | None = None  # the common start when all rows share one
        self.positions = torch.empty(0, 0, dtype=torch.int64)  # [B, T]

    def place(self, positions: Tensor, starts: list[int]) -> None:
        """Aim the next pass at ``positions`` [B, T], whose rows begin at ``starts``."""
        reach = max(starts) + positions.shape[1]
        if min(starts) < 0 or reach > self.size:
            raise ValueError(f"cache: positions {min(starts)} to {reach - 1} do not fit its {self.size} slots")
        self.positions, self.reach = positions, reach
        self.first = starts[0] if min(starts) == max(starts) else None


class SlotLayer(CacheLayerMixin):
    """Keys and values [B, H_kv, slots, D] of one layer."""

    is_croppable = False

    def __init__(self, slots: Slots) -> None:
        super().__init__()
        self.slots = slots

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Zeros, because a NaN in a masked value slot is a NaN in the output."""
        for name, like in (("keys", key_states), ("values", value_states)):
            shape = (self.slots.batch, like.shape[1], self.slots.size, like.shape[3])
            setattr(self, name, torch.zeros(shape, dtype=like.dtype, device=like.device))
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write [B, H_kv, T, D] at the current positions and return the slots within reach."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        slots = self.slots
        assert self.keys is not None
        assert self.values is not None
        # A pass may hold the first rows only: rows that are of no use now need no work.
        keys, values = self.keys[: len(key_states)], self.values[: len(value_states)]
        if key_states.dtype == torch.float16:
            # What overflows in a rejected token would reach later ones: 0 times infinity is no number.
            key_states, value_states = key_states.nan_to_num(), value_states.nan_to_num()
        for buffer, new in ((keys, key_states), (values, value_states)):
            if slots.first is not None:
                buffer[:, :, slots.first : slots.first + new.shape[2]] = new
            else:
                rows = torch.arange(new.shape[0], device=new.device)[:, None]
                buffer[rows, :, slots.positions] = new.transpose(1, 2)
        return keys[:, :, : slots.reach], values[:, :, : slots.reach]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """(visible slots, offset)."""
        return self.slots.reach, 0

    def get_seq_length(self) -> int:
        """Slots before the current pass; models that ask are given position ids anyway."""
        return self.slots.reach - self.slots.positions.shape[1]

    def get_max_length(self) -> int:
        """Capacity in slots."""
        return self.slots.size

    get_max_cache_shape = get_max_length  # its name in transformers 5.17


class SlotCache(Cache):
    """A transformers ``Cache`` whose layers write by position."""

    def __init__(self, num_layers: int) -> None:
        self.slots = Slots()
        self.slot_layers = [SlotLayer(self.slots) for _ in range(num_layers)]
        super().__init__(layers=list(self.slot_layers))

    def allocate(self, batch: int, size: int) -> None:
        """Room for ``size`` tokens a row; contents are zero afterwards."""
        same = (batch, size) == (self.slots.batch, self.slots.size)
        self.slots.batch, self.slots.size = batch, size
        for layer in self.slot_layers:
            layer.is_initialized = layer.is_initialized and same
        for buffer in self.buffers():
            buffer.zero_()

    def copy(self, source: int, into: int, begin: int, end: int) -> None:
        """Row ``into`` has the slots ``begin`` .. ``end`` - 1 of row ``source``."""
        for buffer in self.buffers():
            buffer[into, :, begin:end] = buffer[source, :, begin:end]

    def buffers(self) -> list[Tensor]:
        """Key and value buffers of the layers that have run."""
        return [t for x in self.slot_layers if x.is_initialized for t in (x.keys, x.values) if t is not None]

    def bytes(self) -> int:
        """Bytes of all key and value buffers."""
        return sum(t.numel() * t.element_size() for t in self.buffers())


def slot_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention that never repeats grouped keys: the query heads of a group become query rows.

    Args:
        query: [B, H, T, D]. key, value: [B, H_kv, S, D]. attention_mask: additive, [B or 1, 1, T, S].

    Returns:
        [B, T, H, D] and no weights.
    """
    unsupported = [name for name in ("softcap", "s_aux", "position_bias") if kwargs.get(name) is not None]
    if unsupported:
        raise ValueError(f"{type(module).__name__} asks attention for {unsupported[0]}, which {ATTENTION} lacks")
    if attention_mask is None:
        raise ValueError(f"{type(module).__name__}: {ATTENTION} sees slots through a mask, and none was handed over")
    batch, heads, width, dim = query.shape
    groups = heads // key.shape[1]
    if groups > 1:
        query = query.reshape(batch, key.shape[1], groups * width, dim)
        if width > 1:
            attention_mask = folded(attention_mask, groups)
    out = scaled_dot_product_attention(query, key, value, attn_mask=attention_mask, dropout_p=dropout, scale=scaling)
    return out.reshape(batch, heads, width, -1).transpose(1, 2), None


def folded(mask: Tensor, groups: int) -> Tensor:
    """A mask [B, 1, T, S] for queries [B, H_kv, groups * T, D]; kept on the mask for later layers."""
    cached: Tensor | None = getattr(mask, "folded", None)
    if cached is None:
        b, _, width, size = mask.shape
        cached = mask.expand(b, groups, width, size).reshape(b, 1, groups * width, size)
        mask.folded = cached  # type: ignore[attr-defined]
    return cached


AttentionInterface.register(ATTENTION, slot_attention)

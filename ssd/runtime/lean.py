"""A LLaMA-family model without its module: one layer function, called once a layer, over static buffers."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn.functional import embedding

from ssd.core.cache import folded
from ssd.runtime.compiled import compiled_layer
from ssd.runtime.graphs import WIDEST
from ssd.runtime.layer import LayerFunction, Pass, layer, project, rms_norm
from ssd.runtime.packing import can_pack, packed, packed_bytes
from ssd.runtime.static import StaticModel
from ssd.runtime.weights import ModelWeights, check_family, check_rope, read_weights, rope_table

# Levels that share a module share its packed copy.
_PACKED: WeakKeyDictionary[Any, ModelWeights] = WeakKeyDictionary()


class LeanModel(StaticModel):
    """Equals ``CachedModel`` up to rounding; keeps the module for whoever looks at it, with the same weights.

    The weights are read when the model is made: the module has to stay on its device and in its dtype.

    Args:
        module: a Llama, Mistral, Qwen2 or Qwen3 for causal language modelling.
        name: of the level, begins its errors.
        runtime: ``graph``, where a CPU holds a bfloat16 copy of the matrices in the order it reads them, or
            ``compiled``, whose layers go through torch's compiler in passes of up to ``WIDEST`` tokens.

    Raises:
        ValueError: the module's layers are of another kind; names the level.
    """

    def __init__(self, module: Any, name: str = "model", runtime: str = "graph") -> None:
        super().__init__(module, name)
        check_family(module.config, runtime, name)
        check_rope(module, name)
        self.runtime = runtime
        is_compiled = runtime == "compiled"
        self.weights = _weights(module, pack=not is_compiled and can_pack(self.device, self.dtype))
        self.function: LayerFunction = compiled_layer(self.device) if is_compiled else layer
        if self.device.type == "cuda":
            torch.cuda.empty_cache()  # separate matrices just gave up blocks that no joined one fits into
        self._rope = rope_table(module, 1)
        self._slot = torch.empty(0, dtype=torch.int64, device=self.device)
        self._rows = torch.empty(0, 1, dtype=torch.int64, device=self.device)
        self._seen = torch.zeros((), dtype=self.dtype, device=self.device)
        self._hidden = torch.full((), float("-inf"), dtype=self.dtype, device=self.device)

    def __reduce__(self) -> tuple[Any, ...]:
        """The module and how to compute it, for another process."""
        return type(self), (self.module, self.name, self.runtime)

    @property
    def packed_bytes(self) -> int:
        """Bytes of the packed copies, which come on top of the module's weights."""
        return packed_bytes(self.weights)

    @torch.inference_mode()
    def allocate(self, batch: int, slots: int) -> None:
        """As ``StaticModel.allocate``; position tables are made as long as the buffers."""
        super().allocate(batch, slots)
        if len(self._slot) != self.capacity:
            self._slot = torch.arange(self.capacity, device=self.device)
            self._rope = rope_table(self.module, self.capacity)
        if len(self._rows) != batch:  # recordings read its address
            self._rows = torch.arange(batch, device=self.device)[:, None]
        like = torch.empty(0, self.weights.kv_heads, 0, self.weights.head_dim, dtype=self.dtype, device=self.device)
        for slot_layer in self.cache.slot_layers:
            if not slot_layer.is_initialized:
                slot_layer.lazy_initialization(like, like)

    @torch.inference_mode()
    def fill(self, tokens: Tensor, start: Tensor) -> None:
        """Write keys and values of tokens [B, T] at positions ``start`` [B] onwards; the head is not computed."""
        self.score(tokens, start, keep=0)

    def _compute(self, tokens: Tensor, start: Tensor, bucket: int, keep: int) -> Tensor:
        weights, width = self.weights, tokens.shape[1]
        positions = start[:, None] + self._slot[:width]  # [B, T]
        at = Pass(positions, self._rows[: len(tokens)], self._rope[positions])
        masks = {window: self._visible_slots(positions, bucket, window) for window in set(weights.windows)}
        function = self.function if width <= WIDEST else layer
        x = embedding(tokens, weights.embedding)  # [B, T, E]
        for own, slots, window in zip(weights.layers, self.cache.slot_layers, weights.windows, strict=True):
            assert slots.keys is not None
            assert slots.values is not None
            x = function(x, own, slots.keys, slots.values, at, masks[window], weights.eps)
        if keep == 0:
            return x
        return project(rms_norm(x[:, -keep:], weights.norm, weights.eps), weights.head, weights.head_bias)

    def _visible_slots(self, positions: Tensor, bucket: int, window: int | None) -> Tensor:
        """Additive mask [B, 1, (H / K) T, bucket]; for one token its rows are all the same and kept as one."""
        slot, own = self._slot[:bucket], positions[:, None, :, None]
        seen = slot <= own  # [B, 1, T, bucket]
        if window is not None:
            seen &= slot > own - window
        mask = torch.where(seen, self._seen, self._hidden)
        heads = self._config.num_attention_heads
        return mask if positions.shape[1] == 1 else folded(mask, heads // self.weights.kv_heads)


def _weights(module: Any, pack: bool) -> ModelWeights:
    if not pack:
        return read_weights(module)
    if module not in _PACKED:
        _PACKED[module] = packed(read_weights(module))
    return _PACKED[module]

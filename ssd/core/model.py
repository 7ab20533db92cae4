"""A Hugging Face decoder-only model behind ``fill`` and ``score``."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor

from ssd.core.cache import ATTENTION, SlotCache
from ssd.core.positional import check_model, context_limit


class CachedModel:
    """Scores tokens at given positions, keeping keys and values by position.

    The module's attention implementation is ours only while a pass runs, so the same module can be
    used elsewhere between two passes.
    """

    def __init__(self, module: Any, name: str = "model") -> None:
        self.module = module.eval()
        self.name = name
        self.owner: object = None
        text = check_model(module.config, name)
        if not getattr(module, "_supports_attention_backend", False):
            raise ValueError(f"{name}.model_type: {text.model_type!r} computes attention by its own rules, not by ours")
        self._config = text
        head = module.get_output_embeddings()
        self.vocab_size: int = head.weight.shape[0]
        self.embeddings: int = module.get_input_embeddings().weight.shape[0]
        self.max_positions = context_limit(text)
        self.device = next(module.parameters()).device
        self.dtype: torch.dtype = head.weight.dtype
        self.cache = SlotCache(text.num_hidden_layers)
        layer_types = getattr(text, "layer_types", None)
        sliding = getattr(text, "sliding_window", None) if getattr(text, "use_sliding_window", True) else None
        self._layer_types = sorted(set(layer_types)) if layer_types else None
        self._window: int | None = sliding
        signature = inspect.signature(inspect.unwrap(type(module).forward)).parameters
        # transformers 5.17 calls the argument past_key_values; 5.24 renames it to cache.
        self._cache_name = "cache" if "cache" in signature else "past_key_values"

    def __getstate__(self) -> dict[str, Any]:
        """Weights and settings, for another process; keys, values and their owner stay here."""
        return self.__dict__ | {"owner": None, "cache": SlotCache(self._config.num_hidden_layers)}

    @torch.inference_mode()
    def allocate(self, batch: int, slots: int) -> None:
        """Forget everything and make room for ``slots`` tokens in each of ``batch`` rows."""
        self.cache.allocate(batch, slots)

    @torch.inference_mode()
    def copy(self, source: int, into: int, begin: int, end: int) -> None:
        """Row ``into`` sees at positions ``begin`` .. ``end`` - 1 what row ``source`` does."""
        self.cache.copy(source, into, begin, end)

    def fill(self, tokens: Tensor, start: Tensor) -> None:
        """Write keys and values of tokens [B, T] at positions ``start`` [B] onwards."""
        self.score(tokens, start, keep=1)

    @torch.inference_mode()
    def score(self, tokens: Tensor, start: Tensor, keep: int) -> Tensor:
        """Write tokens [B, T] at ``start`` [B] onwards; logits [B, keep, V] of the last ``keep``.

        B may be less than was allocated; then the other rows are left as they are.
        """
        width = tokens.shape[1]
        positions = start[:, None] + torch.arange(width, device=self.device)  # [B, T]
        self.cache.slots.place(positions, start.tolist())
        return self._forward(tokens, positions, keep)

    def _forward(self, tokens: Tensor, positions: Tensor, keep: int) -> Tensor:
        """The module's logits [B, keep, V] for tokens [B, T] at ``positions`` [B, T], which the cache is aimed at."""
        theirs = self._config._attn_implementation
        self._config._attn_implementation = ATTENTION
        try:
            out = self.module(
                input_ids=tokens,
                position_ids=positions,
                attention_mask=self._mask(positions),
                use_cache=True,
                logits_to_keep=keep,
                **{self._cache_name: self.cache},
            )
        finally:
            self._config._attn_implementation = theirs
        return out.logits

    def _mask(self, positions: Tensor) -> Any:
        """Additive mask(s) [B or 1, 1, T, S]; per layer type where the model has several."""
        slots = self.cache.slots
        if slots.first is not None:
            positions = positions[:1]
        full = self._visible(positions, slots.reach, None)
        if self._window is None:
            return full
        narrow = self._visible(positions, slots.reach, self._window)
        if self._layer_types is None:
            return narrow
        return {kind: narrow if kind == "sliding_attention" else full for kind in self._layer_types}

    def _visible(self, positions: Tensor, reach: int, window: int | None) -> Tensor:
        slot = torch.arange(reach, device=self.device)
        seen = slot <= positions[:, None, :, None]  # [B, 1, T, S]
        if window is not None:
            seen &= slot > positions[:, None, :, None] - window
        return torch.zeros(seen.shape, dtype=self.dtype, device=self.device).masked_fill_(~seen, float("-inf"))

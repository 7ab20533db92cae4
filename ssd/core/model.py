"""A Hugging Face decoder-only model behind ``fill`` and ``score``."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from ssd.core.cache import ATTENTION, SlotCache

RECURRENT = ("mamba", "rwkv", "jamba", "zamba", "recurrent_gemma", "xlstm", "bamba", "falcon_h1", "nemotron_h")


class CachedModel:
    """Scores tokens at given positions, keeping keys and values by position.

    The module's attention implementation is ours only while a pass runs, so the same module can be
    used elsewhere between two passes.
    """

    def __init__(self, module: nn.Module, name: str = "model") -> None:
        self.module = module.eval()
        self.name = name
        config = module.config
        refuse(config, name)
        text = config.get_text_config(decoder=True)
        self._config = text
        head = module.get_output_embeddings()
        self.vocab_size: int = head.weight.shape[0]
        self.embeddings: int = module.get_input_embeddings().weight.shape[0]
        self.max_positions: int | None = getattr(text, "max_position_embeddings", None)
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

    def allocate(self, batch: int, slots: int) -> None:
        """Forget everything and make room for ``slots`` tokens in each of ``batch`` rows."""
        self.cache.allocate(batch, slots)

    def fill(self, tokens: Tensor, start: Tensor) -> None:
        """Write keys and values of tokens [B, T] at positions ``start`` [B] onwards."""
        self.score(tokens, start, keep=1)

    @torch.inference_mode()
    def score(self, tokens: Tensor, start: Tensor, keep: int) -> Tensor:
        """Write tokens [B, T] at ``start`` [B] onwards; logits [B, keep, V] of the last ``keep``."""
        batch, width = tokens.shape
        positions = start[:, None] + torch.arange(width, device=self.device)  # [B, T]
        starts = start.tolist()
        first = starts[0] if min(starts) == max(starts) else None
        reach = max(starts) + width
        self.cache.slots.place(positions, first, reach)
        theirs = self._config._attn_implementation
        self._config._attn_implementation = ATTENTION
        try:
            out = self.module(
                input_ids=tokens,
                position_ids=positions,
                attention_mask=self._mask(positions, reach, first),
                use_cache=True,
                logits_to_keep=keep,
                **{self._cache_name: self.cache},
            )
        finally:
            self._config._attn_implementation = theirs
        return out.logits

    def _mask(self, positions: Tensor, reach: int, first: int | None) -> Any:
        """Additive mask(s) [B or 1, 1, T, S]; per layer type where the model has several."""
        if first is not None:
            positions = positions[:1]
        full = self._visible(positions, reach, None)
        if self._window is None:
            return full
        narrow = self._visible(positions, reach, self._window)
        if self._layer_types is None:
            return narrow
        return {kind: narrow if kind == "sliding_attention" else full for kind in self._layer_types}

    def _visible(self, positions: Tensor, reach: int, window: int | None) -> Tensor:
        slot = torch.arange(reach, device=self.device)
        seen = slot <= positions[:, None, :, None]  # [B, 1, T, S]
        if window is not None:
            seen &= slot > positions[:, None, :, None] - window
        return torch.zeros(seen.shape, dtype=self.dtype, device=self.device).masked_fill_(~seen, float("-inf"))


def refuse(config: Any, name: str) -> None:
    """Raise ValueError for models whose state cannot be addressed by position."""
    text = config.get_text_config(decoder=True)
    if getattr(config, "is_encoder_decoder", False):
        raise ValueError(f"{name}: {config.model_type} is an encoder-decoder model; decoder-only is needed")
    kinds = set(getattr(text, "layer_types", None) or ()) - {"full_attention", "sliding_attention"}
    if config.model_type in RECURRENT or kinds:
        why = f"layers of type {sorted(kinds)}" if kinds else "a recurrent state"
        raise ValueError(f"{name}: {config.model_type} has {why} and cannot take back rejected tokens")
    rope = getattr(text, "rope_parameters", None) or {}
    nested = [r for r in rope.values() if isinstance(r, dict)]  # one per layer type in some families
    for kind in (r.get("rope_type") for r in [rope, *nested]):
        if kind not in ("dynamic", "longrope"):
            continue
        raise ValueError(f"{name}: rope_type {kind!r} depends on the longest row of the batch; it is not supported")

"""Which models can address their state by position, told from their configuration alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, PreTrainedConfig

POSITIONAL_LAYERS = {"full_attention", "sliding_attention", "attention"}
LAYER_FIELDS = ("layer_types", "layers_block_type", "block_types")
RECURRENT = {
    "bamba", "bailing_hybrid", "falcon_h1", "falcon_mamba", "granitemoehybrid", "jamba", "kimi_linear", "lfm2",
    "lfm2_moe", "mamba", "mamba2", "minimax", "nemotron_h", "olmo_hybrid", "plamo2", "qwen3_next",
    "recurrent_gemma", "rwkv", "xlstm", "zamba", "zamba2",
}  # fmt: skip
# Their embedding counts positions from padding_idx + 1 on and, given ids, would read the wrong rows.
OFFSET_POSITIONS = {
    "camembert", "data2vec-text", "roberta", "roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl", "xmod",
}  # fmt: skip
BATCH_WIDE_ROPE = {"dynamic", "longrope"}
_CANNOT_REWIND = "its state is not addressed by position, so rejected tokens could not be taken back"


def check_model(config: PreTrainedConfig, label: str) -> PreTrainedConfig:
    """The text part of ``config`` if that model can rewind by position; ValueError says why it cannot."""
    if config.is_encoder_decoder:
        raise ValueError(f"{label}.is_encoder_decoder: True ({config.model_type}); only decoder-only models can draft")
    text = config.get_text_config(decoder=True)
    kind = text.model_type
    for field in LAYER_FIELDS:
        strange = sorted(set(map(str, getattr(text, field, None) or [])) - POSITIONAL_LAYERS)
        if strange:
            raise ValueError(f"{label}.{field}: {', '.join(strange)} in {kind}: {_CANNOT_REWIND}")
    if kind in RECURRENT or _is_stateful(text):
        raise ValueError(f"{label}.model_type: {kind!r} is recurrent or hybrid: {_CANNOT_REWIND}")
    if kind in OFFSET_POSITIONS:
        raise ValueError(f"{label}.model_type: {kind!r} counts positions from its padding id on, not from 0")
    if kind in ("bloom", "mpt") or getattr(text, "alibi", False):
        raise ValueError(f"{label}.model_type: {kind!r} takes positions from the padding mask (ALiBi), not from ids")
    for scaling in _rope_types(text):
        if scaling in BATCH_WIDE_ROPE:
            raise ValueError(
                f"{label}.rope_parameters: rope_type {scaling!r} changes with the longest row of the batch, so "
                f"neighbours would change a row's law"
            )
    return text


def _is_stateful(config: PreTrainedConfig) -> bool:
    """Whether transformers itself says that the model's state cannot be cut back."""
    try:
        architecture = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    except KeyError:
        return False
    return bool(getattr(architecture, "_is_stateful", False))


def _rope_types(config: PreTrainedConfig) -> list[Any]:
    """Every scaling named in a configuration, which has one or one per kind of layer."""
    found = []
    for field in ("rope_parameters", "rope_scaling"):
        value = getattr(config, field, None)
        if isinstance(value, Mapping):
            nested = [part for part in value.values() if isinstance(part, Mapping)]
            found += [part.get("rope_type", part.get("type")) for part in [value, *nested]]
    return found


def context_limit(config: PreTrainedConfig) -> int | None:
    """How many positions a model may be fed; ``None`` if its configuration names no limit."""
    limit = getattr(config.get_text_config(decoder=True), "max_position_embeddings", None)
    return int(limit) if limit else None

"""Weights of a LLaMA-family model as one layer function wants them, read from a Hugging Face module.

Query, key and value matrices lie below each other in memory, and so do gate and up: each group is one product.
The module's own parameters become views of the joined matrices, so nothing is stored twice and the module
computes what it did before.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")


class LayerWeights(NamedTuple):
    """One layer. E is the model's width, D a head's, H and K the numbers of query and key heads, I the inner width.

    Attributes:
        input_norm, post_norm: [E].
        qkv: [(H + 2K) D, E]; out: [E, H D]; gate_up: [2I, E]; down: [E, I]; each with its bias or ``None``.
        q_norm, k_norm: [D] of families that normalise each head (Qwen3), else ``None``.
    """

    input_norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    out: Tensor
    out_bias: Tensor | None
    post_norm: Tensor
    gate_up: Tensor
    gate_up_bias: Tensor | None
    down: Tensor
    down_bias: Tensor | None
    q_norm: Tensor | None
    k_norm: Tensor | None


class ModelWeights(NamedTuple):
    """All layers and what stands around them.

    Attributes:
        embedding: [ids, E]; norm: [E], before the head; head: [V, E], which may share the embedding's memory.
        kv_heads: K; head_dim: D; eps: of every norm.
        windows: per layer, how many positions it sees back from its own, that included; ``None``: all of them.
    """

    embedding: Tensor
    layers: tuple[LayerWeights, ...]
    norm: Tensor
    head: Tensor
    head_bias: Tensor | None
    kv_heads: int
    head_dim: int
    eps: float
    windows: tuple[int | None, ...]


def check_family(config: PreTrainedConfig, runtime: str, label: str) -> None:
    """Raise ValueError for a configuration whose layers are not those of the LLaMA family."""
    kind = config.model_type
    if kind not in FAMILIES:
        raise ValueError(f"{label}.runtime: {runtime!r} computes {', '.join(FAMILIES)}, not {kind!r}")
    if config.hidden_act not in ("silu", "swish"):
        raise ValueError(f"{label}.hidden_act: {config.hidden_act!r}; runtime {runtime!r} gates by silu only")
    if getattr(config, "quantization_config", None) is not None:
        raise ValueError(f"{label}.quantization_config: runtime {runtime!r} takes plain weights, these are quantised")


def read_weights(module: Any) -> ModelWeights:
    """The weights of a module that ``check_family`` lets pass; its parameters are views of what is returned.

    Modules whose weights were joined before share them: reading twice takes no memory.
    """
    config, inner, head = module.config, module.model, module.get_output_embeddings()
    layers = tuple(_layer(layer) for layer in inner.layers[: config.num_hidden_layers])
    attention = inner.layers[0].self_attn
    return ModelWeights(
        embedding=inner.embed_tokens.weight.detach(),
        layers=layers,
        norm=inner.norm.weight.detach(),
        head=head.weight.detach(),
        head_bias=_bias(head),
        kv_heads=config.num_key_value_heads,
        head_dim=attention.head_dim,
        eps=config.rms_norm_eps,
        windows=_windows(config),
    )


def _layer(layer: Any) -> LayerWeights:
    attention, mlp = layer.self_attn, layer.mlp
    qkv = (attention.q_proj, attention.k_proj, attention.v_proj)
    gate_up = (mlp.gate_proj, mlp.up_proj)
    return LayerWeights(
        input_norm=layer.input_layernorm.weight.detach(),
        qkv=joined([x.weight for x in qkv]),
        qkv_bias=_biases(qkv),
        out=attention.o_proj.weight.detach(),
        out_bias=_bias(attention.o_proj),
        post_norm=layer.post_attention_layernorm.weight.detach(),
        gate_up=joined([x.weight for x in gate_up]),
        gate_up_bias=_biases(gate_up),
        down=mlp.down_proj.weight.detach(),
        down_bias=_bias(mlp.down_proj),
        q_norm=_norm(attention, "q_norm"),
        k_norm=_norm(attention, "k_norm"),
    )


def joined(parts: Sequence[nn.Parameter]) -> Tensor:
    """The parts below each other; afterwards each part is a view of the result."""
    first, rows = parts[0].detach(), sum(len(p) for p in parts)
    if _adjacent(parts):
        return first.as_strided((rows, *first.shape[1:]), first.stride())
    whole = torch.cat([p.detach() for p in parts])
    for part, view in zip(parts, whole.split([len(p) for p in parts]), strict=True):
        part.data = view
    return whole


def _adjacent(parts: Sequence[Tensor]) -> bool:
    """Whether the parts already lie below each other in one block of memory."""
    return all(
        a.is_contiguous()
        and b.is_contiguous()
        and a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
        and a.storage_offset() + a.numel() == b.storage_offset()
        for a, b in itertools.pairwise(parts)
    )


def _biases(layers: Sequence[Any]) -> Tensor | None:
    return None if layers[0].bias is None else joined([x.bias for x in layers])


def _bias(layer: Any) -> Tensor | None:
    bias = getattr(layer, "bias", None)
    return None if bias is None else bias.detach()


def _norm(attention: Any, name: str) -> Tensor | None:
    norm = getattr(attention, name, None)
    return None if norm is None else norm.weight.detach()


def _windows(config: Any) -> tuple[int | None, ...]:
    """The sliding window of each layer."""
    window = getattr(config, "sliding_window", None) if getattr(config, "use_sliding_window", True) else None
    kinds = getattr(config, "layer_types", None) or ["sliding_attention"] * config.num_hidden_layers
    return tuple(window if kind == "sliding_attention" else None for kind in kinds[: config.num_hidden_layers])


def check_rope(module: Any, label: str) -> None:
    """Raise ValueError for a rotary embedding that turns only a part of each head."""
    turned, width = rope_table(module, 1).shape[-1], module.model.layers[0].self_attn.head_dim
    if turned != width:
        raise ValueError(f"{label}: its rotary embedding turns {turned} of the {width} numbers of a head")


def rope_table(module: Any, positions: int) -> Tensor:
    """[positions, 2, D]: cosines, and sines whose first half is negated, by the module's own rotary embedding.

    With that sign, rotating is ``x * cos + roll(x, D / 2) * sin``.
    """
    weight = module.get_input_embeddings().weight
    ids = torch.arange(positions, device=weight.device)[None]
    cos, sin = module.model.rotary_emb(weight[:1, None], ids)
    half = sin.shape[-1] // 2
    return torch.stack([cos[0], torch.cat([-sin[0, :, :half], sin[0, :, half:]], -1)], 1)

"""Models of published shapes with random weights, made on the device that runs them.

A pass takes as long as one of the published model, because it reads as many bytes and multiplies as many numbers.
Layers may share their weights, so that a model that would not fit still streams all its bytes in every pass: a cache
of some 50 MB cannot keep a layer of a 70B until the next layer that shares it.

Shapes: LLaMA-2 from arXiv 2307.09288 and its released configurations, TinyLlama from arXiv 2401.02385, 160M and 68M
from arXiv 2305.09781 (the drafts of SpecInfer).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

SPREAD = 0.02  # standard deviation of every matrix, the usual one before training


@dataclass(frozen=True)
class Shape:
    """A LLaMA by its sizes.

    Attributes:
        hidden, intermediate: widths of the model and of its feed-forward part.
        layers, heads, kv_heads: numbers of them.
        vocab: output ids.
        positions: how many may be fed.
    """

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    vocab: int = 32_000
    positions: int = 4096

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"shape.{field.name}: expected an integer >= 1, got {value!r}")
        if self.hidden % (2 * self.heads) or self.heads % self.kv_heads:
            raise ValueError(
                f"shape.heads: {self.heads} heads, {self.kv_heads} of them with keys, do not share out {self.hidden}"
            )

    @property
    def config(self) -> LlamaConfig:
        """The transformers configuration, without special token ids."""
        return LlamaConfig(
            vocab_size=self.vocab,
            hidden_size=self.hidden,
            intermediate_size=self.intermediate,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            num_key_value_heads=self.kv_heads,
            max_position_embeddings=self.positions,
            rms_norm_eps=1e-5,
            tie_word_embeddings=False,
            bos_token_id=None,
            eos_token_id=None,
            pad_token_id=None,
        )


SHAPES = {
    "llama2-70b": Shape(8192, 28672, 80, 64, 8),
    "llama2-7b": Shape(4096, 11008, 32, 32, 32),
    "tinyllama-1b": Shape(2048, 5632, 22, 32, 4, positions=2048),
    "160m": Shape(768, 3072, 12, 12, 12, positions=2048),
    "68m": Shape(768, 3072, 2, 12, 12, positions=2048),
}


def shape_of(name: str) -> Shape:
    """The published shape of that name.

    Raises:
        ValueError: if there is none.
    """
    if name not in SHAPES:
        raise ValueError(f"shape: {name!r} is not one of {', '.join(SHAPES)}")
    return SHAPES[name]


def shaped_module(
    shape: Shape,
    device: torch.device | str,
    dtype: torch.dtype = torch.bfloat16,
    distinct: int | None = None,
    seed: int = 0,
) -> LlamaForCausalLM:
    """A model with random weights on ``device``, in eval mode without gradients; nothing is held twice on the way.

    Args:
        shape: its sizes.
        device: where weights are drawn and stay.
        dtype: of the weights.
        distinct: sets of layer weights; layer i has set i modulo ``distinct``. ``None``: a set for each layer.
        seed: of a generator of its own; global random states are left as they are.

    Raises:
        ValueError: if ``distinct`` is no number from 1 to the layers.
    """
    sets = shape.layers if distinct is None else distinct
    if isinstance(sets, bool) or not isinstance(sets, int) or not 1 <= sets <= shape.layers:
        raise ValueError(f"distinct: expected 1 to {shape.layers} sets of layer weights, got {distinct!r}")
    device = torch.device(device)
    generator = torch.Generator(device).manual_seed(seed)
    with torch.device("meta"):
        model: Any = LlamaForCausalLM(shape.config)
        model = model.to(dtype)
    shared = {f"model.layers.{i}.": f"model.layers.{i % sets}." for i in range(sets, shape.layers)}
    for name, empty in list(model.named_parameters()):
        layer = ".".join(name.split(".")[:3]) + "."
        if layer in shared:
            value = model.get_parameter(name.replace(layer, shared[layer]))
        else:
            value = nn.Parameter(_weights(name, empty, device, generator), requires_grad=False)
        owner, _, leaf = name.rpartition(".")
        setattr(model.get_submodule(owner), leaf, value)
    model.model.rotary_emb = LlamaRotaryEmbedding(shape.config).to(device)
    made: LlamaForCausalLM = model.eval()
    return made


def _weights(name: str, like: torch.Tensor, device: torch.device, generator: torch.Generator) -> torch.Tensor:
    """Ones for a norm, else draws."""
    weights = torch.empty(like.shape, dtype=like.dtype, device=device)
    if name.endswith("norm.weight"):
        return weights.fill_(1.0)
    return weights.normal_(0.0, SPREAD, generator=generator)


@dataclass(frozen=True)
class WeightBytes:
    """What a model's weights come to.

    Attributes:
        stored: bytes held in memory, shared weights once.
        streamed: bytes that a pass reads: every layer, the last norm and the head, each time; of the embedding only
            the rows of its tokens, which are left out.
    """

    stored: int
    streamed: int


def weight_bytes(module: Any) -> WeightBytes:
    """Bytes of a LLaMA's weights."""
    stored = {id(p): p.numel() * p.element_size() for p in module.parameters()}
    parts = [*module.model.layers, module.model.norm, module.get_output_embeddings()]
    streamed = sum(p.numel() * p.element_size() for part in parts for p in part.parameters())
    return WeightBytes(sum(stored.values()), streamed)


def shape_bytes(shape: Shape, distinct: int | None = None, element: int = 2) -> WeightBytes:
    """The same numbers from the sizes alone, ``element`` bytes a weight, before anything is made."""
    head = shape.hidden // shape.heads
    attention = shape.hidden * head * (2 * shape.heads + 2 * shape.kv_heads)
    layer = attention + 3 * shape.hidden * shape.intermediate + 2 * shape.hidden
    table = shape.vocab * shape.hidden
    sets = shape.layers if distinct is None else distinct
    around = shape.hidden + table
    return WeightBytes(element * (sets * layer + around + table), element * (shape.layers * layer + around))

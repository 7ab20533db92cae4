"""Models of a given small shape with seeded random weights, for tests and dry runs."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

_GROUPED = ("llama", "mistral", "qwen2", "qwen3", "gemma3_text", "phi3", "olmo2", "granite")
_WINDOWED = ("mistral", "qwen2", "qwen3", "gemma3_text", "phi3")
FAMILIES = (*_GROUPED, "gpt2", "gpt_neox", "opt")
_TEXT_KEYS = {"range": "initializer_range"}  # short names in the text form


@dataclass(frozen=True)
class RandomWeights:
    """A model with random weights: the same shape and seed give the same weights.

    Attributes:
        family: one of ``FAMILIES`` (transformers model types).
        kv_heads: key/value heads; ``None`` is half the heads where the family groups keys and the number
            is even, else all of them.
        positions: how many positions may be fed.
        intermediate: width of the feed-forward part; ``None`` is twice ``hidden``.
        window: sliding attention window in tokens, for the families that have one; ``None`` is none.
        initializer_range: standard deviation of the weights. The default gives peaked next-token laws;
            the usual 0.02 gives near-flat ones, on which wrong decoders pass tests by luck.
    """

    family: str
    hidden: int = 32
    layers: int = 2
    heads: int = 4
    kv_heads: int | None = None
    vocab: int = 64
    positions: int = 128
    intermediate: int | None = None
    window: int | None = None
    seed: int = 0
    initializer_range: float = 0.5

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            raise ValueError(f"random.family: {self.family!r} is not one of {', '.join(FAMILIES)}")
        for name in ("hidden", "layers", "heads", "kv_heads", "vocab", "positions", "intermediate", "window"):
            value = getattr(self, name)
            optional = name in ("kv_heads", "intermediate", "window")
            if not (value is None and optional) and (type(value) is not int or value < 1):
                raise ValueError(f"random.{name}: expected an integer >= 1, got {value!r}")
        if type(self.seed) is not int or self.seed < 0:
            raise ValueError(f"random.seed: expected an integer >= 0, got {self.seed!r}")
        if not (math.isfinite(self.initializer_range) and self.initializer_range > 0):
            raise ValueError(f"random.range: expected a number > 0, got {self.initializer_range!r}")
        self._check_heads()
        if self.window is not None and self.family not in _WINDOWED:
            raise ValueError(f"random.window: {self.family} has no sliding window; {', '.join(_WINDOWED)} do")

    def _check_heads(self) -> None:
        """Refuse head counts that do not divide what they share out."""
        if self.hidden % (2 * self.heads):
            raise ValueError(f"random.heads: {self.heads} heads do not give an even width each of {self.hidden}")
        if self.kv_heads is not None and self.heads % self.kv_heads:
            raise ValueError(f"random.kv_heads: {self.kv_heads} does not divide {self.heads} heads")
        if self.kv_heads not in (None, self.heads) and self.family not in _GROUPED:
            raise ValueError(f"random.kv_heads: {self.family} has one key head per head, not {self.kv_heads}")

    def __str__(self) -> str:
        """The text that ``parse_random`` reads back: the family and what differs from the defaults."""
        short = {name: text for text, name in _TEXT_KEYS.items()}
        changed = [
            f"{short.get(f.name, f.name)}={getattr(self, f.name)}"
            for f in fields(self)
            if f.name != "family" and getattr(self, f.name) != f.default
        ]
        return f"random:{self.family}" + ("?" + "&".join(changed) if changed else "")


def parse_random(text: str) -> RandomWeights:
    """Read ``llama?hidden=64&layers=2&seed=1&range=0.5``; ValueError names the key that does not fit."""
    family, _, query = text.partition("?")
    known = [f.name for f in fields(RandomWeights) if f.name != "family"]
    values: dict[str, Any] = {}
    for item in filter(None, query.split("&")):
        key, _, value = item.partition("=")
        name = _TEXT_KEYS.get(key, key)
        if name not in known or name in values:
            raise ValueError(f"random:{text}: {key!r} is unknown or given twice; the keys are {', '.join(known)}")
        try:
            values[name] = float(value) if name == "initializer_range" else int(value)
        except ValueError:
            raise ValueError(f"random:{text}: {key} needs a number, got {value!r}") from None
    return RandomWeights(family, **values)


def random_config(shape: RandomWeights) -> PreTrainedConfig:
    """The transformers configuration of ``shape``; without special token ids."""
    common = {"vocab_size": shape.vocab, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    inner = shape.intermediate or 2 * shape.hidden
    if shape.family == "gpt2":
        sizes: dict[str, Any] = {
            "n_embd": shape.hidden,
            "n_layer": shape.layers,
            "n_head": shape.heads,
            "n_inner": inner,
        }
        sizes |= {"n_positions": shape.positions, "initializer_range": shape.initializer_range}
        return AutoConfig.for_model("gpt2", **common, **sizes)
    sizes = {
        "hidden_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "max_position_embeddings": shape.positions,
    }
    if shape.family == "opt":
        width: dict[str, Any] = {
            "ffn_dim": inner,
            "word_embed_proj_dim": shape.hidden,
            "init_std": shape.initializer_range,
        }
        return AutoConfig.for_model("opt", **common, **sizes, **width)
    sizes |= {"intermediate_size": inner, "initializer_range": shape.initializer_range}
    if shape.family in _GROUPED:
        halved = shape.heads // 2 if shape.heads % 2 == 0 else shape.heads
        sizes |= {"num_key_value_heads": shape.kv_heads or halved, "head_dim": shape.hidden // shape.heads}
    return AutoConfig.for_model(shape.family, **common, **sizes, **_window_fields(shape))


def _window_fields(shape: RandomWeights) -> dict[str, Any]:
    """How each windowed family is told about its window; sliding and full layers both occur if it can."""
    kinds = [("sliding_attention", "full_attention")[i % 2] for i in range(shape.layers)]
    if shape.family == "gemma3_text":  # always has sliding layers; without a window they see everything
        return {"sliding_window": shape.window or shape.positions, "layer_types": kinds}
    if shape.family in ("qwen2", "qwen3") and shape.window:
        return {"use_sliding_window": True, "sliding_window": shape.window, "layer_types": kinds}
    return {"sliding_window": shape.window} if shape.family in ("mistral", "phi3") else {}


def random_module(shape: RandomWeights) -> PreTrainedModel:
    """A float32 CPU model in eval mode without gradients; torch's global random state is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(shape.seed)  # the CPU's only: weights are drawn there
        model = AutoModelForCausalLM.from_config(random_config(shape), dtype=torch.float32)
    return model.eval().requires_grad_(False)

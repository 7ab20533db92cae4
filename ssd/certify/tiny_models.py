"""Tiny random models with peaked rows (initializer range 0.5), and chains of them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from ssd.core.chain import Chain, Edge, Level
from ssd.core.model import CachedModel
from ssd.core.ngram import Ngram

VOCAB = 64
P = (1, 5, 9, 5, 9, 5, 9)


def tiny_llama(seed: int, layers: int = 2, vocab: int = VOCAB, dtype: torch.dtype = torch.float64, **shape: Any) -> Any:
    """A random Llama; the global random state is left as it was."""
    settings = {
        "vocab_size": vocab, "hidden_size": 32, "num_hidden_layers": layers, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 64, "max_position_embeddings": 128, "initializer_range": 0.5,
    }  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: Any = LlamaForCausalLM(LlamaConfig(**{**settings, **shape}))
    return model.to(dtype).eval()


def tiny_gpt2(
    seed: int, layers: int = 2, positions: int = 128, vocab: int = VOCAB, dtype: torch.dtype = torch.float64
) -> Any:
    """A random GPT-2, whose learned absolute positions show any shift; the global random state is left as it was."""
    config = GPT2Config(
        vocab_size=vocab, n_embd=32, n_layer=layers, n_head=4, n_positions=positions, initializer_range=0.5,
        bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: Any = GPT2LMHeadModel(config)
    return model.to(dtype).eval()


def near(module: Any, noise: float, seed: int, build: Callable[..., Any] = tiny_llama, **shape: Any) -> Any:
    """A random model whose weights are the module's plus ``noise`` times its own: a draft that fits it.

    Rows of a larger or smaller vocabulary that the module lacks stay random.
    """
    draft = build(seed, **shape)
    with torch.no_grad():
        for mine, theirs in zip(draft.parameters(), module.parameters(), strict=True):
            rows = min(len(mine), len(theirs))
            mine[:rows] = theirs[:rows] + noise * mine[:rows]
    return draft


def with_positions(module: Any, positions: int) -> Any:
    """A GPT-2 like ``module`` whose position table ends after ``positions`` rows."""
    short = copy.deepcopy(module)
    short.config.n_positions = positions
    table = short.transformer.wpe
    table.weight = nn.Parameter(table.weight.detach()[:positions].clone())
    table.num_embeddings = positions
    return short


def with_draft_vocabulary(module: Any, ids: Sequence[int]) -> Any:
    """The module with its head cut down to the rows of ``ids``."""
    rows = module.get_output_embeddings().weight.detach()[list(ids)].clone()
    head = nn.Linear(rows.shape[1], rows.shape[0], bias=False, dtype=rows.dtype)
    head.weight = nn.Parameter(rows)
    module.lm_head = head
    return module


def chain_of(modules: Sequence[Any], edges: Sequence[Edge], **options: Any) -> Chain:
    """A chain of modules, levels or n-grams."""
    levels = [m if isinstance(m, Level) else Level(m if isinstance(m, Ngram) else CachedModel(m)) for m in modules]
    return Chain(tuple(levels), tuple(edges), **options)


@lru_cache(maxsize=100_000)
def next_logits(module: Any, prefix: tuple[int, ...]) -> Tensor:
    """[1, 1, V] after a prefix, by a full pass without a cache; prefixes come back, so they are kept."""
    with torch.inference_mode():
        return module(torch.tensor([prefix]), use_cache=False).logits[:, -1:].clone()


def greedy(module: Any, ids: Sequence[int], n: int) -> list[int]:
    """One token at a time, a full pass each, no cache."""
    text = list(ids)
    for _ in range(n):
        with torch.inference_mode():
            text.append(int(module(torch.tensor([text])).logits[0, -1].argmax()))
    return text[len(ids) :]

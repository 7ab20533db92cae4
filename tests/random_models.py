"""Tiny random models with peaked rows (initializer range 0.5) and their twins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

from ssd.core import randomness as rng
from ssd.core.chain import Chain, Edge, Level
from ssd.core.model import CachedModel
from ssd.core.ngram import Ngram
from ssd.core.reference import Twin, TwinLevel
from ssd.core.requests import Override, Request
from ssd.core.sampling import LevelSampling, law

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
        return LlamaForCausalLM(LlamaConfig(**{**settings, **shape})).to(dtype).eval()


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


def twin_level(chain: Chain, k: int, request: Request) -> TwinLevel:
    """Level k of a chain as a function of the prefix, computed without a cache."""
    level = chain.levels[k]
    if isinstance(level.model, Ngram):
        return TwinLevel(None, look_up=level.model.look_up)
    own = Override() if k == chain.depth else level.sampling
    sampling = request.sampling.overridden_by(own)
    settings = LevelSampling([sampling], torch.device("cpu"), confidence=True)
    ids = level.draft_to_target
    model = level.model

    def rows(prefix: list[int]) -> Any:
        feed = torch.tensor([[t if t < model.embeddings else 0 for t in prefix]])
        with torch.inference_mode():
            logits = model.module(feed).logits[:, -1:, : chain.output_size(k)]
        return law(logits, settings)

    def probabilities(prefix: list[int]) -> list[float]:
        result = rows(prefix)
        size = chain.output_size(k)
        own_row = result.probs[0, 0] if result.probs is not None else one_hot(int(result.top), size)
        full = torch.zeros(chain.vocab_size, dtype=own_row.dtype)
        full[slice(size) if ids is None else ids] = own_row
        return full.tolist()

    limit = 10**9 if model.max_positions is None else model.max_positions
    return TwinLevel(probabilities, lambda prefix: float(rows(prefix).confidence), limit)


def one_hot(index: int, size: int) -> Tensor:
    """All mass on one id."""
    return torch.nn.functional.one_hot(torch.tensor(index), size).to(torch.float64)


def twin_ids(chain: Chain, request: Request, index: int = 0) -> list[int]:
    """What the twin generates for a request (no stop rules)."""
    number = index if request.request is None else request.request
    levels = [twin_level(chain, k, request) for k in range(len(chain.levels))]
    root = rng.root_int(request.seed, number, request.sample)
    return Twin(levels, chain.edges).generate(list(request.ids), request.max_new_tokens, root)


def greedy(module: Any, ids: Sequence[int], n: int) -> list[int]:
    """One token at a time, a full pass each, no cache."""
    text = list(ids)
    for _ in range(n):
        with torch.inference_mode():
            text.append(int(module(torch.tensor([text])).logits[0, -1].argmax()))
    return text[len(ids) :]

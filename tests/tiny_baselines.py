"""Tiny models and the baselines on them, shared by the tests of the baselines."""

from __future__ import annotations

from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from ssd.bench.transformers_methods import TransformersAR, TransformersAssisted, TransformersPromptLookup
from ssd.certify.tiny_models import P, tiny_llama
from ssd.certify.tiny_models import greedy as naive
from ssd.core.requests import Generation, Request, Sampling

GREEDY = Sampling(temperature=0)
NAMES = ("ar", "assisted", "lookup")


def tiny(seed: int, layers: int = 2, **changes: Any) -> Any:
    """A random Llama in float32, the precision transformers samples in."""
    return tiny_llama(seed, layers, dtype=torch.float32, **changes)


def tiny_gpt2(seed: int, positions: int) -> Any:
    """A random model with a table of ``positions`` positions."""
    config = GPT2Config(vocab_size=64, n_positions=positions, n_embd=32, n_layer=2, n_head=4, initializer_range=0.5)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return GPT2LMHeadModel(config).eval()


TARGET = tiny(0)
DRAFT = tiny(2, layers=1)
EXPECTED = tuple(naive(TARGET, P, 30))


def method(name: str, target: Any = TARGET, draft: Any = DRAFT, gamma: int = 3, **options: Any) -> TransformersAR:
    """One of ``NAMES``."""
    if name == "ar":
        return TransformersAR(name, target, **options)
    if name == "assisted":
        return TransformersAssisted(name, target, draft, gamma, **options)
    return TransformersPromptLookup(name, target, gamma, **options)


def greedy(new: int, ids: tuple[int, ...] = P, **changes: Any) -> Request:
    """A request at temperature 0."""
    return Request(ids, GREEDY, max_new_tokens=new, **changes)


def run(chosen: TransformersAR, request: Request) -> Generation:
    """The one generation of one request."""
    (generation,) = chosen.generate([request])
    return generation

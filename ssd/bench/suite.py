"""The methods of a run, built over one set of loaded models."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from ssd.bench.chain_check import inspect_levels
from ssd.bench.loading import NGRAM, Loader
from ssd.bench.method_spec import MethodSpec
from ssd.bench.methods import ChainMethod, Method
from ssd.bench.shared_weights import full_vocabulary
from ssd.bench.spec import ChainSpec, RunSpec
from ssd.bench.transformers_methods import TransformersAR, TransformersAssisted, TransformersPromptLookup


def sub_chain(chain: ChainSpec, method: MethodSpec) -> ChainSpec:
    """The levels and edges of ``chain`` that a method uses, its models computed as the method says."""
    if method.kind != "chain":
        return ChainSpec(chain.levels[-1:])
    levels = tuple(NGRAM if isinstance(k, str) else chain.levels[k] for k in method.levels) or chain.levels
    if method.runtime is not None:  # a look-up has no passes to compute
        levels = tuple(x if x.is_ngram else replace(x, runtime=method.runtime) for x in levels)
    return ChainSpec(levels, method.edges or (() if method.levels else chain.edges))


def build(name: str, method: MethodSpec, spec: RunSpec, loader: Loader) -> Method:
    """One method of a run, ready to generate."""
    with _named(f"methods.{name}"):
        chain = loader.chain(sub_chain(spec.chain, method))
    if method.kind == "chain":
        pipeline = spec.pipeline_of(method) if spec.schedule_of(method) == "pipelined" else None
        with _named(f"methods.{name}"):
            return ChainMethod(name, chain, pipeline, method.cores)
    target: Any = loader.module(spec.chain.levels[-1])[0]
    if method.kind == "transformers_ar":
        return TransformersAR(name, target, tokenizer=chain.tokenizer)
    assert method.gamma is not None
    if method.kind == "transformers_lookup":
        return TransformersPromptLookup(name, target, method.gamma, tokenizer=chain.tokenizer)
    bottom = method.levels[0] if method.levels else 0
    assert isinstance(bottom, int)
    draft: Any
    draft, ids = loader.module(spec.chain.levels[bottom])
    rows = draft if ids is None else full_vocabulary(draft, ids, chain.vocab_size)
    return TransformersAssisted(name, target, rows, method.gamma, tokenizer=chain.tokenizer)


def build_all(spec: RunSpec, loader: Loader) -> list[Method]:
    """Every method of a run, in the order of the spec; all are checked before any weights are read."""
    check_methods(spec)
    return [build(name, method, spec, loader) for name, method in spec.methods.items()]


def check_methods(spec: RunSpec) -> None:
    """Raise ValueError for levels of the chain or of a method that cannot be built, before any weights are read."""
    check_levels(spec.chain)
    for name, method in spec.methods.items():
        with _named(f"methods.{name}"):
            check_levels(sub_chain(spec.chain, method))


def check_levels(chain: ChainSpec) -> None:
    """Raise ValueError with every problem of a chain, each naming level or edge, field and value."""
    if problems := inspect_levels(chain.levels, chain.edges).problems:
        raise ValueError("\n".join(problems))


@contextmanager
def _named(place: str) -> Iterator[None]:
    """Errors inside say which method they are about."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from error

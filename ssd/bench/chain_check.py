"""Everything about a chain that can be said before weights are read: all problems at once, not the first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
import yaml
from transformers import PreTrainedConfig

from ssd.bench.byte_tokenizer import SIZE, ByteTokenizer
from ssd.bench.compatibility import examine_chain
from ssd.bench.end_of_text import end_ids, stated_end_ids
from ssd.bench.method_spec import EdgeSpec
from ssd.bench.random_weights import RandomWeights
from ssd.bench.sources import NgramSource, Source, check_device, parse_source, read_config, read_tokenizer
from ssd.bench.spec import ChainSpec, LevelSpec, chain_mapping, parse
from ssd.core.chain import Edge
from ssd.core.requests import Override
from ssd.runtime.choose import check_runtime

_tokenizer = lru_cache(maxsize=16)(read_tokenizer)  # a bench builds dozens of chains over few sources


@dataclass(frozen=True)
class LevelFacts:
    """What is known of a level without its weights.

    Attributes:
        spec: as written; ``None`` if it cannot be read.
        source: ``None`` if it names none.
        config: ``None`` for a look-up, and where it cannot be read.
        tokenizer: its own; ``None`` if it has none or it cannot be read.
        end_ids: ids that end a text; ``None`` for a look-up, and where they cannot be read.
    """

    spec: LevelSpec | None
    source: Source | None = None
    config: PreTrainedConfig | None = None
    tokenizer: Any = None
    end_ids: tuple[int, ...] | None = None

    @property
    def is_ngram(self) -> bool:
        """Whether the level looks up instead of computing."""
        return isinstance(self.source, NgramSource)


@dataclass(frozen=True)
class Inspection:
    """A chain, looked at.

    Attributes:
        levels: L0 first, the target last.
        edges: as written; ``None`` if one cannot be read.
        problems: why the chain cannot be built, one line each with level, field and value; empty if it can.
        warnings: what a chain of these levels has to live with, one line each.
    """

    levels: tuple[LevelFacts, ...]
    edges: tuple[EdgeSpec | None, ...]
    problems: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def tokenizer(self) -> Any:
        """The target's tokenizer or its stand-in; ``None`` without either."""
        target = self.levels[-1]
        return target.tokenizer or (target.source and stand_in(target.source))

    @property
    def spec(self) -> ChainSpec:
        """The chain as a spec.

        Raises:
            ValueError: every problem on a line of its own, if there are any.
        """
        if self.problems:
            raise ValueError("\n".join(self.problems))
        levels = [level.spec for level in self.levels if level.spec is not None]
        return ChainSpec(tuple(levels), tuple(e for e in self.edges if e is not None))


def inspect_chain(name: str | Path) -> Inspection:
    """What can be said of a chain by name or YAML file.

    Raises:
        ValueError: there is no such chain, or its file holds no mapping with a list of levels.
    """
    try:
        data = chain_mapping(name)
    except yaml.YAMLError as error:
        raise ValueError(f"chain: {name} is not valid YAML ({' '.join(str(error).split())})") from error
    problems = [
        f"chain.{key}: unknown field; known are levels, edges" for key in data if key not in ("levels", "edges")
    ]
    levels = _parsed(LevelSpec, data, "levels", problems)
    edges = _parsed(EdgeSpec, data, "edges", problems)
    if not levels:
        raise ValueError(f"chain.levels: expected a list of levels, got {data.get('levels')!r}")
    if len(edges) != len(levels) - 1:
        problems.append(f"chain.edges: {len(levels)} levels need {len(levels) - 1}, got {len(edges)}")
    if None not in (*levels, *edges) and not problems:
        try:
            ChainSpec(tuple(x for x in levels if x), tuple(e for e in edges if e))
        except ValueError as error:
            problems.append(f"chain.{error}")
    return inspect_levels(levels, edges, problems)


def inspect_levels(
    levels: Sequence[LevelSpec | None], edges: Sequence[EdgeSpec | None], problems: Sequence[str] = ()
) -> Inspection:
    """What can be said of levels and edges, after ``problems`` found in writing them down."""
    found = list(problems)
    facts = [_facts(k, spec, found) for k, spec in enumerate(levels)]
    for k, edge_spec in enumerate(edges):
        if edge_spec is not None:
            with _noted(f"chain.edges[{k}]", found):
                edge(edge_spec)
    last = levels[-1]
    if last is not None and _settings(last) != {}:
        found.append(f"chain.levels[{len(levels) - 1}]: {last}: the target uses the row's settings")
    unknown = [k for k, x in enumerate(facts) if x.config is None and not x.is_ngram]
    names = [str(x.source or (x.spec and x.spec.source) or "unreadable") for x in facts]
    together = examine_chain([x.config for x in facts], [x.tokenizer for x in facts], names, unknown)
    return Inspection(tuple(facts), tuple(edges), (*found, *together.problems), together.warnings)


def _parsed(kind: Any, data: Mapping[str, Any], field: str, problems: list[str]) -> list[Any]:
    """Every entry of a list parsed on its own; ``None`` and a problem for one that does not parse."""
    entries = data.get(field) or []
    if not isinstance(entries, list):
        problems.append(f"chain.{field}: expected a list, got {entries!r}")
        return []
    parsed: list[Any] = [None] * len(entries)
    for k, entry in enumerate(entries):
        with _noted("", problems):
            parsed[k] = parse(kind, entry, f"chain.{field}[{k}]")
    return parsed


def _facts(k: int, spec: LevelSpec | None, problems: list[str]) -> LevelFacts:
    """A level's source, configuration and tokenizer, each as far as it can be had."""
    if spec is None:
        return LevelFacts(None)
    place = f"chain.levels[{k}]"
    source, config, tokenizer, ends = None, None, None, None
    with _noted(place, problems):
        override_of(spec)
    with _noted(place, problems):
        source = parse_source(spec.source)
    if source is None:
        return LevelFacts(spec)
    with _noted(place, problems):
        check_device(source, device_of(spec))
    with _noted(place, problems):
        config = read_config(source)
    if config is not None:  # one unreadable folder is one problem
        with _noted("", problems):
            check_runtime(config, spec.runtime, place)
        with _noted(place, problems):
            tokenizer = _read_tokenizer(source)
        with _noted(place, problems):
            ends = end_ids(stated_end_ids(source, tokenizer))
    return LevelFacts(spec, source, config, tokenizer, ends)


def device_of(spec: LevelSpec) -> torch.device:
    """The device a level names; ValueError for a name that torch does not know."""
    try:
        return torch.device(spec.device)
    except RuntimeError as error:
        raise ValueError(f"device: {spec.device!r} is not one, such as cpu or cuda:0") from error


def _read_tokenizer(source: Source) -> Any:
    """The source's tokenizer or None; ValueError naming the source if its files cannot be read."""
    try:
        return _tokenizer(source)
    except Exception as error:  # the tokenizers library raises bare Exception for a file it cannot parse
        raise ValueError(f"{source}: cannot read its tokenizer: {type(error).__name__}: {error}") from error


@contextmanager
def _noted(place: str, problems: list[str]) -> Iterator[None]:
    """What the block refuses becomes a problem that says where in the chain the value stands."""
    try:
        yield
    except (ValueError, ImportError) as error:  # a missing converter is a reason like any other
        problems.append(f"{place}: {error}" if place else str(error))


def _settings(spec: LevelSpec) -> dict[str, Any]:
    """The sampling settings that a level has of its own."""
    own = {name: getattr(spec, name) for name in ("temperature", "top_k", "top_p", "min_p")}
    return {name: value for name, value in own.items() if value is not None}


def edge(spec: EdgeSpec) -> Edge:
    """The core's edge, which checks the values."""
    return Edge(spec.gamma, spec.window, spec.window_value, spec.verification)


def override_of(spec: LevelSpec) -> Override:
    """The core's override, which checks the values."""
    return Override(spec.temperature, spec.top_k, spec.top_p, spec.min_p)


def stand_in(target: Source) -> ByteTokenizer | None:
    """Bytes as tokens for a target of random weights that has a row for each, which comes without a tokenizer."""
    return ByteTokenizer() if isinstance(target, RandomWeights) and target.vocab >= SIZE else None

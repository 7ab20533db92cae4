"""What fully names a run: plain frozen data, parsed strictly from YAML or Hydra, no torch."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from ssd.bench.method_spec import SCHEDULES, EdgeSpec, MethodSpec
from ssd.bench.yaml_text import read_yaml
from ssd.core.requests import Sampling
from ssd.pipeline.settings import PipelineSettings
from ssd.runtime.names import RUNTIMES

T = TypeVar("T")
DTYPES = ("float64", "float32", "bfloat16", "float16")
CHAINS = Path(__file__).parent / "chains"


@dataclass(frozen=True)
class LevelSpec:
    """One level: where its model comes from, how it is held and computed, and settings that replace the row's."""

    source: str
    dtype: str = "float32"
    device: str = "cpu"
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    runtime: str = "eager"

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype: {self.dtype!r} is not one of {', '.join(DTYPES)}")
        if self.runtime not in RUNTIMES:
            raise ValueError(f"runtime: {self.runtime!r} is not one of {', '.join(RUNTIMES)}")

    @property
    def is_ngram(self) -> bool:
        """Whether the level looks up instead of computing."""
        return self.source.partition(":")[0] == "ngram"


@dataclass(frozen=True)
class ChainSpec:
    """Levels from the smallest draft to the target, and the edges between them."""

    levels: tuple[LevelSpec, ...]
    edges: tuple[EdgeSpec, ...] = ()

    def __post_init__(self) -> None:
        if len(self.edges) != len(self.levels) - 1:
            raise ValueError(f"edges: {len(self.levels)} levels need {len(self.levels) - 1}, got {len(self.edges)}")
        for k, level in enumerate(self.levels):
            if level.is_ngram:
                self._check_ngram(k, level)

    def _check_ngram(self, k: int, level: LevelSpec) -> None:
        """A look-up has no distribution and no passes, so settings that act on them are refused instead of ignored."""
        if level.runtime != "eager":
            raise ValueError(f"levels[{k}].runtime: {level.runtime!r} has no meaning for {level.source!r}, a look-up")
        for name in ("temperature", "top_k", "top_p", "min_p"):
            if getattr(level, name) is not None:
                value = getattr(level, name)
                raise ValueError(f"levels[{k}].{name}: {value!r} has no meaning for {level.source!r}, a look-up")
        if k < len(self.edges) and self.edges[k].window == "confidence":
            raise ValueError(f"edges[{k}].window: 'confidence' has no meaning for {level.source!r}, a look-up")


@dataclass(frozen=True)
class PromptSpec:
    """Which prompts of which data set; the fields are those of ``ssd.bench.dataset_spec.DatasetSpec``.

    By default the ``measure`` split of the bundled suite.
    """

    split: str | None = "measure"
    tasks: tuple[str, ...] = ()
    limit: int | None = None
    name: str = "bundled"
    path: str | None = None
    repo: str | None = None
    config: str | None = None
    revision: str | None = None
    offset: int = 0
    fields: dict[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class RunSpec:
    """One run: every method on every prompt, under one sampling setting.

    Attributes:
        samples: continuations per prompt.
        batch: requests decoded together by our own methods; baselines always run one by one.
        stop: strings that end an output, with the token that completes the first of them.
        schedule: of our own methods that have a draft, one of ``SCHEDULES``.
        pipeline: workers of methods whose schedule is pipelined.
        traced: groups of requests, from the first on, whose passes each of our methods keeps: ``traces.json``.
    """

    name: str
    chain: ChainSpec
    methods: dict[str, MethodSpec]
    prompts: PromptSpec = PromptSpec()
    sampling: Sampling = field(default_factory=Sampling)
    max_new_tokens: int = 128
    samples: int = 1
    seed: int = 0
    batch: int = 1
    ignore_eos: bool = False
    stop: tuple[str, ...] = ()
    schedule: str = "serial"
    pipeline: PipelineSettings = field(default_factory=PipelineSettings)
    traced: int = 0

    def __post_init__(self) -> None:
        if self.traced < 0:
            raise ValueError(f"traced: expected at least 0, got {self.traced}")
        for name in ("max_new_tokens", "samples", "batch"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: expected at least 1, got {getattr(self, name)}")
        if not 0 <= self.seed < 2**64:  # the words of a key; beyond them two seeds would be one
            raise ValueError(f"seed: {self.seed} is outside [0, 2**64)")
        if self.schedule not in SCHEDULES:
            raise ValueError(f"schedule: {self.schedule!r} is not one of {', '.join(SCHEDULES)}")
        if not all(self.stop):
            raise ValueError(f"stop: an empty string would end every output at once, got {list(self.stop)!r}")
        if not self.methods:
            raise ValueError("methods: a run needs at least one")
        size = len(self.chain.levels)
        for name, method in self.methods.items():
            for level in method.levels:
                if level != "ngram" and not (isinstance(level, int) and -size <= level < size):
                    raise ValueError(f"methods.{name}.levels: no level {level!r} in a chain of {size}")
            self._check_method(name, method)

    def schedule_of(self, method: MethodSpec) -> str:
        """How a method's levels are scheduled; without a draft there is nothing to schedule."""
        levels = len(method.levels) or len(self.chain.levels)
        if method.kind != "chain" or levels == 1:
            return "serial"
        return method.schedule or self.schedule

    def pipeline_of(self, method: MethodSpec) -> PipelineSettings:
        """The workers of a method whose schedule is pipelined."""
        return method.pipeline or self.pipeline

    def _check_method(self, name: str, method: MethodSpec) -> None:
        """Every method speaks for the target, and a baseline is given what its kind uses and no more."""
        owner, size = f"methods.{name}", len(self.chain.levels)
        levels = [k % size if isinstance(k, int) else k for k in method.levels]
        if levels and levels[-1] != size - 1:
            raise ValueError(f"{owner}.levels: {list(method.levels)!r} does not end with the target, level {size - 1}")
        if method.kind == "chain":
            depth = (len(levels) or size) - 1
            if method.schedule == "pipelined" and depth == 0:
                raise ValueError(f"{owner}.schedule: 'pipelined' needs a draft, and {list(method.levels)!r} has none")
            if self.schedule_of(method) == "pipelined":
                try:
                    self.pipeline_of(method).groups(depth + 1)
                except ValueError as error:
                    raise ValueError(f"{owner}: {error}") from error
            if len(levels) > 1 and len(method.edges) != len(levels) - 1:
                raise ValueError(f"{owner}.edges: {len(levels)} levels need {len(levels) - 1}, got {len(method.edges)}")
            return
        if method.edges:
            raise ValueError(f"{owner}.edges: kind {method.kind!r} has none; its draft length is gamma")
        wanted = 2 if method.kind == "transformers_assisted" else 1
        if levels and len(levels) != wanted and (method.kind, levels[0]) != ("transformers_lookup", "ngram"):
            raise ValueError(f"{owner}.levels: kind {method.kind!r} takes {wanted}, got {list(method.levels)!r}")
        if method.kind == "transformers_assisted":
            draft = levels[0] if levels else 0
            if draft == "ngram" or (isinstance(draft, int) and self.chain.levels[draft].is_ngram):
                raise ValueError(
                    f"{owner}.levels: kind {method.kind!r} needs a draft model; for a look-up use transformers_lookup"
                )


def parse(kind: type[T], value: Any, path: str = "") -> T:
    """Build a spec dataclass from plain data.

    Raises:
        ValueError: naming the path and the value, for an unknown or missing field or a wrong type.
    """
    if not isinstance(value, Mapping):
        raise ValueError(f"{path or kind.__name__}: expected a mapping, got {value!r}")
    known = {f.name: f for f in fields(kind)}  # type: ignore[arg-type]
    dot = f"{path}." if path else ""
    for name in value:
        if name not in known:
            raise ValueError(f"{dot}{name}: unknown field; known are {', '.join(known)}")
    for name, f in known.items():
        if name not in value and f.default is MISSING and f.default_factory is MISSING:
            raise ValueError(f"{dot}{name}: missing")
    hints = get_type_hints(kind)
    built = {name: _convert(hints[name], entry, f"{dot}{name}") for name, entry in value.items()}
    try:
        return kind(**built)
    except ValueError as error:
        raise ValueError(f"{path}: {error}" if path else str(error)) from error


def _convert(hint: Any, value: Any, path: str) -> Any:
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in args:
            return None
        inner = [a for a in args if a is not type(None)]
        return _convert(inner[0], value, path) if len(inner) == 1 else _one_of(inner, value, path)
    if origin is tuple:
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise ValueError(f"{path}: expected a list, got {value!r}")
        hints = args[:1] * len(value) if args[-1] is Ellipsis else args
        if len(hints) != len(value):
            raise ValueError(f"{path}: expected {len(hints)} entries, got {value!r}")
        return tuple(_convert(h, v, f"{path}[{i}]") for i, (h, v) in enumerate(zip(hints, value, strict=True)))
    if origin is dict:
        if not isinstance(value, Mapping):
            raise ValueError(f"{path}: expected a mapping, got {value!r}")
        return {str(k): _convert(args[1], v, f"{path}.{k}") for k, v in value.items()}
    if is_dataclass(hint):
        return parse(hint, value, path)  # type: ignore[arg-type]
    return _one_of([hint], value, path)


def _one_of(kinds: Sequence[type], value: Any, path: str) -> Any:
    if float in kinds and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, tuple(kinds)) and (bool in kinds or not isinstance(value, bool)):
        return value
    raise ValueError(f"{path}: expected {' or '.join(k.__name__ for k in kinds)}, got {value!r}")


def chain_mapping(name: str | Path) -> dict[str, Any]:
    """The plain data of a chain: a YAML file, or one that comes with the package (``smollm2``)."""
    path = Path(name)
    if path.suffix not in (".yaml", ".yml"):
        path = CHAINS / f"{name}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in CHAINS.glob("*.yaml")))
        raise ValueError(f"chain: {str(name)!r} is neither a YAML file nor one of {known}")
    data = read_yaml(path.read_text(encoding="utf-8"))
    if not isinstance(data, dict):
        raise ValueError(f"chain: {path} holds no mapping")
    return data


def read_chain(name: str | Path) -> ChainSpec:
    """The chain of a YAML file or of the package, parsed."""
    return parse(ChainSpec, chain_mapping(name), "chain")

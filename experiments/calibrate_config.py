"""What is calibrated: ``conf/calibrate.yaml`` with the values of the command line, checked before anything loads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from experiments.arguments import check_prompts, overridden
from experiments.bench_config import STAGE_KEYS
from ssd.bench.length_bins import bins_of
from ssd.bench.spec import ChainSpec, PromptSpec, parse, read_chain
from ssd.core.requests import Sampling
from ssd.plan.edge_plan import EdgePlan

PURPOSES = {"tune": "calibrate", "measure": "evaluate"}
OPTIONAL = dict.fromkeys(PURPOSES, STAGE_KEYS)
EXAMPLE = "sampling.temperature=0.7"


@dataclass(frozen=True)
class Stage(PromptSpec):
    """Prompts, and how many new tokens each gets at most."""

    max_new_tokens: int = 64

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1:
            raise ValueError(f"max_new_tokens: expected an integer >= 1, got {self.max_new_tokens!r}")

    @property
    def prompts(self) -> PromptSpec:
        """The prompts alone."""
        return PromptSpec(**{f.name: getattr(self, f.name) for f in fields(PromptSpec)})


@dataclass(frozen=True)
class RowSampling:
    """The row's settings, at each of several temperatures."""

    temperature: tuple[float, ...]
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0

    def at(self, temperature: float) -> Sampling:
        """The settings at one temperature."""
        return Sampling(temperature, self.top_k, self.top_p, self.min_p)

    @property
    def filters(self) -> str:
        """The filters that are on, such as ``_top_k5``; nothing where none is."""
        named = {"top_k": (self.top_k, 0), "top_p": (self.top_p, 1.0), "min_p": (self.min_p, 0.0)}
        return "".join(f"_{name}{value:g}" for name, (value, off) in named.items() if value != off)


@dataclass(frozen=True)
class Profiling:
    """How passes are timed: widths, timed passes of each, tokens before them."""

    widths: tuple[int, ...]
    repeats: int
    context: int


@dataclass(frozen=True)
class CalibrateSpec:
    """What ``conf/calibrate.yaml`` says."""

    chain: str
    results_dir: str
    temperatures_dir: str
    name: str | None
    sampling: RowSampling
    grid: tuple[float, ...]
    refine: int
    bins: tuple[int, ...]
    samples: int
    seed: int
    batch: int
    tune: Stage
    measure: Stage
    evaluate: bool
    profile: str | None
    profiling: Profiling
    largest_gamma: int | None

    def __post_init__(self) -> None:
        for key in ("samples", "batch", "refine", "largest_gamma", "profiling.repeats", "profiling.context"):
            value: Any = self
            for part in key.split("."):
                value = getattr(value, part)
            if value is not None and value < 1:
                raise ValueError(f"{key}: expected an integer >= 1, got {value!r}")
        if not self.grid:
            raise ValueError("grid: at least one temperature is needed")
        for key, values in (("grid", self.grid), ("sampling.temperature", self.sampling.temperature)):
            for t in values:
                try:
                    Sampling(t)
                except ValueError as error:
                    raise ValueError(f"{key}: {error}") from error
        if not self.sampling.temperature or len(set(self.sampling.temperature)) < len(self.sampling.temperature):
            raise ValueError(f"sampling.temperature: expected different numbers, got {self.sampling.temperature!r}")
        self.sampling.at(1.0)
        bins_of(self.bins)
        if self.bins[0] != 0:
            raise ValueError(f"bins: expected the first to be 0, got {self.bins[0]!r}")
        widths = self.profiling.widths
        if len(widths) < 2 or widths[0] != 1 or sorted(set(widths)) != list(widths):
            raise ValueError(f"profiling.widths: expected ascending integers from 1 on, at least two, got {widths!r}")

    @property
    def title(self) -> str:
        """What the saved files are named after."""
        return self.name or Path(self.chain).stem

    @property
    def results(self) -> Path:
        """Folder of the summary."""
        return Path(self.results_dir).expanduser() / "calibrate"

    def raw(self, temperature: float) -> Path:
        """Folder of the run at one temperature."""
        return Path(self.results_dir).expanduser() / "raw" / "calibrate" / label(temperature)

    def saved(self, temperature: float, vector: str) -> Path:
        """File of one vector, such as ``calibrated_smollm2_T0.7_joint.yaml``; filters of the row enter its name."""
        name = f"calibrated_{self.title}_{label(temperature)}{self.sampling.filters}_{vector}.yaml"
        return Path(self.temperatures_dir).expanduser() / name


def label(temperature: float) -> str:
    """How rows, folders and files name the target's temperature."""
    return f"T{temperature:g}"


def read_config(path: Path, arguments: Sequence[str]) -> tuple[CalibrateSpec, ChainSpec]:
    """The configuration in ``path`` with the values that ``arguments`` set, each ``key=value``; and its chain.

    Raises:
        ValueError: naming the argument, key, level or set of prompts that is wrong; among others if prompts for
            evaluation would be calibrated on, or the other way round.
    """
    config = overridden(path, arguments, OPTIONAL, EXAMPLE)
    temperature = config["sampling"]["temperature"]
    if isinstance(temperature, int | float) and not isinstance(temperature, bool):
        config["sampling"] = config["sampling"] | {"temperature": [temperature]}
    spec = parse(CalibrateSpec, config)
    for name, purpose in PURPOSES.items():
        check_prompts(name, getattr(spec, name).prompts, purpose)
    return spec, check_chain(read_chain(spec.chain))


def check_chain(chain: ChainSpec) -> ChainSpec:
    """``chain``, if it has drafts, only models without temperatures of their own, and edges that can be predicted."""
    if not chain.edges:
        raise ValueError("chain: it has no draft level, so there is no temperature to choose")
    for k, level in enumerate(chain.levels):
        if level.source.partition(":")[0] == "ngram":
            raise ValueError(f"chain.levels[{k}]: {level.source!r} is a look-up, which has no temperature to calibrate")
        if level.temperature is not None:
            raise ValueError(
                f"chain.levels[{k}].temperature: {level.temperature!r}; a calibrated file could not replace it"
            )
    for k, edge in enumerate(chain.edges):
        if edge.verification != "token":
            raise ValueError(f"chain.edges[{k}].verification: {edge.verification!r}; overlaps describe 'token' only")
        try:
            EdgePlan(edge.gamma, edge.window, edge.verification)
        except ValueError as error:
            raise ValueError(f"chain.edges[{k}]: {error}") from error
    return chain


def plain(spec: CalibrateSpec) -> Mapping[str, Any]:
    """The configuration as it stands in a record."""
    return asdict(spec)

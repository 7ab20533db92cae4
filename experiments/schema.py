"""What a composed configuration may hold: one dataclass per group, checked by Hydra while composing.

The groups' fields are those of ``ssd.bench.spec``, which checks values; here only names and types are
fixed, so that a misspelt field or a fractional gamma is refused before anything runs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, DictConfig, OmegaConf

from ssd.bench.spec import CHAINS, RunSpec, parse
from ssd.calibrate.saved import Temperatures, set_on

TIMINGS = ("paper", "shared")
TRACKERS = ("none", "offline", "online")
# No fields of RunSpec.
OPTIONS = ("label", "target_dtype", "assert_identity", "results_dir", "timing", "tracker", "temperatures")


@dataclass
class LevelConfig:
    """``ssd.bench.spec.LevelSpec``."""

    source: str = MISSING
    dtype: str = "float32"
    device: str = "cpu"
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    runtime: str = "eager"


@dataclass
class EdgeConfig:
    """``ssd.bench.method_spec.EdgeSpec``."""

    gamma: int = MISSING
    window: str = "at_least"
    window_value: float | None = None
    verification: str = "token"


@dataclass
class ChainConfig:
    """Group ``chain``: ``ssd.bench.spec.ChainSpec``."""

    levels: list[LevelConfig] = MISSING
    edges: list[EdgeConfig] = field(default_factory=list)


@dataclass
class PipelineConfig:
    """``ssd.pipeline.settings.PipelineSettings``."""

    workers: list[list[int]] = field(default_factory=list)
    kind: str = "process"
    cores: list[list[int]] = field(default_factory=list)
    budget: int = 4
    fan_out: int = 2
    force: str | None = None
    delays: list[float] = field(default_factory=list)


@dataclass
class MethodConfig:
    """Group ``method``, an entry of ``methods``: ``ssd.bench.method_spec.MethodSpec``."""

    kind: str = "chain"
    levels: list[int | str] = field(default_factory=list)
    edges: list[EdgeConfig] = field(default_factory=list)
    gamma: int | None = None
    schedule: str | None = None
    pipeline: PipelineConfig | None = None
    cores: list[int] = field(default_factory=list)
    runtime: str | None = None


@dataclass
class DatasetConfig:
    """Group ``dataset``: ``ssd.bench.spec.PromptSpec``."""

    split: str | None = None
    tasks: list[str] = field(default_factory=list)
    limit: int | None = None
    name: str = MISSING
    path: str | None = None
    repo: str | None = None
    config: str | None = None
    revision: str | None = None
    offset: int = 0
    fields: dict[str, str] = field(default_factory=dict)


@dataclass
class SamplingConfig:
    """Group ``sampling``: ``ssd.core.requests.Sampling``."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    min_new_tokens: int = 0
    bad_words_ids: list[list[int]] = field(default_factory=list)
    logit_bias: list[list[Any]] = field(default_factory=list)  # [token id, number], checked by the spec


@dataclass
class TemperaturesConfig:
    """Group ``chain/temperatures``: ``ssd.calibrate.saved.Temperatures``."""

    levels: list[float | None] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    target: float | None = None


@dataclass
class TimingConfig:
    """Group ``timing``: who else uses the machine, and whether uncommitted changes are refused."""

    mode: str = MISSING
    clean: bool = False


@dataclass
class TrackerConfig:
    """Group ``tracker``: where finished runs are mirrored to."""

    mode: str = MISSING
    project: str = "ssd-bench"
    entity: str | None = None


@dataclass
class RunConfig:
    """One run: the fields of ``ssd.bench.spec.RunSpec``, and ``OPTIONS``.

    Attributes:
        name: the experiment, a folder under ``results_dir``.
        label: what tables call the run; default its id.
        target_dtype: replaces the dtype of the chain's last level.
        assert_identity: an output at temperature 0 that leaves AR's for no rounding reason is a failure.
        results_dir: where results go, from the folder the command is given in.
    """

    name: str = "runs"
    label: str | None = None
    chain: ChainConfig = field(default_factory=ChainConfig)
    methods: dict[str, MethodConfig] = field(default_factory=lambda: {"ar": MethodConfig(levels=[-1])})
    dataset: DatasetConfig = field(default_factory=DatasetConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    temperatures: TemperaturesConfig = field(default_factory=TemperaturesConfig)
    timing: TimingConfig = field(default_factory=TimingConfig)
    tracker: TrackerConfig = field(default_factory=TrackerConfig)
    target_dtype: str | None = None
    max_new_tokens: int = 128
    samples: int = 1
    seed: int = 0
    batch: int = 1
    ignore_eos: bool = False
    stop: list[str] = field(default_factory=list)
    schedule: str = "serial"
    pipeline: PipelineConfig = field(default_factory=PipelineConfig)
    traced: int = 0
    assert_identity: bool = False
    results_dir: str = "results"


def register() -> None:
    """Hydra knows the schema, and every chain that comes with the package as an option of ``chain``."""
    store = ConfigStore.instance()
    store.store(name="run_schema", node=RunConfig)
    for path in sorted(CHAINS.glob("*.yaml")):  # the library reads the same files by name
        store.store(group="chain", name=path.stem, node=OmegaConf.load(path), provider="ssd.bench.chains")


def plain_config(config: DictConfig, strict: bool = True) -> dict[str, Any]:
    """The configuration as dict, list and scalars, interpolations resolved.

    Args:
        config: as Hydra composed it.
        strict: raise OmegaConf's error where a value is missing or refers to nothing; otherwise such values, and
            all interpolations, stay as they are written.
    """
    data = OmegaConf.to_container(config, resolve=strict, throw_on_missing=strict)
    assert isinstance(data, dict)
    return {str(key): value for key, value in data.items()}


def run_spec(data: dict[str, Any]) -> RunSpec:
    """The run that ``plain_config`` describes.

    Raises:
        ValueError: naming the key and value that does not fit.
    """
    if not re.fullmatch(r"\w[\w.-]*", data["name"]):
        raise ValueError(f"name: {data['name']!r} is no plain folder name")
    if "ar" not in data["methods"]:
        raise ValueError("methods: 'ar' is missing; every run measures it, so that ratios are paired")
    own = {key: value for key, value in data.items() if key not in OPTIONS}
    own["prompts"] = own.pop("dataset")
    spec = parse(RunSpec, own)
    spec = replace(spec, chain=set_on(spec.chain, parse(Temperatures, data["temperatures"], "temperatures")))
    if data["target_dtype"] is None:
        return spec
    *drafts, target = spec.chain.levels
    try:
        target = replace(target, dtype=data["target_dtype"])
    except ValueError as error:
        raise ValueError(f"target_{error}") from error
    return replace(spec, chain=replace(spec.chain, levels=(*drafts, target)))


def check_options(data: dict[str, Any]) -> None:
    """Raise ValueError for a timing or tracker that does not exist."""
    for group, known in (("timing", TIMINGS), ("tracker", TRACKERS)):
        if data[group]["mode"] not in known:
            raise ValueError(f"{group}.mode: {data[group]['mode']!r} is not one of {', '.join(known)}")


def results_root(data: dict[str, Any]) -> Path:
    """The folder for results, absolute."""
    return Path(data["results_dir"]).expanduser().resolve()

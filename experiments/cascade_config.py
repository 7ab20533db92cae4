"""What the cascade study runs: ``conf/cascade.yaml`` with the values of the command line, checked before loading."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from experiments.arguments import check_prompts, overridden
from experiments.bench_config import STAGE_KEYS
from experiments.calibrate_config import Stage
from ssd.bench.method_spec import EdgeSpec
from ssd.bench.spec import ChainSpec, parse, read_chain
from ssd.calibrate.saved import Temperatures, read_temperatures, set_on
from ssd.core.requests import Sampling
from ssd.plan.edge_plan import WINDOWS

EXACTLY = "exactly"  # the window under which the upper edge must not see what drafts below


@dataclass(frozen=True)
class CascadeSpec:
    """What ``conf/cascade.yaml`` says."""

    chain: str
    results_dir: str
    temperature: float
    temperatures: str | None
    windows: tuple[str, ...]
    other_temperature: float
    measure: Stage
    samples: int
    seed: int
    batch: int

    def __post_init__(self) -> None:
        for key in ("samples", "batch"):
            if getattr(self, key) < 1:
                raise ValueError(f"{key}: expected an integer >= 1, got {getattr(self, key)!r}")
        for key in ("temperature", "other_temperature"):
            try:
                Sampling(getattr(self, key))
            except ValueError as error:
                raise ValueError(f"{key}: {error}") from error
        if self.temperature == 0:
            raise ValueError("temperature: 0 makes every level greedy; the study needs a row that samples")
        if EXACTLY not in self.windows:
            raise ValueError(f"windows: {list(self.windows)!r} lack {EXACTLY!r}, which the control needs")
        for window in self.windows:
            if window not in WINDOWS:
                raise ValueError(f"windows: {window!r} is not one of {', '.join(WINDOWS)}")
        if self.other_temperature == self.temperature:
            raise ValueError(f"other_temperature: {self.other_temperature!r} is that of the row, so nothing differs")

    @property
    def results(self) -> Path:
        """Folder of the summary."""
        return Path(self.results_dir).expanduser() / "cascade"

    def raw(self, name: str) -> Path:
        """Folder of one run."""
        return Path(self.results_dir).expanduser() / "raw" / "cascade" / name


def read_config(path: Path, arguments: Sequence[str]) -> tuple[CascadeSpec, ChainSpec, Temperatures | None]:
    """The configuration with the values of the command line, its chain, and the temperatures to compare.

    Raises:
        ValueError: naming the argument, key, level or set of prompts that is wrong.
    """
    spec = parse(CascadeSpec, overridden(path, arguments, {"measure": STAGE_KEYS}, "temperature=0.7"))
    check_prompts("measure", spec.measure.prompts, "evaluate")
    chain = read_chain(spec.chain)
    if len(chain.edges) < 2:
        raise ValueError(f"chain: {spec.chain!r} has {len(chain.edges)} edges, a cascade needs two")
    for k, (level, edge) in enumerate(zip(chain.levels, chain.edges, strict=False)):
        if edge.verification != "token":
            raise ValueError(f"chain.edges[{k}].verification: {edge.verification!r}; only 'token' tests single tokens")
        if level.source.partition(":")[0] == "ngram":
            raise ValueError(f"chain.levels[{k}]: {level.source!r} is a look-up; it joins as a control")
        if level.temperature is not None:
            raise ValueError(
                f"chain.levels[{k}].temperature: {level.temperature!r}; the study sets temperatures itself"
            )
    saved = None if spec.temperatures is None else read_temperatures(Path(spec.temperatures))
    if saved is not None:
        set_on(chain, saved)
        if saved.target is not None and saved.target != spec.temperature:
            raise ValueError(
                f"temperatures: made for a row at {saved.target:g}, the study's is at {spec.temperature:g}"
            )
    return spec, chain, saved


def windowed(edges: Sequence[EdgeSpec], window: str) -> tuple[EdgeSpec, ...]:
    """The edges with this window above the lowest, where a block is one token a round under every window."""
    return (edges[0], *(replace(edge, window=window, window_value=None) for edge in edges[1:]))

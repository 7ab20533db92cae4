"""What the comparison of runtimes runs: ``conf/runtime_bench.yaml`` with the command line's values, checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from experiments.bench_config import prompts_of, read_config
from ssd.bench.method_spec import MethodSpec
from ssd.bench.spec import RunSpec, parse, read_chain
from ssd.bench.tuning import FamilySpec, parse_families
from ssd.core.requests import Sampling

TF_AR, AR = "transformers ar", "ar"
PLAIN, FAST = "eager", "graph"  # the runtimes compared


@dataclass(frozen=True)
class PassSettings:
    """How pass times are taken: tokens a pass, timed passes of each, and tokens before them."""

    widths: tuple[int, ...]
    repeats: int
    context: int

    def __post_init__(self) -> None:
        if not self.widths:
            raise ValueError("widths: expected at least one, got []")
        for name, values in (("widths", self.widths), ("repeats", (self.repeats,)), ("context", (self.context,))):
            if min(values) < 1:
                raise ValueError(f"{name}: expected at least 1, got {min(values)}")


@dataclass(frozen=True)
class RuntimeBench:
    """The comparison.

    Attributes:
        spec: the run, every method of ours under ``PLAIN`` and ``FAST``, beside transformers' AR.
        families: levels that draft for the target, by name; each has one choice of edges.
        passes: how pass times are taken.
        results: where the summary goes.
    """

    spec: RunSpec
    families: dict[str, FamilySpec]
    passes: PassSettings
    results: Path

    @property
    def ours(self) -> tuple[str, ...]:
        """AR and the families; with a runtime behind it, each is a method."""
        return (AR, *self.families)

    @property
    def versus(self) -> list[tuple[str, str]]:
        """What is compared under each runtime: families with AR, and those whose draft has a draft with pairs."""
        pairs = [name for name, family in self.families.items() if len(family.levels) == 2]
        chains = [name for name in self.families if name not in pairs]
        return [(name, AR) for name in self.families] + [(chain, pair) for chain in chains for pair in pairs]


def method(name: str, runtime: str) -> str:
    """How records call AR or a family under a runtime."""
    return f"{name} {runtime}"


def read_bench(path: Path, arguments: Sequence[str], root: Path) -> RuntimeBench:
    """The comparison that ``path`` and ``arguments``, each ``key=value``, describe.

    Raises:
        ValueError: naming the key that does not fit.
    """
    config = read_config(path, arguments, {"measure": "evaluate"})
    passes = parse(PassSettings, config["passes"], "passes")
    families = _families(config["families"])
    chain = read_chain(config["chain"])
    target = replace(chain.levels[-1], dtype=config["target_dtype"])
    chain = replace(chain, levels=(*chain.levels[:-1], target))
    methods = {TF_AR: MethodSpec("transformers_ar")}
    for name in (AR, *families):
        family = families.get(name, FamilySpec((-1,), ((),)))
        for runtime in (PLAIN, FAST):
            (edges,) = family.edges
            methods[method(name, runtime)] = MethodSpec(levels=family.levels, edges=edges, runtime=runtime)
    prompts, tokens = prompts_of(config, "measure")
    spec = RunSpec("runtime", chain, methods, prompts, Sampling(0.0), tokens, seed=config["seed"])
    return RuntimeBench(spec, families, passes, root / str(config["results_dir"]))


def _families(data: Any) -> dict[str, FamilySpec]:
    """Families of at least one draft, each with one choice of edges."""
    if not isinstance(data, dict) or not data:
        raise ValueError(f"families: expected at least one by name, got {data!r}")
    families = parse_families(data)
    for name, family in families.items():
        if name == AR:
            raise ValueError(f"families.{name}: the name of the target alone, which always runs")
        if len(family.edges) != 1:
            raise ValueError(f"families.{name}.edges: expected one choice of edges, got {len(family.edges)}")
        if len(family.levels) < 2:
            raise ValueError(f"families.{name}.levels: {list(family.levels)!r} has no draft")
    return families

"""What is certified: ``conf/certify.yaml`` with the values of the command line, checked before anything is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from experiments.arguments import check_prompts, overridden
from ssd.bench.equivalence_measures import UNITS
from ssd.bench.spec import ChainSpec, PromptSpec, parse, read_chain
from ssd.calibrate.saved import Temperatures, read_temperatures, set_on
from ssd.certify.ladder import RUNGS
from ssd.certify.quality import QualitySpec
from ssd.certify.sizes import BookkeepingSizes, GreedySizes, LawSizes, TwinSizes
from ssd.pipeline.settings import PipelineSettings

SCHEDULES = ("serial", "pipelined")
PIPELINED = (0, 1, 2, 3, 4)
"""Rungs that are climbed under the pipelined schedule: those that need no 16 bit and no records."""
PROMPTS = tuple(field.name for field in fields(PromptSpec))
OPTIONAL = {"prompts": PROMPTS, "quality.prompts": PROMPTS, "quality.margins": tuple(UNITS)}


@dataclass(frozen=True)
class CertifySpec:
    """What ``conf/certify.yaml`` says.

    Attributes:
        chain: name of one that comes with the package, or a YAML file.
        temperatures: a file of ``chain/temperatures`` that is set on the chain, or None.
        rungs: which are climbed.
        schedule: ``serial``; or ``pipelined``, with predictions all right, all wrong, and with slow workers in turn.
        matrix: whether faults are planted as well.
        seed: of everything that is drawn.
        results_dir: root of all results.
        prompts: of the rungs that decode on the real chain, 6 apart.
        bookkeeping, twin, identity, law, forensics: sizes of rungs 0, 2, 3, 4 and 5.
        quality: rung 6.
    """

    chain: str
    temperatures: str | None
    rungs: tuple[int, ...]
    schedule: str
    matrix: bool
    seed: int
    results_dir: str
    prompts: PromptSpec
    bookkeeping: BookkeepingSizes
    twin: TwinSizes
    identity: GreedySizes
    law: LawSizes
    forensics: GreedySizes
    quality: QualitySpec

    def __post_init__(self) -> None:
        if not self.rungs:
            raise ValueError(f"rungs: expected some of {', '.join(map(str, RUNGS))}")
        for number in self.rungs:
            if number not in RUNGS:
                raise ValueError(f"rungs: {number!r} is not one of {', '.join(map(str, RUNGS))}")
        if self.schedule not in SCHEDULES:
            raise ValueError(f"schedule: {self.schedule!r} is not one of {', '.join(SCHEDULES)}")
        for number in self.rungs if self.schedule == "pipelined" else ():
            if number not in PIPELINED:
                known = ", ".join(map(str, PIPELINED))
                raise ValueError(f"rungs: {number} is not climbed under schedule 'pipelined', only {known}")

    @property
    def name(self) -> str:
        """What the certificate's folder is called: with temperatures of its own it is of another chain."""
        own = "" if self.temperatures is None else f"_{Path(self.temperatures).stem}"
        schedule = "" if self.schedule == "serial" else f"-{self.schedule}"
        return f"{Path(self.chain).stem}{own}{schedule}"

    @property
    def folder(self) -> Path:
        """Of the certificate."""
        return Path(self.results_dir).expanduser() / "certify" / self.name


def read_config(path: Path, arguments: Sequence[str]) -> tuple[CertifySpec, ChainSpec, Temperatures | None]:
    """The configuration with the values that ``arguments`` set, each ``key=value``; its chain; the temperatures on it.

    Raises:
        ValueError: naming the argument, key and value that is wrong.
    """
    config = overridden(path, arguments, OPTIONAL, "rungs=0,1", {"rungs": numbers})
    if config["rungs"] is None:
        config["rungs"] = list(PIPELINED if config["schedule"] == "pipelined" else RUNGS)
    spec = parse(CertifySpec, config)
    for name, prompts in (("prompts", spec.prompts), ("quality.prompts", spec.quality.prompts)):
        check_prompts(name, prompts, "evaluate")
    chain = read_chain(spec.chain)
    if not chain.edges:
        raise ValueError(f"chain: {spec.chain!r} has no draft, so there is nothing to certify")
    if spec.schedule == "pipelined" and kind_of_workers(chain) == "process":
        PipelineSettings().cores_of(2)
    if spec.temperatures is None:
        return spec, chain, None
    saved = read_temperatures(Path(spec.temperatures))
    if saved.target == 0:
        raise ValueError(f"temperatures: {spec.temperatures!r} is for a row at 0, which makes every level greedy")
    return spec, set_on(chain, saved), saved


def kind_of_workers(chain: ChainSpec) -> str:
    """``process`` for a chain on a CPU, ``thread`` for one with a level elsewhere."""
    return "process" if all(level.device == "cpu" for level in chain.levels) else "thread"


def numbers(value: Any) -> Any:
    """``3`` and ``0,1`` as lists; anything else as it is."""
    if isinstance(value, str) and all(part.strip().isdigit() for part in value.split(",")):
        return [int(part) for part in value.split(",")]
    return [value] if isinstance(value, int) and not isinstance(value, bool) else value

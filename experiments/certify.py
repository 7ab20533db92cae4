"""The certificate of a chain: ``python -m experiments.certify [chain=smollm2] [schedule=pipelined] [key=value ...]``.

Climbs the ladder of ``docs/certificate.md`` and writes ``results_dir/certify/CHAIN/certificate.json`` and
``certificate.html``, both replaced after every rung; with ``temperatures=FILE`` into ``CHAIN_FILE``, with
``schedule=pipelined`` into ``CHAIN-pipelined``.
Exit status: 0 if the chain passed, 1 if it failed, 2 for a wrong argument, 3 if nothing failed but a rung could
not tell.
"""

from __future__ import annotations

import io
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from analysis.certificate import duration
from analysis.certificate import title as headline
from analysis.certificate_html import write
from experiments.certify_config import CertifySpec, kind_of_workers, read_config
from experiments.console import ProgressLine, say
from experiments.report import references
from ssd.bench.chain_check import inspect_levels
from ssd.bench.datasets import DatasetSpec, read
from ssd.bench.environment import device
from ssd.bench.json_files import plain
from ssd.bench.loading import Loader
from ssd.bench.prompts import encode
from ssd.bench.spec import ChainSpec
from ssd.calibrate.saved import Temperatures
from ssd.certify.certificate import Certificate, matrix_of, outcome, uncaught
from ssd.certify.ladder import RUNGS, Arguments, Step, climb_all, steps
from ssd.certify.matrix import matrix, matrix_ahead
from ssd.certify.result import Check, Rung
from ssd.certify.schedules import Pipelined, in_turn
from ssd.certify.sizes import Sizes
from ssd.core.requests import Override, Sampling

ROOT = Path(__file__).resolve().parent.parent
STATUS = {"passed": 0, "failed": 1, "inconclusive": 3}
PAGE = "certificate.html"
NARROW = ("bfloat16", "float16")
TINY = (1, 2)  # rungs that bring chains of their own
IDENTITY = 3
"""The rung whose workers are processes on a CPU; the others make many chains, and a process takes seconds to start."""


def main(arguments: Sequence[str]) -> int:
    """Climb the ladder; the exit status."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # arrows on an ASCII terminal
    try:
        spec, chain, saved = read_config(ROOT / "conf" / "certify.yaml", arguments)
        check_levels(chain)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    command = shlex.join(["python", "-m", "experiments.certify", *arguments])
    certificate = Certificate(spec.folder, spec.name, chain, spec.rungs, plain(spec), command)
    try:
        climb(Material(spec, chain, saved), certificate, command)
    except BaseException:
        certificate.end("interrupted")
        write(spec.folder / PAGE, certificate.data)
        raise
    certificate.end()
    write(spec.folder / PAGE, certificate.data)
    say(f"\n{certificate.data['verdict']}: {headline(certificate.data)}\nwrote {spec.folder / PAGE}")
    return STATUS[certificate.data["verdict"]]


def check_levels(chain: ChainSpec) -> None:
    """Raise ValueError naming every level, field and value that does not fit, before weights are read."""
    if problems := inspect_levels(chain.levels, chain.edges).problems:
        raise ValueError("\n".join(problems))


def climb(material: Material, certificate: Certificate, command: str) -> None:
    """Every rung, then the matrix, each in the certificate as soon as it is known."""
    spec, chain = material.spec, material.chain

    def before(step: Step) -> None:
        say(f"rung {step.number}: {step.title}")

    def after(rung: Rung) -> None:
        certificate.add(rung)
        place = device(accelerators(chain), torch.get_num_threads())
        certificate.describe(models=material.loader.describe(), device=place)
        write(spec.folder / PAGE, certificate.data)
        say(rung_text(rung))

    def note(rows: Sequence[Mapping[str, Any]]) -> None:
        certificate.describe(quality=rows)

    climb_all(material.ladder(material.arguments(note, command)), after, before)
    if spec.matrix:
        say("planted faults")
        plant_all(certificate, matrix if spec.schedule == "serial" else matrix_ahead)
        say(matrix_text(certificate.data["matrix"]))


class Material:
    """What the rungs look at: the chain as it is and in float32, and prompts; loaded when first needed.

    Args:
        saved: the temperatures that ``chain`` has from a file, if there is one.
    """

    def __init__(self, spec: CertifySpec, chain: ChainSpec, saved: Temperatures | None) -> None:
        self.spec, self.chain, self.saved, self.loader = spec, chain, saved, Loader()

    def arguments(self, note: Callable[[Sequence[Mapping[str, Any]]], None], command: str) -> Arguments:
        """What each rung's function is called with."""
        spec, seed = self.spec, {"seed": self.spec.seed}
        return {
            0: lambda: self.wide(spec.bookkeeping) | seed,
            2: {"n": spec.twin.cases} | seed,
            3: lambda: self.wide(spec.identity) | seed,
            4: lambda: self.law() | seed,
            5: lambda: self.decoding(self.chain, spec.forensics),
            6: {
                "chain": self.chain,
                "quality": spec.quality,
                "root": Path(spec.results_dir).expanduser() / "raw" / "certify" / spec.name,
                "loader": self.loader,
                "references": references,
                "note": note,
                "progress": ProgressLine("quality"),
                "command": command,
            }
            | seed,
        }

    def ladder(self, arguments: Arguments) -> list[Step]:
        """The rungs asked for; under the pipelined schedule those on the chain itself under each regime in turn."""
        if self.spec.schedule == "serial":
            return steps(self.spec.rungs, arguments)
        return [self._pipelined(n, arguments) for n in self.spec.rungs]

    def _pipelined(self, number: int, arguments: Arguments) -> Step:
        """A rung under the pipelined schedule."""
        given = arguments.get(number, {})

        def climb(schedule: str | Pipelined) -> Sequence[Check]:
            found = given() if callable(given) else given
            return steps([number], {number: {**found, "schedule": schedule}})[0].climb()

        def climb_here() -> Sequence[Check]:
            kind = kind_of_workers(self.chain) if number == IDENTITY else "thread"
            return climb("pipelined") if number in TINY else in_turn(climb, kind)

        return Step(number, RUNGS[number].title, climb_here)

    def wide(self, sizes: Sizes) -> dict[str, Any]:
        """As ``decoding``, with every level of fewer than 32 bits held in float32."""
        return self.decoding(in_float32(self.chain), sizes)

    def law(self) -> dict[str, Any]:
        """As ``wide``; draft levels that have settings keep them, and rows are those the temperatures were made for."""
        found = self.wide(self.spec.law)
        own = [level.sampling for level in found["chain"].levels[:-1]]
        if self.saved is not None or any(each != Override() for each in own):
            found["overrides"] = own
        if self.saved is not None and self.saved.target is not None:
            target = self.saved.target
            found["settings"] = (Sampling(target), Sampling(target, top_p=0.9))
        return found

    def decoding(self, spec: ChainSpec, sizes: Sizes) -> dict[str, Any]:
        """The loaded chain, prompts as token ids, and sizes."""
        chain = self.loader.chain(spec)
        return {"chain": chain, "prompts": self.prompts(chain.tokenizer, sizes), **sizes.arguments()}

    def prompts(self, tokenizer: Any, sizes: Sizes) -> list[list[int]]:
        """The first prompts of the set, as long as asked for.

        Raises:
            ValueError: the chain has no tokenizer, or there are too few prompts.
        """
        if tokenizer is None:
            raise ValueError("chain: the target comes without a tokenizer, so there are no prompts for it")
        loaded = read(DatasetSpec(**asdict(self.spec.prompts))).prompts
        if len(loaded) < sizes.prompts:
            raise ValueError(f"prompts: {sizes.prompts} are asked for, the set has {len(loaded)}")
        own = bool(getattr(tokenizer, "chat_template", None)) and sizes.prompt_tokens is None
        return [encode(prompt, tokenizer, template=own)[: sizes.prompt_tokens] for prompt in loaded[: sizes.prompts]]


def in_float32(chain: ChainSpec) -> ChainSpec:
    """The chain with every level of fewer than 32 bits held in float32."""
    levels = tuple(replace(x, dtype="float32") if x.dtype in NARROW else x for x in chain.levels)
    return replace(chain, levels=levels)


def plant_all(certificate: Certificate, plant: Callable[..., Any]) -> None:
    """The matrix of planted faults stands in the certificate, row by row; what ends it early stands there too."""
    began, rows = time.perf_counter(), []

    def after(row: Mapping[str, Any]) -> None:
        rows.append(row)
        certificate.describe(matrix=matrix_of(rows, time.perf_counter() - began))

    try:
        plant(after=after)
    except Exception as error:
        told = f"{type(error).__name__}: {' '.join(str(error).split())}"
        certificate.describe(matrix=matrix_of(rows, time.perf_counter() - began, told))


def accelerators(chain: ChainSpec) -> str | None:
    """Names of the CUDA devices that the levels are on."""
    used = sorted({torch.device(level.device).index or 0 for level in chain.levels if level.device.startswith("cuda")})
    return ", ".join(torch.cuda.get_device_name(i) for i in used) or None


def rung_text(rung: Rung) -> str:
    """A rung's outcome, and each check that failed."""
    passed = sum(check.passed for check in rung.checks)
    told = rung.skipped or f"{passed} of {len(rung.checks)} checks passed, false alarm at most {rung.false_alarm:.2g}"
    lines = [f"  {outcome(rung)} in {duration(rung.seconds)}: {told}"]
    lines += [f"  failed: {check.name}: {check.detail}" for check in rung.checks if not check.passed]
    return "\n".join(lines)


def matrix_text(matrix: Mapping[str, Any]) -> str:
    """How many planted faults were caught, and which were not."""
    if matrix["error"]:
        return f"  failed: {matrix['error']}"
    missed = uncaught(matrix)
    told = f"  {len(matrix['rows']) - len(missed)} of {len(matrix['rows'])} caught in {duration(matrix['seconds'])}"
    return f"{told}; not caught: {', '.join(missed)}" if missed else told


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

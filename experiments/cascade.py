"""Acceptance of every edge alone, in the chain and by fate: ``python -m experiments.cascade [key=value ...]``.

The chain runs under several windows beside its upper pair alone; the lower pairs run alone, each with its
verifier as the target. As a control the upper edge's acceptance is compared, under the window ``exactly``,
between the chain, the pair alone and chains with something else at level 0, which must not matter. Writes
``results/cascade/summary.json`` and a figure. See docs/calibration.md.
"""

from __future__ import annotations

import shlex
import sys
from dataclasses import asdict, replace
from pathlib import Path

from analysis.calibration_figures import alphas, save
from analysis.table import SUMMARY_COLUMNS, print_table
from experiments.calibrate_runs import turns_of
from experiments.cascade_config import EXACTLY, CascadeSpec, read_config, windowed
from experiments.cascade_rows import CHAIN, control_rows, figure_rows, lower_rows, recovery_rows, upper_rows
from experiments.console import ProgressLine
from experiments.publish import publish
from ssd.bench.end_of_text import end_ids, stated_end_ids
from ssd.bench.experiment import run_pass
from ssd.bench.loading import Loader
from ssd.bench.method_spec import MethodSpec
from ssd.bench.records import Run, RunFolder, read_run, record_line
from ssd.bench.sources import parse_source
from ssd.bench.spec import ChainSpec, RunSpec
from ssd.bench.summary import Row, write_summary
from ssd.calibrate.pair_alone import pair_alone
from ssd.calibrate.saved import Temperatures
from ssd.calibrate.vectors import side_by_side
from ssd.core.generate import generate
from ssd.core.requests import Request, Sampling

ROOT = Path(__file__).resolve().parent.parent


def main(arguments: list[str]) -> int:
    """Run, print and write; 0 even where the control fails, because the row says so."""
    spec, chain, saved = read_config(ROOT / "conf" / "cascade.yaml", arguments)
    study = Study(spec, chain, shlex.join(["python", "-m", "experiments.cascade", *arguments]))
    calibrated = None if saved is None else own_temperatures(saved, len(chain.levels), spec.temperature)
    upper, control = study.upper_run(calibrated), study.control_run()
    lower = {k: study.pair_run(k) for k in range(len(chain.edges) - 1)}
    top = len(chain.edges) - 1
    rows: list[Row] = upper_rows(upper.records, spec.windows, top)
    rows += control_rows(upper.records, control.records, top)
    for k, run in lower.items():
        rows += lower_rows(upper.records, run.records, spec.windows, k)
    if calibrated is not None:
        rows += recovery_rows(upper.records, calibrated, top)
    print_table([row.as_dict() for row in rows], SUMMARY_COLUMNS)
    runs = {"upper": upper, "control": control, **{f"alone_L{k}_L{k + 1}": run for k, run in lower.items()}}
    write_summary(spec.results / "summary.json", [publish(run, spec.results, name) for name, run in runs.items()], rows)
    title = f"acceptance of L{top}\N{RIGHTWARDS ARROW}L{top + 1} at temperature {spec.temperature:g}"
    save(alphas(figure_rows(rows, top), title), spec.results / "alpha")
    print(f"wrote {spec.results / 'summary.json'}")
    return 0


def own_temperatures(saved: Temperatures, levels: int, target: float) -> tuple[float | None, ...]:
    """Temperature of each level of a file, ``None`` where it is that of the row anyway."""
    own = saved.levels or (None,) * levels
    return tuple(None if t == target else t for t in own)


class Study:
    """The study's configuration, the command that runs it, and its loaded models."""

    def __init__(self, spec: CascadeSpec, chain: ChainSpec, command: str) -> None:
        self.spec, self.chain, self.command = spec, chain, command
        self.loader = Loader()
        self.size = len(chain.levels)

    def upper_run(self, calibrated: tuple[float | None, ...] | None) -> Run:
        """The chain under every window and its upper pair alone; both at calibrated temperatures too, if given."""
        vectors: dict[str, tuple[float | None, ...]] = {"equal": (None,) * self.size}
        if calibrated is not None:
            vectors["calibrated"] = calibrated
        wide, chains = side_by_side(self.chain, vectors)
        methods = {}
        for window in self.spec.windows:
            methods[f"{CHAIN}, {window}"] = replace(chains["equal"], edges=windowed(self.chain.edges, window))
        for name, method in chains.items():
            suffix = "" if name == "equal" else f", {name}"
            if suffix:
                methods[f"{CHAIN}, {EXACTLY}{suffix}"] = replace(method, edges=windowed(self.chain.edges, EXACTLY))
            methods[f"alone{suffix}"] = MethodSpec(levels=method.levels[-2:], edges=self.chain.edges[-1:])
        return self._run("upper", wide, methods, self.spec.seed)

    def control_run(self) -> Run:
        """Under ``exactly``: the pair alone, a look-up at level 0, and level 0 at another temperature."""
        rest = (None,) * (self.size - 1)
        vectors: dict[str, tuple[float | None, ...]] = {"equal": (None, *rest)}
        vectors["other"] = (self.spec.other_temperature, *rest)
        wide, chains = side_by_side(self.chain, vectors)
        edges = windowed(self.chain.edges, EXACTLY)
        methods = {
            "alone": MethodSpec(levels=chains["equal"].levels[-2:], edges=self.chain.edges[-1:]),
            "n-gram below": MethodSpec(levels=("ngram", *chains["equal"].levels[1:]), edges=edges),
            f"L0 at {self.spec.other_temperature:g} below": replace(chains["other"], edges=edges),
        }
        return self._run("control", wide, methods, self.spec.seed + 1)

    def pair_run(self, k: int) -> Run:
        """Levels k and k + 1 alone, texts by level k + 1."""
        spec, stage, name = self.spec, self.spec.measure, f"L{k}→L{k + 1}"
        pair = pair_alone(self.chain, k, self.loader)
        whole = self.loader.chain(self.chain)
        ends = end_ids(stated_end_ids(parse_source(self.chain.levels[-1].source), whole.tokenizer))
        turns, data = turns_of(stage.prompts, whole, stage.max_new_tokens, ends)
        sampling = Sampling(spec.temperature)
        work = [
            (
                turn,
                Request(
                    turn.ids,
                    sampling,
                    spec.seed,
                    request=turn.number,
                    sample=sample,
                    max_new_tokens=stage.max_new_tokens,
                    eos_ids=tuple(ends),
                ),
            )
            for turn in turns
            for sample in range(spec.samples)
        ]
        run_id = f"cascade-alone_L{k}_L{k + 1}"
        config = {"pair": [k, k + 1], "chain": asdict(self.chain), **asdict(spec)}
        folder = spec.raw(f"alone_L{k}_L{k + 1}")
        with RunFolder(folder, run_id=run_id, config=config, replace=True) as out:
            out.describe(models=self.loader.describe(), data=data, command=self.command, timing="shared", label=name)
            for first in range(0, len(work), spec.batch):
                group = work[first : first + spec.batch]
                for (turn, request), done in zip(group, generate(pair, [r for _, r in group]), strict=True):
                    text = pair.tokenizer.decode(done.ids, skip_special_tokens=True)
                    line = record_line(
                        run_id,
                        f"{group[0][0].prompt_id}-{group[0][1].sample}",
                        "alone",
                        turn.prompt_id,
                        turn.task,
                        done,
                        len(request.ids),
                        text,
                        sampling,
                        max_new_tokens=request.max_new_tokens,
                        sample=request.sample,
                        prompt_ids=request.ids,
                    )
                    out.append(line)
        return read_run(folder)

    def _run(self, name: str, chain: ChainSpec, methods: dict[str, MethodSpec], seed: int) -> Run:
        spec, stage = self.spec, self.spec.measure
        run_spec = RunSpec(
            "cascade",
            chain,
            methods,
            stage.prompts,
            Sampling(spec.temperature),
            max_new_tokens=stage.max_new_tokens,
            samples=spec.samples,
            seed=seed,
            batch=spec.batch,
        )
        return run_pass(
            run_spec, spec.raw(name), self.loader, ProgressLine(name), command=self.command, timing="shared", label=name
        )


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ValueError as error:
        sys.exit(f"error: {error}")

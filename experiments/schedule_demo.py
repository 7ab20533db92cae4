"""Schedules side by side: ``python -m experiments.schedule_demo [key=value ...]`` (``make schedule-demo``).

Levels that take turns on all cores (what an idle core would otherwise be used for), levels that take turns on
one core, and drafts and target on a core each, working ahead. Draft lengths and how far to work ahead are chosen
on the tuning prompts; the same run fits the simulator on half of its configurations and holds it to the rest.
Writes ``results/schedule``: ``summary.json``, ``simulated.json``, traces for Perfetto and ``report.html``.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from analysis.table import METHOD_COLUMNS, SUMMARY_COLUMNS, method_rows, print_table
from experiments.bench_config import prompts_of, read_config
from experiments.console import ProgressLine, say
from experiments.publish import publish
from experiments.schedule_fit import Fit, mean_tokens
from experiments.schedule_methods import AR, BOTH, Variant, alone, chosen, variants
from experiments.schedule_page import claims, page
from experiments.schedule_rows import fit_rows, overlap_rows, sentences, speed_rows
from ssd.bench.acceptance import Record
from ssd.bench.experiment import run_pass
from ssd.bench.json_files import write_json
from ssd.bench.loading import Loader
from ssd.bench.method_spec import MethodSpec
from ssd.bench.records import Run, group_by
from ssd.bench.spec import ChainSpec, RunSpec, read_chain
from ssd.bench.summary import write_summary
from ssd.bench.traces import TRACES_FILE
from ssd.bench.tuning import parse_families
from ssd.calibrate.contexts import recorded_texts
from ssd.calibrate.guess_shares import guess_shares
from ssd.core.clock import PassClock
from ssd.core.requests import Sampling
from ssd.plan.trace import Trace, read_traces

ROOT = Path(__file__).resolve().parent.parent
MARKS = 20_000  # readings of the clock that are timed


def main(arguments: list[str]) -> int:
    """Tune, fit, measure and write; 0 whatever comes out, because that is a finding."""
    config = read_config(ROOT / "conf" / "schedule_demo.yaml", arguments, {"tune": "calibrate", "measure": "evaluate"})
    demo = Demo(config, shlex.join(["python", "-m", "experiments.schedule_demo", *arguments]))
    demo.run()
    return 0


class Demo:
    """The command's configuration, and what it found so far."""

    def __init__(self, config: Mapping[str, Any], command: str) -> None:
        self.config, self.command = config, command
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) < 2:
            raise ValueError(f"cores: this process may use {cores}; drafts and target need one each")
        self.variants = variants(parse_families(config["families"]), config["ahead"], cores)
        self.alone = alone(cores)
        chain = read_chain(config["chain"])
        target = replace(chain.levels[-1], dtype=config["target_dtype"])
        self.chain = replace(chain, levels=(*chain.levels[:-1], target))
        self.results = ROOT / str(config["results_dir"])
        self.loader = Loader()

    def run(self) -> None:
        """Everything is written."""
        tune = self._stage("tune", self.variants, traced=10**6)
        records, traces = by_method(tune), traces_of(tune)
        fit = self._fit(records, traces)
        tokens = mean_tokens(records[AR[BOTH]])
        simulated = [fit.simulated(v, tokens) for v in self.variants]
        write_json(self.results / "simulated.json", {"configurations": [s.as_dict() for s in simulated]})
        best = chosen(self.variants, tune.records)
        measure = self._stage("measure", best, traced=self.config["traced"])
        records, traces = by_method(measure), traces_of(measure)
        print_table(method_rows(measure.records, AR[BOTH]), METHOD_COLUMNS)
        rows = [
            *speed_rows(best, records),
            *overlap_rows(best, traces, tracing_cost(measure)),
            *fit_rows(simulated, fit.slowed()),
        ]
        print_table([row.as_dict() for row in rows], SUMMARY_COLUMNS)
        said = sentences(best, rows)
        say("\n".join([*said, *claims()[0]]))
        sources = [publish(measure, self.results), publish(tune, self.results)]
        (self.results / "tune" / TRACES_FILE).unlink()  # large, and their pass times are in simulated.json
        write_summary(self.results / "summary.json", sources, rows)
        page(self.results / "report.html", measure, best, traces, simulated, rows, said)
        say(f"wrote {self.results / 'summary.json'}")

    def _stage(self, name: str, found: Sequence[Variant], traced: int) -> Run:
        prompts, tokens = prompts_of(self.config, name)
        methods: dict[str, MethodSpec] = {**self.alone, **{v.name: v.method for v in found}}
        sampling = Sampling(float(self.config["temperature"]))
        spec = RunSpec(
            "schedule", self.chain, methods, prompts, sampling, tokens, seed=self.config["seed"], traced=traced
        )
        folder = self.results.parent / "raw" / self.results.name / name
        shutil.rmtree(folder, ignore_errors=True)
        return run_pass(spec, folder, self.loader, ProgressLine(name), command=self.command, timing="paper", label=name)

    def _fit(self, records: Mapping[str, Sequence[Record]], traces: Mapping[str, Sequence[Trace]]) -> Fit:
        texts = recorded_texts(records[AR[BOTH]])
        whole = self.loader.chain(ChainSpec(self.chain.levels, self.chain.edges))
        shares = guess_shares(whole, texts, Sampling(float(self.config["temperature"])))
        return Fit(self.variants, records, traces, len(self.chain.levels), shares)


def by_method(run: Run) -> dict[str, list[Mapping[str, Any]]]:
    """Records of each method."""
    return {str(method): list(own) for (method,), own in group_by(run.records, "method").items()}


def traces_of(run: Run) -> dict[str, list[Trace]]:
    """Traces of each method."""
    assert run.path is not None
    found: dict[str, list[Trace]] = {}
    for trace in read_traces(run.path / TRACES_FILE):
        found.setdefault(trace.name.rpartition(", ")[0], []).append(trace)
    return found


def tracing_cost(run: Run) -> float:
    """Readings of the clock that mark passes, as a share of decode time; the file is written after decoding."""
    clock = PassClock([torch.device("cpu")])
    began = time.perf_counter()
    for _ in range(MARKS):
        clock.stop(0, clock.start(0), 1)
    each = (time.perf_counter() - began) / MARKS
    passes = sum(p["count"] for r in run.records for p in r["passes"].values())
    return each * passes / sum(r["seconds"]["total"] - r["seconds"]["prefill"] for r in run.records)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ValueError as error:
        sys.exit(f"error: {error}")

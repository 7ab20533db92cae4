"""Run an experiment of ``conf/experiment`` and print its table.

    python -m experiments.run experiment=demo [key=value ...]

Keys are those of the experiment's file, dotted (``prompts.limit=2``, ``max_new_tokens=16``).
Exit status 1 if a pass that asserts identity met a difference that rounding does not explain.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from analysis.rows import method_summary
from analysis.table import METHOD_COLUMNS, method_rows, print_table
from experiments.console import ProgressLine, print_partings
from ssd.bench.divergence import Parting
from ssd.bench.experiment import BASELINE, Pass, differences, read_experiment, run_pass, select
from ssd.bench.loading import Loader
from ssd.bench.records import Run
from ssd.bench.summary import Row, write_summary

ROOT = Path(__file__).resolve().parent.parent


def main(arguments: list[str]) -> int:
    """Run every pass, print its table, and write ``results/<name>/summary.json``."""
    passes = load(arguments)
    name, loader = passes[0].spec.name, Loader()
    runs, rows, structural = [], [], 0
    for step in passes:
        done = run_pass(step.spec, ROOT / "results" / "raw" / name / step.name, loader, ProgressLine(step.name))
        greedy = step.spec.sampling.temperature == 0
        apart = differences(step.spec, done, loader) if greedy else []
        show(step, done, apart)
        runs.append(ROOT / "results" / "raw" / name / step.name / "run.json")
        rows += method_summary(step.name, done.records, BASELINE)
        rows += identity_rows(step, apart) if greedy else []
        structural += sum(not p.is_tie for p in apart) if step.assert_identity else 0
    write_summary(ROOT / "results" / name / "summary.json", runs, rows)
    print(f"\nwrote results/{name}/summary.json; records are under results/raw/{name}/")
    return 1 if structural else 0


def load(arguments: list[str]) -> list[Pass]:
    """The passes the command line asks for."""
    given = {}
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if not equals:
            raise ValueError(f"{argument}: expected key=value")
        given[key] = value
    folder = ROOT / "conf" / "experiment"
    path = folder / f"{given.pop('experiment', 'demo')}.yaml"
    if not path.is_file():
        raise ValueError(f"experiment: {path.stem!r} is not one of {', '.join(p.stem for p in folder.glob('*.yaml'))}")
    return read_experiment(path, given)


def show(step: Pass, done: Run, apart: list[Parting]) -> None:
    """The table of a pass and what became of identity."""
    spec = step.spec
    print(f"\n{step.name}: {len(select(spec))} prompts x {spec.max_new_tokens} tokens, seed {spec.seed}")
    print_table(method_rows(done.records, BASELINE), METHOD_COLUMNS)
    if done.run["busy"]:
        print(
            f"warning: {done.run['busy_elsewhere']:.0%} of the machine was busy with something else; times are marked"
        )
    if spec.sampling.temperature == 0:
        print_partings(apart, step.assert_identity)


def identity_rows(step: Pass, apart: list[Parting]) -> list[Row]:
    """How many outputs left AR's by a tie, and how many otherwise (goal 0 where it is asserted)."""
    ties = sum(p.is_tie for p in apart)
    goal: dict[str, Any] = {"goal": 0.0, "sense": "max"} if step.assert_identity else {}
    return [
        Row(f"{step.name}/ties", float(ties), "outputs", n=len(apart)),
        Row(f"{step.name}/structural", float(len(apart) - ties), "outputs", n=len(apart), **goal),
    ]


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ValueError as error:
        sys.exit(f"error: {error}")

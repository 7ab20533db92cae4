"""What faster passes are worth: ``python -m experiments.runtime_bench [key=value ...]`` (``make runtime-bench``).

AR, pairs and a chain, each with the passes of transformers' module (``eager``) and with leaner ones (``graph``), and
transformers' own AR, prompt by prompt in rotating order at temperature 0. Then pass times of every level, the
runtimes taking turns, and the verdict on every output that is not the same under both. Writes
``results/runtime``: ``summary.json``, ``partings.json``, ``findings.txt`` and the records.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from analysis.table import METHOD_COLUMNS, SUMMARY_COLUMNS, method_rows, print_table
from experiments.console import ProgressLine, say
from experiments.publish import publish
from experiments.runtime_bench_config import AR, FAST, PLAIN, RuntimeBench, method, read_bench
from experiments.runtime_bench_cost import cost_rows, one_time
from experiments.runtime_bench_findings import findings
from experiments.runtime_bench_rows import parting_rows, pass_rows, speed_rows
from ssd.bench.acceptance import Record
from ssd.bench.divergence import Parting, Rescorer, partings
from ssd.bench.experiment import run_pass
from ssd.bench.json_files import write_json
from ssd.bench.loading import Loader
from ssd.bench.method_spec import MethodSpec
from ssd.bench.pass_grid import PassCell, pass_grid
from ssd.bench.records import Run, group_by
from ssd.bench.spec import ChainSpec
from ssd.bench.suite import check_methods, sub_chain
from ssd.bench.summary import write_summary
from ssd.core.model import CachedModel

ROOT = Path(__file__).resolve().parent.parent
CONFIG = ROOT / "conf" / "runtime_bench.yaml"


def main(arguments: list[str]) -> int:
    """Run, print and write; 0 whatever comes out, because that is a finding."""
    bench = read_bench(CONFIG, arguments, ROOT)
    check_methods(bench.spec)  # before the cost of loading is measured
    loader = Loader()
    costs, memory = one_time(bench.spec.chain, loader)
    run = measured(bench, loader, shlex.join(["python", "-m", "experiments.runtime_bench", *arguments]))
    records = {str(name): own for (name,), own in group_by(run.records, "method").items()}
    cells = pass_times(bench, loader, list(costs))
    apart, epsilon = compared(bench, loader, records)
    print_table(method_rows(run.records, method(AR, PLAIN)), METHOD_COLUMNS)
    rows = [
        *speed_rows(bench, records),
        *pass_rows(cells),
        *cost_rows(costs, memory),
        *parting_rows(bench, records, apart, epsilon),
    ]
    print_table([row.as_dict() for row in rows], SUMMARY_COLUMNS)
    said = findings(bench, rows, costs)
    say("\n".join(said))
    if run.run["busy"]:
        say(f"warning: {run.run['busy_elsewhere']:.0%} of the machine was busy with something else")
    write_summary(bench.results / "summary.json", [publish(run, bench.results)], rows)
    write_json(bench.results / "partings.json", {"epsilon": epsilon, "partings": [asdict(p) for p in apart]})
    (bench.results / "findings.txt").write_text("\n".join(said) + "\n", encoding="utf-8")
    say(f"wrote {bench.results / 'summary.json'}")
    return 0


def measured(bench: RuntimeBench, loader: Loader, command: str) -> Run:
    """Every method on every prompt."""
    folder = ROOT / "results" / "raw" / bench.results.name / "measure"
    return run_pass(bench.spec, folder, loader, ProgressLine("runtimes"), command=command, timing="paper")


def pass_times(bench: RuntimeBench, loader: Loader, levels: Sequence[str]) -> dict[str, dict[str, Sequence[PassCell]]]:
    """Timed passes by level and runtime, all of them taking turns."""
    chain, settings = bench.spec.chain, bench.passes
    models: dict[str, CachedModel] = {}
    for runtime in (PLAIN, FAST):
        specs = sub_chain(chain, MethodSpec(runtime=runtime)).levels
        for level in levels:
            model = loader.level(specs[int(level[1:])], level).model
            assert isinstance(model, CachedModel)
            models[method(level, runtime)] = model
    cells = pass_grid(models, settings.widths, [1], settings.repeats, settings.context)
    return {level: {runtime: cells[method(level, runtime)] for runtime in (PLAIN, FAST)} for level in levels}


def compared(
    bench: RuntimeBench, loader: Loader, records: Mapping[str, Sequence[Record]]
) -> tuple[list[Parting], float]:
    """Where outputs of ``FAST`` leave those of ``PLAIN``, judged by ``PLAIN``, and the noise that excuses them.

    The noise is that of ``PLAIN`` alone, so that a runtime cannot excuse its own faults.
    """
    plain = sub_chain(bench.spec.chain, MethodSpec(levels=(-1,), runtime=PLAIN))
    target = loader.chain(ChainSpec(plain.levels)).scorer(0)
    alone = records[method(AR, PLAIN)]
    prompts = {r["prompt_id"]: r["prompt_ids"] for r in alone}
    drafted = [e["drafted"] for own in records.values() for r in own for e in r["rounds"] if e["edge"] >= 0]
    rescorer = Rescorer(target, max(drafted, default=0) + 1)
    texts = [(prompts[r["prompt_id"]], r["output_ids"]) for r in alone if r["output_ids"]]
    epsilon = max((rescorer.epsilon(prompt, output) for prompt, output in texts), default=0.0)
    found = []
    for name in bench.ours:
        ours, theirs = records[method(name, FAST)], records[method(name, PLAIN)]
        found += partings(ours, theirs, prompts, rescorer, epsilon)
    return found, epsilon


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ValueError as error:
        sys.exit(f"error: {error}")

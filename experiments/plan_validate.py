"""Predicted against measured speedup: ``python -m experiments.plan_validate [key=value ...]``.

Keys are those of ``conf/plan_validate.yaml``; method and files: ``docs/plan.md``. Outputs have a fixed length
(end of text is ignored), and every group of configurations runs in alternation with AR.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.plan_html import PlanPage
from analysis.plan_html import write as write_page
from analysis.report import Table
from analysis.table import SUMMARY_COLUMNS, Column, format_table
from experiments.bench_config import prompts_of
from experiments.console import say
from experiments.plan_config import AR, chain_of, level_names, prompts_from, read_config
from experiments.plan_expected import Expected, expect
from experiments.plan_groups import Group, Vector, check_levels, parse_groups
from experiments.plan_measure import raw_folder, run_methods
from experiments.plan_profile import measure
from experiments.plan_record import say_busy, write_measurements, write_predictions
from experiments.plan_stale import remove_measurements
from experiments.plan_verdict import Measured, summary_rows, validate
from experiments.publish import publish
from ssd.bench.experiment import BASELINE
from ssd.bench.json_files import read_json, write_json
from ssd.bench.loading import Loader
from ssd.bench.method_spec import EdgeSpec, MethodSpec
from ssd.bench.metrics import speedup, tokens_per_second
from ssd.bench.records import Run, group_by
from ssd.bench.spec import RunSpec
from ssd.bench.summary import write_summary
from ssd.core.requests import Sampling
from ssd.plan.edge_plan import EdgePlan
from ssd.plan.inputs import PlanInputs, read_inputs

ROOT = Path(__file__).resolve().parent.parent
CONFIG = ROOT / "conf" / "plan_validate.yaml"
COLUMNS = (
    Column("group"),
    Column("name", "configuration"),
    Column("half"),
    Column("unfitted", "predicted, passes alone", ".2f"),
    Column("fitted", "predicted", ".2f"),
    Column("planner", "predicted, planner's own", ".2f"),
    Column("speedup", "measured [95%]", ".2f", ("low", "high")),
    Column("error", form="+.1%"),
)


def main(arguments: Sequence[str]) -> int:
    """Profile, predict, write the predictions, measure, fit and judge; 0 even where a goal is not met."""
    config = read_config(CONFIG, arguments)
    groups = parse_groups(config["groups"])
    for group in groups:
        chain = chain_of(config["chain"], group.temperatures_list)
        check_levels(group, list(level_names(chain, config["ngram"]).values()))
    command = shlex.join(["python", "-m", "experiments.plan_validate", *arguments])
    results, bench = Path(config["results_dir"]), Validation(config, Loader(), command)
    expected = {group: bench.expected(group, bench.inputs(group, groups)) for group in groups}
    content = {"config": config, "groups": [group_in_file(g, expected[g]) for g in groups]}
    remove_measurements(results)
    digest = write_predictions(results / "predictions.json", command, content)
    measured, runs = [], []
    for group in groups:
        run = bench.run(group)
        runs.append(publish(run, results))
        measured += measure_of(group, expected[group], run)
    verdict = validate(measured)
    rows = summary_rows(verdict)
    table = verdict.table()
    write_measurements(
        results / "measured.json",
        results / "predictions.json",
        digest,
        {"runs": [r.as_posix() for r in runs], "configurations": table, "rows": [row.as_dict() for row in rows]},
    )
    write_summary(results / "summary.json", runs, rows)
    shown = [row.as_dict() for row in rows]
    say(f"{format_table(table, COLUMNS)}\n\n{format_table(shown, SUMMARY_COLUMNS)}")
    if config["html"]:
        lead = "Overheads fitted on one half of the configurations; errors are those of the other half."
        tables = [
            Table("Summary", SUMMARY_COLUMNS, shown),
            Table("Configurations", COLUMNS, table, "Speedup over AR of the same run."),
        ]
        facts = [("chain", config["chain"]), ("command", command)]
        write_page(
            results / "report.html", PlanPage("Predicted and measured", lead, shown_verdict(shown), facts, tables)
        )
    say(f"wrote {results / 'summary.json'}")
    return 0


def shown_verdict(rows: Sequence[dict[str, Any]]) -> str:
    """The goals, in a sentence each."""
    said = []
    for row in rows:
        if row["goal"] is not None and row["value"] is not None:
            word = "met" if row["met"] else "not met"
            sense = "at most" if row.get("sense") == "max" else "at least"
            said.append(f"{row['name']}: {row['value']:.3g} (goal {sense} {row['goal']:g}, {word}).")
    return " ".join(said)


@dataclass(frozen=True)
class Validation:
    """Settings, loaded models, and the command that is noted."""

    config: dict[str, Any]
    loader: Loader
    command: str

    def inputs(self, group: Group, groups: Sequence[Group]) -> PlanInputs:
        """What is known of a group's chain at its temperatures, measured once for all batches."""
        path = Path(self.config["results_dir"]) / "profiles" / f"{group.setting}.json"
        batches = list(dict.fromkeys(g.batch for g in groups if g.setting == group.setting))
        if group is next(g for g in groups if g.setting == group.setting):
            chain = chain_of(self.config["chain"], group.temperatures_list)
            prompts, tokens = prompts_from(self.config, "tune", chain)
            asked = {
                "temperature": group.temperature,
                "batches": batches,
                "tokens": tokens,
                "ignore_eos": True,
                "profiling": self.config["profiling"],
                "adaptive_gamma": None,
                "temperature_factors": [],
                "draft_batches": [],
                "guesses": False,
            }
            found = measure(chain, level_names(chain, self.config["ngram"]), self.loader, prompts, asked)
            say_busy(f"profile {group.setting}", found)
            write_json(path, found)
        return read_inputs(read_json(path), path.as_posix())

    def expected(self, group: Group, inputs: PlanInputs) -> dict[str, Expected]:
        """What is expected of every configuration of a group, AR included."""
        _, tokens = prompts_of(self.config, "measure")
        chain = chain_of(self.config["chain"], group.temperatures_list)
        names = {own: name for name, own in level_names(chain, self.config["ngram"]).items()}
        out = {}
        for title, levels, gammas, windows in [Vector(BASELINE, (len(chain.levels) - 1,), (), ()), *group.vectors]:
            edges = [EdgePlan(g, w) for g, w in zip(gammas, windows, strict=True)]
            out[title] = expect(inputs, [names[k] for k in levels], edges, group, tokens)
        return out

    def run(self, group: Group) -> Run:
        """The group's configurations and AR on the measure prompts, in alternation."""
        prompts, tokens = prompts_of(self.config, "measure")
        methods = {BASELINE: AR}
        for title, levels, gammas, windows in group.vectors:
            edges = tuple(EdgeSpec(g, w) for g, w in zip(gammas, windows, strict=True))
            methods[title] = MethodSpec(levels=levels, edges=edges)
        results = Path(self.config["results_dir"])
        spec = RunSpec(
            results.name,
            chain_of(self.config["chain"], group.temperatures_list),
            methods,
            prompts,
            Sampling(group.temperature),
            max_new_tokens=tokens,
            batch=group.batch,
            ignore_eos=True,
        )
        run = run_methods(spec, raw_folder(results, group.name), self.loader, self.command, group.name)
        say_busy(group.name, run.run)
        return run


def group_in_file(group: Group, found: dict[str, Expected]) -> dict[str, Any]:
    """A group as it stands in the predictions."""
    return {
        "name": group.name,
        "planner_choice": min(found, key=lambda name: found[name].planner),
        "configurations": {name: own | {"half": group.half(name)} for name, own in in_file(found).items()},
    }


def in_file(found: dict[str, Expected]) -> dict[str, dict[str, Any]]:
    """Configurations as they stand in the predictions, with speedups by passes alone and by the planner's own model."""
    own = found[BASELINE]
    return {
        name: {
            "profiled": x.features.profiled,
            "counts": list(x.features.counts),
            "slowest_row": x.slowest_row,
            "speedup_by_passes": own.features.profiled / x.features.profiled,
            "planner": x.planner,
            "speedup_by_planner": own.planner / x.planner,
        }
        for name, x in found.items()
    }


def measure_of(group: Group, expected: dict[str, Expected], run: Run) -> list[Measured]:
    """Every configuration of a group with what the clock said."""
    by = {method: list(own) for (method,), own in group_by(run.records, "method").items()}
    out = []
    for name, own in by.items():
        rate = tokens_per_second(own)
        if rate is None:
            raise ValueError(f"{group.name}: {name}: its seconds are not known")
        gained, x = None if name == BASELINE else speedup(own, by[BASELINE]), expected[name]
        out.append(Measured(group.name, name, group.half(name), x.features, 1 / rate, gained, x.planner))
    return out


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ValueError as error:
        sys.exit(f"error: {error}")

"""Make the page of an experiment: ``python -m experiments.report [experiment=demo] [results_dir=results] [metrics=…]``.

Reads ``results_dir/raw/EXPERIMENT`` and writes ``results_dir/EXPERIMENT/report.html``, one file without
scripts or other files beside it. Nothing is fetched: references are those of prompts that are on this
machine. ``metrics=NAME_OR_PATH[,…]`` adds metrics of the ``evaluate`` library. Exit status: 0 if there is a
finished run to report, 1 if there is none, 2 for a wrong argument or a metric that cannot be had.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from analysis.report import build
from analysis.report_html import write
from ssd.bench.datasets import DatasetSpec, read
from ssd.bench.evaluate_metrics import load_metric
from ssd.bench.records import Run, runs_root
from ssd.bench.turns import turn_references

DEFAULTS = {"experiment": "demo", "results_dir": "results", "metrics": ""}


def main(arguments: Sequence[str]) -> int:
    """Write the page; the exit status."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # arrows on an ASCII terminal
    try:
        options = parse(arguments)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    results = Path(options["results_dir"]).expanduser()
    raw = runs_root(results, options["experiment"])
    if not raw.is_dir():
        print(f"error: no folder {raw}; run the experiment first", file=sys.stderr)
        return 1
    try:
        metrics = [load_metric(name) for name in dict.fromkeys(options["metrics"].split(",")) if name]
    except (ValueError, ModuleNotFoundError) as error:
        print(f"error: metrics: {error}", file=sys.stderr)
        return 2
    page = results / options["experiment"] / "report.html"
    report = build(raw, references, metrics=metrics)
    write(page, report)
    for folder, reason in report.problems:
        print(f"not reported: {folder}: {reason}", file=sys.stderr)
    print(f"{report.title}\nwrote {page}")
    return 0 if report.sections else 1


def parse(arguments: Sequence[str]) -> dict[str, str]:
    """The options by name.

    Raises:
        ValueError: naming the argument that is not ``NAME=VALUE`` of a known name.
    """
    options = dict(DEFAULTS)
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if not equals or not value or name not in DEFAULTS:
            raise ValueError(f"{argument!r}: expected {' or '.join(f'{known}=VALUE' for known in DEFAULTS)}")
        options[name] = value
    if Path(options["experiment"]).name != options["experiment"]:
        raise ValueError(f"experiment: {options['experiment']!r} is no plain folder name")
    return options


def references(run: Run) -> Mapping[str, str | None] | None:
    """Answers by turn, from the very data the run was made with; None, and why on stderr, if it is not here."""
    config: dict[str, Any] = (run.run.get("config") or {}).get("prompts") or {}
    known = {field.name: config[field.name] for field in fields(DatasetSpec) if field.name in config}
    try:
        loaded = read(DatasetSpec(**{"name": "bundled", **known, "tasks": tuple(known.get("tasks") or ())}))
    except (ValueError, OSError, ImportError, TypeError) as error:
        _say_without(run, str(error))
        return None
    if loaded.describe() != run.run.get("data"):
        _say_without(run, "the prompts on this machine are of another version")
        return None
    return {name: answer for prompt in loaded.prompts for name, answer in turn_references(prompt).items()}


def _say_without(run: Run, reason: str) -> None:
    print(f"no references for {run.run['run_id']}: {reason}", file=sys.stderr)


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # a report describes what is here
    sys.exit(main(sys.argv[1:]))

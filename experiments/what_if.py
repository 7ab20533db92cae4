"""What a chain does where it cannot be run here, simulated: ``python -m experiments.what_if [key=value ...]``.

Keys are those of ``conf/what_if.yaml``, results are described in ``docs/schedules.md``. With all parts it writes
``results/what_if/``: ``table.json`` (every row with its inputs), ``summary.json``, ``report.html`` and the pictures.
With some parts (``parts=[hits]``), or with keys of the ablation (``devices=[1,2] fan_out=[1,4]``), it prints the rows
and writes them to a file of the parts' names. Needs neither torch nor a GPU.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from analysis.table import print_table
from experiments.what_if_case import CURVE_ORIGINS
from experiments.what_if_config import PARTS, WhatIfSpec, read_config
from experiments.what_if_findings import MAIN, findings, pick
from experiments.what_if_needs import needs_rows, reach_rows
from experiments.what_if_page import POINT_COLUMNS, assumptions, write_all
from experiments.what_if_run import run
from ssd.bench.environment import git_state
from ssd.bench.json_files import write_json
from ssd.bench.summary import Row, write_summary

CONFIG = Path(__file__).resolve().parent.parent / "conf" / "what_if.yaml"


def main(arguments: Sequence[str]) -> int:
    """Simulate, print and write; 0."""
    began = perf_counter()
    spec = read_config(CONFIG, arguments)
    command = shlex.join(["python", "-m", "experiments.what_if", *arguments])
    rows = run(spec)
    data = tables(spec, command, rows)
    if set(spec.parts) == set(PARTS):
        write_json(spec.results / "table.json", data)
        write_all(spec.results, command, data, spec.world)
        summary = [*summary_rows(data), Row("wall seconds", perf_counter() - began, "s")]
        write_summary(spec.results / "summary.json", spec.results / "table.json", summary)
        where = spec.results / "report.html"
    else:
        print_table(rows, POINT_COLUMNS)
        where = spec.results / f"{'_'.join(spec.parts)}.json"
        write_json(where, data)
    for sentence in data["findings"]:
        print(sentence)
    print(f"wrote {where}")
    return 0


def tables(spec: WhatIfSpec, command: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The content of ``table.json``."""
    reach = reach_rows(pick(rows, part="map"))
    needs = needs_rows(spec.world) if "cases" in spec.parts else []
    return {
        "schema": 1,
        "command": command,
        "git": git_state(),
        "simulated": True,
        "assumptions": dict(assumptions(spec.world)),
        "curves": CURVE_ORIGINS,
        "seeds": spec.seeds,
        "tokens": spec.tokens,
        "findings": findings(rows, reach, needs),
        "rows": rows,
        "reach": reach,
        "needs": needs,
    }


def summary_rows(data: Mapping[str, Any]) -> list[Row]:
    """The claims and the cases behind them; compiled pass times, everything simulated."""
    found = []
    for r in pick(data["reach"], times=MAIN):
        lower = "" if r["lower"] is None else f", 1B→7B at {r['lower']:g}"
        found.append(Row(f"alpha 7B→70B for {r['goal']}x, {r['chain']}{lower}, {_where(r)}", r["needed"], "share"))
    for r in pick(data["rows"], part="cases", times=MAIN):
        name = f"simulated speedup {r['chain']}, acceptance {r['column']}, {_where(r)}"
        low, high = (r["low"], r["high"]) if r["seeds"] else (None, None)
        found.append(Row(name, r["speedup"], "x", low, high, r["seeds"] or None))
    return found


def _where(row: Mapping[str, Any]) -> str:
    hits = f", hits {row['curve']}" if row["curve"] else ""
    return f"{row['schedule']}{hits}, {row['devices']} device{'s' if row['devices'] > 1 else ''}"


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ValueError as error:
        sys.exit(f"error: {error}")

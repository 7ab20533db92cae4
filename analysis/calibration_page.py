"""The tables of docs/calibration.md, written from the summaries: ``python -m analysis.calibration_page [RESULTS]``."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from analysis.table import MISSING
from ssd.bench.summary import Row, Summary, read_summary

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "calibration.md"
BEGIN, END = "<!-- tables: python -m analysis.calibration_page -->", "<!-- end of tables -->"
SAME_RUN = ", same run"  # ends the name of a calibration's ratio of a run to itself
DIFFERING = "calibrated temperatures that differ from equal ones"  # a row of the cascade study
VECTORS = {"top_down": "top-down", "joint": "joint"}


def main(arguments: Sequence[str]) -> int:
    """Rewrite what stands between the two marks of the page."""
    results = Path(arguments[0]) if arguments else ROOT / "results"
    PAGE.write_text(between_marks(PAGE.read_text(encoding="utf-8"), tables(results)), encoding="utf-8")
    print(f"wrote the tables of {PAGE.name}")
    return 0


def tables(results: Path) -> str:
    """All that stands between the marks: the tables of two summaries, and the figure if it is there.

    Raises:
        ValueError: naming the summary that is missing or malformed.
    """
    calibrate, cascade = (read_summary(results / name / "summary.json") for name in ("calibrate", "cascade"))
    parts = [vector_table(calibrate), edge_table(cascade), control_table(cascade)]
    if differing := [row for row in cascade.rows if row.name == DIFFERING]:
        parts.append(f"{differing[0].name[0].upper()}{differing[0].name[1:]}: {_cell(differing[0], 'g')}.")
    figure = results / "cascade" / "alpha.svg"
    if figure.is_file():
        link = Path(os.path.relpath(figure, PAGE.parent)).as_posix()
        parts.append(f"![Acceptance of the upper edge]({link})")
    return "\n\n".join(parts)


def between_marks(page: str, text: str) -> str:
    """``page`` with ``text`` between its marks.

    Raises:
        ValueError: if it has not exactly one pair of marks.
    """
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end or BEGIN in rest:
        raise ValueError(f"{PAGE.name}: expected one pair of marks, {BEGIN!r} and {END!r}")
    return f"{head}{BEGIN}\n{text}\n{END}{tail}"


def vector_table(summary: Summary) -> str:
    """Per temperature of the row and way of choosing: temperatures, gain of every pair, gain in speed."""
    rows = {row.name: row for row in summary.rows}
    targets = list(dict.fromkeys(name.partition(":")[0] for name in rows))
    pairs = list(dict.fromkeys(m[1] for name in rows if (m := re.search(r": alpha (\S+), joint - equal$", name))))
    titles = [
        "row",
        "choice",
        "temperatures",
        *(f"alpha {pair}, change" for pair in pairs),
        "speed, predicted",
        "measured",
    ]
    body = []
    for target in targets:
        for vector, word in VECTORS.items():
            own = [
                r for n, r in rows.items() if n.startswith(f"{target}: temperature of") and n.endswith(f", {vector}")
            ]
            cells = [target, word, ", ".join(f"{r.value:g}" for r in own if r.value is not None)]
            cells += [_cell(rows.get(f"{target}: alpha {pair}, {vector} - equal"), "+.4f") for pair in pairs]
            cells.append(_cell(rows.get(f"{target}: predicted speed, {vector} / equal"), ".3f"))
            speed = f"{target}: speed, {vector} / equal"
            same = f"{speed}{SAME_RUN}" in rows
            cells.append("same run" if same else _cell(rows.get(speed), ".3f"))
            body.append(cells)
    return _markdown(titles, body)


def edge_table(summary: Summary) -> str:
    """Acceptance of every edge under every condition, counted and expected, and its difference from the pair alone."""
    rows = {row.name: row for row in summary.rows}
    told = any(name.startswith("overlap ") for name in rows)  # summaries of before have none
    body = []
    for name, row in rows.items():
        if name.startswith("alpha ") and not name.endswith(" - alone"):
            edge, _, where = name.removeprefix("alpha ").partition(", ")
            own = _cell(row, "+.3f" if " - " in where else ".3f")
            cells = [edge, where, own, _cell(rows.get(f"{name} - alone"), "+.3f")]
            if told:
                expected = name.replace("alpha ", "overlap ", 1)
                cells += [_cell(rows.get(expected), ".3f"), _cell(rows.get(f"{expected} - alone"), "+.3f")]
            body.append([*cells, f"{row.n}"])
    overlap = ["overlap", "overlap - alone"] if told else []
    return _markdown(["edge", "where", "alpha", "alpha - alone", *overlap, "prompts"], body)


def control_table(summary: Summary) -> str:
    """Under ``exactly``: what stood below the upper edge instead, the differences, and the p-value of that in α."""
    rows = {row.name: row for row in summary.rows}
    told = any(name.startswith("control ") and name.endswith(", overlap") for name in rows)
    body = []
    for name, row in rows.items():
        if name.startswith("control ") and name.endswith(", p-value"):
            what = name.removesuffix(", p-value")
            met = {True: "no dependence seen", False: "rejected", None: MISSING}[row.met]
            compared = what.removeprefix("control ")
            kinds = ("alpha", "overlap") if told else ("alpha",)
            gaps = [_cell(rows.get(f"{what}, {kind}"), "+.3f") for kind in kinds]
            body.append([compared, *gaps, _cell(row, ".3g"), met])
    overlap = ["difference in overlap"] if told else []
    return _markdown(["control", "difference in alpha", *overlap, "p", "verdict"], body)


def _cell(row: Row | None, form: str) -> str:
    """A value with its interval."""
    if row is None or row.value is None:
        return MISSING
    ends = "" if row.low is None or row.high is None else f" [{row.low:{form}}, {row.high:{form}}]"
    return f"{row.value:{form}}{ends}"


def _markdown(titles: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *body]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ValueError as error:
        sys.exit(f"error: {error}")

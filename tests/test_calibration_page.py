"""The tables of docs/calibration.md are the rows of the summaries, and nothing is linked that is not there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from analysis.calibration_page import (
    BEGIN,
    DIFFERING,
    END,
    PAGE,
    between_marks,
    control_table,
    edge_table,
    tables,
    vector_table,
)
from analysis.table import MISSING
from ssd.bench.summary import Row, Summary, write_summary

RESULTS = Path(__file__).resolve().parent.parent / "results"
SUMMARIES = [RESULTS / name / "summary.json" for name in ("calibrate", "cascade")]


def test_the_tables_of_the_page_are_the_rows_of_the_summaries():
    vectors = [
        Row("T0.7: temperature of L0, joint", 0.9, "temperature"),
        Row("T0.7: temperature of L1, joint", 0.75, "temperature"),
        Row("T0.7: alpha L0→L1, joint - equal", 0.0213, "share", 0.01, 0.03, 6, goal=-0.005),
        Row("T0.7: alpha L1→L2, joint - equal", -0.001, "share", goal=-0.005),
        Row("T0.7: predicted speed, joint / equal", 1.042, "x"),
        Row("T0.7: speed, joint / equal", 1.031, "x", 0.99, 1.07, 24),
    ]
    lines = vector_table(Summary([], vectors)).splitlines()
    assert (
        lines[0]
        == "| row | choice | temperatures | alpha L0→L1, change | alpha L1→L2, change | speed, predicted | measured |"
    )
    assert lines[-1] == (
        "| T0.7 | joint | 0.9, 0.75 | +0.0213 [+0.0100, +0.0300] | -0.0010 | 1.042 | 1.031 [0.990, 1.070] |"
    )
    assert lines[2].startswith(f"| T0.7 | top-down |  | {MISSING} |")
    edges = [
        Row("alpha L1→L2, alone", 0.61, "share", 0.5, 0.7, 24),
        Row("alpha L1→L2, in the chain, exactly", 0.6, "share", 0.5, 0.7, 24),
        Row("alpha L1→L2, in the chain, exactly - alone", -0.01, "share", -0.05, 0.03, 24),
        Row("alpha L1→L2, in the chain, exactly, accepted - recovered below", 0.3, "share", 0.2, 0.4, 24),
        Row("alpha L1→L2, in the chain, exactly, recovered below", 0.4, "share", None, None, 24),
        Row("control L1→L2, exactly: in the chain - alone, alpha", -0.01, "share", n=24),
        Row("control L1→L2, exactly: in the chain - alone, p-value", 0.4, "probability", n=24, goal=0.001),
    ]
    table = edge_table(Summary([], edges)).splitlines()
    assert table[3] == "| L1→L2 | in the chain, exactly | 0.600 [0.500, 0.700] | -0.010 [-0.050, +0.030] | 24 |"
    assert table[4].split(" | ")[2] == "+0.300 [+0.200, +0.400]"
    assert table[5].split(" | ")[2] == "0.400"
    assert len(table) == 6
    control = control_table(Summary([], edges)).splitlines()
    assert control[2] == "| L1→L2, exactly: in the chain - alone | -0.010 | 0.4 | no dependence seen |"


def test_overlaps_stand_beside_counts_where_there_are_any():
    where = "L1→L2, in the chain, exactly"
    rows = [
        Row(f"alpha {where}", 0.6, "share", 0.5, 0.7, 24),
        Row(f"alpha {where} - alone", -0.01, "share", -0.05, 0.03, 24),
        Row(f"overlap {where}", 0.61, "share", 0.6, 0.62, 24),
        Row(f"overlap {where} - alone", 0.002, "share", None, None, 24),
        Row("control L1→L2, exactly: in the chain - alone, alpha", -0.01, "share", n=24),
        Row("control L1→L2, exactly: in the chain - alone, overlap", 0.002, "share", -0.01, 0.01, 24),
        Row("control L1→L2, exactly: in the chain - alone, p-value", 0.4, "probability", n=3),
    ]
    head, _, line = edge_table(Summary([], rows)).splitlines()
    assert head.split(" | ")[2:6] == ["alpha", "alpha - alone", "overlap", "overlap - alone"]
    assert line.split(" | ")[4:6] == ["0.610 [0.600, 0.620]", "+0.002"]
    assert control_table(Summary([], rows)).splitlines()[2] == (
        f"| L1→L2, exactly: in the chain - alone | -0.010 | +0.002 [-0.010, +0.010] | 0.4 | {MISSING} |"
    )


def test_a_run_that_was_not_compared_is_called_the_same():
    rows = [
        Row("T0.7: temperature of L0, joint", 0.7, "temperature"),
        Row("T0.7: predicted speed, joint / equal", 1.0, "x"),
        Row("T0.7: speed, joint / equal, same run", 1.0, "x"),
    ]
    assert vector_table(Summary([], rows)).splitlines()[-1] == "| T0.7 | joint | 0.7 | 1.000 | same run |"


def test_the_page_is_rewritten_between_its_marks_only():
    page = PAGE.read_text(encoding="utf-8")
    head, tail = page.split(BEGIN)[0], page.split(END)[1]
    assert between_marks(page, "| a |") == f"{head}{BEGIN}\n| a |\n{END}{tail}"
    assert between_marks(between_marks(page, "| b |"), "| a |") == between_marks(page, "| a |")
    with pytest.raises(ValueError, match="expected one pair of marks"):
        between_marks(page.replace(END, ""), "")


@pytest.mark.skipif(
    not all(path.is_file() for path in SUMMARIES),
    reason="results/calibrate and results/cascade have no summaries yet, so the page has no tables",
)
def test_the_page_holds_the_tables_of_the_summaries_that_come_with_it():
    page = PAGE.read_text(encoding="utf-8")
    assert between_marks(page, tables(RESULTS)) == page, "run python -m analysis.calibration_page"


def test_every_picture_of_the_page_exists():
    for link in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", PAGE.read_text(encoding="utf-8")):
        assert (PAGE.parent / link).is_file(), link


def test_a_figure_is_linked_where_it_is_and_only_if_it_is(tmp_path):
    write_summary(tmp_path / "calibrate" / "summary.json", [], [Row("T1: predicted speed, joint / equal", 1.5, "x")])
    write_summary(tmp_path / "cascade" / "summary.json", [], [Row(DIFFERING, 0, "count")])
    before = tables(tmp_path)
    assert "| T1 | joint |  | 1.500 |" in before
    assert "Calibrated temperatures that differ from equal ones: 0." in before
    assert "![" not in before
    figure = tmp_path / "cascade" / "alpha.svg"
    figure.write_text("<svg/>")
    (link,) = re.findall(r"!\[Acceptance of the upper edge\]\(([^)]+)\)", tables(tmp_path))
    assert (PAGE.parent / link).resolve() == figure.resolve()
    (tmp_path / "cascade" / "summary.json").unlink()
    with pytest.raises(ValueError, match=r"summary\.json"):
        tables(tmp_path)

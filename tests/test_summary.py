"""Goals are judged by their own numbers, and tables show what is missing."""

from __future__ import annotations

import io
import json
import math

import pytest

from analysis.table import SUMMARY_COLUMNS, Column, format_table, print_table
from ssd.bench.statistics import Estimate
from ssd.bench.summary import Row, read_summary, write_summary


@pytest.mark.parametrize(
    ("fields", "met"),
    [
        ({"value": 1.5}, None),
        ({"value": 1.4, "goal": 1.4}, True),
        ({"value": 1.39, "goal": 1.4}, False),
        ({"value": 1.01, "low": 0.98, "goal": 1.0, "low_goal": 0.98}, True),
        ({"value": 1.01, "low": 0.97, "goal": 1.0, "low_goal": 0.98}, False),
        ({"value": 0.99, "low": 0.98, "goal": 1.0, "low_goal": 0.98}, False),
        ({"value": 0.09, "goal": 0.1, "sense": "max"}, True),
        ({"value": 0.11, "goal": 0.1, "sense": "max"}, False),
        ({"value": 0, "goal": 0, "sense": "max"}, True),
        ({"value": None, "goal": 1.0}, False),
        ({"value": math.nan, "goal": 1.0}, False),
        ({"value": 1.2, "goal": 1.0, "low_goal": 0.9}, False),
    ],
)
def test_met(fields, met):
    assert Row("x", unit="x", **fields).met is met


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"value": 1.0, "sense": "above"}, "row x: sense 'above'"),
        ({"value": 1.0, "low_goal": 1.0}, "row x: low_goal"),
        ({"value": math.inf}, "row x: value inf"),
        ({"value": "1.0"}, "row x: value '1.0'"),
    ],
)
def test_rows_that_make_no_sense(fields, words):
    with pytest.raises(ValueError, match=words):
        Row("x", unit="x", **fields)


def test_a_summary_comes_back_as_it_was_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [
        Row.of("best / AR", Estimate(1.3, 1.2, 1.4, 24), goal=1.4, bound=1.45),
        Row("outside passes", 0.04, "share", goal=0.1, sense="max"),
        Row("not measured", math.nan, "s"),
    ]
    path = tmp_path / "results" / "bench" / "summary.json"
    write_summary(path, [tmp_path / "results" / "raw" / "a" / "run.json", "b/run.json"], rows)
    data = json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(name))
    assert data["run"] == ["results/raw/a/run.json", "b/run.json"]
    assert data["rows"][0] == {
        "name": "best / AR",
        "value": 1.3,
        "unit": "x",
        "low": 1.2,
        "high": 1.4,
        "n": 24,
        "goal": 1.4,
        "low_goal": None,
        "met": False,
        "bound": 1.45,
    }
    assert data["rows"][1]["sense"] == "max"
    assert data["rows"][2]["value"] is None
    summary = read_summary(path)
    assert summary.rows[:2] == rows[:2]
    assert summary.row("outside passes").met is True
    with pytest.raises(ValueError, match="no row 'worst'"):
        summary.row("worst")
    write_summary(path, "results/raw/a/run.json", rows[:1])
    assert json.loads(path.read_text())["run"] == "results/raw/a/run.json"
    assert read_summary(path).runs == ["results/raw/a/run.json"]


def test_summaries_that_contradict_themselves_are_refused(tmp_path):
    path = tmp_path / "summary.json"
    with pytest.raises(ValueError, match="rows a occur twice"):
        write_summary(path, "run.json", [Row("a", 1.0, "x"), Row("a", 2.0, "x")])
    write_summary(path, "run.json", [Row("a", 1.0, "x", goal=2.0)])
    path.write_text(path.read_text().replace('"met": false', '"met": true'))
    with pytest.raises(ValueError, match=r"summary.json: row 'a' says met True, its numbers say False"):
        read_summary(path)
    path.write_text(path.read_text().replace('"unit"', '"units"'))
    with pytest.raises(ValueError, match=r"summary.json: row 'a'.*units"):
        read_summary(path)
    path.write_text('{"rows": []}')
    with pytest.raises(ValueError, match="expected the fields"):
        read_summary(path)


def test_a_table_is_aligned_and_shows_missing_values():
    rows = [
        {"name": "ar", "x": 1.0, "n": 24, "ok": None},
        {"name": "chain", "x": math.nan, "low": 1.0, "high": 2.0, "n": 6, "ok": True},
        {"name": "n-gram", "x": 12.346, "low": 11.0, "high": None, "edges": [0.5, None], "ok": False},
    ]
    columns = ["name", Column("x", "speed", ".2f", ("low", "high")), "n", Column("edges", form=".1f"), "ok"]
    assert format_table(rows, columns).splitlines() == [
        "name               speed   n    edges  ok",
        "------  ----------------  --  -------  ---",
        "ar                  1.00  24        –  –",  # noqa: RUF001
        "chain                  –   6        –  yes",  # noqa: RUF001
        "n-gram  12.35 [11.00, –]   –  0.5 / –  no",  # noqa: RUF001
    ]
    assert format_table([], ["a", "bb"]) == "a  bb\n-  --"


def test_printing_summary_rows_works_on_any_terminal():
    rows = [Row("speedup", 1.5, "x", 1.4, 1.6, 24, goal=1.4).as_dict(), Row("alpha", None, "share").as_dict()]
    for encoding in ("utf-8", "ascii"):
        raw = io.BytesIO()
        out = io.TextIOWrapper(raw, encoding=encoding)
        print_table(rows, SUMMARY_COLUMNS, out)
        out.flush()
        text = raw.getvalue().decode(encoding)
        assert "1.5 [1.4, 1.6]" in text
        assert "yes" in text.splitlines()[2]

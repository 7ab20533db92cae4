"""The published what-ifs: sentences, claims and page follow from the rows that are published with them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib")
from analysis import what_if_figures as figures
from analysis.figure_style import svg
from analysis.html_page import TEMPLATES
from analysis.what_if_page import render
from experiments.what_if import summary_rows
from experiments.what_if_case import World
from experiments.what_if_findings import devices_needed, findings, pick
from experiments.what_if_needs import CLAIMS, reach_rows
from experiments.what_if_page import pictures, write_all
from ssd.bench.summary import read_summary

FOLDER = Path(__file__).resolve().parent.parent / "results" / "what_if"


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((FOLDER / "table.json").read_text(encoding="utf-8"))
    return loaded


def test_claims_and_sentences_follow_from_the_published_rows(data: dict[str, Any]) -> None:
    assert reach_rows(pick(data["rows"], part="map")) == data["reach"]
    assert findings(data["rows"], data["reach"], data["needs"]) == data["findings"]
    slower = [dict(r) | {"needed": None} for r in data["reach"]]
    assert findings(data["rows"], slower, data["needs"]) != data["findings"]
    written = read_summary(FOLDER / "summary.json").rows
    assert [r.as_dict() for r in written[:-1]] == [r.as_dict() for r in summary_rows(data)]


def test_every_published_row_is_bounded_by_what_its_target_passes_allow(data: dict[str, Any]) -> None:
    """No schedule emits more than tau tokens per pass of the target; the noise of tau is allowed for."""
    for r in data["rows"]:
        assert r["low"] <= r["speedup"] <= r["high"]
        assert r["per_device"] == pytest.approx(r["speedup"] / r["devices"])
        assert r["speedup"] <= 1.1 * r["tau"]
        assert all(0 <= u <= 1 + 1e-9 for u in r["utilisation"])
        assert all(h is None or 0 <= h <= 1 for h in r["hit_rates"])
        assert (r["seeds"] == 0) == (r["schedule"] == "serial" and r["devices"] == 1)


def test_fewest_devices_are_those_of_the_cheapest_line_that_reaches_the_claim() -> None:
    def line(goal: float, devices: int, curve: str | None, needed: float | None) -> dict[str, Any]:
        lower = None if goal == 2.8 else 0.6
        return {"goal": goal, "devices": devices, "curve": curve, "needed": needed, "times": "compiled", "lower": lower}

    text = devices_needed([
        line(2.8, 1, None, 0.9), line(2.8, 2, "published", 0.75), line(4.1, 1, None, None),
        line(4.7, 3, "published", 0.8), line(4.7, 2, "published", 0.81), line(4.7, 2, "pessimistic", 0.82),
    ])  # fmt: skip
    assert "7B→70B: two devices with hits as published." in text
    assert "levels taking turns: no number of devices up to one per level." in text
    assert text.endswith("overlapped: two devices with hits as published.")


def test_the_page_needs_nothing_else_and_has_a_dark_face(data: dict[str, Any], tmp_path: Path) -> None:
    write_all(tmp_path, "command", data, World())
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "prefers-color-scheme: dark" in page
    assert not re.search(r'(?:src|href)="(?!#)', page)
    for finding in data["findings"]:
        assert finding.split(",")[0].replace("'", "&#39;") in page
    names = [name for name, *_ in pictures(data["rows"], data["reach"])]
    assert {p.stem for p in tmp_path.glob("*.svg")} == set(names)
    assert page.count("<figure") == len(names) == 8
    assert "what_if.html.j2" in {p.name for p in TEMPLATES.iterdir()}
    assert render.__module__ == "analysis.what_if_page"


def test_figures_show_the_rows_they_are_given(data: dict[str, Any]) -> None:
    own = [r for r in data["reach"] if r["goal"] != CLAIMS[0].speedup]
    upper, lower = figures.reach(own, CLAIMS[1].speedup, CLAIMS[2].speedup).axes
    drawn = [y for axes in (upper, lower) for line in axes.lines for y in line.get_ydata()]
    assert sorted(drawn) == sorted(r["needed"] for r in own if r["needed"] is not None)
    pairs = [r for r in pick(data["rows"], part="map") if len(r["alphas"]) == 1]
    lines = figures.pair(pairs, 2.8).axes[0].lines
    assert len(lines) == 1 + 4 + 2  # the goal, a line per column in turn, two overlapped
    hits = figures.hits(pick(data["rows"], part="hits"))
    assert all(max(line.get_ydata()) <= 1 for line in hits.axes[0].lines)
    batch = figures.batch(pick(data["rows"], part="batch"))
    assert [axes.get_title(loc="left") for axes in batch.axes] == ["1B→7B→70B", "1B→70B"]
    again = [svg(figures.batch(pick(data["rows"], part="batch")), "batch", "x") for _ in range(2)]
    assert again[0] == again[1]


@pytest.mark.parametrize(
    "make",
    [
        lambda: figures.reach([], 4.1, 4.7),
        lambda: figures.pair([], 2.8),
        lambda: figures.cases([], "x"),
        lambda: figures.hits([]),
        lambda: figures.batch([]),
    ],
)
def test_where_there_is_nothing_a_figure_says_so(make) -> None:  # type: ignore[no-untyped-def]
    (text,) = make().texts
    assert text.get_text()

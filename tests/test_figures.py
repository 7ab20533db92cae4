"""Figures need no display, leave nothing open, and show what is missing as missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")
from analysis import acceptance_rows, figures
from analysis.figure_style import COLORS, svg, wrapped
from analysis.settings import settings
from analysis.speed_rows import speed_rows, time_rows
from ssd.bench.records import Run
from tests.scripted_records import record
from tests.simulated_runs import config, simulated

ROOT = Path(__file__).resolve().parent.parent


def one_setting(records, **told):
    return settings([Run({"run_id": "run", "status": "complete", **told}, records)])[0]


@pytest.fixture(scope="module")
def setting():
    return one_setting(simulated("run", 1.0, 4, 40), config=config("x", 1.0, 40, "float32"))


def drawn(setting):
    """Every figure of a setting by name."""
    places = acceptance_rows.by_draft_position(setting)
    rows = speed_rows(setting)
    return {
        "speedup": figures.speedup(rows),
        "time": figures.time_per_token(time_rows(setting)),
        "draft": figures.acceptance_by_draft_position(places),
        "output": figures.acceptance_by_place(acceptance_rows.by_output_position(setting), "position"),
        "fate": figures.acceptance_by_fate(acceptance_rows.by_fate(setting)),
        "overview": figures.overview([{**row, "setting": "s"} for row in rows if row["family"] != "baseline"]),
    }


def texts(figure):
    return [text.get_text() for axes in figure.axes for text in (*axes.texts, *axes.get_yticklabels(), axes.title)]


def test_thirty_figures_without_a_display_and_none_is_left_open(tmp_path):
    """B44, in a process of its own that has no display and asks for a window system."""
    code = """
import sys
from pathlib import Path
from analysis import figures
rows = [{"method": m, "family": f, "speedup": s, "speedup_low": None, "speedup_high": None}
        for m, f, s in (("ar", "baseline", 1.0), ("spec", "draft", 2.0))]
for i in range(30):
    figures.speedup(rows).savefig(Path(sys.argv[1]) / f"{i}.png")
assert "matplotlib.pyplot" not in sys.modules
import matplotlib.pyplot as plt
assert plt.get_fignums() == []
"""
    unset = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY")}
    unset |= {"MPLBACKEND": "TkAgg", "PYTHONPATH": str(ROOT), "MPLCONFIGDIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], env=unset, check=True, timeout=120)
    files = list(tmp_path.glob("*.png"))
    assert len(files) == 30
    assert all(path.stat().st_size > 5000 for path in files)


def test_every_method_has_its_row_and_number(setting):
    shown = texts(drawn(setting)["speedup"])
    for row in speed_rows(setting):
        assert wrapped(row["method"]) in shown
        assert f"{row['speedup']:.2f}\N{MULTIPLICATION SIGN}" in shown


def test_bars_are_as_long_as_the_times(setting):
    rows = time_rows(setting)
    (axes,) = drawn(setting)["time"].axes
    ends = {}
    for bar in axes.patches:
        y = round(bar.get_y() + bar.get_height() / 2)
        ends[y] = max(ends.get(y, 0), bar.get_x() + bar.get_width())
    for y, method in enumerate(setting.methods):
        assert ends[y] == pytest.approx(sum(r["milliseconds"] for r in rows if r["method"] == method.name))


def test_a_panel_per_edge(setting):
    titles = [axes.get_title(loc="left") for axes in drawn(setting)["draft"].axes]
    assert titles == ["L0→L2", "n-gram→L2", "L1→L2", "L0→L1"]


def test_a_missing_value_keeps_its_row():
    """Without a baseline there is no speedup; one method of two may lack its times."""
    alone = one_setting([record("a", "spec", 9, (0.1, 1.0))])
    assert "baseline did not run" in figures.speedup(speed_rows(alone)).texts[0].get_text()
    rows = [{"method": m, "family": "draft", "speedup": s, "speedup_low": None, "speedup_high": None}
            for m, s in (("known", 2.0), ("unknown", None))]  # fmt: skip
    assert {"known", "unknown", "2.00\N{MULTIPLICATION SIGN}", "\N{EN DASH}"} <= set(texts(figures.speedup(rows)))


def test_nothing_to_draw_is_said(setting):
    for figure in (
        figures.time_per_token([]),
        figures.acceptance_by_draft_position([]),
        figures.acceptance_by_place([], "x"),
        figures.acceptance_by_fate([]),
        figures.overview([]),
    ):
        assert len(figure.texts) == 1
        assert svg(figure, "n", "nothing").count("<text") == 1


def test_svg_is_the_same_twice_and_takes_the_pages_colours(setting):
    first, second = ({n: svg(f, n, "a & b") for n, f in drawn(setting).items()} for _ in range(2))
    assert first == second
    for name, text in first.items():
        assert text.startswith("<svg ")
        assert 'aria-label="a &amp; b"' in text
        assert "nan" not in text.lower().split("<text")[0]
        assert not any(color in text for color in COLORS.values())
        assert "#000000" not in text
        assert "DejaVu" not in text
        assert "<image" not in text
        assert all(f'id="{name}-' in part for part in text.split() if part.startswith("id="))
        assert text.count("<svg") == text.count("</svg>") == 1


def test_names_are_text_whatever_is_in_them():
    """Dollar signs and underscores are no formulas, angle brackets no tags."""
    rows = [{"method": "a_$x$ <b>&amp;", "family": "draft", "speedup": 1.5, "speedup_low": 1.2, "speedup_high": 1.9}]
    text = svg(figures.speedup(rows), "n", "x")
    assert "a_$x$ &lt;b&gt;&amp;amp;" in text


def test_settings_of_matplotlib_outside_stay():
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    figures.time_per_token([])
    assert dict(mpl.rcParams) == before

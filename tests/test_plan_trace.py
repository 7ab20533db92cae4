"""Traces: the file format, lanes without overlap, and the figure drawn from them."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from simulated_schedules import CURVE, chain_of_three, pipelined

from analysis.figure_style import svg
from analysis.gantt import gantt
from ssd.plan.lookahead import Ahead
from ssd.plan.simulate import simulate
from ssd.plan.trace import Span, Trace, read_traces, write_traces


def two_traces() -> list[Trace]:
    ahead = pipelined(chain_of_three(), Ahead(CURVE, 3), Ahead(CURVE, 8))
    return [simulate(chain_of_three(), 40).trace("serial"), simulate(ahead, 40).trace("pipelined")]


def test_the_file_is_what_perfetto_opens(tmp_path: Path) -> None:
    write_traces(tmp_path / "trace.json", two_traces())
    content = json.loads((tmp_path / "trace.json").read_text())
    passes = [event for event in content["traceEvents"] if event["ph"] == "X"]
    assert all({"name", "ph", "ts", "dur", "pid", "tid", "args"} <= set(event) for event in passes)
    assert {event["pid"] for event in passes} == {0, 1}
    assert {event["tid"] for event in passes} == {0, 1, 2}
    assert all(event["ts"] >= 0 and event["dur"] > 0 for event in passes)
    for tid in range(3):  # Perfetto nests what overlaps, however little
        own = sorted((e["ts"], e["dur"]) for e in passes if (e["pid"], e["tid"]) == (1, tid))
        assert all(round(ts + dur, 3) <= following for (ts, dur), (following, _) in pairwise(own))
    # Microseconds: the first target pass of the serial chain takes a second.
    assert next(event["dur"] for event in passes if event["tid"] == 2) == pytest.approx(1e6)
    named = {(e["pid"], e["args"]["name"]) for e in content["traceEvents"] if e["name"] == "process_name"}
    assert named == {(0, "serial"), (1, "pipelined")}
    lanes = [e["args"]["name"] for e in content["traceEvents"] if e["name"] == "thread_name" and e["pid"] == 1]
    assert lanes == ["L0", "L1", "L2"]


def test_what_was_written_is_read(tmp_path: Path) -> None:
    written = two_traces()
    write_traces(tmp_path / "trace.json", written)
    for ours, theirs in zip(written, read_traces(tmp_path / "trace.json"), strict=True):
        assert (ours.name, ours.levels) == (theirs.name, theirs.levels)
        for level in range(3):
            for a, b in zip(ours.lane(level), theirs.lane(level), strict=True):
                assert (b.start, b.end) == (pytest.approx(a.start), pytest.approx(a.end))
                assert (a.what, a.width, a.batch, a.ahead, a.hits, a.misses) == (
                    *(b.what, b.width, b.batch, b.ahead),
                    *(b.hits, b.misses),
                )


def test_seconds_of_lanes() -> None:
    spans = (Span(0, 0, 2, "draft"), Span(0, 3, 4, "draft"), Span(1, 1, 3.5, "verify"), Span(1, 5, 6, "prefill"))
    trace = Trace("x", ("L0", "L1"), spans)
    assert (trace.busy(0), trace.busy(1), trace.end) == (3, 3.5, 6)
    assert trace.together(0, 1) == trace.together(1, 0) == pytest.approx(1.5)
    assert trace.together(0, 0) == 3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Trace("x", ("L0",), (Span(0, 0, 2, "draft"), Span(0, 1, 3, "draft"))),
            r"'x', level L0: a pass begins at 1 s, before the one that began at 0 s ends at 2 s",
        ),
        (lambda: Trace("x", ("L0",), (Span(1, 0, 2, "draft"),)), r"level 1 of a pass"),
        (lambda: Span(0, 2, 1, "draft"), r"span\.end: 1"),
        (lambda: Span(0, float("nan"), 1, "draft"), r"span\.end: 1 .* nan"),
        (lambda: Span(0, 1, 2, "guess"), r"span\.what: 'guess'"),
        (lambda: Span(0, 1, 2, "draft", ahead="maybe"), r"span\.ahead: 'maybe'"),
    ],
)
def test_what_cannot_be_is_refused(make, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=message):
        make()


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    trace = Trace("x", ("L0",), (Span(0, 0, 1, "draft"),))
    with pytest.raises(ValueError, match="different names"):
        write_traces(path, [trace, trace])
    write_traces(path, [trace])
    whole = json.loads(path.read_text())
    for text, message in (
        ("{", "not a trace"),
        ("[]", "not a trace"),
        ('{"traceEvents": [{"ph": "X"}]}', "event 0 of the trace"),
        (json.dumps({"traceEvents": whole["traceEvents"][1:]}), r"runs \[0\] of the trace have no name"),
    ):
        path.write_text(text)
        with pytest.raises(ValueError, match=message):
            read_traces(path)


def bars(figure: Figure) -> list[int]:
    """Bars of each panel."""
    return [sum(len(c.get_paths()) for c in axes.collections if isinstance(c, PolyCollection)) for axes in figure.axes]


def test_a_lane_per_level_and_a_panel_per_schedule() -> None:
    serially, ahead = two_traces()
    figure = gantt([serially, ahead], seconds=1e3)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["serial", "pipelined"]
    assert [[t.get_text() for t in axes.get_yticklabels()] for axes in figure.axes] == [["L0", "L1", "L2"]] * 2
    assert bars(figure) == [len(serially.spans), len(ahead.spans)]
    idle = [text.get_text() for text in figure.axes[1].texts]
    assert idle[:3] == [f"{1 - ahead.busy(level) / ahead.end:.0%}" for level in range(3)]
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["needed at once", "ahead, used", "ahead, in vain", "hit", "miss"]
    assert svg(figure, "gantt", "who worked when").startswith("<svg")


def test_only_what_lies_in_the_time_shown_is_drawn() -> None:
    serially = simulate(chain_of_three(), 80).trace("serial")
    assert sum(bars(gantt([serially]))) < len(serially.spans)
    assert gantt([serially]).legends[0].get_texts() == []
    shown = gantt([serially], start=1.0, seconds=2.0)
    assert shown.axes[0].get_xlim() == (1e3, 3e3)
    assert gantt([Trace("x", ("L0",), ())]).texts[0].get_text() == "no passes were traced"

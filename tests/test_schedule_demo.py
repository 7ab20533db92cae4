"""``experiments.schedule_demo``: which configurations run, what is read off their traces, and the whole command."""

from __future__ import annotations

import json
import os

import pytest

from experiments import schedule_demo
from experiments.schedule_fit import Line, hit_rate
from experiments.schedule_methods import BOTH, EACH, ONE, chosen, variants
from experiments.schedule_rows import sentences, speed_rows, together, without_waiting
from ssd.bench.json_files import read_json
from ssd.bench.summary import read_summary
from ssd.bench.traces import TRACES_FILE, keep_trace
from ssd.bench.tuning import parse_families
from ssd.plan.trace import Span, Trace, read_traces

FAMILIES = parse_families({"A→B": {"levels": [0, 2], "edges": [[{"gamma": 1}], [{"gamma": 2}]]}})
AHEAD = [{"budget": 2, "fan_out": 1}, {"budget": 4, "fan_out": 2}]


def test_every_family_runs_under_every_schedule_and_halves_alternate():
    found = variants(FAMILIES, AHEAD, [3, 5])
    assert [v.placement for v in found] == [BOTH, ONE, EACH, EACH] * 2
    assert [v.method.cores for v in found[:2]] == [(3, 5), (3,)]  # whatever OMP_NUM_THREADS says
    assert [v.method.pipeline.budget for v in found if v.placement == EACH] == [2, 4, 2, 4]
    assert len({v.name for v in found}) == len(found)
    for placement in (BOTH, ONE, EACH):
        assert {v.fitted for v in found if v.placement == placement} == {True, False}
    with pytest.raises(ValueError, match=r"ahead\[0\]: pipeline.budget: expected an integer >= 1, got 0"):
        variants(FAMILIES, [{"budget": 0}], [0, 1])


def record(method, seconds, prompt="p", tokens=10, hits=None):
    return {
        "run_id": "r", "method": method, "batch_id": prompt, "prompt_id": prompt, "sample": 0, "task": "t",
        "output_ids": list(range(tokens + 1)), "first_pass_tokens": 1, "ahead": [] if hits is None else [hits],
        "passes": {"L0": {"count": 5, "tokens": 5}, "L1": {"count": 5, "tokens": 9}},
        "seconds": {"prefill": 1.0, "total": 1.0 + seconds, "passes": {"L0": 0.1, "L1": seconds / 2}, "rest": 0.2},
    }  # fmt: skip


def test_the_fastest_of_each_placement_is_chosen_and_compared_with_both_rivals():
    found = variants(FAMILIES, AHEAD, [0, 1])
    seconds = dict(zip([v.name for v in found], (1.0, 3.0, 2.0, 1.5, 2.0, 1.2, 4.0, 0.5), strict=True))
    records = {
        name: [record(name, s * (1 + i / 10), str(i), hits=[3, 1] if "pipelined" in name else None) for i in range(4)]
        for name, s in seconds.items()
    }
    best = chosen(found, [r for own in records.values() for r in own])
    assert [v.name for v in best] == [found[0].name, found[5].name, found[7].name]
    records |= {"ar": [record("ar", 1.0, str(i)) for i in range(4)]}
    records |= {"ar, one core": [record("ar, one core", 2.0, str(i)) for i in range(4)]}
    rows = {row.name: row for row in speed_rows(best, records)}
    honest = rows["A→B: pipelined / serial, all cores"]
    assert honest.value == pytest.approx(2.0)
    assert honest.met
    assert honest.bound == pytest.approx(4.0)  # half of its time it was in no pass of the target
    assert rows["A→B: pipelined / serial, one core"].value == pytest.approx(2.4)
    assert rows["A→B: hit rate"].value == 0.75
    assert "a gain" in sentences(best, list(rows.values()))[0]
    assert without_waiting(records[found[7].name]) == pytest.approx(2.0)
    assert hit_rate(records[found[0].name]) is None


def test_time_together_is_counted_where_both_have_work():
    spans = [
        Span(1, 0.0, 1.0, "verify"),
        Span(0, 0.0, 0.3, "draft", ahead="used"),
        Span(0, 0.5, 0.8, "draft", ahead="used"),  # done before the verification is: the rest counts for neither
        Span(0, 1.0, 1.2, "draft"),  # nothing to overlap with
        Span(1, 1.2, 2.0, "verify"),
        Span(0, 1.6, 2.2, "draft", ahead="wasted"),
    ]
    assert together([Trace("t", ("L0", "L1"), tuple(spans))]) == pytest.approx((0.6 + 0.4) / (0.8 + 0.8))
    assert together([Trace("t", ("L0", "L1"), tuple(spans[:1]))]) is None


def test_a_line_goes_through_passes():
    spans = [Span(0, 0.0, 0.01 + 0.002 * w * b, "draft", w, b) for w in (1, 2, 4) for b in (1, 3)]
    line = Line.through(spans)
    assert line(2, 3) == pytest.approx(0.022)
    assert line(8, 1) == pytest.approx(0.026)
    assert Line.through(spans[:1])(7, 7) == pytest.approx(spans[0].seconds)


def test_traces_of_a_run_stand_in_one_file(tmp_path):
    first = Trace("x", ("L0",), (Span(0, 0.0, 1.0, "verify"),))
    keep_trace(tmp_path, "a, 1", first)
    keep_trace(tmp_path, "b, 1", first)
    keep_trace(tmp_path, "a, 1", Trace("x", ("L0",), ()))  # of a second attempt
    assert [(t.name, len(t.spans)) for t in read_traces(tmp_path / TRACES_FILE)] == [("b, 1", 1), ("a, 1", 0)]


def test_the_whole_command(tmp_path, capsys):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two cores")
    families = {"L0→L2": {"levels": [0, 2], "edges": [[{"gamma": 1}], [{"gamma": 2}]]}}
    results = tmp_path / "results" / "schedule"
    arguments = [
        "chain=tiny_triple", "target_dtype=float32", "tune.limit=1", "tune.max_new_tokens=8", "measure.limit=2",
        "measure.max_new_tokens=8", f"families={json.dumps(families)}", f"results_dir={results}",
        "ahead=[{kind: thread, budget: 2, fan_out: 1}, {kind: thread, budget: 4, fan_out: 2}]",
    ]  # fmt: skip
    assert schedule_demo.main(arguments) == 0
    assert "L0→L2: pipelined / serial, all cores" in capsys.readouterr().out
    summary = read_summary(results / "summary.json")
    assert summary.row("L0→L2: outputs equal to the serial ones").value == 1.0  # float32
    assert summary.row("simulator: median error of speed, other half").n == 4
    assert len(read_json(results / "simulated.json")["configurations"]) == 8
    page = (results / "report.html").read_text(encoding="utf-8")
    assert "Who worked when: L0→L2" in page
    assert "<script" not in page
    names = {t.name.rpartition(", ")[0] for t in read_traces(results / "measure" / TRACES_FILE)}
    assert names == {"ar", "ar, one core"} | {v for v in names if v.startswith("L0→L2")}
    assert len(names) == 5

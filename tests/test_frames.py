"""Frames hold what the records hold; absent values stay values."""

from __future__ import annotations

import math

import pytest

from ssd.bench.acceptance import edge_counts
from ssd.bench.metrics import tokens_per_second
from ssd.bench.records import Run
from ssd.core.requests import Passes
from tests.scripted_records import record, scripted

pd = pytest.importorskip("pandas")
frames = pytest.importorskip("analysis.frames")


def run(run_id, records, **config):
    return Run({"run_id": run_id, "status": "complete", "config": config}, [{**r, "run_id": run_id} for r in records])


def test_groups_with_an_absent_key_stay():
    """B44: AR has no draft temperature; three rows, AR at 11 tokens/s."""
    runs = [
        run("ar", [record("a", "ar", 10, (0, 1)), record("b", "ar", 12, (0, 1))], chain={"levels": []}),
        *(
            run(f"spec-{t}", [record(p, "spec", n, (0, 1)) for p in "ab"], chain={"levels": [{"temperature": t}]})
            for t, n in ((0.5, 20), (1.0, 30))
        ),
    ]
    table = frames.record_frame([r for each in runs for r in each.records])
    table = frames.with_settings(table, runs, {"draft_temperature": "chain.levels.0.temperature"})
    assert math.isnan(table["draft_temperature"][0])
    speed = frames.ratio_of_totals(table, ["draft_temperature"], "output_tokens", "total_seconds", "speed")
    assert speed["speed"].tolist() == [11.0, 20.0, 30.0]
    assert len(table.groupby("draft_temperature")) == 2  # what pandas does by default
    pairs = frames.totals(table, ["method", "draft_temperature"], ["output_tokens"])
    assert pairs["output_tokens"].tolist() == [22, 40, 60]


def test_ratios_are_of_totals():
    """B44: 10 s and 1 s against 5 s and 1 s."""
    records = [record(p, m, 10, (0, s)) for m, times in (("ar", (10, 1)), ("spec", (5, 1)))
               for p, s in zip("ab", times, strict=True)]  # fmt: skip
    rates = frames.ratio_of_totals(
        frames.record_frame(records), ["method"], "output_tokens", "total_seconds", "rate"
    ).set_index("method")["rate"]
    assert rates["spec"] / rates["ar"] == pytest.approx(11 / 6)


def test_an_absent_number_leaves_no_sum():
    records = [record("a"), record("b")]
    records[1]["seconds"] = dict(records[1]["seconds"], total=None)
    sums = frames.totals(frames.record_frame(records), ["method"], ["total_seconds", "output_tokens"])
    assert math.isnan(sums["total_seconds"][0])
    assert sums["output_tokens"][0] == 18
    nothing = frames.ratio_of_totals(
        frames.record_frame([record(tokens=0)]), ["method"], "output_tokens", "rounds", "x"
    )
    assert math.isnan(nothing["x"][0])


def test_one_row_per_record_and_seconds_once_per_batch():
    shared = {"batch": "b", "seconds": (1.0, 3.0), "passes": (0.5, 1.0), "counts": (Passes(9, 9), Passes(3, 12))}
    spec = [record("a", tokens=6, first=1, **shared), record("b", tokens=4, first=1, **shared)]
    ar = [record("a", "ar", tokens=6, first=1, seconds=(1.0, 5.0), passes=(4.0,), counts=(Passes(6, 6),))]
    table = frames.record_frame([*spec, *ar])
    assert table["method"].tolist() == ["spec", "spec", "ar"]
    assert table["counts_seconds"].tolist() == [True, False, True]
    assert table["batch_rows"].tolist() == [2, 2, 1]
    assert table["decode_tokens"].tolist() == [5, 3, 5]
    assert table["L0_passes"].tolist() == [9, 9, 6]
    assert table["L1_seconds"].tolist()[:2] == [1.0, 1.0]
    assert math.isnan(table["L1_seconds"][2])
    assert table["temperature"].tolist() == [0, 0, 0]
    once = frames.batch_frame([*spec, *ar])
    assert once["output_tokens"].tolist() == [10, 6]
    assert once["first_pass_tokens"].tolist() == [2, 1]
    speed = frames.ratio_of_totals(once, ["method"], "decode_tokens", "decode_seconds", "speed")["speed"].tolist()
    assert speed == [tokens_per_second(spec), tokens_per_second(ar)]
    with pytest.raises(ValueError, match="occurs twice"):
        frames.record_frame([*ar, *ar])


def test_one_row_per_round():
    told = record("a", rounds=scripted(4, (4, 0, 2), overlap=0.5))
    untold = record("b", rounds=scripted(2, (1,)), tokens=2)
    plain = record("c", rounds=scripted(0, (0,)), tokens=1)
    table = frames.round_frame([told, untold, plain])
    assert table["round"].tolist() == [0, 1, 2, 0, 0]
    assert table["output_position"].tolist() == [0, 5, 6, 0, 0]
    assert table["overlap"].tolist()[:3] == [2.0, 0.5, 1.5]
    assert math.isnan(table["overlap"][3])
    assert table["overlap"][4] == 0  # nothing was tested
    sums = frames.totals(table[table["prompt_id"] == "a"], ["edge"], ["tested", "accepted", "overlap", "emitted"])
    counts = edge_counts([told], 0)
    assert sums.iloc[0].tolist() == [0, counts.tested, counts.accepted, counts.overlap, counts.emitted]
    voided = frames.totals(table, ["edge"], ["overlap"])
    assert math.isnan(voided["overlap"][0])


def test_frames_of_nothing_have_their_columns():
    assert list(frames.record_frame([]).columns) == list(frames.RECORD_COLUMNS)
    assert list(frames.round_frame([]).columns) == list(frames.ROUND_COLUMNS)
    assert len(frames.batch_frame([])) == 0
    unset = record()
    unset["sampling"] = None
    assert math.isnan(frames.record_frame([unset])["temperature"][0])


def test_settings_of_unknown_runs_or_taken_names_are_errors():
    table = frames.record_frame([record()])
    runs = [run("run", [], chain=["a", "b"], name="n")]
    with pytest.raises(ValueError, match="no run 'run' among the 0"):
        frames.with_settings(table, [], {"x": "y"})
    with pytest.raises(ValueError, match="column 'task' already"):
        frames.with_settings(table, runs, {"task": "y"})
    wide = frames.with_settings(table, runs, {"last": "chain.-1", "none": "chain.2", "deep": "name.x", "name": "name"})
    assert wide.loc[0, ["last", "none", "deep", "name"]].tolist() == ["b", None, None, "n"]

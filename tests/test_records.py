"""Run folders survive what happens to runs: kills, failures, half-written lines, two writers."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ssd.bench.environment import BusyMeter
from ssd.bench.json_files import dumps, plain, read_json, write_json
from ssd.bench.records import (
    RECORD_FIELDS,
    RunFolder,
    check_record,
    group_by,
    read_run,
    read_runs,
    record_line,
)
from ssd.core.requests import Generation, Passes, Round, Sampling, Seconds

ROUNDS = (
    Round(0, 3, 3, 4, 4, 4, 5, "bonus", (1.0, 0.5, 0.25, 1.0)),
    Round(0, 8, 8, 4, 1, 0, 1, "recovered", (0.125,)),
)
GENERATION = Generation(
    ids=(5, 6, 7, 8, 9, 10),
    stop_reason="length",
    rounds=ROUNDS,
    origins=(("plain",) * 4 + (None, None), ("draft",) * 4 + ("bonus", "recovered")),
    passes=(Passes(8, 20), Passes(2, 13)),
    seconds=Seconds(prefill=0.25, passes=(0.125, 0.5), rest=0.125, total=1.0),
    first_pass_tokens=5,
    arrivals=((0.25, 5), (1.0, 6)),
)


def line(prompt_id: str = "p0", generation: Generation = GENERATION, **changes) -> dict:
    record = record_line(
        "run",
        "b0",
        "pair",
        prompt_id,
        "math",
        generation,
        3,
        "text\u2028ü",
        Sampling(temperature=0.0),
        max_new_tokens=6,
    )
    return record | changes


def quiet() -> BusyMeter:
    return BusyMeter(machine=lambda: (0.0, 2), own=lambda: 0.0, wall=iter([0.0, 1.0]).__next__)


def write(path: Path, prompts: int = 2, **options) -> Path:
    with RunFolder(path, meter=quiet(), **options) as folder:
        for i in range(prompts):
            folder.append(line(f"p{i}"))
    return path


def unfinished(path: Path, prompts: int) -> Path:
    """A run whose process was killed: whole lines, and a run.json that still says running."""
    write(path, prompts)
    run = read_json(path / "run.json")
    write_json(path / "run.json", run | {"status": "running", "finished": None, "records": 0})
    return path


def test_a_record_has_exactly_the_documented_fields_and_round_trips_as_json():
    record = line()
    assert tuple(record) == RECORD_FIELDS
    assert record["passes"] == {"L0": {"count": 8, "tokens": 20}, "L1": {"count": 2, "tokens": 13}}
    assert record["seconds"] == {
        "prefill": 0.25,
        "passes": {"L0": 0.125, "L1": 0.5},
        "rest": 0.125,
        "total": 1.0,
    }
    assert record["sampling"] == {
        "temperature": 0.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0,
        "frequency_penalty": 0.0, "presence_penalty": 0.0, "min_new_tokens": 0, "bad_words_ids": [], "logit_bias": [],
    }  # fmt: skip
    assert record["rounds"][1]["overlap"] == [0.125]
    assert json.loads(dumps(record)) == record


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"accepted": 3}, r"rounds\[0\]"),
        ({"emitted": 4}, r"rounds\[0\]"),
        ({"tested": 5}, r"rounds\[0\]"),
        ({"overlap": (0.5,)}, r"rounds\[0\]"),
        ({"end": "rejected"}, r"rounds\[0\]"),
    ],
)
def test_contradicting_counts_are_refused(change, words):
    broken = replace(GENERATION, rounds=(replace(ROUNDS[0], **change), ROUNDS[1]))
    with pytest.raises(ValueError, match=words):
        line(generation=broken)


def test_rounds_must_account_for_the_output():
    with pytest.raises(ValueError, match="emitted 6 tokens, output_ids has 7"):
        line(generation=replace(GENERATION, ids=(*GENERATION.ids, 11)))
    with pytest.raises(ValueError, match=r"missing fields \['text'\], unknown fields \['note'\]"):
        check_record({k: v for k, v in line().items() if k != "text"} | {"note": 1})


def test_a_stopped_round_and_a_method_without_rounds_are_fine():
    stopped = replace(ROUNDS[0], tested=3, accepted=3, emitted=3, end="stopped", overlap=(1.0, 0.5, 0.25))
    line(generation=replace(GENERATION, ids=(1, 2, 3), rounds=(stopped,), first_pass_tokens=3))
    line(generation=replace(GENERATION, rounds=(), origins=()))
    empty = replace(GENERATION, ids=(), rounds=(), origins=(), first_pass_tokens=0, arrivals=())
    assert line(generation=empty)["output_ids"] == []


def test_run_json_says_running_at_once_and_complete_at_the_end(tmp_path):
    folder = RunFolder(tmp_path / "r", config={"chain": "triple"}, meter=quiet())
    first = read_json(tmp_path / "r" / "run.json")
    assert (first["status"], first["run_id"], first["finished"]) == ("running", "r", None)
    folder.describe(models={"L0": {"source": "x", "sha256": "00"}}, warmup_seconds={"ar": 0.5})
    folder.append(line())
    assert len(read_run(tmp_path / "r").records) == 1  # readable while running
    assert not read_run(tmp_path / "r").is_complete
    folder.finish()
    run = read_run(tmp_path / "r")
    assert run.is_complete
    assert run.records == [line()]
    expected = {
        "run_id",
        "schema",
        "status",
        "error",
        "config",
        "git",
        "versions",
        "device",
        "models",
        "data",
    }
    assert expected | {"started", "finished", "busy_elsewhere"} <= set(run.run)
    assert run.run["models"]["L0"]["sha256"] == "00"
    assert run.run["busy"] is False
    with pytest.raises(ValueError, match="complete"):
        folder.append(line())
    with pytest.raises(ValueError, match="seed"):
        folder.describe(seed=1)


def test_an_exception_marks_the_run_failed_and_keeps_its_lines(tmp_path):
    def work() -> None:
        with RunFolder(tmp_path / "r", meter=quiet()) as folder:
            folder.append(line())
            raise KeyError("gamma")

    with pytest.raises(KeyError):
        work()
    run = read_run(tmp_path / "r")
    assert (run.run["status"], run.run["error"], len(run.records)) == ("failed", "KeyError: 'gamma'", 1)


def test_a_killed_process_leaves_running_and_whole_lines(tmp_path):
    code = (
        "import os, signal, sys\n"
        "from tests.test_records import RunFolder, line\n"
        "folder = RunFolder(sys.argv[1])\n"
        "folder.append(line('p0')); folder.append(line('p1'))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    root = Path(__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "r")], cwd=root, check=False)
    assert done.returncode == -9
    run = read_run(tmp_path / "r")
    assert (run.run["status"], len(run.records), run.notes) == ("running", 2, [])


def test_a_folder_holds_one_run(tmp_path):
    write(tmp_path / "r")
    with pytest.raises(ValueError, match="already holds a run"):
        RunFolder(tmp_path / "r")
    assert len(read_run(tmp_path / "r").records) == 2
    (tmp_path / "r" / "run.json").unlink()  # the records of another process that is just starting
    with pytest.raises(ValueError, match="already holds a run"):
        RunFolder(tmp_path / "r")
    write(tmp_path / "r", prompts=1, replace=True)
    assert len(read_run(tmp_path / "r").records) == 1


def test_a_half_written_last_line_is_dropped_with_a_note(tmp_path):
    path = unfinished(tmp_path / "r", 1) / "records.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + whole[: len(whole) // 2])
    run = read_run(tmp_path / "r" / "run.json")
    assert run.records == [line("p0")]
    assert "line 2 is half-written" in run.notes[0]
    path.write_bytes(whole[: len(whole) // 2] + b"\n" + whole)
    with pytest.raises(ValueError, match=r"records.jsonl: line 1"):
        read_run(tmp_path / "r")


def test_a_complete_run_that_lost_lines_is_an_error(tmp_path):
    path = write(tmp_path / "r") / "records.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ValueError, match=r"1 records, but run.json counts 2"):
        read_run(tmp_path / "r")


def test_bad_runs_are_listed_and_never_fatal(tmp_path):
    """B44: a sweep folder with failed, empty and half-written results."""
    write(tmp_path / "a" / "good1")
    write(tmp_path / "good2")
    (tmp_path / "good2" / "logs").mkdir()  # inside a run: not a run
    with pytest.raises(RuntimeError), RunFolder(tmp_path / "failed", meter=quiet()):
        raise RuntimeError("out of memory")
    (tmp_path / "empty").mkdir()
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "run.json").write_text('{"run_id": "half", "sta')
    write(tmp_path / "lost").joinpath("records.jsonl").unlink()
    unfinished(tmp_path / "killed", 0)
    write(tmp_path / "nan").joinpath("records.jsonl").write_text('{"a": NaN}\n{"a": NaN}\n')
    (tmp_path / ".hidden").mkdir()
    good, problems = read_runs(tmp_path)
    assert [run.run["run_id"] for run in good] == ["good1", "good2"]
    assert {p.path.name for p in problems} == {"failed", "empty", "half", "lost", "killed", "nan"}
    reasons = {p.path.name: p.reason for p in problems}
    assert "RuntimeError: out of memory" in reasons["failed"]
    assert "status running" in reasons["killed"]
    assert "NaN" in reasons["nan"]
    assert all(word in reasons["half"] for word in ("run.json", "not valid JSON"))
    assert read_runs(tmp_path / "nowhere") == ([], [])


def test_json_is_free_of_bare_nan(tmp_path):
    value = {"a": math.nan, "b": [np.float64(math.inf), np.int64(3), np.arange(2)], "c": Path("x/y"), 1: True}
    write_json(tmp_path / "x.json", value)
    assert "NaN" not in (tmp_path / "x.json").read_text()
    assert read_json(tmp_path / "x.json") == {"a": None, "b": [None, 3, [0, 1]], "c": "x/y", "1": True}
    (tmp_path / "y.json").write_text('{"a": NaN}')
    with pytest.raises(ValueError, match=r"y.json.*NaN"):
        read_json(tmp_path / "y.json")
    with pytest.raises(ValueError, match=r"config\.dtype: .* has no JSON form"):
        plain({"dtype": object()}, "config")


def test_a_failed_write_leaves_the_old_file_and_no_rest(tmp_path, monkeypatch):
    write_json(tmp_path / "x.json", {"a": 1})

    def broken(*_):
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", broken)
    with pytest.raises(OSError, match="disk full"):
        write_json(tmp_path / "x.json", {"a": 2})
    assert read_json(tmp_path / "x.json") == {"a": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["x.json"]


def test_grouping_keeps_missing_keys():
    """B44: rows whose key is empty do not vanish."""
    records = [{"m": "ar", "s": {"t": None}}, {"m": "spec", "s": {"t": 0.5}}, {"m": "ar"}]
    groups = group_by(records, "m", "s.t")
    assert list(groups) == [("ar", None), ("spec", 0.5)]
    assert len(groups["ar", None]) == 2


def test_a_busy_machine_marks_the_record(tmp_path):
    meter = BusyMeter(iter([(0.0, 2), (1.0, 2)]).__next__, iter([0.0, 0.5]).__next__, iter([0.0, 1.0]).__next__)
    with RunFolder(tmp_path / "r", meter=meter):
        pass
    run = read_run(tmp_path / "r").run
    assert (run["busy_elsewhere"], run["busy"]) == (0.25, True)


def test_records_and_metrics_need_no_torch():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import ssd.bench.metrics, ssd.bench.records, ssd.bench.summary, ssd.bench.fates, analysis.table\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[1], check=True)

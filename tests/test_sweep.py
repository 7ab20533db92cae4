"""Sweeps in this process: failing and interrupted jobs, and what becomes of them when the sweep is repeated."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from experiments import job as job_module
from ssd.bench.json_files import read_json, write_json
from ssd.bench.records import read_run, read_runs
from ssd.bench.run_lock import locked
from ssd.bench.summary import read_summary
from tests.entry_point import THREE, TINY, caller, failing, folders


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    return caller(tmp_path, monkeypatch, capsys)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (RuntimeError("no gamma left"), "RuntimeError: no gamma left"),
        (SystemExit(3), "SystemExit: 3"),
        (MemoryError(), "MemoryError"),
    ],
)
def test_a_failing_job_stops_no_other_and_is_on_record(run, tmp_path, monkeypatch, error, text):
    """B36: raise, exit and out of memory inside job 1 of 3."""
    with monkeypatch.context() as patch:
        failing(patch, error)
        status, out = run(*THREE)
    assert status == 1
    good, problems = read_runs(tmp_path / "raw")
    assert len(good) == 2
    assert [text in p.reason for p in problems] == [True]
    failed = folders(tmp_path)[0.5]
    assert read_run(failed).run["status"] == "failed"
    assert len(read_run(failed).records) == 1
    trace = (failed / "error.txt").read_text()
    assert "Traceback" in trace
    assert text in trace
    assert "#1" in out.splitlines()[-3]
    assert text in out
    assert "3 jobs: 2 complete, 1 failed" in out
    assert out.count(good[0].run["run_id"]) >= 3  # announced, shown, and in the table of all runs

    status, out = run(*THREE)
    assert status == 0
    assert "3 jobs: 2 skipped, 1 complete" in out
    assert out.count("finished before, skipped") == 2
    assert not (failed / "error.txt").exists()
    again = read_run(failed).run
    assert (again["status"], again["error"]) == ("complete", None)
    assert text in again["resumed"][0]["error"]
    rows = read_summary(tmp_path / "runs" / "summary.json").rows
    assert sum(row.name.endswith("/recursive/speedup") for row in rows) == 3


def test_a_configuration_that_makes_no_run_is_on_record_beside_the_runs(run, tmp_path):
    status, out = run("-m", *TINY, "methods.recursive.levels=[0,1],[0,7]", "methods.recursive.edges=[{gamma: 2}]")
    assert status == 1
    assert "methods.recursive.levels: no level 7 in a chain of 2" in out
    (stray,) = (tmp_path / "raw" / "runs").glob("failed-*")
    assert read_json(stray / "run.json")["config"]["methods"]["recursive"]["levels"] == [0, 7]
    assert "Traceback" in (stray / "error.txt").read_text()
    assert len(read_runs(tmp_path / "raw")[0]) == 1


def test_a_value_that_is_missing_is_named_and_on_record(run, tmp_path):
    status, out = run(*TINY, "chain.levels=[{dtype: float32}]", "chain.edges=[]", "methods.recursive.levels=[-1]")
    assert status == 1
    assert "chain.levels[0].source" in out
    (stray,) = (tmp_path / "raw" / "runs").glob("failed-*")
    assert read_json(stray / "run.json")["config"]["chain"]["levels"][0]["source"] == "???"


def test_a_folder_that_holds_another_run_is_left_alone(run, tmp_path):
    """Two configurations can never end up in one folder, not even if their hashes collide."""
    assert run(*TINY)[0] == 0
    (folder,) = folders(tmp_path).values()
    other = read_json(folder / "run.json")
    other["config"]["seed"] = 7
    write_json(folder / "run.json", other)
    status, out = run(*TINY)
    assert status == 1
    assert "another configuration has this folder" in out
    assert read_json(folder / "run.json") == other
    assert not (folder / "error.txt").exists()
    assert len(list((tmp_path / "raw" / "runs").glob("failed-*"))) == 1
    other["config"]["seed"] = 0
    write_json(folder / "run.json", other)
    assert run(*TINY)[0] == 0
    assert not list((tmp_path / "raw" / "runs").glob("failed-*"))


@pytest.mark.parametrize(("how", "status"), [("interrupt", 130), ("terminate", 143)])
def test_an_interruption_ends_the_sweep_and_the_next_one_goes_on(run, tmp_path, monkeypatch, how, status):
    class End(KeyboardInterrupt):
        """Raised by hand, or by the handler of SIGTERM."""

    def progress(title, **more):
        def step(name: str, done: int, total: int) -> None:
            if done == 3:
                if how == "terminate":
                    signal.raise_signal(signal.SIGTERM)
                raise End

        step.close = lambda: None
        return step

    before = signal.getsignal(signal.SIGTERM)
    with monkeypatch.context() as patch:
        patch.setattr(job_module, "ProgressLine", progress)
        got, out = run(*THREE)
    assert got == status
    assert "1 job: 1 interrupted" in out
    assert signal.getsignal(signal.SIGTERM) == before
    got, out = run(*THREE)
    assert got == 0
    resumed = read_run(folders(tmp_path)[0.0]).run["resumed"]
    assert [(entry["kept"], entry["dropped"]) for entry in resumed] == [(2, 1)]


def test_a_second_process_waits_for_the_first(run, tmp_path):
    assert run(*TINY)[0] == 0
    (folder,) = folders(tmp_path).values()
    began = time.perf_counter()
    held = threading.Event()

    def hold() -> None:
        with locked(folder):
            held.set()
            time.sleep(1.0)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    status, out = run(*TINY)
    holder.join()
    assert status == 0
    assert "waits for process" in out
    assert "finished before, skipped" in out
    assert time.perf_counter() - began > 0.9


def test_one_run_in_two_jobs_is_decoded_and_counted_once(run, tmp_path):
    status, out = run("-m", *TINY, "tracker.project=a,b")
    assert status == 0
    assert "2 jobs: 1 complete, 1 skipped" in out
    assert len(read_summary(tmp_path / "runs" / "summary.json").runs) == 1

"""What W&B is left with, read back from its offline files; its processes end in time."""

from __future__ import annotations

import json
import socket
import sys
import time
from pathlib import Path

import pytest

from ssd.bench import wandb_tracker
from ssd.bench.records import read_run
from ssd.bench.summary import Row
from ssd.bench.tracking import MemoryTracker, mirror, tell, tracker_id
from tests.tracked_runs import OFFLINE, ONLINE, PLAIN, ROWS, fail_run, figure, hostile_surroundings, write_run
from tests.wandb_reader import read_wandb

pytest.importorskip("matplotlib")
pytestmark = pytest.mark.skipif(not wandb_tracker.is_installed(), reason="wandb is not installed")


@pytest.fixture(autouse=True)
def _surroundings(tmp_path, monkeypatch):
    hostile_surroundings(tmp_path, monkeypatch)


@pytest.fixture
def warnings():
    return []


def wandb_file(folder: Path) -> Path:
    (found,) = (folder / "wandb").glob("*run-*/run-*.wandb")
    return found


def test_jobs_of_one_process_are_runs_of_their_own(tmp_path, warnings):
    """B39: three jobs, the second raises; read back from the files."""
    folders = [write_run(tmp_path / "a", "a"), fail_run(tmp_path / "b", "b"), write_run(tmp_path / "c", "c")]
    rows = [Row(row.name.replace("id/", "a/"), row.value, row.unit, row.low, row.high) for row in ROWS]
    drawn, before = figure(), set(sys.modules)
    for folder in folders:
        more = (rows, {"speed": drawn}) if folder.name == "a" else ()
        assert mirror(folder, OFFLINE, *more, warn=warnings.append) == "offline"
    assert warnings == []
    assert not [name for name in set(sys.modules) - before if name.startswith("wandb")]
    assert not list((tmp_path / "home").rglob("*wandb*"))  # nor did it leave anything with the user
    told = [read_wandb(wandb_file(folder)) for folder in folders]
    assert [run.id for run in told] == [tracker_id(read_run(folder).run) for folder in folders]
    assert len({run.id for run in told}) == 3
    assert [run.exit_code for run in told] == [0, 1, 0]
    assert [run.summary["status"] for run in told] == ["complete", "failed", "complete"]
    assert [(run.project, run.group, run.name) for run in told] == [("here", "experiment", n) for n in "abc"]
    assert [len(run.history) for run in told] == [5, 2, 5]
    assert told[1].config["run"]["error"] == "RuntimeError: no memory\nleft"

    whole = told[0]
    assert {name: whole.config[name] for name in PLAIN} == PLAIN
    assert whole.config["run"]["git"] == read_run(folders[0]).run["git"]
    metrics = {k: v for k, v in whole.summary.items() if not k.startswith(("_", "outputs", "figures"))}
    assert metrics == {
        "status": "complete",
        "spec/speedup": 1.5,
        "spec/speedup/low": 1.25,
        "spec/speedup/high": 1.75,
        "spec/edge0/alpha": 0.1,
        "ar/edge0/alpha": None,
    }
    assert [row["output/prompt_id"] for row in whole.history[:4]] == ["p0", "p1", "p0", "p1"]
    assert [row["output/output_tokens"] for row in whole.history[:4]] == [9, 9, 3, 3]
    check_files(wandb_file(folders[0]).parent / "files", whole.history[4], read_run(folders[0]))

    assert [path.name for path in (folders[0] / "wandb").iterdir() if "run-" not in path.name] == ["data"]


def check_files(files: Path, last: dict, run) -> None:
    """Table and figure of the last history row are there; nothing about the machine is."""

    kept = MemoryTracker()
    tell(kept, run)
    table = json.loads((files / last["outputs"]["path"]).read_text(encoding="utf-8"))
    assert tuple(table["columns"]) == kept.table.columns
    assert table["data"] == kept.table.rows
    assert (files / last["figures/speed"]["path"]).read_bytes()[:4] == b"\x89PNG"
    assert not list(files.glob("*.txt")) + list(files.glob("wandb-metadata.json"))


def test_a_second_mirror_replaces_the_first(tmp_path, warnings):
    folder = fail_run(tmp_path / "id")
    mirror(folder, OFFLINE, warn=warnings.append)
    first = read_wandb(wandb_file(folder))
    write_run(folder, resume=True)
    mirror(folder, OFFLINE, warn=warnings.append)
    second = read_wandb(wandb_file(folder))
    assert (first.exit_code, second.exit_code) == (1, 0)
    assert first.id == second.id
    assert len(second.history) == 5
    assert warnings == []


def test_online_without_a_key_becomes_offline(tmp_path, warnings):
    folders = [write_run(tmp_path / "a"), write_run(tmp_path / "b")]
    began = time.perf_counter()
    assert mirror(folders[0], ONLINE, warn=warnings.append) == "offline"
    assert time.perf_counter() - began < wandb_tracker.ONLINE_SECONDS + wandb_tracker.OFFLINE_SECONDS
    (line,) = warnings
    assert line.startswith("warning: tracker: online ")
    assert "key" in line.lower()
    assert line.endswith("; this and later runs of this process are mirrored offline")
    assert mirror(folders[1], ONLINE, warn=warnings.append) == "offline"
    assert len(warnings) == 1
    assert [read_wandb(wandb_file(folder)).exit_code for folder in folders] == [0, 0]


def test_a_server_that_never_answers_is_left_in_time(tmp_path, monkeypatch, warnings):
    folder = write_run(tmp_path / "id")
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{server.getsockname()[1]}")
        monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
        monkeypatch.setattr(wandb_tracker, "ONLINE_SECONDS", 6.0)
        assert mirror(folder, ONLINE, warn=warnings.append) == "offline"
    assert warnings == [
        "warning: tracker: online did not answer within 6 s; this and later runs of this process are mirrored offline"
    ]
    assert read_wandb(wandb_file(folder)).exit_code == 0
    deadline = time.perf_counter() + 10
    while (left := processes_of(folder)) and time.perf_counter() < deadline:
        time.sleep(0.1)
    assert left == []


def processes_of(folder: Path) -> list[str]:
    """Processes that were started to mirror a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"WANDB_DATA_DIR={folder}/".encode() in path.read_bytes():
                found.append(path.parent.name)
        except OSError:
            continue
    return found


def test_an_interrupt_ends_the_other_process(tmp_path, monkeypatch):
    folder = write_run(tmp_path / "id")
    started = []

    class Interrupted(wandb_tracker.subprocess.Popen):
        def wait(self, timeout=None):
            started.append(self)
            if len(started) == 1:
                raise KeyboardInterrupt
            return super().wait(timeout)

    monkeypatch.setattr(wandb_tracker.subprocess, "Popen", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        mirror(folder, OFFLINE)
    assert started[0].returncode < 0
    assert not (folder / "wandb").exists()

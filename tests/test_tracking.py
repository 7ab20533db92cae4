"""Trackers are told what the records say, and nothing that happens to them reaches an experiment."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from ssd.bench import tracking, wandb_tracker
from ssd.bench.records import read_run
from ssd.bench.summary import Row
from ssd.bench.tracking import JsonlTracker, MemoryTracker, NoTracker, mirror, replay, tell, tracker_id
from tests.tracked_runs import OFFLINE, ONLINE, PLAIN, ROWS, figure, hostile_surroundings, records, write_run


@pytest.fixture(autouse=True)
def _surroundings(tmp_path, monkeypatch):
    hostile_surroundings(tmp_path, monkeypatch)


@pytest.fixture
def warnings():
    return []


def test_a_run_is_told_whole(tmp_path):
    run, kept, drawn = read_run(write_run(tmp_path / "id")), MemoryTracker(), object()
    tell(NoTracker(), run, ROWS)
    tell(kept, run, ROWS, {"speed": drawn})
    assert kept.run == run.run
    assert kept.run["config"] == PLAIN
    assert kept.records == records()
    assert kept.status == "complete"
    assert kept.figures == {"speed": drawn}
    assert [row["name"] for row in kept.summary] == ["spec/speedup", "spec/edge0/alpha", "ar/edge0/alpha"]
    assert [row["value"] for row in kept.summary] == [1.5, 0.1, None]
    rows = [dict(zip(kept.table.columns, row, strict=True)) for row in kept.table.rows]
    assert [(row["method"], row["prompt_id"]) for row in rows] == [
        ("spec", "p0"),
        ("spec", "p1"),
        ("ar", "p0"),
        ("ar", "p1"),
    ]
    assert rows[0]["output_tokens"] == 9
    assert rows[0]["target_passes"] == 3
    assert rows[0]["tokens_per_target_pass"] == 3.0
    assert rows[2]["target_passes"] is rows[2]["tokens_per_target_pass"] is None


def test_names_of_metrics_lose_only_the_title_that_all_have(tmp_path):
    run, kept = read_run(write_run(tmp_path / "id")), MemoryTracker()
    mixed = [Row("id/a", 1.0, "x"), Row("a", 1.0, "x")]
    tell(kept, run, mixed)
    assert [row["name"] for row in kept.summary] == ["id/a", "a"]
    run.run["label"] = "T=0"
    tell(kept, run, [Row("T=0/a", 1.0, "x")])
    assert [row["name"] for row in kept.summary] == ["a"]


def test_a_file_of_events_tells_the_same(tmp_path):
    pytest.importorskip("matplotlib")
    run, direct, through = read_run(write_run(tmp_path / "id")), MemoryTracker(), MemoryTracker()
    run.run["busy_elsewhere"] = float("nan")
    path = tmp_path / "spool" / "events.jsonl"
    tell(direct, run, ROWS)
    for _ in range(2):  # a second run replaces the first
        tell(JsonlTracker(path), run, ROWS, {"a/b": figure()})
    tell(JsonlTracker(tmp_path / "copy.jsonl"), run, figures={"old": path.with_name("events-figure-0.png")})
    replay(path, through)
    assert through.run == run.run | {"busy_elsewhere": None}
    assert through.records == direct.records
    assert through.summary == direct.summary
    assert through.table == direct.table
    assert through.status == "complete"
    assert through.figures["a/b"].read_bytes()[:4] == b"\x89PNG"
    assert (tmp_path / "copy-figure-0.png").read_bytes() == through.figures["a/b"].read_bytes()


def test_a_continued_run_keeps_its_name_and_a_new_one_gets_another(tmp_path):
    run = read_run(write_run(tmp_path / "id")).run
    name = tracker_id(run)
    assert name.startswith("id-")
    assert tracker_id(run | {"status": "failed", "finished": None, "resumed": [{}]}) == name
    others = [run | {"started": "2000"}, run | {"config": run["config"] | {"name": "other"}}, run | {"run_id": "jd"}]
    assert len({name, *map(tracker_id, others)}) == 4
    odd = tracker_id(run | {"run_id": "a/b:c d→" * 40})
    assert len(odd) == 80
    assert set(odd).isdisjoint("/:→ ")


def test_without_wandb_there_is_one_warning(tmp_path, monkeypatch, warnings):
    monkeypatch.setitem(sys.modules, "wandb", None)
    folder = write_run(tmp_path / "id")
    assert [mirror(folder, settings, warn=warnings.append) for settings in (OFFLINE, ONLINE)] == ["none", "none"]
    assert warnings == ["warning: tracker: wandb is not installed (pip install wandb); this process mirrors no runs"]
    assert not (folder / "wandb").exists()


def test_a_folder_called_wandb_is_not_wandb(tmp_path, monkeypatch):
    (tmp_path / "wandb").mkdir()
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert not wandb_tracker.is_installed()


def test_a_broken_wandb_leaves_what_was_there(tmp_path, monkeypatch, warnings):
    folder = write_run(tmp_path / "id")
    before = folder / "wandb" / "offline-run-before"
    before.mkdir(parents=True)
    broken = tmp_path / "broken" / "wandb" / "__init__.py"
    broken.parent.mkdir(parents=True)
    broken.write_text("raise ImportError('one\\ntwo')")
    monkeypatch.setattr(wandb_tracker, "is_installed", lambda: True)
    monkeypatch.setenv("PYTHONPATH", str(broken.parent.parent))
    assert mirror(folder, ONLINE, warn=warnings.append) == "none"
    assert warnings == [
        "warning: tracker: online ImportError: one; offline ImportError: one; "
        f"{folder} is not mirrored, its records are as they were"
    ]
    assert before.exists()
    broken.write_text("import os; print('last words'); os._exit(3)")
    assert mirror(folder, OFFLINE, warn=warnings.append) == "none"
    assert "offline ended with status 3: last words; " in warnings[1]


def test_nothing_gets_out(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(wandb_tracker, "is_installed", lambda: True)
    folder = write_run(tmp_path / "id")
    for settings, path, figures, reason in (
        ({"mode": "of"}, folder, {}, "ValueError: mode: 'of' is not one of none, offline, online"),
        (OFFLINE, tmp_path / "absent", {}, "ValueError: "),
        (OFFLINE, folder, {"x": 3}, "AttributeError: "),
    ):
        assert mirror(path, settings, figures=figures) == "none"
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 1
        assert lines[0].startswith(f"warning: tracker: {reason}")
    assert mirror(tmp_path / "absent", {"mode": "none"}) == "none"
    assert capsys.readouterr().err == ""
    assert not (folder / "wandb").exists()


def test_only_one_module_imports_wandb():
    root = Path(tracking.__file__).resolve().parents[2]
    found = set()
    for package in ("ssd", "experiments", "analysis"):
        for path in (root / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
                found |= {path.name for name in names if name.split(".")[0] == "wandb"}
    assert found == {"wandb_tracker.py"}

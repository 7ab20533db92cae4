"""A sweep from one command: killed half-way, started again, one of its jobs made to fail."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

from experiments.run import CONF
from experiments.schema import plain_config, register, run_spec
from ssd.bench.json_files import read_json
from ssd.bench.records import RunFolder, read_runs
from ssd.bench.run_id import run_id
from ssd.bench.summary import read_summary

ROOT = CONF.parent
FIXED = ("dataset.limit=3", "max_new_tokens=24", "name=sweep")
SWEPT = ("chain=tiny_pair,tiny_triple", "sampling.temperature=0,0.7,1", "dataset.split=tune,measure")
JOBLIB = ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "timing=shared")
BROKEN = ("chain=tiny_triple", "sampling.temperature=1", "dataset.split=measure")  # the last job


def start(results: Path, log: Path, more: tuple[str, ...]) -> subprocess.Popen:
    command = [sys.executable, "-m", "experiments.run", "-m", *SWEPT, *FIXED, f"results_dir={results}", *more]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with log.open("wb") as out:
        return subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=out, env=environment, start_new_session=True)


def kill_half_way(process: subprocess.Popen, runs: Path) -> None:
    """The process and its workers end without a word while some runs are complete and another has records."""
    end = time.monotonic() + 240
    while time.monotonic() < end and process.poll() is None:
        states = [read_json(path)["status"] for path in runs.glob("*/run.json")]
        lines = [p for p in runs.glob("*/records.jsonl") if p.stat().st_size]
        if states.count("complete") >= 3 and "running" in states and len(lines) > states.count("complete"):
            break
        time.sleep(0.005)
    assert process.poll() is None, "it ended before it could be killed"
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def sabotage(runs: Path) -> Path:
    """The folder of one run that has not begun holds another configuration."""
    register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        data = plain_config(compose("config", overrides=[*BROKEN, *FIXED]))
    folder = runs / run_id(run_spec(data))
    other = data | {"seed": 99, "prompts": data["dataset"]}
    keep = ("name", "chain", "methods", "prompts", "sampling", "seed")
    RunFolder(folder, config={key: other[key] for key in keep}).fail("somebody else's")
    return folder


@pytest.mark.parametrize("more", [(), JOBLIB], ids=["basic", "joblib"])
def test_killed_resumed_and_one_job_fails(tmp_path, more):
    if more:
        pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    results, runs, log = tmp_path / "results", tmp_path / "results" / "raw" / "sweep", tmp_path / "log"
    broken = sabotage(runs)
    kill_half_way(start(results, log, more), runs)
    good, problems = read_runs(runs)
    done = {run.run["run_id"] for run in good}
    assert 3 <= len(done) < 11
    assert any("status running" in problem.reason for problem in problems)

    process = start(results, log, more)
    assert process.wait(timeout=240) == 1
    out = log.read_text()
    good, problems = read_runs(runs)
    assert len(good) == 11
    assert f"12 jobs: {len(done)} skipped, {11 - len(done)} complete, 1 failed" in sentence(out)
    assert sum(bool(run.run["resumed"]) for run in good) >= 1
    assert {run.run["timing"] for run in good} == {"shared" if more else "paper"}
    table = out[out.rindex("equal to AR") :]
    for run in good:
        assert len({(r["prompt_id"], r["method"]) for r in run.records}) == len(run.records) == 6
        assert table.count(run.run["run_id"]) == 2  # ar and recursive
        assert (run.run["run_id"] in done) == (f"{run.run['run_id']}: finished before, skipped" in out)
    failed = out[out.rindex("what") :]
    assert "#11" in failed
    assert "another configuration has this folder" in failed
    assert sorted(problem.path.name for problem in problems) == sorted([broken.name, stray(runs).name])
    assert "Traceback" in (stray(runs) / "error.txt").read_text()
    rows = read_summary(results / "sweep" / "summary.json").rows
    assert sum(row.name.endswith("/recursive/speedup") for row in rows) == 11
    assert not [path for path in runs.rglob("*.tmp") if path.name.startswith(".records")]


def stray(runs: Path) -> Path:
    """Where the job is on record whose own folder is another's."""
    (folder,) = runs.glob("failed-*")
    return folder


def sentence(out: str) -> str:
    """The count of jobs with its parts in one order, whichever job ended first."""
    line = next(line for line in out.splitlines() if line.startswith("12 jobs:"))
    parts = dict(reversed(part.split(" ", 1)) for part in line.removeprefix("12 jobs: ").split(", "))
    return "12 jobs: " + ", ".join(
        f"{parts[kind]} {kind}" for kind in ("skipped", "complete", "failed") if kind in parts
    )

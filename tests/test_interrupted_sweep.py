"""A sweep from one command: killed half-way, started again, one of its jobs failing in its own folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

from experiments.job import MIRRORED_FILE
from experiments.run import CONF
from experiments.schema import plain_config, register, run_spec
from ssd.bench.experiment import run_pass
from ssd.bench.json_files import read_json
from ssd.bench.loading import Loader
from ssd.bench.records import read_run, read_runs
from ssd.bench.run_id import run_id
from ssd.bench.summary import read_summary
from ssd.bench.wandb_tracker import is_installed

ROOT = CONF.parent
FIXED = ("dataset.limit=3", "max_new_tokens=24", "name=sweep")
SWEPT = ("chain=tiny_pair,tiny_triple", "sampling.temperature=0,0.7,1", "dataset=bundled,gsm8k")
JOBLIB = ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "timing=shared")
BROKEN = ("chain=tiny_triple", "sampling.temperature=1", "dataset=gsm8k")  # the last job
PROBLEMS = ("Ann has 3 pens and buys 4. How many?", "A box holds 6 eggs. Two boxes?", "Half of 18?")


class Ended(BaseException):
    """Stands for the end of a process."""


def write_gsm8k(root: Path, problems: tuple[str, ...]) -> Path:
    """A folder for SSD_DATA."""
    path = root / "gsm8k" / "test.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"question": text, "answer": f"It is {i}.\n#### {i}"}) for i, text in enumerate(problems)]
    path.write_text("\n".join(lines) + "\n")
    return root


def start(results: Path, log: Path, more: tuple[str, ...]) -> subprocess.Popen:
    command = [sys.executable, "-m", "experiments.run", "-m", *SWEPT, *FIXED, f"results_dir={results}", *more]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with log.open("wb") as out:
        return subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=out, env=environment, start_new_session=True)


def kill_half_way(process: subprocess.Popen, runs: Path) -> None:
    """The process and its workers end without a word while some runs are complete and another has records."""
    end = time.monotonic() + 240
    while time.monotonic() < end and process.poll() is None:
        states = {path.parent: read_json(path)["status"] for path in runs.glob("*/run.json")}
        begun = [f for f, s in states.items() if s == "running" and (f / "records.jsonl").stat().st_size]
        if begun and list(states.values()).count("complete") >= 3:
            break
        time.sleep(0.005)
    assert process.poll() is None, "it ended before it could be killed"
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def begin_on_other_data(runs: Path, monkeypatch, root: Path) -> Path:
    """The folder of the last job, which an earlier attempt began on another version of its data set."""
    monkeypatch.setenv("SSD_DATA", str(write_gsm8k(root, (*PROBLEMS[:2], "Half of 20?"))))
    register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        spec = run_spec(plain_config(compose("config", overrides=[*BROKEN, *FIXED])))
    folder = runs / run_id(spec)

    def end(name: str, done: int, total: int) -> None:
        if done == 3:
            raise Ended

    with pytest.raises(Ended):
        run_pass(spec, folder, Loader(), end, run_id=run_id(spec))
    return folder


def check_mirrors(good: list, broken: Path) -> None:
    """Each run is one W&B run of its own, finished or closed as failed."""
    from tests.wandb_reader import read_wandb

    told = {}
    for folder in [*(run.path for run in good), broken]:
        (file,) = folder.glob("wandb/offline-run-*/*.wandb")
        told[folder] = read_wandb(file)
        assert told[folder].config["sampling"] == read_run(folder).run["config"]["sampling"]
        assert len({(row["output/prompt_id"], row["output/method"]) for row in told[folder].history[:-1]}) > 2
    assert len({run.id for run in told.values()}) == 12
    assert told.pop(broken).exit_code == 1
    assert not (broken / MIRRORED_FILE).exists()
    for folder, run in told.items():
        assert (run.exit_code, run.summary["status"], run.group) == (0, "complete", "sweep")
        assert run.summary["recursive/speedup"] > 0
        assert (folder / MIRRORED_FILE).exists()


@pytest.mark.parametrize("more", [(), JOBLIB], ids=["basic", "joblib"])
def test_killed_resumed_and_one_job_fails(tmp_path, monkeypatch, more):
    if more:
        pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    mirrored = is_installed() and not more
    more = (*more, f"tracker={'offline' if mirrored else 'none'}")
    results, runs, log = tmp_path / "results", tmp_path / "results" / "raw" / "sweep", tmp_path / "log"
    broken = begin_on_other_data(runs, monkeypatch, tmp_path / "before")
    monkeypatch.setenv("SSD_DATA", str(write_gsm8k(tmp_path / "data", PROBLEMS)))
    kill_half_way(start(results, log, more), runs)
    good, problems = read_runs(runs)
    done = {run.run["run_id"] for run in good}
    assert 3 <= len(done) < 11
    assert any("status running" in problem.reason for problem in problems)

    process = start(results, log, more)
    assert process.wait(timeout=240) == 1
    out = log.read_text()
    good, problems = read_runs(runs)
    assert {run.run["data"]["name"] for run in good} == {"bundled/measure", "gsm8k/test"}
    assert len(good) == 11, out[-8000:]
    assert f"12 jobs: {len(done)} skipped, {11 - len(done)} complete, 1 failed" in sentence(out)
    assert sum(bool(run.run["resumed"]) for run in good) >= 1
    assert {run.run["timing"] for run in good} == {"shared" if "timing=shared" in more else "paper"}
    table = out[out.rindex("equal to AR") :]
    for run in good:
        assert len({(r["prompt_id"], r["method"]) for r in run.records}) == len(run.records) == 6
        assert table.count(run.run["run_id"]) == 2  # ar and recursive
        assert (run.run["run_id"] in done) == (f"{run.run['run_id']}: finished before, skipped" in out)
    assert ("times: shared with other runs" in table) == ("timing=shared" in more)
    failed = out[out.rindex("what") :]
    assert "#11" in failed
    assert "ValueError: data: changed since this run began" in failed
    assert [problem.path.name for problem in problems] == [broken.name]
    assert "Traceback" in (broken / "error.txt").read_text()
    assert read_run(broken).run["status"] == "failed"
    rows = read_summary(results / "sweep" / "summary.json").rows
    assert sum(row.name.endswith("/recursive/speedup") for row in rows) == 11
    assert not [path for path in runs.rglob("*.tmp") if path.name.startswith(".records")]
    if mirrored:
        assert "warning: tracker" not in out
        check_mirrors(good, broken)


def sentence(out: str) -> str:
    """The count of jobs with its parts in one order, whichever job ended first."""
    line = next(line for line in out.splitlines() if line.startswith("12 jobs:"))
    parts = dict(reversed(part.split(" ", 1)) for part in line.removeprefix("12 jobs: ").split(", "))
    return "12 jobs: " + ", ".join(
        f"{parts[kind]} {kind}" for kind in ("skipped", "complete", "failed") if kind in parts
    )

"""What a run says about where it was made."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time

import numpy as np
import pytest

from ssd.bench.environment import (
    BUSY_LIMIT,
    BusyMeter,
    cpu_model,
    cpu_of,
    device,
    git_state,
    machine_cpu,
    own_cpu,
    versions,
)


@pytest.mark.parametrize(
    ("machine", "own", "expected"),
    [
        (8.0, 8.0, 0.0),  # all of the work is ours
        (8.8, 8.0, 0.04),
        (9.2, 8.0, 0.06),
        (7.9, 8.0, 0.0),  # rounding of the counters
        (0.0, 8.0, None),  # counters that stand still
    ],
)
def test_busy_elsewhere(machine, own, expected):
    meter = BusyMeter(
        iter([(100.0, 2), (100.0 + machine, 2)]).__next__,
        iter([5.0, 5.0 + own]).__next__,
        iter([1.0, 11.0]).__next__,
    )
    with meter:
        assert meter.busy_elsewhere is None
    assert meter.busy_elsewhere == (None if expected is None else pytest.approx(expected))
    assert meter.busy is (None if expected is None else expected > BUSY_LIMIT)


def test_a_worker_that_still_runs_is_no_other_user_of_the_machine():
    before = own_cpu() - cpu_of(os.getpid())
    worker = multiprocessing.get_context("spawn").Process(target=sum, args=(range(10**10),), daemon=True)
    worker.start()
    try:
        while cpu_of(worker.pid) < 0.2:  # ends: the worker computes for minutes
            time.sleep(0.01)
        assert own_cpu() - cpu_of(os.getpid()) - before >= 0.2 - 0.05
    finally:
        worker.kill()
        worker.join()
    assert cpu_of(worker.pid) == 0.0


def test_machine_counters_are_read_from_the_kernel_files(tmp_path):
    stat = tmp_path / "stat"
    stat.write_text("cpu  100 10 50 1000 40 3 7 30 99 0\ncpu0 1 1 1 1\ncpu1 1 1 1 1\nintr 5\n")
    seconds, cores = machine_cpu(stat)
    assert cores == 2
    assert seconds == pytest.approx(200 / os.sysconf("SC_CLK_TCK"))
    assert machine_cpu(tmp_path / "absent") is None
    (tmp_path / "cpuinfo").write_text("processor: 0\nmodel name\t: Some CPU @ 3GHz\n")
    assert cpu_model(tmp_path / "cpuinfo") == "Some CPU @ 3GHz"


def test_versions_name_absent_packages_too():
    found = versions()
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))
    assert found["numpy"] == np.__version__
    assert set(found) >= {"torch", "transformers", "safetensors"}


def test_git_state_ignores_results_only(tmp_path):
    def git(*words: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    assert git_state(tmp_path) == {"commit": None, "dirty": None}
    git("init")
    (tmp_path / "code.py").write_text("1")
    assert git_state(tmp_path) == {"commit": None, "dirty": True}
    git("add", ".")
    git("commit", "-m", "x")
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "run.json").write_text("{}")
    state = git_state(tmp_path)
    assert len(state["commit"]) == 40
    assert state["dirty"] is False
    (tmp_path / "code.py").write_text("2")
    assert git_state(tmp_path)["dirty"] is True
    assert git_state(tmp_path / "results") == {"commit": None, "dirty": None}  # not a checkout of its own


def test_the_device_is_described_in_plain_values():
    found = device(accelerator="none", threads=2)
    assert found["cores"] >= found["usable_cores"] >= 1
    assert (found["threads"], found["accelerator"]) == (2, "none")
    assert found["memory_bytes"] > 0

"""Interrupts, abandoned batches and machines that do not fit: nothing hangs, nothing is left, pins are taken back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from ssd.core.generate import generate, stream
from ssd.pipeline import links, start
from ssd.pipeline.messages import WorkerError
from ssd.pipeline.pinning import pinned
from ssd.pipeline.pipeline import Pipeline
from ssd.pipeline.remote import Remote
from ssd.pipeline.settings import PipelineSettings
from tests.test_pipeline import THREADS, requests, three, told
from tests.test_pipeline_failures import ROOT, TWO_CORES

UNGUARDED = """
from tests.test_pipeline import MIDDLE, three
from ssd.pipeline.pipeline import Pipeline
import torch
MIDDLE.ballast = torch.nn.Parameter(torch.zeros(1_000_000))  # more than a pipe holds
Pipeline(three())
"""


def affinity() -> tuple[Any, int]:
    return sorted(os.sched_getaffinity(0)), torch.get_num_threads()


@TWO_CORES
def test_a_script_without_a_main_guard_ends_and_is_told_of_it(tmp_path: Path) -> None:
    script = tmp_path / "unguarded.py"
    script.write_text(UNGUARDED)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, env=environment, cwd=ROOT, timeout=90, check=False
    )
    assert done.returncode == 1
    assert "WorkerError: L0, L1: its worker" in done.stderr
    assert "`if __name__ == '__main__':`" in done.stderr.splitlines()[-1]


@TWO_CORES
def test_an_interrupt_reaches_the_caller_and_no_process_is_left() -> None:
    c, before = three(), affinity()
    serial = generate(c, requests(1.0))
    with Pipeline(c) as pipeline:
        workers = list(pipeline._workers._processes)
        for worker in workers:  # Ctrl-C is sent to all processes of a terminal
            os.kill(worker.pid, signal.SIGINT)
        assert [told(g) for g in generate(c, requests(1.0), schedule=pipeline)] == [told(g) for g in serial]
        running = stream(c, requests(1.0), schedule=pipeline)
        next(running)
        for worker in workers:
            os.kill(worker.pid, signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            running.throw(KeyboardInterrupt())
        assert not any(worker.is_alive() for worker in workers)
        assert affinity() == before


@pytest.mark.parametrize("name", ["draft", "begin", "finish"])
def test_an_interrupt_between_messages_closes_the_workers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: Any) -> Any:
        raise KeyboardInterrupt

    c = three()
    with Pipeline(c, THREADS) as pipeline:
        threads = list(pipeline._workers._threads)
        monkeypatch.setattr(Remote, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            generate(c, requests(1.0), schedule=pipeline)
        monkeypatch.undo()
        assert not any(thread.is_alive() for thread in threads)
        with pytest.raises(WorkerError, match="its workers were closed"):
            generate(c, requests(0.0), schedule=pipeline)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
@TWO_CORES
def test_no_process_is_left_when_starting_them_fails(error: type[BaseException]) -> None:
    found: list[Any] = []
    real = start.ProcessWorkers._start

    def started(self: Any, *arguments: Any) -> None:
        real(self, *arguments)
        found.extend(self._processes)

    def failing(self: Any) -> Any:
        raise error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(start.ProcessWorkers, "_start", started)
        patch.setattr(links.PipeLink, "receive", failing)
        with pytest.raises(error):
            Pipeline(three())
    assert found
    assert not any(process.is_alive() for process in found)


def test_a_second_batch_at_the_same_time_is_refused_and_the_first_goes_on() -> None:
    c = three()
    serial = generate(three(), requests(1.0))
    with Pipeline(c, THREADS) as pipeline:
        running = stream(c, requests(1.0), schedule=pipeline)
        found: list[list[int]] = [[] for _ in serial]
        for turn, (row, tokens, _) in enumerate(running):
            found[row] += tokens
            if turn == 2:
                with pytest.raises(RuntimeError, match=r"^schedule: its workers are at another batch"):
                    generate(c, requests(0.0), schedule=pipeline)
        assert [tuple(ids) for ids in found] == [g.ids for g in serial]
        assert [told(g) for g in generate(c, requests(1.0), schedule=pipeline)] == [told(g) for g in serial]


@pytest.mark.parametrize("cores", [(4000,), (0, 4000)])
def test_cores_that_are_not_there_are_refused_and_nothing_is_changed(cores: tuple[int, ...]) -> None:
    before = affinity()
    words = r"^cores: .*4000\] are not all among those that this process can have"
    with pytest.raises(ValueError, match=words), pinned(cores):
        pass
    assert affinity() == before


def test_a_system_that_pins_nothing_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.delattr(os, "sched_setaffinity")
    with pytest.raises(ValueError, match=r"^pipeline\.kind: 'process' has a core for every worker"):
        Pipeline(three(), PipelineSettings())
    with pytest.raises(ValueError, match=r"^cores: \[0\]; this system does not pin"), pinned((0,)):
        pass
    with Pipeline(three(), THREADS) as pipeline:
        assert generate(pipeline.chain, requests(0.0), schedule=pipeline)

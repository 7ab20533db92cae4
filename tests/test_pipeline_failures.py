"""Workers that fail or die: the run ends with their levels named, nothing hangs and no worker is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from ssd.certify.tiny_models import near, tiny_gpt2
from ssd.core.chain import Chain, Edge
from ssd.core.generate import generate, stream
from ssd.core.requests import Request, Sampling
from ssd.pipeline.drafter import Drafter
from ssd.pipeline.messages import WorkerError
from ssd.pipeline.pipeline import Pipeline
from ssd.pipeline.settings import PipelineSettings
from tests.test_pipeline import THREADS, chain, requests, three, told

ROOT = Path(__file__).resolve().parent.parent
BAD = 40  # a position whose embedding on L0 is not a number
TWO_CORES = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="a process each needs a core each")


def spoilt() -> Chain:
    target = tiny_gpt2(0)
    small = near(target, 0.06, 2, tiny_gpt2)
    with torch.no_grad():
        small.transformer.wpe.weight[BAD] = float("nan")
    return chain([small, near(target, 0.03, 1, tiny_gpt2), target], [Edge(2), Edge(3)])


def bad_request() -> list[Request]:
    return [Request((1, 2, 3) * 14, Sampling(0.0), max_new_tokens=8)]


# --- processes --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def processes() -> Iterator[Pipeline]:
    """One pipeline for all tests: a process takes seconds to start."""
    with Pipeline(spoilt(), PipelineSettings()) as pipeline:
        yield pipeline


@TWO_CORES
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_processes_give_the_serial_tokens(processes: Pipeline, temperature: float) -> None:
    before = sorted(os.sched_getaffinity(0))
    serial = generate(spoilt(), requests(temperature))
    got = generate(processes.chain, requests(temperature), schedule=processes)
    assert [told(g) for g in got] == [told(g) for g in serial]
    assert sum(map(sum, got[0].ahead)) > 0
    assert {i.level for i in processes.intervals} == {0, 1, 2}
    assert sorted(os.sched_getaffinity(0)) == before


@TWO_CORES
def test_a_level_that_is_not_finite_is_named_and_the_process_goes_on(processes: Pipeline) -> None:
    serial = generate(spoilt(), requests(0.0))
    for _ in range(2):
        with pytest.raises(FloatingPointError, match=r"^L0: its logits are not finite"):
            generate(processes.chain, bad_request(), schedule=processes)
        assert [told(g) for g in generate(processes.chain, requests(0.0), schedule=processes)] == [
            told(g) for g in serial
        ]


@TWO_CORES
def test_a_process_that_is_killed_ends_the_run_and_none_is_left(processes: Pipeline) -> None:
    workers = list(processes._workers._processes)
    running = stream(processes.chain, requests(1.0), schedule=processes)
    next(running)
    os.kill(workers[0].pid, signal.SIGKILL)
    with pytest.raises(WorkerError, match=r"^L0, L1: its worker"):
        list(running)
    assert not any(process.is_alive() for process in workers)
    with pytest.raises(WorkerError, match="its workers were closed"):
        generate(processes.chain, requests(0.0), schedule=processes)
    assert told(generate(processes.chain, requests(0.0))[0])  # the chain itself is as good as before


PARENT = """
import time
from tests.test_pipeline_failures import spoilt
from ssd.pipeline.pipeline import Pipeline
if __name__ == "__main__":
    pipeline = Pipeline(spoilt())
    print(*[process.pid for process in pipeline._workers._processes], flush=True)
    time.sleep(600)
"""


def alive(pid: int) -> bool:
    """Whether a process runs; one that ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@TWO_CORES
def test_a_parent_that_is_killed_leaves_no_worker(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, env=environment, cwd=ROOT) as parent:
        assert parent.stdout is not None
        workers = [int(pid) for pid in parent.stdout.readline().split()]
        assert workers
        assert all(map(alive, workers))
        parent.kill()
    deadline = time.monotonic() + 60
    while any(map(alive, workers)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(alive, workers))


# --- threads ----------------------------------------------------------------------------------


def fails_in(monkeypatch: pytest.MonkeyPatch, name: str, level: int, error: BaseException) -> None:
    """The fourth call of a drafter's method raises, where ``level`` drafts."""
    real, calls = getattr(Drafter, name), []

    def faulty(self: Drafter, *arguments: Any) -> Any:
        if self.level == level:
            calls.append(name)
            if len(calls) == 4:
                raise error
        return real(self, *arguments)

    monkeypatch.setattr(Drafter, name, faulty)


@pytest.mark.parametrize("name", ["answer", "predict", "draft_ahead"])
@pytest.mark.parametrize("error", [SystemExit("enough"), RuntimeError("enough")], ids=["exit", "error"])
@pytest.mark.parametrize(
    ("workers", "level", "named"),
    [
        (((0, 1), (2,)), 1, "L0, L1"),
        (((0,), (1,), (2,)), 0, "L0"),
        (((0,), (1,), (2,)), 1, "L1"),
    ],
)
def test_a_thread_that_fails_ends_the_run(
    workers: Any, level: int, named: str, error: BaseException, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails_in(monkeypatch, name, level, error)
    c = three()
    with Pipeline(c, replace(THREADS, workers=workers)) as pipeline:
        threads = list(pipeline._workers._threads)
        with pytest.raises(WorkerError, match=f"^{named}: .*enough"):
            generate(c, requests(1.0, 60), schedule=pipeline)
        assert not any(thread.is_alive() for thread in threads)
        with pytest.raises(WorkerError, match="its workers were closed"):
            generate(c, requests(0.0), schedule=pipeline)


@pytest.mark.parametrize("workers", [((0, 1), (2,)), ((0,), (1, 2)), ((0,), (1,), (2,))])
def test_a_level_that_is_not_finite_is_named_and_the_threads_go_on(workers: Any) -> None:
    c = spoilt()
    serial = generate(c, requests(0.0))
    with Pipeline(c, replace(THREADS, workers=workers)) as pipeline:
        for _ in range(2):
            with pytest.raises(FloatingPointError, match=r"^L0: its logits are not finite"):
                generate(c, bad_request(), schedule=pipeline)
            got = generate(c, requests(0.0), schedule=pipeline)
            assert [told(g) for g in got] == [told(g) for g in serial]


def test_an_error_of_the_caller_leaves_the_workers_ready() -> None:
    c = three()
    serial = generate(c, requests(1.0))
    with Pipeline(c, THREADS) as pipeline:
        running = stream(c, requests(1.0), schedule=pipeline)
        next(running)
        with pytest.raises(KeyError):
            running.throw(KeyError("caller"))
        assert [told(g) for g in generate(c, requests(1.0), schedule=pipeline)] == [told(g) for g in serial]


def test_a_request_that_does_not_fit_leaves_the_workers_ready() -> None:
    c = three()
    with Pipeline(c, THREADS) as pipeline:
        with pytest.raises(ValueError, match=r"^requests\[0\]\.ids: token 99"):
            generate(c, [Request((99,), max_new_tokens=3)], schedule=pipeline)
        assert generate(c, [], schedule=pipeline) == []
        assert len(generate(c, requests(0.0), schedule=pipeline)) == 3

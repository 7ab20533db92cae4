"""Starting workers, and seeing to it that none is left."""

from __future__ import annotations

import io
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from threading import Thread
from typing import Any

import torch
import torch.multiprocessing

from ssd.core.chain import Chain, Level
from ssd.pipeline.links import Link, PipeLink, queue_links
from ssd.pipeline.messages import Failed, Stop, WorkerError
from ssd.pipeline.outline import Outline
from ssd.pipeline.pinning import pin
from ssd.pipeline.settings import PipelineSettings
from ssd.pipeline.worker import Worker

PATIENCE = 10.0  # seconds a worker is given to end by itself
READY = "ready"


def check_placement(chain: Chain, groups: Sequence[range], settings: PipelineSettings) -> None:
    """Raise ValueError for workers that cannot run these levels where they are."""
    for group in groups[:-1]:
        k = group[-1]
        if chain.levels[k].is_ngram:
            raise ValueError(
                f"pipeline.workers: {chain.names[k]} is a look-up, which takes no time that could be overlapped"
            )
        if not hasattr(chain.levels[k].model, "copy"):
            kind = type(chain.levels[k].model).__name__
            raise ValueError(f"pipeline.workers: {chain.names[k]} is a {kind}, which cannot copy slots between rows")
        for j in group:
            if chain.devices[j] != chain.devices[k] and not chain.levels[j].is_ngram:
                raise ValueError(
                    f"pipeline.workers: {chain.names[j]} is on {chain.devices[j]} and {chain.names[k]} of the same "
                    f"worker on {chain.devices[k]}"
                )
    for k, device in enumerate(chain.devices):
        if settings.kind == "process" and device.type != "cpu":
            raise ValueError(f"pipeline.kind: {chain.names[k]} is on {device}; processes are for levels on a CPU")
    if settings.kind == "thread":
        _check_modules(chain, groups)


def _check_modules(chain: Chain, groups: Sequence[range]) -> None:
    """Threads that run one module at a time would change its settings under each other's feet."""
    owner: dict[int, int] = {}
    for number, group in enumerate(groups):
        for k in group:
            module = getattr(chain.levels[k].model, "module", None)
            if module is not None and owner.setdefault(id(module), number) != number:
                raise ValueError(f"pipeline.workers: {chain.names[k]} shares its module with a level of another worker")


def held_by(chain: Chain, group: range) -> Chain:
    """The chain as a worker sees it: levels that run elsewhere without their weights, no tokenizer."""
    home = chain.devices[group[-1]]  # the worker's laws and tokens live with its highest level

    def seen(k: int, level: Level) -> Level:
        return level if k in group or level.is_ngram else replace(level, model=Outline.of(chain.scorer(k), home))

    levels = [seen(k, level) for k, level in enumerate(chain.levels)]
    return Chain(tuple(levels), chain.edges, None, chain.names)


class ThreadWorkers:
    """Workers as threads of this process.

    Attributes:
        link: to the one that drafts for the target.
    """

    def __init__(self, chain: Chain, groups: Sequence[range], settings: PipelineSettings) -> None:
        self._threads = []
        down: Link | None = None
        for number, group in enumerate(groups[:-1]):
            lower, upper = queue_links()
            worker = Worker(held_by(chain, group), group, number, settings, lower, down)
            self._threads.append(Thread(target=self._run, args=(worker,), daemon=True, name=f"ssd-{worker.names}"))
            down = upper
        assert down is not None
        self.link = down
        for thread in self._threads:
            thread.start()

    @staticmethod
    def _run(worker: Worker) -> None:
        try:
            worker.serve()
        except BaseException as error:
            worker.up.send(Failed(worker.names, None, f"{type(error).__name__}: {error}"))
        finally:
            worker.up.close()

    def close(self) -> None:
        """No thread is left, unless one is stuck in a pass."""
        self.link.send(Stop())
        for thread in self._threads:
            thread.join(PATIENCE)


class ProcessWorkers:
    """Workers as processes, each pinned to its cores.

    Raises:
        WorkerError: if one does not start.
    """

    def __init__(
        self, chain: Chain, groups: Sequence[range], settings: PipelineSettings, cores: Sequence[Sequence[int]]
    ) -> None:
        self._processes: list[Any] = []
        self._watched: dict[int, str] = {}
        self._link: PipeLink | None = None
        try:
            for number, group in enumerate(groups[:-1]):
                self._start(chain, group, number, settings, cores[number])
            while self.link.receive() != READY:
                pass
        except BaseException as error:
            self._end(patience=0.0)
            if isinstance(error, WorkerError):
                raise WorkerError(
                    f"{error} before it was ready; a script that starts workers has to do so under "
                    f"`if __name__ == '__main__':`, because they import it"
                ) from error
            raise

    @property
    def link(self) -> PipeLink:
        """To the one that drafts for the target."""
        assert self._link is not None
        return self._link

    def _start(self, chain: Chain, group: range, number: int, settings: PipelineSettings, cores: Sequence[int]) -> None:
        """One more process, above those that there are."""
        context = torch.multiprocessing.get_context("spawn")
        upper, lower = context.Pipe()
        below = self._link
        arguments = (group, number, settings, PipeLink(lower), below, tuple(cores))
        process = context.Process(target=run_process, args=arguments, daemon=True, name=f"ssd-{number}")
        process.start()
        self._processes.append(process)
        lower.close()  # the process has its own; ours would keep the line open if it died
        if below is not None:
            below.close()
        self._watched[process.sentinel] = ", ".join(chain.names[k] for k in group)
        self._link = PipeLink(upper, self._watched)
        # Not among its arguments: ``start`` would wait for ever to hand them to a process that died.
        self._link.send(_packed(held_by(chain, group)))

    def close(self) -> None:
        """No process is left."""
        with suppress(WorkerError):
            self.link.send(Stop())
        self._end(PATIENCE)

    def _end(self, patience: float) -> None:
        """No process is left, those included that have not ended by themselves in as many seconds."""
        for process in self._processes:
            process.join(patience)
            if process.is_alive():
                process.terminate()
                process.join(PATIENCE)
            if process.is_alive():
                process.kill()
                process.join()
        if self._link is not None:
            self._link.close()


def run_process(
    group: range,
    number: int,
    settings: PipelineSettings,
    up: PipeLink,
    down: PipeLink | None,
    cores: tuple[int, ...],
) -> None:
    """What a worker's process does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process; what follows, the caller decides
    pin(cores)
    chain = torch.load(io.BytesIO(up.receive()), weights_only=False)
    if down is not None:
        assert down.receive() == READY
    up.send(READY)
    Worker(chain, group, number, settings, up, down).serve()


def _packed(chain: Chain) -> bytes:
    """A chain with its weights, by value: shared memory may be too small for them."""
    buffer = io.BytesIO()
    torch.save(chain, buffer)
    return buffer.getvalue()

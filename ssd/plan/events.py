"""A discrete-event engine: processes that wait for passes, workers that run one pass at a time.

A process is a generator. It yields ``Work`` (a pass on a worker), a number (seconds to let go by) or
another ``Process`` (wait for its end), and is resumed when that is over. Workers whose memory is the
same slow each other down: a pass demands a share of the memory's bandwidth, and while the demands of
the passes that run add up to D > 1, each of them goes on at 1 / D of its speed, so that it gets
bandwidth in proportion to what it demands.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

Flow = Generator[Any, Any, None]
TIE = 1e-9  # seconds; events closer than this happen at once, else rounding would decide which is first


@dataclass(frozen=True)
class Worker:
    """What runs one pass at a time: a GPU, a stream of it, a core, a group of cores.

    Attributes:
        name: unique.
        device: what it is part of; ``speedup per device`` counts distinct ones. Default: itself.
        memory: whose bandwidth its passes share. Default: the device's own.
    """

    name: str
    device: str = ""
    memory: str = ""

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("worker.name: a name is needed")
        object.__setattr__(self, "device", self.device or self.name)
        object.__setattr__(self, "memory", self.memory or self.device)


@dataclass(eq=False)
class Work:
    """A pass to be run.

    Attributes:
        begin: called when the worker takes it up; returns the seconds it takes when alone, or ``None``
            if nothing needs it any more: then it is left out and the process resumed with ``None``.
        end: called with (started, ended) when it is over, whether or not the process still lives;
            the process is resumed with what it returns.
        demand: share of the memory's bandwidth it uses when alone, in (0, 1].
    """

    worker: Worker
    begin: Callable[[], float | None]
    end: Callable[[float, float], Any]
    demand: float = 1.0


class Process:
    """A flow of work.

    Attributes:
        flow: the generator; made from the process, whose work it is.
        parent: the process whose future it works for.
        ahead: whether it works on something that may turn out useless.
        log: passes it ran, in any form the caller likes.
    """

    def __init__(self, make: Callable[[Process], Flow], parent: Process | None = None) -> None:
        self.parent, self.ahead = parent, parent is not None
        self.done = self.cancelled = False
        self.log: list[Any] = []
        self.children: list[Process] = []
        self.waiting: list[Process] = []
        self.flow = make(self)

    @property
    def depth(self) -> int:
        """Guesses on which its usefulness hangs; 0 for work that is needed for certain."""
        above = 0 if self.parent is None else self.parent.depth
        return above + self.ahead


@dataclass(eq=False)
class _Job:
    work: Work
    process: Process
    order: int
    started: float = 0.0
    remaining: float = 0.0
    rate: float = 0.0
    since: float = 0.0
    version: int = 0


class Engine:
    """Runs processes to the end of the first one.

    Attributes:
        now: seconds since the beginning.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Any, int]] = []
        self._count = 0
        self._queues: dict[Worker, list[_Job]] = {}
        self._running: dict[Worker, _Job] = {}
        self._by_memory: dict[str, list[_Job]] = {}

    def run(self, make: Callable[[Process], Flow]) -> None:
        """Start the main process and let time pass until it is done; other work is then cut off.

        Raises:
            RuntimeError: if nothing can happen any more although it is not done.
        """
        main = Process(make)
        self._resume(main, None)
        self._take_up()
        while not main.done:
            if not self._events:
                raise RuntimeError("the simulated schedule waits for something that never happens")
            horizon = self._events[0][0] + TIE
            while self._events and self._events[0][0] <= horizon and not main.done:
                time, _, what, version = heapq.heappop(self._events)
                self.now = max(self.now, time)
                self._happen(what, version)
            self._take_up()
        for job in self._running.values():
            job.work.end(job.started, self.now)

    def spawn(self, make: Callable[[Process], Flow], parent: Process) -> Process:
        """Start a flow that works ahead for ``parent``; it lives no longer than that."""
        process = Process(make, parent)
        parent.children.append(process)
        self._resume(process, None)
        return process

    def promote(self, process: Process) -> None:
        """What ``process`` works on is needed if its parent's work is."""
        process.ahead = False

    def cancel(self, process: Process) -> None:
        """End a process and all it started. A pass that runs is finished, one that waits is not begun."""
        for child in list(process.children):
            self.cancel(child)
        if process.done or process.cancelled:
            return
        process.cancelled = True
        if process.parent is not None:
            process.parent.children.remove(process)
        process.flow.close()
        for queue in self._queues.values():
            queue[:] = [job for job in queue if job.process is not process]

    def _resume(self, process: Process, value: Any) -> None:
        while not process.cancelled:
            try:
                request = process.flow.send(value)
            except StopIteration:
                process.done = True
                if process.parent is not None:
                    process.parent.children.remove(process)
                for other in process.waiting:
                    self._at(self.now, other, 0)
                return
            if isinstance(request, Work):
                self._count += 1
                self._queues.setdefault(request.worker, []).append(_Job(request, process, self._count))
                return
            if isinstance(request, Process):
                if not request.done:
                    request.waiting.append(process)
                    return
            else:
                self._at(self.now + request, process, 0)
                return
            value = None

    def _at(self, time: float, what: Process | _Job, version: int) -> None:
        self._count += 1
        heapq.heappush(self._events, (time, self._count, what, version))

    def _happen(self, what: Process | _Job, version: int) -> None:
        if isinstance(what, Process):
            self._resume(what, None)
        elif what.version == version:
            worker = what.work.worker
            del self._running[worker]
            self._by_memory[worker.memory].remove(what)
            self._share(worker.memory)
            value = what.work.end(what.started, self.now)
            if not what.process.cancelled:
                self._resume(what.process, value)

    def _take_up(self) -> None:
        """Idle workers take up what is most certainly needed, and of that what has waited longest."""
        for worker, queue in self._queues.items():
            if queue and worker not in self._running:
                job = min(queue, key=lambda j: (j.process.depth, j.order))
                queue.remove(job)
                seconds = job.work.begin()
                if seconds is None:
                    self._at(self.now, job.process, 0)
                    continue
                job.started = job.since = self.now
                job.remaining = seconds
                self._running[worker] = job
                self._by_memory.setdefault(worker.memory, []).append(job)
                self._share(worker.memory)

    def _share(self, memory: str) -> None:
        """Set the speed of all passes that use ``memory``, and when they will be over."""
        jobs = self._by_memory[memory]
        rate = 1 / max(1.0, sum(job.work.demand for job in jobs))
        for job in jobs:
            if rate == job.rate:
                continue
            job.remaining = max(0.0, job.remaining - job.rate * (self.now - job.since))
            job.since, job.rate, job.version = self.now, rate, job.version + 1
            self._at(self.now + job.remaining / rate, job, job.version)

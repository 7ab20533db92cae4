"""The pipelined schedule of a chain: workers that stay, and a decoder for every batch.

``with Pipeline(chain) as pipeline: generate(chain, requests, schedule=pipeline)``. While the target verifies a
draft, the worker below drafts what may come next. The tokens are those of the serial schedule (in float32,
up to rounding ties): see docs/algorithm.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from types import TracebackType

from ssd.core.chain import Chain
from ssd.core.clock import Interval, PassClock
from ssd.core.decode import Decoder
from ssd.core.requests import Request
from ssd.pipeline.group_decoder import GroupDecoder
from ssd.pipeline.messages import Finished, WorkerError
from ssd.pipeline.pinning import pinned
from ssd.pipeline.remote import Remote
from ssd.pipeline.settings import PipelineSettings
from ssd.pipeline.start import ProcessWorkers, ThreadWorkers, check_placement


def check_pipeline(chain: Chain, settings: PipelineSettings) -> tuple[tuple[range, ...], tuple[tuple[int, ...], ...]]:
    """Levels and cores of each worker; no cores for threads.

    Raises:
        ValueError: for settings that do not fit the chain, its devices or the machine.
    """
    groups = settings.groups(len(chain.levels))
    check_placement(chain, groups, settings)
    return groups, settings.cores_of(len(groups)) if settings.kind == "process" else ()


class Pipeline:
    """Workers for one chain; a context manager, at whose end they are gone.

    Attributes:
        chain: whose levels the workers hold; the target stays with the caller.
        groups: levels of each worker.
        finished: what ran elsewhere for the last batch.
        intervals: every pass of the last batch.

    Raises:
        ValueError: for settings that do not fit the chain, its devices or the machine, before anything is started.
    """

    def __init__(self, chain: Chain, settings: PipelineSettings | None = None) -> None:
        self.chain, self.settings = chain, settings or PipelineSettings()
        self.groups, cores = check_pipeline(chain, self.settings)
        self._cores: Sequence[int] = cores[-1] if cores else ()
        self.finished, self.intervals = Finished(), list[Interval]()
        self._turn = Lock()
        self._workers: ProcessWorkers | ThreadWorkers | None
        if cores:
            self._workers = ProcessWorkers(chain, self.groups, self.settings, cores)
        else:
            self._workers = ThreadWorkers(chain, self.groups, self.settings)

    @contextmanager
    def decoding(self, chain: Chain, requests: Sequence[Request], clock: PassClock) -> Iterator[Decoder]:
        """The decoder of one batch; see ``ssd.core.generate.Schedule``.

        Raises:
            ValueError: if ``chain`` is not the one the workers hold.
            WorkerError: if a worker died; the pipeline is then closed, as after an interrupt of the program.
            RuntimeError: while another batch of the pipeline is being decoded.
        """
        if chain is not self.chain:
            raise ValueError(f"schedule: its workers hold another chain than {', '.join(chain.names)}")
        if not self._turn.acquire(blocking=False):
            raise RuntimeError("schedule: its workers are at another batch, which has to be finished or closed first")
        try:
            with self._batch(requests, clock) as decoder:
                yield decoder
        finally:
            self._turn.release()

    @contextmanager
    def _batch(self, requests: Sequence[Request], clock: PassClock) -> Iterator[Decoder]:
        """Workers that may not know what they are to do next are not kept."""
        if self._workers is None:
            raise WorkerError("schedule: its workers were closed")
        remote = Remote(self._workers.link)
        delay = self.settings.delays[-1] if self.settings.delays else 0.0
        lost = False
        try:
            with pinned(self._cores):
                decoder = GroupDecoder(self.chain, requests, clock, self.groups[-1], remote, delay)
                remote.begin(decoder)
                try:
                    yield decoder
                except BaseException as error:
                    lost = not recoverable(error)
                    raise
                finally:
                    clock.end()
                    if not lost:
                        lost = True  # until they have said that they are done
                        self._finish(remote, decoder, clock)
                        lost = False
        except BaseException as error:
            if lost or not recoverable(error):
                self.close()
            raise

    def _finish(self, remote: Remote, decoder: Decoder, clock: PassClock) -> None:
        """Have the workers done with a batch, and know what they did for it."""
        self.finished = remote.finish()
        clock.include(self.finished.intervals)
        self.intervals = [*self.finished.intervals, *clock.intervals()]
        decoder.ahead = tuple(
            (sum(i.hits for i in own), sum(i.misses for i in own))
            for k in range(decoder.top)
            for own in [[i for i in self.intervals if i.level == k + 1]]
        )

    @property
    def is_closed(self) -> bool:
        """Whether no worker is left."""
        return self._workers is None

    def close(self) -> None:
        """No worker is left."""
        if self._workers is not None:
            self._workers.close()
            self._workers = None

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def recoverable(error: BaseException) -> bool:
    """Whether an error leaves the line to the workers as it was: no worker is gone, no message was cut in two."""
    return isinstance(error, (Exception, GeneratorExit)) and not isinstance(error, WorkerError)

"""The pipelined schedule of a chain: workers that stay, and a decoder for every batch.

``with Pipeline(chain) as pipeline: generate(chain, requests, schedule=pipeline)``. While the target verifies a
draft, the worker below drafts what may come next. The tokens are those of the serial schedule (in float32,
up to rounding ties): see docs/algorithm.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
            WorkerError: if a worker died; the pipeline is then closed.
        """
        if chain is not self.chain:
            raise ValueError(f"schedule: its workers hold another chain than {', '.join(chain.names)}")
        if self._workers is None:
            raise WorkerError("schedule: its workers were closed")
        remote = Remote(self._workers.link)
        delay = self.settings.delays[-1] if self.settings.delays else 0.0
        try:
            with pinned(self._cores):
                decoder = GroupDecoder(chain, requests, clock, self.groups[-1], remote, delay)
                remote.begin(decoder)
                lost = False
                try:
                    yield decoder
                except WorkerError:
                    lost = True  # nobody is left to finish, and who it was is known
                    raise
                finally:
                    clock.end()
                    if not lost:
                        self._finish(remote, decoder, clock)
        except WorkerError:
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

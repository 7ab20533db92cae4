"""What every decoding method looks like to the runner, ours and the baselines alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ssd.core.chain import Chain
from ssd.core.clock import PassClock
from ssd.core.generate import generate
from ssd.core.requests import Generation, Request
from ssd.pipeline.pinning import pinned
from ssd.pipeline.pipeline import Pipeline, check_pipeline
from ssd.pipeline.settings import PipelineSettings
from ssd.pipeline.tracing import traced
from ssd.plan.trace import Trace


class Method(Protocol):
    """Something that continues requests; it keeps no state from one call to the next.

    Attributes:
        name: how tables call it.
    """

    name: str

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        """One Generation per request, in order; ids never exceed the request's ``max_new_tokens``.

        Raises:
            ValueError: for a request the method cannot serve, before anything is decoded.
        """


class ChainMethod:
    """Our decoder on one chain; depth 0 is autoregressive decoding.

    Args:
        chain: levels of two methods may share models; their caches are emptied per call.
        pipeline: workers that overlap; ``None``: levels take turns.
        cores: that this process is pinned to while levels take turns; empty: all it may use.

    Raises:
        ValueError: for workers that do not fit the chain or the machine; they are started by the first call.
    """

    def __init__(
        self, name: str, chain: Chain, pipeline: PipelineSettings | None = None, cores: Sequence[int] = ()
    ) -> None:
        self.name, self.chain, self.cores, self.workers = name, chain, cores, pipeline
        if pipeline is not None:
            check_pipeline(chain, pipeline)
        self._pipeline: Pipeline | None = None
        self._clock = PassClock(chain.devices)

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        """See ``Method.generate``; one call decodes ``requests`` as one batch."""
        if self.workers is not None and (self._pipeline is None or self._pipeline.is_closed):
            self._pipeline = Pipeline(self.chain, self.workers)
        with pinned(self.cores):
            self._clock = PassClock(self.chain.devices)
            return generate(self.chain, requests, self._pipeline or "serial", self._clock)

    def trace(self) -> Trace:
        """The passes of the last call."""
        return traced(self.name, self.chain.names, self._clock, self._pipeline)

    def close(self) -> None:
        """No worker is left; the next call starts them again."""
        if self._pipeline is not None:
            self._pipeline.close()
            self._pipeline = None

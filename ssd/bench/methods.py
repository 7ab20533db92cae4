"""What every decoding method looks like to the runner, ours and the baselines alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ssd.core.chain import Chain
from ssd.core.generate import generate
from ssd.core.requests import Generation, Request


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
        schedule: in which order levels run, see ``ssd.core.generate``.
    """

    def __init__(self, name: str, chain: Chain, schedule: str = "serial") -> None:
        self.name, self.chain, self.schedule = name, chain, schedule

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        """See ``Method.generate``; one call decodes ``requests`` as one batch."""
        return generate(self.chain, requests, self.schedule)

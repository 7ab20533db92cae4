"""The decoder of one worker: some levels of a chain run here, those below on another worker."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from torch import Tensor

from ssd.core.chain import Chain
from ssd.core.clock import PassClock
from ssd.core.decode import Decoder
from ssd.core.processors import Processors
from ssd.core.requests import Request
from ssd.core.rounds import RoundLog
from ssd.core.sampling import LevelSampling
from ssd.core.verification import Draft
from ssd.core.windows import Block


class Below(Protocol):
    """The worker of the levels below; ``ssd.pipeline.remote.Remote``."""

    def draft(
        self, decoder: Decoder, k: int, start: Tensor, limit: Tensor, parent: Tensor, block: Block | None
    ) -> Draft:
        """A draft for level k's round at ``start`` [B], at most ``limit`` [B] tokens a row."""


class GroupDecoder(Decoder):
    """Rounds of the levels of one worker.

    Attributes:
        group: its levels.
        below: where drafts for its lowest level come from; ``None`` if that is level 0.
        delay: seconds waited before every pass.
        interrupt: called before every pass; what it raises ends the round.

    Args:
        guesses: how many of its likeliest tokens the highest level names at every position, within ``first``.
    """

    def __init__(
        self,
        chain: Chain,
        requests: Sequence[Request],
        clock: PassClock,
        group: range,
        below: Below | None,
        delay: float = 0.0,
        guesses: int = 0,
    ) -> None:
        self.group, self.below, self.delay = group, below, delay
        self.interrupt: Callable[[], None] = lambda: None
        super().__init__(chain, requests, clock)
        self._whole = self.requests, self.settings, self.processors
        self._narrow: dict[int, tuple[Sequence[Request], list[LevelSampling], Processors]] = {}
        self._guesses = guesses

    def _allocate(self, k: int, size: int) -> int:
        """Give level k its slots if it runs here."""
        if k in self.group or self.chain.levels[k].is_ngram:
            return super()._allocate(k, size)
        limit = self.chain.scorer(k).max_positions
        return size if limit is None else min(size, limit)

    def draft(self, k: int, start: Tensor, room: Tensor, key: Tensor, parent: Tensor, block: Block | None) -> Draft:
        """As the decoder's, or from below."""
        if self.below is None or k != self.group[0]:
            return super().draft(k, start, room, key, parent, block)
        return self.below.draft(self, k, start, (room - 1).clamp(min=0), parent, block)

    def _pass(self, k: int, begin: Tensor, width: int, keep: int) -> Tensor:
        """One model pass, unless it is interrupted."""
        self.interrupt()
        if self.delay:
            time.sleep(self.delay)
        return super()._pass(k, begin, width, keep)

    @contextmanager
    def first(self, n: int) -> Iterator[None]:
        """The batch is its first ``n`` rows, and the log is empty; what they came to stays afterwards."""
        if n not in self._narrow:
            self.requests = self._whole[0][:n]
            settings = [self._settings(k) for k in range(len(self.chain.levels))]
            settings[self.group[-1]].best = self._guesses
            self._narrow[n] = self.requests, settings, Processors(self.requests, self.chain.vocab_size, self.home)
        text, valid, log = self.text, self.valid, self.log
        self.requests, self.settings, self.processors = self._narrow[n]
        self.text, self.valid, self.log = text[:n], [v[:n] for v in valid], RoundLog()
        try:
            yield
        finally:
            for whole, part in zip(valid, self.valid, strict=True):
                whole[:n] = part
            self.requests, self.settings, self.processors = self._whole
            self.text, self.valid, self.log = text, valid, log


def shared_length(one: Tensor, other: Tensor) -> int:
    """How many leading tokens two texts [N] share."""
    apart = (one != other).nonzero()
    return int(apart[0]) if len(apart) else len(one)

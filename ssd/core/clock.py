"""The only clock of the decoder: time inside model passes, per level, and the end of prefill."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from ssd.core.requests import Passes, Seconds


class Interval(NamedTuple):
    """One pass of one level.

    Attributes:
        level: whose pass.
        start, end: by the machine's clock, ``time.perf_counter``, which all processes share.
        tokens: fed per row.
        rows: of the batch.
        task: what it was for: 0 for work needed when it began, else the number of the attempt to work ahead.
        hits, misses: rows whose outcome of this pass had, or had not, been prepared for.
    """

    level: int
    start: float
    end: float
    tokens: int
    rows: int
    task: int = 0
    hits: int = 0
    misses: int = 0


@dataclass
class _Pass:
    """A pass as it was marked: readings of the clock, or CUDA events."""

    start: Any
    end: Any
    tokens: int
    rows: int
    task: int
    hits: int = 0
    misses: int = 0


class PassClock:
    """Collects pass times of one batch.

    On a CUDA level a pass is bracketed by events that are read once, in ``finish``; on the CPU by
    two readings of ``now``.

    Attributes:
        task: noted with every pass, see ``Interval``.
        began: reading of ``now`` when the clock was made.
    """

    def __init__(self, devices: list[torch.device], now: Callable[[], float] = time.perf_counter) -> None:
        self.now = now
        self.task = 0
        self._devices = devices
        self._cuda = [d.type == "cuda" for d in devices]
        self._passes: list[list[_Pass]] = [[] for _ in devices]
        self._elsewhere: list[Interval] = []
        self._before_prefill_end = [0] * len(devices)
        self.began = now()
        self._zero: dict[int, Any] = {}
        self._prefill_end: float | None = None
        self._total: float | None = None

    def start(self, level: int) -> Any:
        """A mark to hand back to ``stop``."""
        return self._event(level) if self._cuda[level] else self.now()

    def stop(self, level: int, mark: Any, tokens: int, rows: int = 1, ends_prefill: bool = False) -> None:
        """A pass of ``level`` over ``tokens`` tokens in each of ``rows`` rows is over."""
        end = self._event(level) if self._cuda[level] else self.now()
        self._passes[level].append(_Pass(mark, end, tokens, rows, self.task))
        if ends_prefill and self._prefill_end is None:
            if self._cuda[level]:
                _wait(self._devices[level])
            self._prefill_end = self.now()
            self._before_prefill_end = [len(m) for m in self._passes]

    @property
    def prefill(self) -> float:
        """Seconds until the first target pass ended; all there are until it has."""
        if self._prefill_end is not None:
            return self._prefill_end - self.began
        return self.elapsed() if self._total is None else self._total

    def elapsed(self) -> float:
        """Seconds since the clock was made."""
        return self.now() - self.began

    def note_ahead(self, level: int, hits: int, misses: int) -> None:
        """For so many rows the outcome of the level's last pass had, or had not, been prepared for."""
        if self._passes[level]:
            last = self._passes[level][-1]
            last.hits, last.misses = last.hits + hits, last.misses + misses

    def include(self, intervals: Sequence[Interval]) -> None:
        """Count passes of levels that ran elsewhere, at the same time as those timed here."""
        self._elsewhere += intervals

    def end(self) -> None:
        """The batch is done; what follows is not timed."""
        for device in {d for d in self._devices if d.type == "cuda"}:
            _wait(device)
        self._total = self.elapsed()

    def finish(self) -> tuple[Seconds, tuple[Passes, ...]]:
        """End, unless that was done, and say where the time went."""
        if self._total is None:
            self.end()
        total = self._total
        assert total is not None
        prefill = self.prefill
        decoding = self.began + prefill
        here = [
            sum(self._between(k, p.start, p.end) for p in passes[skip:])
            for k, (passes, skip) in enumerate(zip(self._passes, self._before_prefill_end, strict=True))
        ]
        inside, counts = list(here), [len(own) for own in self._passes]
        tokens = [sum(p.tokens for p in own) for own in self._passes]
        for i in self._elsewhere:
            inside[i.level] += max(0.0, i.end - max(i.start, decoding))
            counts[i.level] += 1
            tokens[i.level] += i.tokens
        passes = tuple(Passes(n, t) for n, t in zip(counts, tokens, strict=True))
        return Seconds(prefill, tuple(inside), total - prefill - sum(here), total), passes

    def intervals(self) -> list[Interval]:
        """Every pass timed here, in order of levels; CUDA events are put on the same clock."""
        return [
            Interval(k, self._at(k, p.start), self._at(k, p.end), p.tokens, p.rows, p.task, p.hits, p.misses)
            for k, passes in enumerate(self._passes)
            for p in passes
        ]

    def _at(self, level: int, mark: Any) -> float:
        """When a mark was set, by ``now``."""
        if not self._cuda[level]:
            return float(mark)
        if level not in self._zero:
            event = self._event(level)
            event.synchronize()
            self._zero[level] = (event, self.now())
        event, now = self._zero[level]
        return float(now - mark.elapsed_time(event) / 1000)

    def _between(self, level: int, start: Any, end: Any) -> float:
        return start.elapsed_time(end) / 1000 if self._cuda[level] else end - start

    def _event(self, level: int) -> Any:
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._devices[level]))
        return event


def _wait(device: torch.device) -> None:
    """Until what this thread has asked of a CUDA device is done; workers that draft ahead have streams of their own."""
    torch.cuda.current_stream(device).synchronize()

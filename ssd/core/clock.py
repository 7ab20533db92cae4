"""The only clock of the decoder: time inside model passes, per level, and the end of prefill."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from ssd.core.requests import Passes, Seconds


class PassClock:
    """Collects pass times of one batch.

    On a CUDA level a pass is bracketed by events that are read once, in ``finish``; on the CPU by
    two readings of ``now``.
    """

    def __init__(self, devices: list[torch.device], now: Callable[[], float] = time.perf_counter) -> None:
        self.now = now
        self._devices = devices
        self._cuda = [d.type == "cuda" for d in devices]
        self._marks: list[list[tuple[Any, Any]]] = [[] for _ in devices]
        self._tokens = [0] * len(devices)
        self._before_prefill_end = [0] * len(devices)
        self._began = now()
        self._prefill_end: float | None = None

    def start(self, level: int) -> Any:
        """A mark to hand back to ``stop``."""
        return self._event(level) if self._cuda[level] else self.now()

    def stop(self, level: int, mark: Any, tokens: int, ends_prefill: bool = False) -> None:
        """A pass of ``level`` over ``tokens`` tokens a row is over."""
        end = self._event(level) if self._cuda[level] else self.now()
        self._marks[level].append((mark, end))
        self._tokens[level] += tokens
        if ends_prefill and self._prefill_end is None:
            if self._cuda[level]:
                torch.cuda.synchronize(self._devices[level])
            self._prefill_end = self.now()
            self._before_prefill_end = [len(m) for m in self._marks]

    def elapsed(self) -> float:
        """Seconds since the clock was made."""
        return self.now() - self._began

    def finish(self) -> tuple[Seconds, tuple[Passes, ...]]:
        """Stop, and say where the time went."""
        for device in {d for d in self._devices if d.type == "cuda"}:
            torch.cuda.synchronize(device)
        total = self.elapsed()
        prefill = total if self._prefill_end is None else self._prefill_end - self._began
        inside = tuple(
            sum(self._between(k, a, b) for a, b in marks[skip:])
            for k, (marks, skip) in enumerate(zip(self._marks, self._before_prefill_end, strict=True))
        )
        passes = tuple(Passes(len(m), t) for m, t in zip(self._marks, self._tokens, strict=True))
        return Seconds(prefill, inside, total - prefill - sum(inside), total), passes

    def _between(self, level: int, start: Any, end: Any) -> float:
        return start.elapsed_time(end) / 1000 if self._cuda[level] else end - start

    def _event(self, level: int) -> Any:
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._devices[level]))
        return event

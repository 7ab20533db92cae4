"""Reads the decoder's own clock around the forward passes of models that somebody else's loop drives.

Both our decoder and the baselines are timed by ``ssd.core.clock.PassClock``, so prefill, passes and
rest mean the same for every method.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

import torch
from torch import nn

from ssd.core.clock import PassClock
from ssd.core.requests import Passes, Seconds


class ForwardClock:
    """Watches the models of one call while it is entered; the call starts on entry.

    Args:
        models: from the lowest level to the target; ``None`` for a level that is no model.
        now: seconds, monotonic.

    Attributes:
        target_passes: target passes that have ended.
        arrivals: (seconds since the call, tokens known) for every ``arrived``.
    """

    def __init__(self, models: Sequence[nn.Module | None], now: Callable[[], float] = time.perf_counter) -> None:
        self.target_passes = 0
        self.arrivals: list[tuple[float, int]] = []
        self._models = models
        self._devices = [torch.device("cpu") if m is None else next(m.parameters()).device for m in models]
        self._now = now
        self._handles: list[Any] = []

    def __enter__(self) -> ForwardClock:
        for level, model in enumerate(self._models):
            if model is not None:
                self._attach(level, model)
        self._synchronize()
        self._clock = PassClock(self._devices, self._now)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for handle in self._handles:
            handle.remove()

    def arrived(self, tokens: int) -> None:
        """Note that ``tokens`` tokens in all are known now."""
        # Queued is not known. transformers waits for the same work right after its stopping criteria.
        self._synchronize()
        self.arrivals.append((self._clock.elapsed(), tokens))

    def finish(self) -> tuple[Seconds, tuple[Passes, ...]]:
        """End the call, and say where the time went; the first target pass ends the prefill."""
        return self._clock.finish()

    def _attach(self, level: int, model: nn.Module) -> None:
        """Report the passes of ``model``, which do not nest, to the clock."""
        is_target = level == len(self._models) - 1
        begun: list[Any] = [None, 0]  # the clock's mark, tokens fed

        def before(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            inputs = (kwargs.get("input_ids"), kwargs.get("inputs_embeds"), *args)
            begun[1] = int(next(x for x in inputs if x is not None).shape[1])
            begun[0] = self._clock.start(level)

        def after(*_: Any) -> None:
            self._clock.stop(level, begun[0], begun[1], ends_prefill=is_target)
            self.target_passes += is_target

        self._handles += [
            model.register_forward_pre_hook(before, with_kwargs=True),
            model.register_forward_hook(after),
        ]

    def _synchronize(self) -> None:
        for device in {d for d in self._devices if d.type == "cuda"}:
            torch.cuda.synchronize(device)

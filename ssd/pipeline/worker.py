"""What a worker does: answer the one above, and draft ahead while there is nothing to answer."""

from __future__ import annotations

import itertools
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch

from ssd.core.chain import Chain
from ssd.core.clock import PassClock
from ssd.pipeline.drafter import Drafter
from ssd.pipeline.group_decoder import GroupDecoder
from ssd.pipeline.links import Link
from ssd.pipeline.messages import Ask, Begin, Failed, Finish, Finished, Stop, WorkerError
from ssd.pipeline.remote import Remote
from ssd.pipeline.settings import PipelineSettings

REQUEST_ERRORS = (ValueError, FloatingPointError)  # of a request and not of the worker: raised again above
ATTEMPTS = 1 << 32  # of one worker, whose numbers are not another's


class Abandoned(Exception):  # noqa: N818 - nothing went wrong
    """What is being drafted ahead can no longer be of use."""


class Worker:
    """Some draft levels of a chain, from the lowest up or above another worker's.

    Args:
        number: of the worker, from the lowest up.
        up: to the worker that verifies what is drafted here.
        down: to the worker below, if there is one.
    """

    def __init__(
        self, chain: Chain, group: range, number: int, settings: PipelineSettings, up: Link, down: Link | None
    ) -> None:
        self.chain, self.group, self.number, self.settings = chain, group, number, settings
        self.up, self.down = up, down
        self.names = tuple(chain.names[k] for k in group)
        self.drafter: Drafter | None = None
        self.below: Remote | None = None
        self.pending: Any = None
        self._heard = False  # whether ``pending`` is a question whose text was taken in
        self._attempts = itertools.count(1 + number * ATTEMPTS)

    def serve(self) -> None:
        """Answer until told to stop, or until the line is cut."""
        device = self.chain.devices[self.group[-1]]
        with torch.inference_mode(), cuda_stream(device):
            try:
                while self._once():
                    pass
            except WorkerError:
                pass  # whoever would want an answer is gone
            finally:
                if self.down is not None:
                    with suppress(WorkerError):
                        self.down.send(Stop())

    def _once(self) -> bool:
        """One message; False after the last."""
        message, self.pending = self.pending or self.up.receive(), None
        if isinstance(message, Stop):
            return False
        try:
            if isinstance(message, Begin):
                self._begin(message)
            elif isinstance(message, Finish):
                self.up.send(self._finish())
            else:
                self._answer(message)
        except Exception as error:
            self._fail(error)
        return True

    def _begin(self, begin: Begin) -> None:
        s, batch = self.settings, len(begin.requests)
        clock = PassClock(self.chain.devices)
        self.below = Remote(self.down) if self.down is not None else None
        delay = s.delays[self.number] if s.delays else 0.0
        rows = [*begin.requests] * s.budget
        guesses = s.fan_out + 2  # the rejected token may be among them, and the drawn one
        decoder = GroupDecoder(self.chain, rows, clock, self.group, self.below, delay, guesses)
        if self.below is not None:
            self.below.begin(decoder)
        self.drafter = Drafter(decoder, batch, s)

    def _answer(self, ask: Ask) -> None:
        drafter = self.drafter
        assert drafter is not None
        if not self._heard:
            drafter.hear(ask)
        self._heard = False
        drafter.decoder.clock.task = ask.task
        answer = drafter.answer(ask)
        if drafter.decoder.home.type == "cuda":  # whoever reads it does so on another stream
            torch.cuda.current_stream(drafter.decoder.home).synchronize()
        self.up.send(answer)
        drafter.decoder.clock.task = drafter.attempt = next(self._attempts)
        drafter.course = ask.task
        # An error is of a text that may never be; if it comes to be, the answer will say so.
        with suppress(Abandoned, *REQUEST_ERRORS):
            self._ahead(drafter)

    def _ahead(self, drafter: Drafter) -> None:
        """Draft for predicted outcomes until done, or until what is asked is none of them."""
        forced = self.settings.force == "hits"
        if not forced:
            drafter.decoder.interrupt = self._look
        try:
            drafter.predict()
            if forced:
                self.pending = self.up.receive()
                if isinstance(self.pending, Ask):
                    drafter.hear(self.pending)
                    self._heard = True
            drafter.prepare(self.pending if isinstance(self.pending, Ask) else None)
            drafter.draft_ahead()
        finally:
            drafter.decoder.interrupt = lambda: None

    def _look(self) -> None:
        """Give up if a message came that no prepared outcome answers."""
        if self.pending is None and self.up.waiting():
            self.pending = self.up.receive()
            assert self.drafter is not None
            self._heard = isinstance(self.pending, Ask)
            if not self._heard or not any(self.drafter.hear(self.pending)):
                raise Abandoned

    def _finish(self) -> Finished:
        told = self.below.finish() if self.below is not None else Finished()
        drafter, self.drafter, self.below = self.drafter, None, None
        if drafter is None:
            return told
        return Finished([*told.intervals, *drafter.decoder.clock.intervals()], told.tasks | drafter.used)

    def _fail(self, error: Exception) -> None:
        """Say what happened; the worker itself stays ready."""
        if isinstance(error, WorkerError):
            self.up.send(Failed(self.names, error, str(error)))
            return
        known = error if isinstance(error, REQUEST_ERRORS) else None
        text = "".join(traceback.format_exception_only(error)).strip()
        self.up.send(Failed(self.names, known, text))


@contextmanager
def cuda_stream(device: torch.device) -> Iterator[None]:
    """On a CUDA device, work goes to a stream of its own."""
    if device.type != "cuda":
        yield
        return
    with torch.cuda.device(device), torch.cuda.stream(torch.cuda.Stream(device)):
        yield

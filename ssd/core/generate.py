"""From requests to generations: stop rules and streaming around the decoder's rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from ssd.core.chain import Chain
from ssd.core.clock import PassClock
from ssd.core.decode import Decoder
from ssd.core.requests import Generation, Passes, Request, Round, Seconds
from ssd.core.rounds import cut, origins

SCHEDULES = ("serial",)
MakeDecoder = Callable[[Chain, Sequence[Request], PassClock], Decoder]


class Schedule(Protocol):
    """Levels that do not all take turns; ``ssd.pipeline.pipeline.Pipeline`` is ours."""

    def decoding(self, chain: Chain, requests: Sequence[Request], clock: PassClock) -> AbstractContextManager[Decoder]:
        """The decoder of one batch; when the context ends, ``clock`` knows the passes of all levels.

        Raises:
            ValueError: if this is no schedule for ``chain``.
        """


@dataclass
class _Row:
    """Output of one request so far."""

    request: Request
    tokenizer: Any
    ids: list[int] = field(default_factory=list)
    stop_reason: str = ""
    arrivals: list[tuple[float, int]] = field(default_factory=list)
    first: int = 0

    def extend(self, tokens: list[int], seconds: float) -> list[int]:
        """Take what a round emitted up to the first stop; the tokens kept."""
        before = len(self.ids)
        self.ids += tokens
        self._stop(before)
        if not self.arrivals:
            self.first = len(self.ids)
        self.arrivals.append((seconds, len(self.ids)))
        return self.ids[before:]

    def _stop(self, before: int) -> None:
        r = self.request
        if not r.ignore_eos:
            ends = set(r.eos_ids)
            for i in range(before, len(self.ids)):
                if self._completes_stop(i):
                    return self._finish("stop", i + 1)
                if self.ids[i] in ends:
                    return self._finish("eos", i + 1)
        if len(self.ids) >= r.max_new_tokens:
            self._finish("length", r.max_new_tokens)

    def _completes_stop(self, i: int) -> bool:
        if not self.request.stop:
            return False
        text = self.tokenizer.decode(self.ids[: i + 1])
        return any(s in text for s in self.request.stop)

    def _finish(self, reason: str, length: int) -> None:
        del self.ids[length:]
        self.stop_reason = reason

    @property
    def room(self) -> int:
        return 0 if self.stop_reason else self.request.max_new_tokens - len(self.ids)


class _Batch:
    """Runs a batch round by round."""

    def __init__(self, decoder: Decoder) -> None:
        self.decoder, self.clock = decoder, decoder.clock
        self.rows = [_Row(r, decoder.chain.tokenizer) for r in decoder.requests]
        for row in self.rows:
            if row.request.max_new_tokens == 0:
                row.stop_reason = "length"

    def rounds(self) -> Iterator[list[list[int]]]:
        """After each target round, the tokens it added to each row."""
        decoder = self.decoder
        length = decoder.prompt
        while any(row.room for row in self.rows):
            with torch.inference_mode():
                room = torch.tensor([row.room for row in self.rows], device=decoder.home)
                emitted = decoder.round(decoder.top, length, room, decoder.root, decoder.prompt)
                length = length + emitted.count
                tokens, counts = emitted.tokens.tolist(), emitted.count.tolist()
            now = self.clock.elapsed()
            added = [row.extend(t[:n], now) if n else [] for row, t, n in zip(self.rows, tokens, counts, strict=True)]
            self._refuse_barren()
            yield added

    def _refuse_barren(self) -> None:
        """Raise ValueError where the output holds a token that its request's processors leave no choice of."""
        for i, position in self.decoder.barren:
            row = self.rows[i]
            if position < len(row.request.ids) + len(row.ids):  # not behind the end of the output
                raise ValueError(f"requests[{i}]: its processors forbid every token at position {position}")

    def results(self) -> list[Generation]:
        """Generations of all rows; the clock stops here."""
        seconds, passes = self.clock.finish()
        rounds = self.decoder.log.rounds(len(self.rows))
        return [self._result(row, own, seconds, passes) for row, own in zip(self.rows, rounds, strict=True)]

    def _result(self, row: _Row, rounds: Sequence[Round], seconds: Seconds, passes: tuple[Passes, ...]) -> Generation:
        top, prompt = self.decoder.top, len(row.request.ids)
        if rounds:
            rounds = cut(rounds, top - 1, prompt + len(row.ids))
        fates = origins(rounds, top + 1, prompt, len(row.ids))
        return Generation(
            tuple(row.ids),
            row.stop_reason,
            tuple(rounds),
            fates,
            passes,
            seconds,
            row.first,
            tuple(row.arrivals),
            self.decoder.synthetic,
            self.decoder.ahead,
        )


def generate(
    chain: Chain,
    requests: Iterable[Request],
    schedule: str | Schedule = "serial",
    clock: PassClock | None = None,
    decoder: MakeDecoder | None = None,
) -> list[Generation]:
    """Continue every request; results in the order of ``requests``.

    Each output has exactly the law of the target under the row's sampling settings. The same seed
    gives the same tokens for any batch size and order (float32, up to rounding ties). ``decoder`` makes the
    object that runs the rounds, for measurements with another rule (``ssd.runtime.imposed``).

    Raises:
        ValueError: a request the chain cannot carry to its end, before anything is computed; later only
            where a request's processors forbid every token.
        FloatingPointError: a level whose logits are not finite, named.
    """
    requests = list(requests)
    if not requests:
        _check(schedule)
        return []
    with _decoding(chain, requests, schedule, clock, decoder) as running:
        batch = _Batch(running)
        for _ in batch.rounds():
            pass
    return batch.results()


def _decoding(
    chain: Chain,
    requests: Sequence[Request],
    schedule: str | Schedule,
    clock: PassClock | None = None,
    decoder: MakeDecoder | None = None,
) -> AbstractContextManager[Decoder]:
    _check(schedule)
    clock = clock or PassClock(chain.devices)
    if not isinstance(schedule, str):
        if decoder is not None:
            raise ValueError(f"decoder: {decoder!r} decides by another rule, which only schedule 'serial' can run")
        return schedule.decoding(chain, requests, clock)
    return nullcontext((decoder or Decoder)(chain, requests, clock))


def _check(schedule: str | Schedule) -> None:
    if isinstance(schedule, str) and schedule not in SCHEDULES:
        raise ValueError(
            f"schedule: {schedule!r} is not one of {', '.join(SCHEDULES)}, and no ssd.pipeline.pipeline.Pipeline"
        )


def stream(
    chain: Chain, requests: Iterable[Request], schedule: str | Schedule = "serial"
) -> Iterator[tuple[int, list[int], str]]:
    """Yield (index of the request, new token ids, new text) as target rounds end.

    Text is held back while its last characters are an incomplete UTF-8 sequence; without a
    tokenizer it is empty.
    """
    requests = list(requests)
    if not requests:
        return
    shown = [""] * len(requests)
    with _decoding(chain, requests, schedule) as running:
        batch = _Batch(running)
        for added in batch.rounds():
            for i, tokens in enumerate(added):
                if not tokens:
                    continue
                row = batch.rows[i]
                text = chain.tokenizer.decode(row.ids) if chain.tokenizer is not None else ""
                if text.endswith("\ufffd") and not row.stop_reason:
                    text = shown[i]
                yield i, tokens, text[len(shown[i]) :]
                shown[i] = text

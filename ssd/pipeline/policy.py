"""Whether to work ahead at all: measured on the chain, the requests and the machine at hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ssd.core.chain import Chain
from ssd.core.generate import Schedule, generate
from ssd.core.requests import Generation, Request
from ssd.pipeline.pipeline import Pipeline
from ssd.pipeline.settings import PipelineSettings


@dataclass(frozen=True)
class Choice:
    """What was measured, and what follows.

    Attributes:
        schedule: for ``generate``: ``"serial"``, or the pipeline, which the caller closes.
        serial, pipelined: decode seconds per token.
        sentence: the choice in words.
    """

    schedule: str | Schedule
    serial: float
    pipelined: float
    sentence: str


def faster_schedule(
    chain: Chain, requests: Sequence[Request], settings: PipelineSettings | None = None, repeats: int = 2
) -> Choice:
    """Run ``requests`` as one batch under both schedules in turns and keep the faster one.

    Both emit the same tokens, so that choosing by time biases nothing. The first pair of runs is not timed.

    Raises:
        ValueError: for settings that fit no pipeline, or requests whose decoding takes no time to speak of.
    """
    if repeats < 1:
        raise ValueError(f"repeats: expected at least 1, got {repeats!r}")
    pipeline = Pipeline(chain, settings)
    try:
        serial, pipelined = [], []
        for repeat in range(repeats + 1):
            pair = generate(chain, requests), generate(chain, requests, schedule=pipeline)
            if repeat:
                serial.append(decode_seconds(pair[0]))
                pipelined.append(decode_seconds(pair[1]))
        slow, fast = sum(serial) / repeats, sum(pipelined) / repeats
    except BaseException:
        pipeline.close()
        raise
    keeps = fast < slow
    words = (
        f"pipelined decodes a token in {fast * 1e3:.3g} ms, serial in {slow * 1e3:.3g} ms ({len(requests)} requests, "
        f"{repeats} times each): {'working ahead' if keeps else 'levels take turns'}"
    )
    if keeps:
        return Choice(pipeline, slow, fast, words)
    pipeline.close()
    return Choice("serial", slow, fast, words)


def decode_seconds(batch: Sequence[Generation]) -> float:
    """Seconds per token of a batch behind its first target pass."""
    tokens = sum(len(g.ids) - g.first_pass_tokens for g in batch)
    if tokens < 1:
        raise ValueError("requests: none goes on behind the first target pass, so there is nothing to time")
    return (batch[0].seconds.total - batch[0].seconds.prefill) / tokens

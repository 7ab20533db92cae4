"""B33: what a rate's clock includes, on a decoder whose passes cost a stated time."""

from __future__ import annotations

import pytest
import torch

from ssd.bench.metrics import pass_shares, passes_per_token, speedup, tokens_per_second
from ssd.bench.records import record_line
from ssd.certify.row_scorer import RowScorer
from ssd.core.chain import Chain, Edge, Level
from ssd.core.clock import PassClock
from ssd.core.generate import generate
from ssd.core.requests import Request, Sampling

PROMPT = (0, 1, 2, 0, 1, 2, 0)
NEXT = [[0.01, 0.98, 0.01], [0.01, 0.01, 0.98], [0.98, 0.01, 0.01]]


class Time:
    """A clock that only passes move."""

    now = 0.0


class Charged(RowScorer):
    """500 ms for the first pass ever, 100 ms for the prompt, ``seconds`` for any other."""

    def __init__(self, time, seconds):
        super().__init__(NEXT)
        self.time, self.seconds, self.first = time, seconds, 0.5

    def fill(self, tokens, start):
        self.time.now += self.first + (0.1 if int(start.min()) == 0 else self.seconds)
        self.first = 0.0
        super().fill(tokens, start)


def timed(name, chain, tokens, time):
    request = Request(PROMPT, Sampling(0.0), max_new_tokens=tokens)
    clock = PassClock([torch.device("cpu")] * len(chain.levels), now=lambda: time.now)
    made = generate(chain, [request], clock=clock)[0]
    return [record_line("run", "b", name, "p", "math", made, len(PROMPT), "", request.sampling, max_new_tokens=tokens)]


def test_rates_count_decode_passes_only():
    """AR 20 tokens in 200 ms, speculative 20 in 5 passes of 10 ms, with or without a warm first call."""
    time = Time()
    ar = Chain((Level(Charged(time, 0.01)),))
    spec = Chain((Level(Charged(time, 0.0)), Level(Charged(time, 0.01))), (Edge(3),))
    first = [timed("ar", ar, 21, time), timed("spec", spec, 24, time)]
    warm = [timed("ar", ar, 21, time), timed("spec", spec, 24, time)]
    for plain, chained in (first, warm):
        assert tokens_per_second(plain) == pytest.approx(100)
        assert tokens_per_second(chained) == pytest.approx(400)
        assert speedup(chained, plain).value == pytest.approx(4.0)
        assert pass_shares(chained) == {"L0": 0, "L1": pytest.approx(1), "rest": pytest.approx(0, abs=1e-12)}
    spent = [records[0]["seconds"]["prefill"] for records in (*first, *warm)]
    assert spent[0] - spent[2] == pytest.approx(0.5)  # the first call's cost lies in prefill, where no rate sees it
    assert spent[1] - spent[3] == pytest.approx(1.0)  # two models
    assert passes_per_token(warm[1])["L1"] == pytest.approx(6 / 24)  # the first scores the prompt too
    assert speedup(warm[1], warm[0], "e2e").value < 4

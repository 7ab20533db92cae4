"""Rounds, passes and seconds of the transformers baselines."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from tiny_baselines import DRAFT, NAMES, TARGET, greedy, method, run, tiny

from ssd.bench.transformers_methods import TransformersAR, TransformersAssisted
from ssd.certify.tiny_models import P
from ssd.core.requests import Request, Sampling


def test_rounds_tell_what_happened() -> None:
    for name, draft in (("assisted", DRAFT), ("assisted", TARGET), ("lookup", DRAFT)):
        generation = run(method(name, draft=draft), greedy(30))
        start = len(P)
        for r in generation.rounds:
            extra = {"recovered": 1, "bonus": 1, "plain": 1, "stopped": 0}[r.end]
            assert (r.edge, r.start, r.block_start, r.emitted) == (0, start, start, r.accepted + extra)
            assert r.tested == r.accepted + (r.end == "recovered")
            assert (r.end == "plain") == (r.drafted == 0)
            start += r.emitted
        assert len(generation.rounds) == generation.passes[-1].count
    itself = run(method("assisted", draft=TARGET, gamma=4), greedy(30))
    assert {r.end for r in itself.rounds} == {"bonus"}
    assert [r.emitted for r in itself.rounds] == [5] * 6
    plain = run(method("ar"), greedy(4))
    assert [(r.edge, r.emitted, r.end) for r in plain.rounds] == [(-1, 1, "plain")] * 4


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_passes_equal_forward_calls_counted_elsewhere(name: str, temperature: float) -> None:
    fed: dict[str, list[int]] = {"target": [], "draft": []}

    def counter(level: str) -> Callable[..., None]:
        return lambda _m, _a, kwargs, _o: fed[level].append(kwargs["input_ids"].shape[1])

    target, draft = tiny(0), tiny(2, layers=1)
    target.model.register_forward_hook(counter("target"), with_kwargs=True)
    draft.model.register_forward_hook(counter("draft"), with_kwargs=True)
    generation = run(method(name, target, draft), Request(P, Sampling(temperature), max_new_tokens=20))
    levels = {"ar": ["target"], "assisted": ["draft", "target"], "lookup": ["none", "target"]}[name]
    counted = [(len(fed.get(level, [])), sum(fed.get(level, []))) for level in levels]
    assert [(p.count, p.tokens) for p in generation.passes] == counted
    assert [tokens for _, tokens in generation.arrivals] == list(
        itertools.accumulate(r.emitted for r in generation.rounds)
    )
    assert generation.first_pass_tokens == generation.rounds[0].emitted


class FakeTime:
    """A clock that only moves when a model runs."""

    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now

    def charge(self, model: Any, prompt: float, step: float) -> None:
        calls = itertools.count()

        def advance(*_: Any) -> None:
            self.now += step if next(calls) else prompt

        model.model.register_forward_hook(advance)


def test_prefill_is_apart_from_decode() -> None:
    target, clock = tiny(0), FakeTime()
    clock.charge(target, 0.1, 0.01)
    plain = run(TransformersAR("ar", target, clock=clock), greedy(21))
    assert plain.seconds.prefill == pytest.approx(0.1)
    assert plain.seconds.passes == pytest.approx((0.2,))
    assert plain.seconds.total == pytest.approx(0.3)
    assert plain.seconds.rest == pytest.approx(0.0)
    assert plain.first_pass_tokens == 1
    assert [t for t, _ in plain.arrivals] == pytest.approx([0.1 + 0.01 * i for i in range(21)])

    target, draft, clock = tiny(0), tiny(0), FakeTime()
    clock.charge(target, 0.1, 0.01)
    clock.charge(draft, 0.05, 0.001)
    # Four rounds of a perfect draft of 4: only the first round's drafting belongs to the prefill.
    chained = run(TransformersAssisted("assisted", target, draft, 4, clock=clock), greedy(20))
    assert chained.seconds.prefill == pytest.approx(0.05 + 3 * 0.001 + 0.1)
    assert chained.seconds.passes == pytest.approx((12 * 0.001, 3 * 0.01))
    assert chained.seconds.rest == pytest.approx(0.0)
    assert (chained.first_pass_tokens, chained.passes[0].count, chained.passes[1].count) == (5, 16, 4)

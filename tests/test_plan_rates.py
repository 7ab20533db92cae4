"""Measured inputs of a plan: rates along the target's texts against plain model calls, look-ups, pass times."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from experiments.plan_config import chain_of
from ssd.bench import target_texts as target_texts_module
from ssd.bench.loading import Loader
from ssd.bench.pass_grid import PassCell, look_up_seconds, pass_grid
from ssd.bench.target_texts import TargetTexts, look_up_rates, rates_along, replayed_look_ups, target_texts
from ssd.core.ngram import Ngram
from ssd.core.requests import Sampling
from ssd.core.sampling import Law
from ssd.plan.acceptance import ByPosition
from ssd.plan.chain_recursion import ChainRecursion
from ssd.plan.edge_plan import EdgePlan
from ssd.plan.replay import pooled_rates

PROMPTS = [list(b"the cat sat on the mat. the cat"), list(b"one two three one two"), list(b"abc abc abc")]


@pytest.fixture(scope="module")
def loader():
    return Loader()


def texts_of(loader, temperature, temperatures=None, tokens=20):
    chain = loader.chain(chain_of("tiny_triple", temperatures))
    return chain, target_texts(chain, PROMPTS, Sampling(temperature), tokens, 2, ignore_eos=True)


def laws(chain, k, text, new, temperature):
    """[new, V] level k's softmax along the new tokens, by one plain call of its module."""
    logits = chain.levels[k].model.module(torch.tensor([text[:-1]])).logits[0, -new:].double()
    return (logits / temperature).softmax(-1) if temperature else logits


@torch.inference_mode()
@pytest.mark.parametrize(("temperature", "draft"), [(1.0, None), (0.8, 0.5), (0.0, None)])
def test_rates_are_those_of_plain_calls(loader, temperature, draft):
    chain, found = texts_of(loader, temperature, [draft, None, None] if draft else None)
    measured = rates_along(chain, found, Sampling(temperature))
    assert set(measured) == {(0, 1), (0, 2), (1, 2)}
    for i, (text, new) in enumerate(zip(found.texts, found.new, strict=True)):
        own = [laws(chain, k, text, new, draft if draft and k == 0 else temperature) for k in range(3)]
        plain = laws(chain, 0, text, new, 1.0)
        for (a, b), rates in measured.items():
            if temperature:
                expected = torch.minimum(own[a], own[b]).sum(-1)
            else:
                expected = (own[a].argmax(-1) == own[b].argmax(-1)).double()
            assert rates[i].rates == pytest.approx(expected.numpy(), abs=1e-5)
            if a == 0:
                assert rates[i].maxima == pytest.approx(plain.max(-1).values.numpy(), abs=1e-5)


@torch.inference_mode()
def test_a_greedy_draft_passes_with_the_verifiers_probability(loader):
    chain, found = texts_of(loader, 1.0, [0.0, 0.0, None])
    measured = rates_along(chain, found, Sampling(1.0))
    text, new = found.texts[0], found.new[0]
    token = laws(chain, 0, text, new, 0.0).argmax(-1)
    target = laws(chain, 2, text, new, 1.0)
    expected = target.gather(1, token[:, None])[:, 0]
    assert measured[0, 2][0].rates == pytest.approx(expected.numpy(), abs=1e-5)
    middle = laws(chain, 1, text, new, 0.0).argmax(-1)
    assert measured[0, 1][0].rates == pytest.approx((token == middle).double().numpy())


@torch.inference_mode()
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_look_ups_count_where_rounds_start(loader, temperature):
    chain, found = texts_of(loader, temperature)
    measured, ngram = look_up_rates(chain, Ngram(), found, Sampling(temperature)), Ngram()
    places, passed = [0.0] * 8, [0.0] * 8
    rounds = proposals = 0
    for text, new in zip(found.texts, found.new, strict=True):
        rows, first = laws(chain, 2, text, new, temperature), len(text) - new
        t = first
        while t < len(text):
            proposal = ngram.look_up(text[:t], 8)[: len(text) - t]
            rounds, proposals = rounds + 1, proposals + bool(proposal)
            agreed = len(list(itertools.takewhile(lambda i: proposal[i] == text[t + i], range(len(proposal)))))  # noqa: B023
            for i, token in enumerate(proposal[: agreed + 1]):
                row = rows[t + i - first]
                places[i] += 1
                passed[i] += float(row[token]) if temperature else float(row.argmax() == token)
            t += min(agreed, 4) + 1
    assert (measured.n, measured.proposals) == (rounds, proposals)
    assert 0 < measured.coverage == proposals / rounds
    expected = pooled_rates(np.array(passed), np.array(places))
    assert measured.by_place[2] == pytest.approx(expected, abs=1e-5)
    assert set(measured.by_place) == {0, 1, 2}


def runs_of_repeats(blocks=20):
    """Stretches of tokens that never occurred, each followed by 20 tokens that did."""
    text = []
    for block in range(blocks):
        fresh = list(range(30 * block, 30 * block + 30))
        text += [*fresh, *fresh[5:25]]
    return tuple(text)


def tokens_per_round(coverage, by_place, gamma=4):
    return ChainRecursion([EdgePlan(gamma)], [ByPosition(tuple(by_place))], coverage).target_round(1).work.counts[0]


def test_a_repeat_counts_once_per_round_and_not_once_per_position(monkeypatch):
    """A target that repeats itself in runs: tokens per round are those of its replay, and not of all positions."""
    text = runs_of_repeats()
    new = len(text) - 10
    row = Law(None, torch.tensor(text[-new:])[None])
    monkeypatch.setattr(target_texts_module, "_laws", lambda *given: iter([{0: [row]}]))
    chain = SimpleNamespace(levels=[SimpleNamespace(is_ngram=False)], output_ids=lambda k: None)
    found = TargetTexts((text,), (new,), 0.0, 0.0, 1)
    measured = look_up_rates(chain, Ngram(), found, Sampling(0.0))
    actual = new / measured.n
    assert 1.4 < actual < 1.5  # 34 rounds per 50 tokens
    assert tokens_per_round(measured.coverage, measured.by_place[0]) == pytest.approx(actual, rel=0.01)
    # Negative control: with a round at every position the same repeats promise far more.
    table, rounds, proposals = replayed_look_ups(Ngram(), text, new, gamma=0)
    assert rounds == new
    passed = (table == torch.tensor(text[-new:])[:, None]).sum(0).numpy()
    everywhere = pooled_rates(passed, (table >= 0).sum(0).numpy())
    assert tokens_per_round(proposals / rounds, everywhere) > 1.16 * actual


def test_texts_are_the_targets_and_their_time_is_split(loader):
    chain, found = texts_of(loader, 0.0, tokens=6)
    assert found.new == (6, 6, 6)
    assert [t[: len(p)] for t, p in zip(found.texts, PROMPTS, strict=True)] == [tuple(p) for p in PROMPTS]
    assert found.passes == 10  # two batches of 6 tokens, the first of each from the prompt's pass
    assert min(found.pass_seconds, found.rest_seconds) > 0
    with pytest.raises(ValueError, match="the target ends every text at once"):
        target_texts(chain, PROMPTS, Sampling(0.0), 1, 1, ignore_eos=True)


def test_the_grid_has_every_width_and_batch(loader):
    chain = loader.chain(chain_of("tiny_triple", None))
    models = {"L0": chain.levels[0].model, "L2": chain.levels[2].model}
    found = pass_grid(models, [1, 3], [1, 2], repeats=3, context=10)
    assert [(c.width, c.batch, c.n) for c in found["L0"]] == [(1, 1, 3), (3, 1, 3), (1, 2, 3), (3, 2, 3)]
    assert all(0 < c.low <= c.seconds <= c.high for own in found.values() for c in own)
    assert PassCell.of(1, 1, [3.0, 1.0, 2.0, 9.0]) == PassCell(1, 1, 2.5, 2.0, 3.0, 4)
    assert look_up_seconds(Ngram(), PROMPTS, 4) > 0
    with pytest.raises(ValueError, match="exceed the position limit 4096 of L0"):
        pass_grid(models, [1, 3], [1], repeats=1, context=4095)

"""A batch of rows of equal length lasts as long as its slowest row."""

from __future__ import annotations

import numpy as np
import pytest

from ssd.plan.acceptance import Constant
from ssd.plan.batch_rounds import emitted_by_text, slowest_row, unfinished
from ssd.plan.edge_plan import EdgePlan
from ssd.plan.replay import TextRates, text_shifts

EDGES, RATES = [EdgePlan(2), EdgePlan(4)], [Constant(0.7), Constant(0.6)]


def test_the_law_of_rounds_is_that_of_sums():
    assert unfinished(np.array([0.0, 0.5, 0.5]), 3) == pytest.approx([1, 1, 0.25, 0])
    assert unfinished(np.array([0.0, 1.0]), 3) == pytest.approx([1, 1, 1, 0])
    with pytest.raises(ValueError, match="every round emits a token"):
        unfinished(np.array([0.5, 0.5]), 3)


def test_one_row_and_plain_decoding_wait_for_nobody():
    assert slowest_row(emitted_by_text([], [], 1.0, []), 48, 4) == pytest.approx(1.0)
    laws = emitted_by_text(EDGES, RATES, 1.0, [(), ()])
    assert slowest_row(laws, 48, 1) == pytest.approx(1.0)
    factors = [slowest_row(laws, 48, batch) for batch in (1, 2, 4, 8)]
    assert factors == sorted(factors)
    assert 1.05 < factors[2] < slowest_row(laws, 12, 4)
    with pytest.raises(ValueError, match="always there after the first round"):
        slowest_row(laws, 1, 4)


def test_texts_that_differ_make_the_slowest_row_slower():
    alike = slowest_row(emitted_by_text(EDGES, RATES, 1.0, [(0.0, 0.0), ()]), 48, 4)
    apart = slowest_row(emitted_by_text(EDGES, RATES, 1.0, [(), (-0.2, 0.2)]), 48, 4)
    assert apart > alike + 0.05
    with pytest.raises(ValueError, match="shifts: 2 edges need one list each"):
        emitted_by_text(EDGES, RATES, 1.0, [(0.1,), (0.1, 0.2)])


def test_the_factor_is_that_of_simulated_rows():
    """20000 simulated batches; the ratio of their means is within 1% unless something is wrong (six deviations)."""
    laws, tokens, batch, n = emitted_by_text(EDGES, RATES, 1.0, [(), (-0.2, 0.2)]), 24, 4, 20000
    source = np.random.default_rng(0)
    text = source.integers(len(laws), size=(n, batch))
    made, rounds = np.zeros((n, batch), dtype=int), np.zeros((n, batch))
    while (made < tokens).any():
        rounds += made < tokens
        drawn = [source.choice(len(law), size=(n, batch), p=law / law.sum()) for law in laws]
        made += np.choose(text, drawn)
    rounds -= 1  # the first holds the prompt
    simulated = rounds.max(axis=1).mean() / rounds.mean()
    assert slowest_row(laws, tokens, batch) == pytest.approx(simulated, rel=0.01)
    assert slowest_row(laws, tokens, batch - 2) < 0.95 * simulated


def test_texts_differ_only_as_far_as_chance_does_not_explain():
    steady = [TextRates(np.full(10, x)) for x in (0.2, 0.6)]
    assert text_shifts(steady) == pytest.approx([-0.2, 0.2])
    alternating = [TextRates(np.array([0.0, 1.0] * 10)), TextRates(np.array([1.0, 0.0] * 9 + [0.0, 0.0]))]
    assert text_shifts(alternating) == [0.0, 0.0]
    assert text_shifts(steady[:1]) == [0.0]

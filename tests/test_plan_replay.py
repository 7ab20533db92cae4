"""Replay on texts, acceptance by place, and the window that stops where one more token no longer pays."""

from __future__ import annotations

import numpy as np
import pytest

from ssd.plan.expected_tokens import best_gamma, expected_tokens
from ssd.plan.marginal_window import marginal_window
from ssd.plan.replay import (
    TextRates,
    draft_lengths,
    mean_rate,
    oracle_seconds_per_token,
    pooled_rates,
    rates_by_place,
    round_starts,
    seconds_per_token,
)


def verify(width):
    return 1.0


def walk(text, lengths):
    """One decoding of a text whose rates are 0 or 1, as a loop: seconds at draft cost .1 and verification 1."""
    at, seconds = 0, 0.0
    while at < len(text.rates):
        n = lengths[at]
        accepted = next((i for i in range(n) if text.rates[at + i] == 0), n)
        seconds += 0.1 * n + 1
        at += accepted + 1
    return seconds, at


@pytest.mark.parametrize("threshold", [None, 0.3])
def test_at_temperature_0_the_replay_is_the_decoding(threshold):
    generator = np.random.default_rng(0)
    text = TextRates((generator.random(200) < 0.7).astype(float), generator.random(200))
    lengths = draft_lengths(text, 4, threshold)
    seconds, tokens = walk(text, lengths)
    assert tokens == len(text.rates)
    assert seconds_per_token([text], 4, 0.1, verify, threshold) == pytest.approx(seconds / tokens)


def test_with_one_rate_it_is_the_closed_form():
    text = TextRates(np.full(4000, 0.6))
    found = seconds_per_token([text], 3, 0.1, verify)
    assert found == pytest.approx((3 * 0.1 + 1) / expected_tokens(0.6, 3), rel=1e-3)
    assert rates_by_place([text]) == pytest.approx([0.6] * 8)
    oracle = oracle_seconds_per_token([text], 3, 0.1, verify)
    accepted = expected_tokens(0.6, 3) - 1
    assert oracle == pytest.approx((accepted * 0.1 + 1) / (accepted + 1), rel=1e-3)


def test_starts_add_up_to_the_tokens():
    text = TextRates(np.random.default_rng(1).random(50))
    lengths = draft_lengths(text, 5)
    starts = round_starts(text, lengths)
    emitted = 0.0
    for t, weight in enumerate(starts):
        passing = np.cumprod([1.0, *text.rates[t : t + lengths[t]]])
        emitted += weight * passing.sum()
    assert emitted == pytest.approx(50)


def test_places_are_weighed_by_where_rounds_start():
    """Hard tokens come in pairs: after a rejection the next is hard as well, unlike a place at random."""
    rates = np.tile([1.0, 1.0, 1.0, 0.0, 0.0], 40)
    by_place = rates_by_place([TextRates(rates)], positions=2)
    assert mean_rate([TextRates(rates)])[0] == pytest.approx(0.6)
    assert by_place[0] < 0.6
    assert by_place[1] > by_place[0]


def test_places_that_few_rounds_reach_share_a_rate():
    found = pooled_rates(np.array([60.0, 30.0, 12.0, 6.0]), np.array([100.0, 60.0, 29.0, 12.0]))
    assert found == pytest.approx([0.6, 48 / 101])
    assert pooled_rates(np.array([3.0, 2.0]), np.array([5.0, 3.0])) == pytest.approx([5 / 8])
    assert pooled_rates(np.array([80.0, 40.0]), np.array([100.0, 80.0])) == pytest.approx([0.8, 0.5])
    assert pooled_rates(np.zeros(2), np.zeros(2)) == [0.0]


def test_the_mean_weighs_positions_and_its_error_is_over_texts():
    texts = [TextRates(np.ones(30)), TextRates(np.zeros(10))]
    value, stderr, n = mean_rate(texts)
    assert (value, n) == (0.75, 40)
    assert stderr == pytest.approx(np.std([(30 - 22.5) / 20, -7.5 / 20], ddof=1) / 2**0.5)
    assert mean_rate(texts[:1])[1] is None


def informative(size=1000, seed=2):
    """A draft that is sure of what passes: rates .95 where its maximum is .9, .2 where it is .3."""
    sure = np.random.default_rng(seed).random(size) < 0.7
    return TextRates(np.where(sure, 0.95, 0.2), np.where(sure, 0.9, 0.3))


def test_a_draft_that_knows_when_it_is_wrong_gains_and_stays_below_the_oracle():
    found = marginal_window([informative()], 0.2, verify, 8)
    assert 0.3 < found.threshold <= 0.9
    assert 1.05 < found.predicted_gain < found.largest_gain
    held = informative(seed=3)  # the gain is not one of the texts it was learnt on
    adaptive = seconds_per_token([held], 8, 0.2, verify, found.threshold)
    assert adaptive < min(seconds_per_token([held], g, 0.2, verify) for g in range(1, 9))
    sure = [b for b in found.bins if b.low > found.threshold - 1e-9]
    assert all(b.pays for b in sure)


def test_no_threshold_on_a_grid_is_better_than_the_rule():
    texts = [informative()]
    found = marginal_window(texts, 0.2, verify, 8)
    grid = [seconds_per_token(texts, 8, 0.2, verify, x) for x in np.linspace(0, 1, 21)]
    assert found.seconds_per_token <= min(grid) + 1e-9


def test_a_draft_whose_confidence_says_nothing_gains_nothing():
    generator = np.random.default_rng(4)
    text = TextRates(np.full(1000, 0.8), generator.random(1000))
    found = marginal_window([text], 0.1, verify, 8)
    assert found.fixed_gamma == best_gamma(0.8, 0.1)
    assert 1 - 1e-9 <= found.predicted_gain < 1.02


def test_free_drafts_are_never_stopped_and_dear_ones_at_once():
    texts = [informative()]
    free = marginal_window(texts, 0.0, verify, 4)
    assert (free.threshold, free.gamma) == (0.0, 4)
    dear = marginal_window(texts, 0.9, verify, 4)
    assert dear.threshold > 0.9
    assert dear.fixed_gamma == 1


def test_wrong_texts_are_refused():
    with pytest.raises(ValueError, match="rates: expected probabilities"):
        TextRates(np.array([0.5, 1.5]))
    with pytest.raises(ValueError, match="maxima"):
        TextRates(np.ones(3), np.ones(2))
    with pytest.raises(ValueError, match="no confidence is known"):
        marginal_window([TextRates(np.ones(3))], 0.1, verify, 4)
    with pytest.raises(ValueError, match="adaptive gamma: expected at least 2, got 1"):
        marginal_window([informative(10)], 0.1, verify, 1)

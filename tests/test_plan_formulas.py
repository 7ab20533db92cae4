"""Closed forms: against published values, against each other, against the chain recursion, and against dice.

The two dice tests use 40,000 draws each and fail beyond 5 standard errors (5.7e-7 each); seeds are fixed.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssd.plan.acceptance import ByPosition, Constant
from ssd.plan.block_bounds import (
    accepted_at_most,
    accepted_by_block,
    accepted_by_token,
    block_verification_range,
)
from ssd.plan.chain_recursion import ChainRecursion
from ssd.plan.depth import RatioAlpha, depth_gains, optimal_depth
from ssd.plan.edge_plan import EdgePlan
from ssd.plan.expected_tokens import (
    arithmetic_factor,
    best_gamma,
    emitted_law,
    expected_tokens,
    expected_tokens_by_position,
    guaranteed_speedup,
    improves,
    oracle_tokens,
    pays_to_draft,
    standard_speedup,
)
from ssd.plan.insertion import (
    best_pair_speedup,
    cost_per_token,
    draft_below_pays,
    insertion,
    triple_speedup,
    vertical_cascade_speedup,
)
from ssd.plan.overlap import (
    best_fan_out,
    hit_rate,
    outcome_law,
    overlap_speedup_bound,
    pipelined_seconds,
    power_law_cover,
    presumed_speedup,
    schedule_bounds,
    speedup_per_device,
)
from ssd.plan.pass_counts import level_work

rates = st.floats(0.0, 1.0)
costs = st.floats(0.001, 1.5)


@given(rates, st.integers(0, 12))
def test_expected_tokens_is_the_mean_of_the_capped_geometric(alpha, gamma):
    law = emitted_law(Constant(alpha), gamma)
    assert sum(law) == pytest.approx(1)
    assert expected_tokens(alpha, gamma) == pytest.approx(expected_tokens_by_position(Constant(alpha), gamma))
    assert expected_tokens(alpha, gamma) <= min(gamma + 1, oracle_tokens(alpha)) + 1e-9
    if gamma:
        recursion = level_work(ChainRecursion([EdgePlan(gamma)], [Constant(alpha)]), 1)
        assert recursion.tokens == pytest.approx(expected_tokens(alpha, gamma))


def test_expected_tokens_by_position_against_dice():
    dice, alphas = np.random.default_rng(1), (0.9, 0.5, 0.7)
    kept = np.cumprod(dice.random((40_000, 3)) < alphas, axis=1).sum(axis=1) + 1
    expected = expected_tokens_by_position(ByPosition(alphas), 3)
    assert expected == pytest.approx(1 + 0.9 + 0.45 + 0.315)
    assert abs(kept.mean() - expected) < 5 * kept.std() / 200


@given(rates, costs)
def test_drafting_pays_exactly_when_alpha_exceeds_c(alpha, c):
    speedups = [standard_speedup(alpha, g, c) for g in range(65)]
    best = best_gamma(alpha, c)
    assert speedups[best] == pytest.approx(max(speedups), rel=1e-12)
    assert (best > 0) == improves(alpha, c)
    assert not improves(alpha, c) or speedups[best] >= guaranteed_speedup(alpha, c) - 1e-12
    rises = np.diff(speedups) > 1e-12
    assert not np.any(rises[1:] & ~rises[:-1])  # one maximum


@pytest.mark.parametrize(
    ("c", "alphas", "speedups"),
    [
        (0.10, (0.75, 0.80, 0.85, 0.90), (2.19, 2.47, 2.85, 3.43)),
        (0.165, (0.75, 0.80, 0.85, 0.90), (1.84, 2.03, 2.28, 2.64)),
        (0.03, (0.60, 0.65, 0.70, 0.75), (2.07, 2.30, 2.60, 2.98)),
        (0.08, (0.60, 0.65, 0.70, 0.75), (1.75, 1.91, 2.10, 2.35)),
    ],
)
def test_pairs_at_their_best_length(c, alphas, speedups):
    assert [round(best_pair_speedup(c, a), 2) for a in alphas] == list(speedups)


@pytest.mark.parametrize(
    ("c0", "c1", "serial", "overlapped"),
    [
        (0.02, 0.10, (2.57, 2.95, 3.51, 4.38), (3.98, 4.91, 6.31, 8.50)),
        (0.03, 0.165, (2.24, 2.53, 2.93, 3.55), (3.83, 4.57, 5.57, 7.00)),
    ],
)
def test_triples_at_their_best_lengths(c0, c1, serial, overlapped):
    middle = cost_per_token([c0, c1], [0.75])
    for alpha, expected, bound in zip((0.75, 0.80, 0.85, 0.90), serial, overlapped, strict=True):
        assert round(triple_speedup(c0, c1, 0.75, alpha), 2) == expected
        assert 1 / cost_per_token([c0, c1, 1.0], [0.75, alpha]) == pytest.approx(expected, abs=0.005)
        best = max(overlap_speedup_bound(alpha, g, middle) for g in range(1, 65))
        assert best == pytest.approx(bound, abs=0.01)


def test_arithmetic_grows_although_time_falls():
    assert arithmetic_factor(0.8, 5, 0.05) == pytest.approx((1 - 0.8) * (5 * 0.05 + 6) / (1 - 0.8**6))
    assert arithmetic_factor(0.8, 5, 0.05) > 1
    assert arithmetic_factor(0.8, 0, 0.05) == 1


def test_one_more_draft_token_pays_exactly_up_to_the_best_length():
    alpha, c = 0.8, 0.1
    gamma = best_gamma(alpha, c)
    rate = 1 / standard_speedup(alpha, gamma, c)
    for drafted in range(20):
        assert pays_to_draft(alpha**drafted, alpha, c, rate) == (drafted < gamma)


def test_block_verification_on_the_papers_example():
    target, draft = (1 / 3, 2 / 3), (2 / 3, 1 / 3)
    found = [f(target, draft, 2) for f in (accepted_by_token, accepted_by_block, accepted_at_most)]
    assert found == pytest.approx([10 / 9, 11 / 9, 12 / 9])
    least, most = block_verification_range(2 / 3, 2 / 3, 2)
    assert least == pytest.approx(1 + 10 / 9)
    assert most == pytest.approx(1 + 12 / 9)


@given(st.lists(st.tuples(st.floats(0.01, 1), st.floats(0.01, 1)), min_size=2, max_size=3), st.integers(0, 4))
def test_block_verification_lies_between_token_and_the_bound(weights, gamma):
    target, draft = (np.array(x) / sum(x) for x in zip(*weights, strict=True))
    alpha = float(np.minimum(target, draft).sum())
    token, block, most = (f(target, draft, gamma) for f in (accepted_by_token, accepted_by_block, accepted_at_most))
    assert token <= block + 1e-9 <= most + 2e-9
    least, upper = block_verification_range(min(1.0, alpha), min(1.0, alpha), gamma)
    assert least == pytest.approx(1 + token, abs=1e-6)
    assert block <= upper - 1 + 1e-9


def test_a_draft_below_pays_exactly_when_it_lowers_the_cost_per_token():
    for alpha in np.linspace(0, 1, 21):
        for c0 in (0.021, 0.052, 0.093, 0.2):
            lower = cost_per_token([c0, 0.1], [float(alpha)]) < 0.1 - 1e-12
            assert draft_below_pays(float(alpha), c0, 0.1) == lower


def test_inserting_a_level_flips_at_its_thresholds():
    given_ = {"c0": 0.02, "c1": 0.10, "alpha01": 0.75, "alpha02": 0.72}
    found = insertion(alpha12=0.85, **given_)
    assert found.pays
    assert found.mid_alpha_needed == pytest.approx(0.796, abs=0.001)
    for step, pays in ((-0.002, False), (0.002, True)):
        assert insertion(alpha12=found.mid_alpha_needed + step, **given_).pays == pays
        low = found.low_alpha_needed + step
        assert insertion(c0=0.02, c1=0.10, alpha01=low, alpha12=0.85, alpha02=0.72).pays == pays
    dear = insertion(c0=0.15, c1=0.10, alpha01=0.75, alpha12=0.85, alpha02=0.72)
    assert not dear.pays
    assert dear.mid_alpha_needed is None


@pytest.mark.parametrize(("rounds", "inner", "a01", "a12"), [(1, 1, 0.3, 0.9), (3, 2, 0.6, 0.7), (4, 5, 0.9, 1.0)])
def test_the_vertical_cascade_is_the_recursion_under_the_window_of_rounds(rounds, inner, a01, a12):
    chain = ChainRecursion([EdgePlan(inner), EdgePlan(rounds, "rounds")], [Constant(a01), Constant(a12)])
    tokens = level_work(chain, 2).tokens
    assert level_work(chain, 0).widths.sum() == pytest.approx(rounds * inner)
    seconds = 1 + rounds * 0.1 + rounds * inner * 0.02
    assert vertical_cascade_speedup(a12, a01, 0.1, 0.02, rounds, inner) == pytest.approx(tokens / seconds)


@pytest.mark.parametrize("overhead", [0.001, 0.01, 0.03, 0.1, 0.3])
@pytest.mark.parametrize(("ratio", "alpha"), [(10, 0.8), (4, 0.7), (3, 0.4), (2, 0.45)])
def test_optimal_depth_is_where_levels_stop_gaining(ratio, alpha, overhead):
    gains = depth_gains(ratio, lambda r: alpha, overhead, deepest=14)
    depth = optimal_depth(ratio, alpha, overhead)
    assert [g.gain > 1 + 1e-12 for g in gains[1:]] == [g.depth <= depth for g in gains[1:]]
    assert gains[int(depth)].speedup == pytest.approx(max(g.speedup for g in gains))


def test_without_overhead_every_level_pays_ever_less():
    gains = depth_gains(10, lambda r: 0.8, deepest=6)
    assert optimal_depth(10, 0.8) == math.inf
    assert optimal_depth(2, 0.45) == 0
    assert all(g.gain > 1 for g in gains[1:])
    assert all(a.gain > b.gain for a, b in itertools.pairwise(gains[1:]))


def test_acceptance_by_ratio_of_sizes_is_fitted():
    exact = RatioAlpha(0.12, 0.2)
    fitted = RatioAlpha.fit([(r, exact(r)) for r in (4, 10, 40)])
    assert (fitted.rejected, fitted.exponent) == pytest.approx((0.12, 0.2))
    with pytest.raises(ValueError, match="two different ratios"):
        RatioAlpha.fit([(4, 0.8), (4, 0.7)])


def test_schedules_lie_between_the_busiest_device_and_the_sum():
    bounds = schedule_bounds([0.1, 0.3, 0.5], ["0", "1", "1"])
    assert (bounds.least, bounds.most) == pytest.approx((0.8, 0.9))
    for hit in (0.0, 0.4, 1.0):
        assert 0.5 <= pipelined_seconds(hit, 0.3, 0.5) <= 0.8
    assert pipelined_seconds(1.0, 0.3, 0.5) == 0.5
    assert speedup_per_device(4.68, 5, 4) == pytest.approx(3.744)


def test_presuming_outcomes_reduces_to_its_ends():
    tokens = expected_tokens(0.8, 4)
    assert presumed_speedup(0.0, tokens, tokens, 0.4, 0.4) == pytest.approx(standard_speedup(0.8, 4, 0.1))
    assert presumed_speedup(1.0, tokens, tokens, 0.4, 0.4) == pytest.approx(overlap_speedup_bound(0.8, 4, 0.1))


def test_hit_rate_against_dice():
    dice, outcomes, fan_out = np.random.default_rng(2), outcome_law(0.8, 3), (2, 0, 3, 8)
    accepted = dice.choice(4, size=40_000, p=outcomes)
    covers = np.array([power_law_cover(f, 0.7) for f in fan_out])
    hits = dice.random(40_000) < covers[accepted]
    rate = hit_rate(outcomes, fan_out, 0.7)
    assert abs(hits.mean() - rate) < 5 * math.sqrt(rate * (1 - rate) / 40_000)
    assert hit_rate([1.0], [2], {2: 0.9}) == 0.9
    with pytest.raises(ValueError, match="fan-out of 3"):
        hit_rate([1.0], [3], {2: 0.9})


@pytest.mark.parametrize("budget", [0, 1, 2, 3, 5, 8])
def test_no_fan_out_of_the_same_budget_hits_more(budget):
    outcomes = outcome_law(0.7, 2)
    best = best_fan_out(outcomes, budget, 0.7)
    assert sum(best) <= budget
    every = [(a, b, c) for a in range(9) for b in range(9) for c in range(9) if a + b + c <= budget]
    assert hit_rate(outcomes, best, 0.7) == pytest.approx(max(hit_rate(outcomes, f, 0.7) for f in every))


def test_fan_outs_of_a_large_budget_are_geometric():
    alpha, exponent = 0.8, 0.7
    fan_out = best_fan_out(outcome_law(alpha, 5), 400, exponent)
    for a, b in itertools.pairwise(fan_out[:5]):
        assert b / a == pytest.approx(alpha ** (1 / (1 + exponent)), abs=0.02)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: expected_tokens(1.5, 2), "alpha"),
        (lambda: expected_tokens(0.5, -1), "gamma"),
        (lambda: standard_speedup(0.5, 2, -0.1), "cost ratio"),
        (lambda: cost_per_token([0.1, 1.0], []), "alphas"),
        (lambda: depth_gains(1.0, lambda r: 0.5), "ratio"),
        (lambda: accepted_by_block((0.5, 0.4), (0.5, 0.5), 1), "target law"),
        (lambda: speedup_per_device(2.0, 0), "devices"),
    ],
)
def test_bad_input_is_one_clear_error(call, message):
    with pytest.raises(ValueError, match=message):
        call()

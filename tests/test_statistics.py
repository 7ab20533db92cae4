"""Intervals cover what they claim, and totals come before ratios."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ssd.bench.statistics import Estimate, paired_bootstrap, ratio_of_rates, ratio_of_totals


def test_speedup_is_a_ratio_of_totals_not_a_mean_of_ratios():
    """B44: 10 s and 1 s against 5 s and 1 s is 1.83, not 1.50."""
    seconds = np.array([[10.0, 5.0], [1.0, 1.0]])
    assert paired_bootstrap(ratio_of_totals, seconds).value == pytest.approx(11 / 6)
    assert np.mean(seconds[:, 0] / seconds[:, 1]) == 1.5  # what it must not be


def test_rates_divide_seconds_per_token():
    pairs = [[10.0, 100, 4.0, 80], [6.0, 60, 4.0, 120]]  # baseline s, tokens, our s, tokens
    assert paired_bootstrap(ratio_of_rates, pairs).value == pytest.approx((16 / 160) / (8 / 200))


def test_bounds_and_seed():
    rng = np.random.default_rng(3)
    pairs = rng.lognormal(0, 0.3, (20, 2))
    first, again, other = (paired_bootstrap(ratio_of_totals, pairs, seed=s) for s in (0, 0, 1))
    assert first == again
    assert first.low != other.low
    assert first.low < first.value < first.high
    assert first.n == 20
    wider = paired_bootstrap(ratio_of_totals, pairs, level=0.99)
    assert wider.low < first.low
    assert wider.high > first.high


def test_it_equals_the_loop_it_replaces():
    """The multinomial form is resampling with replacement: same quantiles as an index loop, to noise."""
    rng = np.random.default_rng(5)
    pairs = rng.lognormal(0, 0.5, (15, 2))
    loop = []
    for _ in range(20_000):
        chosen = pairs[rng.integers(0, 15, 15)].sum(axis=0)
        loop.append(chosen[0] / chosen[1])
    tail = 0.5 * math.erfc(math.sqrt(15 / 14) * 2.1448 / math.sqrt(2))  # t quantile, 14 degrees of freedom
    low, high = np.quantile(loop, [tail, 1 - tail])
    got = paired_bootstrap(ratio_of_totals, pairs, n=20_000)
    # 20,000 resamples leave a standard error of about 0.004 on each end; 5 of them for both sides.
    assert got.low == pytest.approx(low, abs=0.03)
    assert got.high == pytest.approx(high, abs=0.03)


@pytest.mark.parametrize("prompts", [6, 24])
def test_coverage(prompts):
    """95% intervals hold the truth in at least 90% of 600 samples.

    Log-normal prompts of unequal size with paired noise, true ratio known. The simulated coverage is
    0.926 with 6 prompts and 0.935 with 24, at which a fresh seed would fail this test with
    probability 0.008 and 0.001; the seed here is fixed.
    """
    rng = np.random.default_rng(11)
    hits = 0
    for trial in range(600):
        size = rng.lognormal(0, 0.5, prompts)
        pairs = np.stack([1.5 * size * rng.lognormal(0, 0.2, prompts), size * rng.lognormal(0, 0.2, prompts)], 1)
        got = paired_bootstrap(ratio_of_totals, pairs, n=500, seed=trial)
        hits += got.low <= 1.5 <= got.high
    assert 0.90 <= hits / 600 <= 0.99


def test_pairing_narrows_the_interval():
    rng = np.random.default_rng(2)
    size = rng.lognormal(0, 1.0, 30)
    paired = np.stack([size * rng.lognormal(0, 0.05, 30), size * rng.lognormal(0, 0.05, 30)], 1)
    broken = np.stack([paired[:, 0], rng.permutation(paired[:, 1])], 1)
    a, b = paired_bootstrap(ratio_of_totals, paired), paired_bootstrap(ratio_of_totals, broken)
    assert a.high - a.low < 0.3 * (b.high - b.low)


def test_without_data_there_is_no_value():
    assert paired_bootstrap(ratio_of_totals, []) == Estimate(None, None, None, 0)
    assert paired_bootstrap(ratio_of_totals, [[2.0, 1.0]]) == Estimate(2.0, None, None, 1)
    assert paired_bootstrap(ratio_of_totals, [[2.0, 0.0], [1.0, 0.0]]) == Estimate(None, None, None, 2)
    # a resample of the second prompt alone has no denominator
    assert paired_bootstrap(ratio_of_totals, [[2.0, 1.0], [1.0, 0.0]]) == Estimate(3.0, None, None, 2)


@pytest.mark.parametrize("bad", [[[1.0, math.nan]], [1.0, 2.0]])
def test_a_bad_table_is_an_error(bad):
    with pytest.raises(ValueError, match="pairs"):
        paired_bootstrap(ratio_of_totals, bad)


@pytest.mark.parametrize("options", [{"n": 0}, {"level": 1.0}])
def test_bad_options_are_errors(options):
    with pytest.raises(ValueError, match="bootstrap"):
        paired_bootstrap(ratio_of_totals, [[1.0, 2.0], [1.0, 2.0]], **options)

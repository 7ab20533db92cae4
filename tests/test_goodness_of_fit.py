"""P-values against closed forms and tables, and the transform they are taken of.

Sampling tests: seeds fixed; at other seeds each fails a right implementation at the rate stated.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from ssd.certify.goodness_of_fit import chi_square_tail, g_statistic, kolmogorov_p, poisson_binomial_p, uniform_p
from ssd.certify.transform import by_ratio, uniforms


def test_chi_square_tails() -> None:
    assert chi_square_tail(3.0, 2) == pytest.approx(math.exp(-1.5))  # two degrees: exponential
    assert chi_square_tail(4.0, 1) == pytest.approx(math.erfc(math.sqrt(2)))  # one: the square of a normal
    assert chi_square_tail(18.307, 10) == pytest.approx(0.05, abs=1e-5)
    assert chi_square_tail(0.0, 3) == 1.0
    with pytest.raises(ValueError, match="0 degrees"):
        chi_square_tail(1.0, 0)


def test_g_by_hand_with_small_cells_pooled() -> None:
    g, freedom = g_statistic([12, 8], [10, 10])
    raw = 2 * (12 * math.log(1.2) + 8 * math.log(0.8))
    assert (g, freedom) == (pytest.approx(raw / (1 + (4 - 1) / (6 * 20))), 1)
    pooled = g_statistic([30, 12, 5, 1, 2], [30, 10, 4, 3, 3])
    assert pooled == (pytest.approx(g_statistic([30, 12, 8], [30, 10, 10])[0]), 2)
    lonely = g_statistic([30, 12, 1], [30, 11, 2])  # 2 is too few to stand alone: joins the 11
    assert lonely == (pytest.approx(g_statistic([30, 13], [30, 13])[0]), 1)
    assert g_statistic([2, 1], [1.5, 1.5]) == (0.0, 0)
    with pytest.raises(ValueError, match="probability 0"):
        g_statistic([9, 1], [10, 0])
    with pytest.raises(ValueError, match="sum"):
        g_statistic([9, 1], [10, 1])


def test_kolmogorov_against_its_table() -> None:
    """The 5% point for n = 10 is 0.409 (Stephens' table), for large n 1.358 / sqrt(n)."""
    for n, d in ((10, 0.409), (1000, 1.358 / math.sqrt(1000))):
        values = np.clip(np.arange(n) / n + d, 0, 1)  # distance d between the empirical law and the uniform
        assert kolmogorov_p(values) == pytest.approx(0.05, abs=0.003)
    assert kolmogorov_p((np.arange(50) + 0.5) / 50) == 1.0
    with pytest.raises(ValueError, match="4 values"):
        kolmogorov_p([0.1, 0.2, 0.3, 0.4])


def binomial(n: int, k: int, p: float) -> float:
    return math.comb(n, k) * p**k * (1 - p) ** (n - k)


@pytest.mark.parametrize("p", [0.05, 0.5, 0.97])
def test_equal_chances_are_binomial_and_the_rate_is_kept(p: float) -> None:
    n = 12
    values = [poisson_binomial_p(k, [p] * n) for k in range(n + 1)]
    for k, value in enumerate(values):
        lower, upper = (math.fsum(binomial(n, i, p) for i in side) for side in (range(k + 1), range(k, n + 1)))
        assert value == pytest.approx(min(1.0, 2 * min(lower, upper)), rel=1e-9)
    for alarm in (0.5, 0.05, 1e-2, 1e-4):
        assert math.fsum(binomial(n, k, p) for k, value in enumerate(values) if value < alarm) <= alarm


def test_unequal_chances_by_hand_and_a_planted_shift() -> None:
    assert poisson_binomial_p(2, [0.1, 0.3]) == pytest.approx(2 * 0.03)
    assert poisson_binomial_p(0, [0.1, 0.3]) == 1.0
    assert poisson_binomial_p(1, [1.0, 1.0]) == 0.0
    chances = np.random.default_rng(0).random(400)
    expected = round(chances.sum())
    assert poisson_binomial_p(expected, chances) > 0.9
    assert poisson_binomial_p(expected + 45, chances) < 1e-4  # five and a half standard deviations
    assert poisson_binomial_p(expected - 45, chances) < 1e-4
    for wrong in ((3, [0.5, 0.5]), (-1, [0.5]), (0, [1.2])):
        with pytest.raises(ValueError, match="Poisson binomial"):
            poisson_binomial_p(*wrong)


def test_p_values_of_uniforms_are_uniform_and_of_others_are_not() -> None:
    """Rate 1e-4 by Kolmogorov's test over 400 p-values of 160 uniforms each."""
    source = np.random.default_rng(0)
    assert kolmogorov_p([uniform_p(source.random(160), 8) for _ in range(400)]) > 1e-4
    assert uniform_p(source.random(2000) ** 1.2, 16) < 1e-4


def test_the_transform_is_uniform_in_any_order_and_shows_a_leak() -> None:
    """4,000 prefixes with laws of their own, p-value above 1e-4; then 20% of tokens come from the draft."""
    source = torch.Generator().manual_seed(0)

    def rand(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=source, dtype=torch.float64)

    target, draft = ((3 * rand(4000, 12)).exp() for _ in range(2))
    target[:, 3] = 0.0
    draft[:, 5] = 0.0
    target, draft = target / target.sum(-1, keepdim=True), draft / draft.sum(-1, keepdim=True)
    tokens = torch.multinomial(target, 1, generator=source).squeeze(1)
    leaked = torch.multinomial(draft * (target > 0), 1, generator=source).squeeze(1)
    mixed = torch.where(rand(4000) < 0.2, leaked, tokens)
    ratio = by_ratio(target, draft)
    assert (ratio[:, 5] == math.inf).all()
    assert (ratio[:, 3] == 0).all()
    for order in (ratio, target, torch.zeros_like(target)):
        u = uniforms(target, order, tokens, rand(4000))
        assert ((u >= 0) & (u <= 1)).all()
        assert uniform_p(u.numpy(), 16) > 1e-4
    assert uniform_p(uniforms(target, ratio, mixed, rand(4000)).numpy(), 16) < 1e-4

"""P-values for counts against their expectation, for uniforms, and for sums of Bernoulli draws; no scipy needed."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
LEAST = 5.0
"""Expected count below which a cell is pooled with others."""


def chi_square_tail(value: float, freedom: int) -> float:
    """Probability that chi-square with ``freedom`` degrees exceeds ``value``."""
    if freedom < 1:
        raise ValueError(f"chi-square: {freedom} degrees of freedom")
    half = torch.tensor([freedom / 2, max(value, 0.0) / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(half[0], half[1]))


def g_statistic(observed: ArrayLike, expected: ArrayLike) -> tuple[float, int]:
    """G = 2 sum o ln(o / e), with Williams' correction, and its degrees of freedom.

    Cells expected fewer than ``LEAST`` times are pooled into one. Its law is close to chi-square where
    all expected counts are ``LEAST`` or more (Williams 1976, Biometrika 63).

    Raises:
        ValueError: the two disagree in shape or total, or a cell that cannot occur did.
    """
    o, e = np.asarray(observed, dtype=np.float64), np.asarray(expected, dtype=np.float64)
    if o.shape != e.shape or o.ndim != 1 or not math.isclose(o.sum(), e.sum(), rel_tol=1e-6):
        raise ValueError(f"counts: observed {o.shape} sum {o.sum()} against expected {e.shape} sum {e.sum()}")
    if (o[e <= 0] > 0).any():
        raise ValueError("counts: a cell of probability 0 was observed")
    small = e < LEAST
    o, e = _pooled(o, e, small)
    if len(e) < 2:
        return 0.0, 0
    total = e.sum()
    seen = o > 0
    g = 2 * float((o[seen] * np.log(o[seen] / e[seen])).sum())
    correction = 1 + (float((total / e).sum()) - 1) / (6 * total * (len(e) - 1))
    return g / correction, len(e) - 1


def _pooled(o: Array, e: Array, small: NDArray[np.bool_]) -> tuple[Array, Array]:
    """The cells that stand alone, and the small ones as one; as part of the smallest other if still too small."""
    if not small.any():
        return o, e
    rest_o, rest_e = float(o[small].sum()), float(e[small].sum())
    o, e = o[~small], e[~small]
    if rest_e >= LEAST or len(e) == 0:
        return np.append(o, rest_o), np.append(e, rest_e)
    at = int(e.argmin())
    o[at] += rest_o
    e[at] += rest_e
    return o, e


def uniform_p(values: ArrayLike, bins: int) -> float:
    """P-value of a G-test that values in [0, 1] are uniform, over ``bins`` equal bins."""
    u = np.asarray(values, dtype=np.float64)
    counts = np.bincount(np.minimum((u * bins).astype(np.int64), bins - 1), minlength=bins)
    g, freedom = g_statistic(counts, np.full(bins, len(u) / bins))
    return chi_square_tail(g, freedom)


def kolmogorov_p(values: ArrayLike) -> float:
    """P-value of the Kolmogorov-Smirnov test that values are uniform on [0, 1], two-sided.

    Source: the limit law with Stephens' correction for small n (1970, JRSS B 32), good from n = 5 on.
    """
    u = np.sort(np.asarray(values, dtype=np.float64))
    n = len(u)
    if n < 5:
        raise ValueError(f"Kolmogorov-Smirnov: {n} values, at least 5 are needed")
    grid = np.arange(n + 1) / n
    distance = max(float((grid[1:] - u).max()), float((u - grid[:-1]).max()))
    k = distance * (math.sqrt(n) + 0.12 + 0.11 / math.sqrt(n))
    tail = 2 * math.fsum((-1) ** (j - 1) * math.exp(-2 * j * j * k * k) for j in range(1, 101))
    return min(1.0, max(0.0, tail)) if k > 0.2 else 1.0  # the series converges slowly where the tail is 1


def poisson_binomial_p(successes: int, chances: ArrayLike) -> float:
    """P-value of ``successes`` among independent draws, two-sided: twice the smaller tail, at most 1.

    The law of the number is the convolution of the draws' own, so small samples have no approximation.

    Args:
        successes: how many came true.
        chances: [n] probability of each.

    Raises:
        ValueError: a probability outside [0, 1], or more successes than draws.
    """
    p = np.asarray(chances, dtype=np.float64)
    if p.ndim != 1 or not ((p >= 0) & (p <= 1)).all() or not 0 <= successes <= len(p):
        raise ValueError(f"Poisson binomial: {successes} successes of {p.shape} draws with chances {p}")
    law = np.ones(1)
    for chance in p:
        law = np.convolve(law, [1 - chance, chance])
    return min(1.0, 2 * float(min(law[: successes + 1].sum(), law[successes:].sum())))

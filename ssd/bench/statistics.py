"""Intervals for ratios of totals: resample the prompts, add up, then divide."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


class Estimate(NamedTuple):
    """A value, the ends of its interval, and the number of prompts (or batches) behind it.

    ``value`` is None without data; ``low`` and ``high`` are None with fewer than two prompts.
    """

    value: float | None
    low: float | None
    high: float | None
    n: int


def ratio_of_totals(totals: Array) -> Array:
    """Totals [..., 2] of numerator and denominator -> their ratio [...]; NaN where it has none."""
    return _divide(totals[..., 0], totals[..., 1])


def ratio_of_rates(totals: Array) -> Array:
    """Totals [..., 4] (baseline seconds, baseline tokens, our seconds, our tokens) -> speedup [...]."""
    return _divide(totals[..., 0] * totals[..., 3], totals[..., 1] * totals[..., 2])


def paired_bootstrap(
    ratio_fn: Callable[[Array], Any],
    pairs: ArrayLike,
    n: int = 2000,
    seed: int = 0,
    level: float = 0.95,
) -> Estimate:
    """``ratio_fn`` of the column totals, with a bootstrap interval over the rows.

    A row holds everything measured on one prompt, of both methods, so that resampling rows keeps
    the pairing. The interval is the percentile interval widened for few prompts (Hesterberg 2015,
    arXiv 1411.5279, "expanded percentile"): the plain one is too short by sqrt((P-1)/P) and by the
    normal quantile standing in for Student's. Simulated coverage of a 95% interval for log-normal
    prompts: 0.93 with 6 prompts (plain 0.85), 0.94 with 24; below 4 prompts it is still too short.

    Args:
        ratio_fn: totals [..., C] -> [...], for instance ``ratio_of_totals``; NaN for "no value".
        pairs: [P, C], one row per prompt.
        n: number of resamples.
        seed: of numpy's generator; the same seed gives the same interval.
        level: coverage of the interval, in (0, 1).

    Returns:
        (value, low, high, number of prompts). Where some resample has no value, there is no
        interval either.

    Raises:
        ValueError: if ``pairs`` is not a finite table, or ``n`` or ``level`` is out of range.
    """
    table = np.asarray(pairs, dtype=np.float64)
    if table.size == 0:
        return Estimate(None, None, None, 0)
    if table.ndim != 2 or not np.isfinite(table).all():
        raise ValueError(f"pairs: expected a finite [prompts, columns] table, got shape {table.shape}")
    if n < 1 or not 0 < level < 1:
        raise ValueError(f"bootstrap: n {n!r} must be >= 1 and level {level!r} inside (0, 1)")
    prompts = len(table)
    value = float(ratio_fn(table.sum(axis=0)))
    if not math.isfinite(value) or prompts < 2:
        return Estimate(value if math.isfinite(value) else None, None, None, prompts)
    draws = np.random.default_rng(seed).multinomial(prompts, np.full(prompts, 1 / prompts), size=n)
    resampled = np.asarray(ratio_fn(draws @ table))  # [n]
    if not np.isfinite(resampled).all():
        return Estimate(value, None, None, prompts)
    tail = _expanded_tail(prompts, level)
    low, high = np.quantile(resampled, [tail, 1 - tail])
    return Estimate(value, float(low), float(high), prompts)


def _expanded_tail(prompts: int, level: float) -> float:
    """Share to cut off on either side so that few prompts give an interval of honest width."""
    normal = NormalDist()
    student = _student_quantile((1 + level) / 2, prompts - 1)
    return normal.cdf(-math.sqrt(prompts / (prompts - 1)) * student)


def _student_quantile(probability: float, freedom: int) -> float:
    """Quantile of Student's t, exact for 1 and 2 degrees of freedom, else within 1% for 95% intervals.

    Source: Abramowitz and Stegun 26.7.5, the expansion around the normal quantile.
    """
    if freedom == 1:
        return math.tan(math.pi * (probability - 0.5))
    if freedom == 2:
        odds = 2 * probability - 1
        return odds * math.sqrt(2 / (1 - odds * odds))
    z = NormalDist().inv_cdf(probability)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + math.fsum(term / freedom**power for power, term in enumerate(terms, start=1))


def _divide(top: Array, bottom: Array) -> Array:
    """Elementwise quotient; NaN instead of a division by zero."""
    top, bottom = np.asarray(top, dtype=np.float64), np.asarray(bottom, dtype=np.float64)
    quotient: Array = np.full(np.broadcast(top, bottom).shape, np.nan)
    np.divide(top, bottom, out=quotient, where=bottom != 0)
    return quotient

"""Standard speculative decoding replayed on texts of the target, from rates measured at every position.

Along a text of the target the chance that a draft token passes is known at every position. A round that
starts at t and drafts n tokens accepts the first a of them with the product of their rates, and the next
round starts at t + a + 1. How often each position starts a round then follows without any simulation.
Exact at temperature 0, where the rates are 0 or 1; above it the text stands for the accepted tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ssd.plan.chain_recursion import Array

POSITIONS = 8  # places of a draft that are told apart
REFERENCE_GAMMA = 4  # draft length of the replay whose round starts weigh the places
LEAST_ROUNDS = 30.0  # that must come to a place for its rate to be told apart from the one before


@dataclass(frozen=True)
class TextRates:
    """One text of the target under one draft.

    Attributes:
        rates: [T] chance that the draft's token at each position passes, sum of min(target, draft).
        maxima: [T] largest probability of the draft's untempered softmax there; ``None`` for a look-up.
    """

    rates: Array
    maxima: Array | None = None

    def __post_init__(self) -> None:
        rates = np.asarray(self.rates, dtype=np.float64)
        if rates.ndim != 1 or not len(rates) or not ((rates >= 0) & (rates <= 1 + 1e-6)).all():
            raise ValueError(f"rates: expected probabilities of at least one position, got {self.rates!r}")
        object.__setattr__(self, "rates", rates.clip(max=1.0))
        if self.maxima is not None:
            object.__setattr__(self, "maxima", np.asarray(self.maxima, dtype=np.float64))
            if self.maxima.shape != rates.shape:
                raise ValueError(f"maxima: {self.maxima.shape} for rates {rates.shape}")


def mean_rate(texts: Sequence[TextRates]) -> tuple[float, float | None, int]:
    """Mean over positions, its standard error over texts (``None`` for one text), and the positions."""
    sums, sizes = np.array([t.rates.sum() for t in texts]), np.array([len(t.rates) for t in texts])
    value, n = float(sums.sum() / sizes.sum()), len(texts)
    if n < 2:
        return value, None, int(sizes.sum())
    residuals = (sums - value * sizes) / sizes.mean()
    return value, float(residuals.std(ddof=1) / n**0.5), int(sizes.sum())


def text_shifts(texts: Sequence[TextRates]) -> list[float]:
    """How far each text's rate lies from the mean of all, as far as texts differ by more than chance.

    The variance of text means is that between texts plus that of positions ÷ positions; deviations are shrunk so that
    only the first is left. Source: one-way random effects, by moments.
    """
    means = np.array([t.rates.mean() for t in texts])
    spread = float(means.var(ddof=1)) if len(texts) > 1 else 0.0
    chance = float(np.mean([t.rates.var() / len(t.rates) for t in texts]))
    kept = (max(0.0, spread - chance) / spread) ** 0.5 if spread > 0 else 0.0
    return [float(x) for x in kept * (means - means.mean())]


def draft_lengths(text: TextRates, gamma: int, threshold: float | None = None) -> list[int]:
    """Tokens that a round drafts by where it starts: ``gamma``, or fewer if one was less sure than ``threshold``.

    This is the window ``confidence`` of ``ssd.core.windows``; at most the positions left but one.
    """
    size = len(text.rates)
    lengths = [min(gamma, size - 1 - t) for t in range(size)]
    if threshold is None or text.maxima is None:
        return lengths
    unsure = np.append(np.flatnonzero(text.maxima < threshold), size)  # a draft ends with the first of them
    upto = unsure[np.searchsorted(unsure, np.arange(size))] - np.arange(size) + 1
    return [min(n, m) for n, m in zip(lengths, upto.tolist(), strict=True)]


def round_starts(text: TextRates, lengths: Sequence[int]) -> Array:
    """[T] expected rounds that start at each position when the first starts at 0."""
    rates: list[float] = text.rates.tolist()
    starts = [1.0] + [0.0] * len(rates)
    for t, n in enumerate(lengths):
        alive = starts[t]
        if alive == 0:
            continue
        for i in range(t, t + n):
            starts[i + 1] += alive * (1 - rates[i])
            alive *= rates[i]
            if alive == 0:
                break
        starts[t + n + 1] += alive
    return np.array(starts[:-1])


def seconds_per_token(
    texts: Sequence[TextRates],
    gamma: int,
    draft_seconds: float,
    verify_seconds: Callable[[int], float],
    threshold: float | None = None,
) -> float:
    """Expected seconds per token over all texts.

    Args:
        draft_seconds: of one pass of the draft.
        verify_seconds: of a pass of the target over that many tokens.
        threshold: of the window ``confidence``; ``None``: always ``gamma`` tokens.
    """
    seconds = tokens = 0.0
    for text in texts:
        lengths = draft_lengths(text, gamma, threshold)
        starts = round_starts(text, lengths)
        rounds = np.bincount(lengths, weights=starts)  # by tokens drafted
        seconds += sum(float(w) * (n * draft_seconds + verify_seconds(n + 1)) for n, w in enumerate(rounds) if w > 0)
        tokens += len(text.rates)
    return seconds / tokens


def oracle_seconds_per_token(
    texts: Sequence[TextRates], gamma: int, draft_seconds: float, verify_seconds: Callable[[int], float]
) -> float:
    """The same if every round knew beforehand how many of ``gamma`` tokens pass, and drafted no others.

    Source: the oracle of section 3.5 of arXiv 2211.17192; no rule that is told less drafts fewer for nothing.
    """
    seconds = tokens = 0.0
    for text in texts:
        lengths = draft_lengths(text, gamma)
        for t, alive in enumerate(map(float, round_starts(text, lengths))):
            for a in range(lengths[t] + 1):
                stays = 1.0 if a == lengths[t] else 1 - float(text.rates[t + a])
                seconds += alive * stays * (a * draft_seconds + verify_seconds(a + 1))
                alive *= 1 - stays
        tokens += len(text.rates)
    return seconds / tokens


def rates_by_place(texts: Sequence[TextRates], positions: int = POSITIONS, gamma: int = REFERENCE_GAMMA) -> list[float]:
    """Rate of each place of a draft, given that all earlier tokens passed, in rounds as they start.

    Rounds of ``gamma`` tokens decide where rounds start: after a rejection or a bonus token, not anywhere.
    """
    reached, passed = np.zeros(positions), np.zeros(positions)
    for text in texts:
        starts = round_starts(text, draft_lengths(text, gamma))
        size = len(text.rates)
        for t in range(size):
            alive = starts[t]
            for i in range(min(positions, size - t)):
                reached[i] += alive
                alive *= text.rates[t + i]
                passed[i] += alive
    return pooled_rates(passed, reached)


def pooled_rates(passed: Array, reached: Array) -> list[float]:
    """Passed / reached by place, from the first place on that fewer than ``LEAST_ROUNDS`` reach one rate for all.

    That rate also counts the last place that is told apart, so that no rate rests on a handful of rounds; the
    last entry is that of every later place.
    """
    few = np.flatnonzero(reached < LEAST_ROUNDS)
    cut = max(0, int(few[0]) - 1) if len(few) else len(reached) - 1
    rates = [float(p / n) for p, n in zip(passed[:cut], reached[:cut], strict=True)]
    total = float(reached[cut:].sum())
    return [*rates, min(1.0, float(passed[cut:].sum()) / total if total > 0 else 0.0)]

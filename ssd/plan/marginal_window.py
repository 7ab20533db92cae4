"""The window that stops drafting where one more token no longer pays, as a threshold on the draft's confidence.

Before a token is drawn, the draft's largest probability at the token before it is known. From rates along
texts of the target: how likely is it, given that confidence, that all tokens so far pass, and that the next one
does too? ``pays_to_draft`` answers whether drafting it lowers the seconds per token. The lowest confidence from
which it pays is the threshold of the window ``confidence``. The rule's own seconds per token enter the
comparison, so rule and rate are found in turns, and the fastest rule met is kept. How many tokens a draft may have
at most is chosen along with it, so a confidence that says nothing leaves the best fixed length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ssd.plan.chain_recursion import Array
from ssd.plan.expected_tokens import pays_to_draft
from ssd.plan.replay import TextRates, draft_lengths, oracle_seconds_per_token, round_starts, seconds_per_token

BINS = 10
MOST_TURNS = 20


@dataclass(frozen=True)
class ConfidenceBin:
    """Draft tokens whose confidence lies in [low, high).

    Attributes:
        weight: expected number of times a round came here and could go on.
        survival: chance that all tokens of the draft so far pass.
        alpha: chance that the next passes, given that they do.
        pays: whether drafting the next lowers the seconds per token.
    """

    low: float
    high: float
    weight: float
    survival: float
    alpha: float
    pays: bool


@dataclass(frozen=True)
class MarginalWindow:
    """A calibrated window ``confidence``, and the fixed draft length it has to beat.

    Attributes:
        gamma: most tokens of a draft.
        threshold: drafting stops after a token less sure than this; 0 never stops early.
        seconds_per_token: of the rule, replayed on the texts it was learnt on.
        fixed_gamma: fastest fixed draft length on the same texts.
        fixed_seconds_per_token: of it.
        oracle_seconds_per_token: of drafting exactly what will pass, which no window can beat.
        bins: what was learnt in the rounds of this rule.
    """

    gamma: int
    threshold: float
    seconds_per_token: float
    fixed_gamma: int
    fixed_seconds_per_token: float
    oracle_seconds_per_token: float
    bins: tuple[ConfidenceBin, ...]

    @property
    def predicted_gain(self) -> float:
        """Predicted speed over the best fixed length, on the texts both were chosen on."""
        return self.fixed_seconds_per_token / self.seconds_per_token

    @property
    def largest_gain(self) -> float:
        """What an oracle would gain over the best fixed length, on the same texts."""
        return self.fixed_seconds_per_token / self.oracle_seconds_per_token


def marginal_window(
    texts: Sequence[TextRates], draft_seconds: float, verify_seconds: Callable[[int], float], gamma: int
) -> MarginalWindow:
    """The threshold at which the marginal rule comes to rest, for the best limit of a draft's length.

    Args:
        texts: with maxima, of the target, at the temperature of use.
        draft_seconds: of one pass of the draft.
        verify_seconds: of a pass of the target over that many tokens, 1 .. ``gamma`` + 1.
        gamma: largest limit of a draft's length that is tried, at least 2.

    Raises:
        ValueError: for texts without maxima, or a ``gamma`` that leaves nothing to decide.
    """
    if gamma < 2:
        raise ValueError(f"adaptive gamma: expected at least 2, got {gamma!r}")
    if not texts or any(t.maxima is None for t in texts):
        raise ValueError("adaptive gamma: no confidence is known of this draft")
    fixed = min(range(1, gamma + 1), key=lambda g: seconds_per_token(texts, g, draft_seconds, verify_seconds))
    fixed_seconds = seconds_per_token(texts, fixed, draft_seconds, verify_seconds)
    marginal = draft_seconds + max(0.0, (verify_seconds(gamma + 1) - verify_seconds(2)) / (gamma - 1))
    cost = _Costs(draft_seconds, verify_seconds, marginal)
    found = [_at_rest(texts, most, cost) for most in range(2, gamma + 1)]
    seconds, most, threshold, bins = min(found, key=lambda f: f[:2])
    oracle = oracle_seconds_per_token(texts, gamma, draft_seconds, verify_seconds)
    return MarginalWindow(most, threshold, seconds, fixed, fixed_seconds, oracle, bins)


@dataclass(frozen=True)
class _Costs:
    """Seconds of a draft pass, of verifications by width, and of one more draft token with its verification."""

    draft: float
    verify: Callable[[int], float]
    marginal: float


def _at_rest(
    texts: Sequence[TextRates], gamma: int, cost: _Costs
) -> tuple[float, int, float, tuple[ConfidenceBin, ...]]:
    """Seconds per token, ``gamma``, threshold and bins of the rule for drafts of at most ``gamma`` tokens."""
    edges, threshold, seen = _edges(texts), 0.0, set()
    best: tuple[float, int, float, tuple[ConfidenceBin, ...]] | None = None
    for _ in range(MOST_TURNS):
        seen.add(threshold)
        rate = seconds_per_token(texts, gamma, cost.draft, cost.verify, threshold)
        bins = _learn(texts, edges, gamma, threshold, cost.marginal, rate)
        if best is None or rate < best[0]:
            best = rate, gamma, threshold, bins
        threshold = _lowest(bins)
        if threshold in seen:
            break
    assert best is not None
    return best


def _edges(texts: Sequence[TextRates]) -> Array:
    """Borders of confidence bins, each with about as many positions."""
    maxima = np.concatenate([t.maxima for t in texts if t.maxima is not None])
    inner = np.quantile(maxima, np.linspace(0, 1, BINS + 1)[1:-1])
    return np.unique(np.array([0.0, *inner, 1.0 + 1e-9]))


def _learn(
    texts: Sequence[TextRates], edges: Array, gamma: int, threshold: float, marginal: float, rate: float
) -> tuple[ConfidenceBin, ...]:
    """What follows each confidence in the rounds that the rule makes."""
    size = len(edges) - 1
    weight, survived, passed = ([0.0] * size for _ in range(3))
    for text in texts:
        lengths = draft_lengths(text, gamma, threshold)
        starts: list[float] = round_starts(text, lengths).tolist()
        assert text.maxima is not None
        places: list[int] = (np.searchsorted(edges, text.maxima, side="right") - 1).tolist()
        rates: list[float] = text.rates.tolist()
        for t, start in enumerate(starts):
            survival = start
            for i in range(t, t + min(lengths[t], gamma - 1, len(rates) - 1 - t) if start else t):
                survival *= rates[i]
                weight[places[i]] += start
                survived[places[i]] += survival
                passed[places[i]] += survival * rates[i + 1]
    bins = []
    for b in range(size):
        if not weight[b]:
            continue
        survival = survived[b] / weight[b]
        alpha = passed[b] / survived[b] if survived[b] > 0 else 0.0
        pays = pays_to_draft(survival, alpha, marginal, rate)
        bins.append(ConfidenceBin(float(edges[b]), float(edges[b + 1]), weight[b], survival, alpha, pays))
    return tuple(bins)


def _lowest(bins: Sequence[ConfidenceBin]) -> float:
    """The lowest confidence from which drafting on pays throughout; 1 if it does not pay even when sure."""
    threshold = 1.0
    for b in reversed(bins):
        if not b.pays:
            return threshold
        threshold = b.low
    return 0.0

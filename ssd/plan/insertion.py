"""When a level pays: closed forms for adding a draft below and for inserting one between two levels.

Costs are in passes of the target; a pass costs the same at any width, and a level asked for n tokens
spends n times its cost per token (the *serial reduction*). Both idealise what ``ssd.plan.chain_recursion`` computes
in full: blocks that overshoot or are cut, and widths that are not free.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ssd.plan.bisection import bisect
from ssd.plan.expected_tokens import LARGEST_GAMMA, best_gamma, check, check_cost, expected_tokens, standard_speedup


def cost_per_token(costs: Sequence[float], alphas: Sequence[float], largest: int = LARGEST_GAMMA) -> float:
    """Least cost of one token of the last of these levels, each level drafting for the next.

    Recursion: c_eff(0) = c_0, c_eff(k) = min over gamma >= 0 of (gamma c_eff(k-1) + c_k) / E(alpha_{k-1}, gamma),
    with E equation (1) of arXiv 2211.17192. A level that does not pay is left out by gamma = 0.

    Args:
        costs: of one pass per level, from the smallest up.
        alphas: acceptance per edge.
    """
    if len(alphas) != len(costs) - 1:
        raise ValueError(f"alphas: {len(costs)} levels have {len(costs) - 1} edges, got {len(alphas)}")
    for c in costs:
        check_cost(c)
    cost = costs[0]
    for alpha, own in zip(alphas, costs[1:], strict=True):
        gamma = best_gamma(alpha, cost / own, largest) if own > 0 else 0
        cost = (gamma * cost + own) / expected_tokens(alpha, gamma)
    return cost


def draft_below_pays(alpha: float, draft_cost: float, level_cost: float) -> bool:
    """Whether giving a level a draft of its own lowers its cost per token: exactly when alpha > c_draft / c_level.

    Source: Corollary 3.9 of arXiv 2211.17192 with the level in the place of the target; what is above does not
    matter, because it only sees the cost per token.
    """
    if level_cost <= 0:
        raise ValueError(f"level cost: expected a number > 0, got {level_cost!r}")
    return alpha > draft_cost / level_cost


@dataclass(frozen=True)
class Insertion:
    """Best pair against best triple, as speedups over AR.

    Attributes:
        low_pair: L0 drafts for the target.
        mid_pair: L1 drafts for the target.
        triple: L0 drafts for L1, L1 for the target; both really drafting.
        mid_alpha_needed: acceptance of L1 by the target at which the triple equals the better pair, other
            inputs unchanged; None if none does.
        low_alpha_needed: the same for the acceptance of L0 by L1.
    """

    low_pair: float
    mid_pair: float
    triple: float
    mid_alpha_needed: float | None
    low_alpha_needed: float | None

    @property
    def pays(self) -> bool:
        """Whether the triple beats both pairs."""
        return self.triple > max(self.low_pair, self.mid_pair)


def triple_speedup(c0: float, c1: float, alpha01: float, alpha12: float, largest: int = LARGEST_GAMMA) -> float:
    """Speedup of L0→L1→L2 at its best draft lengths >= 1, serial reduction.

    The middle level costs c_eff = min over gamma0 >= 1 of (gamma0 c0 + c1) / E(alpha01, gamma0) per token, then
    Theorem 3.8 of arXiv 2211.17192 applies with c_eff. Source: the reduction is derived here; that hierarchies
    can be priced level by level under independent acceptance is shown in arXiv 2510.19705.
    """
    for c in (c0, c1):
        check_cost(c)
    middle = min((g * c0 + c1) / expected_tokens(alpha01, g) for g in range(1, largest + 1))
    return max(standard_speedup(alpha12, g, middle) for g in range(1, largest + 1))


def best_pair_speedup(c: float, alpha: float, largest: int = LARGEST_GAMMA) -> float:
    """Theorem 3.8 of arXiv 2211.17192 at its best gamma >= 1."""
    return max(standard_speedup(alpha, g, c) for g in range(1, largest + 1))


def insertion(
    c0: float, c1: float, alpha01: float, alpha12: float, alpha02: float, largest: int = LARGEST_GAMMA
) -> Insertion:
    """Compare L0→L2 and L1→L2 with L0→L1→L2.

    L1 pays between L0 and L2 iff S(alpha12, c_eff) > S(alpha02, c0) with S the best of Theorem 3.8, and L0 pays
    below L1 iff alpha01 > c0 / c1; the chain has to pass both. The thresholds are found by bisection, S
    increasing in alpha. Source: derived here.
    """
    for alpha in (alpha01, alpha12, alpha02):
        check(alpha, 0)
    low, mid = best_pair_speedup(c0, alpha02, largest), best_pair_speedup(c1, alpha12, largest)
    triple = triple_speedup(c0, c1, alpha01, alpha12, largest)

    def gap_mid(alpha: float) -> float:
        rival = max(low, best_pair_speedup(c1, alpha, largest))
        return triple_speedup(c0, c1, alpha01, alpha, largest) - rival

    def gap_low(alpha: float) -> float:
        return triple_speedup(c0, c1, alpha, alpha12, largest) - max(low, mid)

    return Insertion(low, mid, triple, _threshold(gap_mid), _threshold(gap_low))


def vertical_cascade_speedup(alpha12: float, alpha01: float, c1: float, c0: float, rounds: int, inner: int) -> float:
    """Speedup when L1's block is ``rounds`` rounds of ``inner`` drafts of L0 each (window ``rounds``).

    (1 - a phi(a)^n) / ((1 - a)(1 + n c1 + n k c0)), a = alpha12, n rounds, k inner drafts, phi the generating
    function of the tokens of one inner round. Source: the vertical cascade of arXiv 2312.11462, rederived: the block
    has a random length N with E[a^N] = phi(a)^n, and the mean of equation (1) over it is (1 - a E[a^N]) / (1 - a).
    """
    check(alpha12, rounds)
    spent = 1 + rounds * c1 + rounds * inner * c0
    if alpha12 == 1:
        return (1 + rounds * expected_tokens(alpha01, inner)) / spent
    return (1 - alpha12 * round_generating(alpha01, inner, alpha12) ** rounds) / ((1 - alpha12) * spent)


def round_generating(alpha: float, gamma: int, x: float) -> float:
    """E[x^n], n the tokens a round emits: 1 + (x - 1)(1 - (alpha x)^(gamma+1)) / (1 - alpha x).

    Source: generating function of the capped geometric law of arXiv 2211.17192, section 3.1; also in arXiv 2312.11462.
    """
    check(alpha, gamma)
    if alpha * x == 1:
        return 1 + (x - 1) * (gamma + 1)
    return 1 + (x - 1) * (1 - (alpha * x) ** (gamma + 1)) / (1 - alpha * x)


def _threshold(gap: Callable[[float], float]) -> float | None:
    """Where a function negative below some alpha and positive above it crosses; None if it is never positive."""
    if gap(1.0) <= 0:
        return None
    return 0.0 if gap(0.0) > 0 else bisect(gap, 0.0, 1.0, 1e-6)

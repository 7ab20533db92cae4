"""Standard speculative decoding in closed form: one draft, one verifier, c = draft pass / verifier pass.

Equation and theorem numbers are those of Leviathan et al. 2023 (arXiv 2211.17192). ``alpha`` is the
chance that a draft token is accepted, ``gamma`` the draft length; a verification pass costs 1 whatever
its width, which is what ``ssd.plan.prediction`` does not assume.
"""

from __future__ import annotations

import math

from ssd.plan.acceptance import Acceptance

LARGEST_GAMMA = 64  # longer drafts than this are not looked at when the best length is searched


def expected_tokens(alpha: float, gamma: int) -> float:
    """Mean emitted tokens of a round, recovered or bonus token included: (1 - a^(g+1)) / (1 - a).

    Source: equation (1). For alpha = 1 it is gamma + 1.
    """
    check(alpha, gamma)
    return float(gamma + 1) if alpha == 1 else (1 - alpha ** (gamma + 1)) / (1 - alpha)


def emitted_law(acceptance: Acceptance, gamma: int, fate: str = "plain") -> list[float]:
    """P(a round emits n tokens) for n = 0 .. gamma + 1, all draft tokens of one fate.

    Source: the capped geometric of arXiv 2211.17192, section 3.1, with one rate per position.
    """
    check(0.0, gamma)
    law, alive = [0.0], 1.0
    for i in range(gamma):
        kept = alive * acceptance.at(i, fate)
        law.append(alive - kept)
        alive = kept
    return [*law, alive]


def expected_tokens_by_position(acceptance: Acceptance, gamma: int, fate: str = "plain") -> float:
    """Mean emitted tokens when each draft position has its own rate: 1 + sum over i of prod_{j<=i} a_j.

    Source: the sum behind equation (1), before the rates are taken to be equal.
    """
    return sum(n * p for n, p in enumerate(emitted_law(acceptance, gamma, fate)))


def oracle_tokens(alpha: float) -> float:
    """Mean emitted tokens when every round stops drafting right before its first rejection: 1 / (1 - a).

    Source: equation (1) for gamma to infinity; section 3.5 of arXiv 2211.17192 discusses the oracle.
    """
    check(alpha, 0)
    return math.inf if alpha == 1 else 1 / (1 - alpha)


def standard_speedup(alpha: float, gamma: int, c: float) -> float:
    """Expected improvement of wall time: (1 - a^(g+1)) / ((1 - a)(g c + 1)). Source: Theorem 3.8."""
    check_cost(c)
    return expected_tokens(alpha, gamma) / (gamma * c + 1)


def arithmetic_factor(alpha: float, gamma: int, c_hat: float) -> float:
    """Factor by which arithmetic grows: (1 - a)(g c_hat + g + 1) / (1 - a^(g+1)). Source: Theorem 3.11.

    ``c_hat`` is the ratio of arithmetic per token of the two models. Above 1: why large batches, which
    are bound by arithmetic, lose.
    """
    check_cost(c_hat)
    return (gamma * c_hat + gamma + 1) / expected_tokens(alpha, gamma)


def improves(alpha: float, c: float) -> bool:
    """Whether some gamma >= 1 is faster than plain decoding: exactly when alpha > c. Source: Corollary 3.9."""
    check(alpha, 0)
    check_cost(c)
    return alpha > c


def guaranteed_speedup(alpha: float, c: float) -> float:
    """What gamma = 1 alone gives, (1 + a) / (1 + c): a lower bound of the best. Source: Corollary 3.9."""
    return standard_speedup(alpha, 1, c)


def best_gamma(alpha: float, c: float, largest: int = LARGEST_GAMMA) -> int:
    """Draft length 0 .. ``largest`` with the highest speedup; 0 when drafting does not pay.

    Source: maximises Theorem 3.8. The speedup has one maximum in gamma, because what one more token adds,
    a^(g+1), falls while what it costs stays c; the shortest of equals is taken.
    """
    if not improves(alpha, c):
        return 0
    return max(range(largest + 1), key=lambda g: (standard_speedup(alpha, g, c), -g))


def pays_to_draft(survival: float, alpha: float, seconds: float, seconds_per_token: float) -> bool:
    """Whether one more draft token lowers the seconds per token of a process that now takes the last argument.

    It adds ``survival * alpha`` tokens (survival: chance that all before it are accepted) and ``seconds``
    (its draft pass and what it widens the verification by). Renewal reward: seconds / tokens falls iff the
    token's own ratio is below it. At the best rule ``seconds_per_token`` is that rule's own rate, so the
    fixed point is found by alternating. Source: derived here; that the best rule is a threshold on the chance of
    a rejection so far is the theorem of SpecDec++ (arXiv 2405.19715).
    """
    return survival * alpha * seconds_per_token > seconds


def check(alpha: float, gamma: int) -> None:
    """Raise ValueError unless alpha is a probability and gamma an integer >= 0."""
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha: expected a probability in [0, 1], got {alpha!r}")
    if isinstance(gamma, bool) or not isinstance(gamma, int) or gamma < 0:
        raise ValueError(f"gamma: expected an integer >= 0, got {gamma!r}")


def check_cost(c: float) -> None:
    """Raise ValueError unless a cost ratio is a finite number >= 0."""
    if not 0 <= c < math.inf:
        raise ValueError(f"cost ratio: expected a finite number >= 0, got {c!r}")

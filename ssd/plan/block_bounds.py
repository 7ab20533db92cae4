"""How much verification by block can gain over verification by token (Sun et al., arXiv 2403.10444).

With X drawn from the draft and r_i = target / draft at its token i, the mean number of accepted tokens is
    by token   sum over i of E[prod_{j<=i} min(1, r_j)]
    by block   sum over i of E[p_i],  p_i = min(1, p_{i-1} r_i),  p_0 = 1
    any rule   at most sum over i of E[min(1, prod_{j<=i} r_j)] = sum over i of (1 - TV of the two laws of i tokens)
The last needs the whole block's law in advance; among rules that see the laws along the drafted path
only, verification by block is the best (their optimality theorem).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ssd.plan.expected_tokens import check, expected_tokens


def accepted_by_token(target: Sequence[float], draft: Sequence[float], gamma: int) -> float:
    """Mean accepted tokens, token by token, when both laws are the same at every position.

    Source: arXiv 2211.17192, equation (1) less the added token. Equals alpha + ... + alpha^gamma.
    """
    return _accepted(target, draft, gamma, lambda weight, r: weight * min(1.0, r), keep_above_one=False)


def accepted_by_block(target: Sequence[float], draft: Sequence[float], gamma: int) -> float:
    """Mean accepted tokens of verification by block, both laws the same at every position.

    Source: arXiv 2403.10444, Algorithm 2: the first i tokens are kept with probability p_i.
    """
    return _accepted(target, draft, gamma, lambda weight, r: min(1.0, weight * r), keep_above_one=False)


def accepted_at_most(target: Sequence[float], draft: Sequence[float], gamma: int) -> float:
    """Mean accepted tokens no exact rule exceeds, both laws the same at every position.

    Source: arXiv 2403.10444, the bound behind its first example: keeping i tokens is a coupling of the two laws
    of i tokens, so its probability is at most 1 - their total variation.
    """
    return _accepted(target, draft, gamma, lambda weight, r: weight * r, keep_above_one=True)


def block_verification_range(first_alpha: float, alpha: float, gamma: int) -> tuple[float, float]:
    """Least and most mean emitted tokens by block, when only rates by token are known.

    Least: equation (1) of arXiv 2211.17192 with ``alpha``, since block is never worse (arXiv
    2403.10444). Most: 1 + gamma * ``first_alpha`` (rate of the first draft position), since
    the total variation of the laws of i tokens is at least that of their first token.
    """
    check(first_alpha, gamma)
    return expected_tokens(alpha, gamma), 1 + gamma * first_alpha


def _accepted(
    target: Sequence[float],
    draft: Sequence[float],
    gamma: int,
    update: Callable[[float, float], float],
    keep_above_one: bool,
) -> float:
    """Sum over i of the mean of min(1, weight_i), weights updated token by token along draws of the draft."""
    check(0.0, gamma)
    for name, law in (("target", target), ("draft", draft)):
        if any(x < 0 for x in law) or abs(sum(law) - 1) > 1e-9:
            raise ValueError(f"{name} law: expected probabilities that sum to 1, got {list(law)!r}")
    if len(target) != len(draft):
        raise ValueError(f"laws: {len(target)} target and {len(draft)} draft probabilities")
    weights, total = {1.0: 1.0}, 0.0
    for _ in range(gamma):
        following: dict[float, float] = {}
        for weight, mass in weights.items():
            for p, q in zip(target, draft, strict=True):
                if q > 0:
                    # Products met in another order differ in their last bits and should still be one entry.
                    new = round(update(weight, p / q), 14)
                    following[new] = following.get(new, 0.0) + mass * q
        weights = following
        total += sum(mass * (min(1.0, w) if keep_above_one else w) for w, mass in weights.items())
    return total

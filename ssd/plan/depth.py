"""How many levels pay, for a family of models whose sizes shrink by a constant ratio.

Level i steps below the target costs r^-i of a target pass, plus an overhead o that every pass of every
level pays, the target's included (launches, sampling, the host). Costs per token follow the serial
reduction of ``ssd.plan.insertion``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ssd.plan.expected_tokens import check
from ssd.plan.insertion import cost_per_token


@dataclass(frozen=True)
class RatioAlpha:
    """Acceptance as a function of how many times larger the verifier is: 1 - alpha = rejected * ratio^exponent.

    An empirical form, to be fitted to measured pairs of one family; alpha is clipped to [0, 1]. Source: none in print,
    a power law chosen here.
    """

    rejected: float
    exponent: float

    def __call__(self, ratio: float) -> float:
        """Acceptance of a draft by a verifier ``ratio`` times its size."""
        return min(1.0, max(0.0, 1 - self.rejected * ratio**self.exponent))

    @staticmethod
    def fit(pairs: Sequence[tuple[float, float]]) -> RatioAlpha:
        """Least squares of log(1 - alpha) on log(ratio).

        Args:
            pairs: (ratio of sizes, alpha), at least two different ratios, 0 < alpha < 1.
        """
        if len({ratio for ratio, _ in pairs}) < 2:
            raise ValueError(f"pairs: two different ratios are needed, got {list(pairs)!r}")
        for ratio, alpha in pairs:
            if ratio <= 0 or not 0 < alpha < 1:
                raise ValueError(f"pairs: ratio {ratio!r} must be > 0 and alpha {alpha!r} in (0, 1)")
        xs, ys = [math.log(r) for r, _ in pairs], [math.log(1 - a) for _, a in pairs]
        x, y = sum(xs) / len(xs), sum(ys) / len(ys)
        slope = sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / sum((a - x) ** 2 for a in xs)
        return RatioAlpha(math.exp(y - slope * x), slope)


@dataclass(frozen=True)
class DepthGain:
    """One more level: the chain of this depth against the one without its lowest level.

    Attributes:
        depth: number of draft levels.
        speedup: over AR.
        gain: speedup divided by that of the depth before; 1 for depth 0, and where the level is left idle.
    """

    depth: int
    speedup: float
    gain: float


def depth_gains(
    ratio: float, alpha: Callable[[float], float], overhead: float = 0.0, deepest: int = 8
) -> list[DepthGain]:
    """Speedup and marginal gain of every depth 0 .. ``deepest``.

    Args:
        ratio: size of a level ÷ size of the level below it, above 1.
        alpha: acceptance as a function of the ratio of sizes; a constant family uses it at ``ratio`` only.
        overhead: per pass, in passes of the target.

    Source: derived here (``cost_per_token`` applied to costs r^-i + o).
    """
    _check(ratio, overhead)
    rate = alpha(ratio)
    check(rate, 0)
    out: list[DepthGain] = []
    for depth in range(deepest + 1):
        costs = [ratio**-i + overhead for i in range(depth, -1, -1)]
        speedup = (1 + overhead) / cost_per_token(costs, [rate] * depth)
        out.append(DepthGain(depth, speedup, speedup / out[-1].speedup if out else 1.0))
    return out


def optimal_depth(ratio: float, alpha: float, overhead: float = 0.0) -> float:
    """Number of draft levels that pay, infinite when every further one does.

    A draft below the level i steps down pays iff alpha > (r^-(i+1) + o) / (r^-i + o), that is iff
    r^-i > o (1 - alpha) / (alpha - 1/r): levels pay down to the size at which the overhead weighs that much.
    Without overhead it is all (alpha > 1/r) or none. Gains without overhead still shrink: level i's share of the
    time does. Source: derived here from Corollary 3.9 of arXiv 2211.17192 applied to each edge
    (``ssd.plan.insertion.draft_below_pays``).
    """
    _check(ratio, overhead)
    check(alpha, 0)
    if alpha <= 1 / ratio:
        return 0
    if overhead == 0 or alpha == 1:
        return math.inf
    smallest = overhead * (1 - alpha) / (alpha - 1 / ratio)
    if smallest >= 1:
        return 0
    return math.ceil(-math.log(smallest) / math.log(ratio))


def _check(ratio: float, overhead: float) -> None:
    if not 1 < ratio < math.inf:
        raise ValueError(f"ratio: expected a number > 1, got {ratio!r}")
    if not 0 <= overhead < math.inf:
        raise ValueError(f"overhead: expected passes of the target >= 0, got {overhead!r}")

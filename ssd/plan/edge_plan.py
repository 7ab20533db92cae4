"""What can be chosen on an edge, and how long its block can become."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ssd.plan.acceptance import VERIFICATIONS

WINDOWS = ("at_least", "exactly", "rounds", "until_correction")


@dataclass(frozen=True)
class EdgePlan:
    """Draft length, window and verification rule of an edge, named as in a chain's configuration.

    Attributes:
        gamma: draft tokens (rounds, for the window ``rounds``) asked for per round of the verifying level.
        window: one of ``WINDOWS``; ``confidence`` reads laws, which no acceptance model predicts.
        verification: ``token`` or ``block``.
    """

    gamma: int
    window: str = "at_least"
    verification: str = "token"

    def __post_init__(self) -> None:
        if isinstance(self.gamma, bool) or not isinstance(self.gamma, int) or self.gamma < 1:
            raise ValueError(f"edge.gamma: expected an integer >= 1, got {self.gamma!r}")
        if self.window not in WINDOWS:
            raise ValueError(f"edge.window: {self.window!r} is not among those predicted, {', '.join(WINDOWS)}")
        if self.verification not in VERIFICATIONS:
            raise ValueError(f"edge.verification: {self.verification!r} is not one of {', '.join(VERIFICATIONS)}")


def longest_block(edges: Sequence[EdgePlan]) -> int:
    """Most tokens the block of the last of these edges can hold when nobody above limits it.

    W_0 = gamma_0, then W = gamma + W below (``at_least``, ``until_correction``: the last round starts with at
    most gamma - 1 tokens and adds up to W + 1), gamma (``exactly``), gamma (W + 1) (``rounds``).

    Source: derived here from the rules of ``ssd.core.windows``.
    """
    width = 0
    for k, edge in enumerate(edges):
        if k == 0 or edge.window == "exactly":
            width = edge.gamma
        elif edge.window == "rounds":
            width = edge.gamma * (width + 1)
        else:
            width = edge.gamma + width
    return width


def continues(edge: EdgePlan, limit: int | None, count: int, corrected: bool, rounds: int) -> bool:
    """Whether a block of ``count`` tokens after ``rounds`` rounds goes on (``ssd.core.windows.done``, negated).

    ``corrected``: the last round ended with a recovered token. ``limit``: most tokens the caller can use.
    """
    if limit is not None and count >= limit:
        return False
    if edge.window == "rounds":
        return rounds < edge.gamma
    if edge.window == "until_correction" and corrected:
        return False
    return count < edge.gamma

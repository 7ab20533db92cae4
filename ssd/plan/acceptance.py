"""How likely a draft token is to be accepted, as a function of what is known before it is tested.

Every model answers one question: given that all earlier tokens of the block were accepted, with which
probability is the token at draft position ``position`` accepted, when it became ``fate`` one level below?
With exact levels the mean over a level's tokens is 1 - total variation of two laws and does not depend on
what drafts below (Leviathan et al., arXiv 2211.17192, Corollary 3.6); it may still depend on the fate,
because tokens two small models agree on are easier. Under the window ``exactly`` the mean over fates is all
that counts; other windows end blocks at some fates rather than others, and then they matter for how many tokens pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self

FATES = ("draft", "recovered", "bonus", "plain")
VERIFICATIONS = ("token", "block")


class Acceptance(Protocol):
    """The acceptance of one edge.

    Attributes:
        verification: rule it was measured under, ``token`` or ``block``.
    """

    @property
    def verification(self) -> str:
        """``token`` or ``block``."""

    def at(self, position: int, fate: str) -> float:
        """Probability that draft token ``position`` (from 0) passes, all earlier ones having passed."""

    def shifted(self, delta: float) -> Self:
        """The same model with ``delta`` added to every probability, clipped to [0, 1].

        Source: none in print; the change that ``ssd.plan.sensitivity`` varies.
        """


@dataclass(frozen=True)
class Constant:
    """One rate for every token: the i.i.d. model of arXiv 2211.17192, section 3.1."""

    alpha: float
    verification: str = "token"

    def __post_init__(self) -> None:
        _check("acceptance.alpha", self.alpha)
        _check_rule(self.verification)

    def at(self, position: int, fate: str) -> float:
        """``alpha``, whatever the position and the fate."""
        return self.alpha

    def shifted(self, delta: float) -> Constant:
        """Rate ``alpha + delta``, clipped to [0, 1]."""
        return replace(self, alpha=_clip(self.alpha + delta))


@dataclass(frozen=True)
class ByPosition:
    """A conditional rate per draft position; positions beyond the last measured one keep its rate.

    Under block verification (arXiv 2403.10444) a rate is P(at least i + 1 accepted) / P(at least i
    accepted): the chance that i tokens are kept does not depend on the length of the draft, so this model
    describes that rule exactly when lengths do not depend on the tokens.
    """

    alphas: tuple[float, ...]
    verification: str = "token"

    def __post_init__(self) -> None:
        object.__setattr__(self, "alphas", tuple(self.alphas))
        if not self.alphas:
            raise ValueError("acceptance.alphas: at least one position is needed")
        for i, alpha in enumerate(self.alphas):
            _check(f"acceptance.alphas[{i}]", alpha)
        _check_rule(self.verification)

    @staticmethod
    def from_survival(shares: Sequence[float], verification: str = "token") -> ByPosition:
        """From unconditional shares: ``shares[i]`` of the rounds accepted at least i + 1 tokens.

        Raises:
            ValueError: if the shares increase or leave [0, 1].
        """
        alphas, before = [], 1.0
        for i, share in enumerate(shares):
            _check(f"acceptance.shares[{i}]", share)
            if share > before:
                raise ValueError(f"acceptance.shares[{i}]: {share!r} exceeds the share before it, {before!r}")
            alphas.append(share / before if before > 0 else 0.0)
            before = share
        return ByPosition(tuple(alphas), verification)

    def at(self, position: int, fate: str) -> float:
        """The rate of ``position``, whatever the fate."""
        return self.alphas[min(position, len(self.alphas) - 1)]

    def shifted(self, delta: float) -> ByPosition:
        """Every rate plus ``delta``, clipped to [0, 1]."""
        return replace(self, alphas=tuple(_clip(a + delta) for a in self.alphas))


@dataclass(frozen=True)
class ByFate:
    """A rate per fate one level below: accepted from the level below, recovered, bonus, or plain.

    The rates are what ``ssd.bench.fates.acceptance_by_fate`` counts. Tokens of level 0 are plain. They belong to
    the level below they were counted with: if another drafts there, the rates change and their mean does not.
    """

    draft: float
    recovered: float
    bonus: float
    plain: float
    verification: str = "token"

    def __post_init__(self) -> None:
        for fate in FATES:
            _check(f"acceptance.{fate}", getattr(self, fate))
        _check_rule(self.verification)

    def at(self, position: int, fate: str) -> float:
        """The rate of ``fate``, whatever the position."""
        if fate not in FATES:
            raise ValueError(f"fate: {fate!r} is not one of {', '.join(FATES)}")
        return float(getattr(self, fate))

    def shifted(self, delta: float) -> ByFate:
        """Every rate plus ``delta``, clipped to [0, 1]."""
        draft, recovered, bonus, plain = (_clip(getattr(self, fate) + delta) for fate in FATES)
        return ByFate(draft, recovered, bonus, plain, self.verification)


def _check(name: str, value: float) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise ValueError(f"{name}: expected a probability in [0, 1], got {value!r}")


def _check_rule(verification: str) -> None:
    if verification not in VERIFICATIONS:
        raise ValueError(f"acceptance.verification: {verification!r} is not one of {', '.join(VERIFICATIONS)}")


def _clip(value: float) -> float:
    return min(1.0, max(0.0, value))

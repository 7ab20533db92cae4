"""Drafting ahead: which outcomes of a verification are prepared for, and how often that hits.

An outcome is (number accepted, next token). How likely each number is follows from the acceptance
rates; how likely the next token is among the F best guesses is a *hit curve*. The budget of rows is
spent so that a hit is most likely; with a geometric profile and a power law of misses this is the
geometric fan-out of "Speculative Speculative Decoding" (arXiv 2603.03251).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

# (guesses, end of the round: "recovered" or "bonus") -> chance that the next token is among them
HitCurve = Callable[[int, str], float]


@dataclass(frozen=True)
class PowerMiss:
    """Misses fall as a power of the guesses: hit = 1 - (1 - first) F^-exponent.

    Attributes:
        recovered: chance that one guess is right after a rejection, in [0, 1].
        bonus: the same after everything was accepted.
        exponent: at least 0.
    """

    recovered: float
    bonus: float
    exponent: float

    def __post_init__(self) -> None:
        for name in ("recovered", "bonus"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"hit curve, {name}: {getattr(self, name)!r} is outside [0, 1]")
        if not self.exponent >= 0:
            raise ValueError(f"hit curve, exponent: expected a number >= 0, got {self.exponent!r}")

    def __call__(self, guesses: int, end: str) -> float:
        """Chance of a hit."""
        first = self.bonus if end == "bonus" else self.recovered
        return 1 - (1 - first) * guesses**-self.exponent if guesses else 0.0


@dataclass(frozen=True)
class TopShares:
    """Chances as measured: entry F - 1 is the share of next tokens among the F best guesses.

    More guesses than entries are as good as the last entry.
    """

    recovered: tuple[float, ...]
    bonus: tuple[float, ...]

    def __post_init__(self) -> None:
        for name in ("recovered", "bonus"):
            shares = getattr(self, name)
            if not shares or not all(0 <= a <= b <= 1 for a, b in zip((0.0, *shares), shares, strict=False)):
                raise ValueError(f"hit curve, {name}: {shares!r} is no rising list of shares in [0, 1]")

    def __call__(self, guesses: int, end: str) -> float:
        """Chance of a hit."""
        shares = self.bonus if end == "bonus" else self.recovered
        return shares[min(guesses, len(shares)) - 1] if guesses else 0.0


@dataclass(frozen=True)
class Ahead:
    """How the drafting level of an edge works ahead while the other level verifies.

    Attributes:
        curve: chance that the next token is among the guesses.
        budget: rows drafted ahead for each row that is verified, at least 1.
        fan_out: most guesses of the next token for one number accepted; ``None``: the budget.
        predict_pass: the drafting level first scores the draft's last token, which it has to in order
            to guess the token after a draft that was accepted whole.
        force: ``"hit"`` or ``"miss"`` decides every outcome, whatever the curve says.
    """

    curve: HitCurve
    budget: int
    fan_out: int | None = None
    predict_pass: bool = True
    force: str | None = None

    def __post_init__(self) -> None:
        for name in ("budget", "fan_out"):
            value = getattr(self, name)
            if not (name == "fan_out" and value is None) and (
                isinstance(value, bool) or not isinstance(value, int) or value < 1
            ):
                raise ValueError(f"ahead.{name}: expected an integer >= 1, got {value!r}")
        if self.force not in (None, "hit", "miss"):
            raise ValueError(f"ahead.force: {self.force!r} is neither None, 'hit' nor 'miss'")


def outcome_chances(rates: Sequence[float]) -> list[float]:
    """Chance that 0, 1, .. W tokens are accepted, given the rate of each of the W tokens.

    The rate of a token is its chance to pass given that all before it passed.
    """
    chances, reach = [], 1.0
    for rate in rates:
        chances.append(reach * (1 - rate))
        reach *= rate
    return [*chances, reach]


def allocate(ahead: Ahead, chances: Sequence[float], useful: Sequence[bool]) -> list[int]:
    """Guesses for each number accepted with the highest chance of a hit; at most ``budget`` in all.

    Exact for any curve, by dynamic programming over outcomes and rows; of equals the one with fewest rows.

    Args:
        chances: of 0 .. W accepted tokens; the last is the outcome that ends in a bonus.
        useful: whether a draft made ahead could be used after that number.
    """
    most = min(ahead.fan_out or ahead.budget, ahead.budget)
    best: list[tuple[float, list[int]]] = [(0.0, [])] * (ahead.budget + 1)  # by rows at hand
    for a, chance in enumerate(chances):
        end = "bonus" if a == len(chances) - 1 else "recovered"
        gains = [chance * ahead.curve(f, end) for f in range(most + 1)] if useful[a] and chance > 0 else [0.0]
        best = [_extended(best, gains, rows) for rows in range(ahead.budget + 1)]
    return best[-1][1]


def _extended(best: list[tuple[float, list[int]]], gains: list[float], rows: int) -> tuple[float, list[int]]:
    """The best that ``rows`` rows can do with one more outcome; ``gains`` by rows given to it."""
    values = [best[rows - f][0] + gain for f, gain in enumerate(gains[: rows + 1])]
    # Sums in another order differ in their last bits, which must not be worth a row.
    f = next(f for f, value in enumerate(values) if value >= max(values) - 1e-12)
    return values[f], [*best[rows - f][1], f]

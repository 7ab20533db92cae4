"""Which outcomes of a verification to prepare for, learnt while it runs.

An outcome is (draft tokens accepted, next token). How likely a number is follows from how often drafts
passed at each place so far; how likely a guess of the next token is, from how often a guess of its rank was
right so far. Both decide only what is computed ahead of time, never what is emitted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from ssd.plan.lookahead import outcome_chances

PRIOR_PASS = (2.0, 1.0)  # draft tokens that passed, and that did not, before any was seen
PRIOR_RANK = 0.5  # chance of the first guess before any was seen; each further one has half of what is left
PRIOR_WEIGHT = 4.0  # outcomes that the rank prior counts for


class Guess(NamedTuple):
    """One outcome, and how likely it is held to be."""

    accepted: int
    token: int
    chance: float
    rank: int


class OutcomeProfile:
    """The running profile of one edge."""

    def __init__(self) -> None:
        self._passed: defaultdict[int, list[float]] = defaultdict(lambda: list(PRIOR_PASS))
        self._ranks: dict[bool, defaultdict[int, float]] = {end: defaultdict(float) for end in (False, True)}
        self._ends = {False: 0.0, True: 0.0}

    def learn(self, drafted: int, accepted: int, rank: int | None) -> None:
        """A draft of ``drafted`` tokens ended with ``accepted``; its next token was the guess of ``rank``, or none."""
        for i in range(min(accepted + 1, drafted)):
            self._passed[i][i >= accepted] += 1
        full = accepted == drafted
        self._ends[full] += 1
        if rank is not None:
            self._ranks[full][rank] += 1

    def chances(self, drafted: int) -> list[float]:
        """Chance that 0, 1, .. ``drafted`` tokens are accepted."""
        return outcome_chances([self._passed[i][0] / sum(self._passed[i]) for i in range(drafted)])

    def share(self, rank: int, full: bool) -> float:
        """Chance that the guess of a rank is right, given whether everything was accepted."""
        prior = PRIOR_WEIGHT * PRIOR_RANK ** (rank + 1)
        return (prior + self._ranks[full][rank]) / (PRIOR_WEIGHT + self._ends[full])

    def choose(
        self, guesses: Sequence[Sequence[int]], useful: Sequence[bool], budget: int, fan_out: int
    ) -> list[Guess]:
        """At most ``budget`` outcomes, the likeliest first.

        Args:
            guesses: by number accepted, next tokens from the likeliest on; the last is of a draft accepted whole.
            useful: by number accepted, whether a draft could be used then.
            fan_out: most guesses for one number.
        """
        chances = self.chances(len(guesses) - 1)
        every = [
            Guess(a, token, chances[a] * self.share(rank, a == len(guesses) - 1), rank)
            for a, tokens in enumerate(guesses)
            if useful[a]
            for rank, token in enumerate(tokens[:fan_out])
        ]
        return sorted(every, key=lambda g: (-g.chance, g.accepted, g.rank))[:budget]

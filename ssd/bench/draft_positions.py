"""Acceptance of draft tokens by their place in the draft."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ssd.bench.acceptance import Record, ratio, rounds_of


@dataclass(frozen=True)
class PositionAcceptance:
    """Acceptance of the draft token at one place of its block, the first being 1.

    Attributes:
        position: place in the block.
        rounds: rounds with a draft of any length.
        drafted: rounds whose draft reached this place.
        tested: rounds in which this token was tested, all earlier ones having passed; None where a
            round verified its draft as a whole.
        accepted: rounds in which it passed.
    """

    position: int
    rounds: int
    drafted: int
    tested: int | None
    accepted: int

    @property
    def unconditional(self) -> float | None:
        """Accepted here / rounds with a draft."""
        return ratio(self.accepted, self.rounds)

    @property
    def conditional(self) -> float | None:
        """Accepted here / tested here, that is given that all earlier ones passed (token verification only)."""
        return None if self.tested is None else ratio(self.accepted, self.tested)


def acceptance_at(records: Iterable[Record], edge: int) -> list[PositionAcceptance]:
    """One entry per place in the block, up to the longest draft seen."""
    chosen = [entry for _, entry in rounds_of(records, edge) if entry["drafted"] > 0]
    longest = max((entry["drafted"] for entry in chosen), default=0)
    untested = any(entry["tested"] is None for entry in chosen)
    return [
        PositionAcceptance(
            position=j + 1,
            rounds=len(chosen),
            drafted=sum(entry["drafted"] > j for entry in chosen),
            tested=None if untested else sum(entry["tested"] > j for entry in chosen),
            accepted=sum(entry["accepted"] > j for entry in chosen),
        )
        for j in range(longest)
    ]

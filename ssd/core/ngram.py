"""N-gram look-up as level 0: the continuation of the latest earlier occurrence of the suffix.

Source: prompt look-up decoding (Saxena 2023); Yang et al. 2023, arXiv 2304.04487.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Ngram:
    """Proposes what followed the most recent earlier match of the longest suffix it can find.

    Attributes:
        largest, smallest: suffix lengths tried, from ``largest`` down to ``smallest``.
    """

    largest: int = 3
    smallest: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.smallest <= self.largest:
            raise ValueError(f"ngram: sizes {self.largest} down to {self.smallest} are not a range >= 1")

    def look_up(self, ids: Sequence[int], limit: int) -> list[int]:
        """At most ``limit`` tokens that followed the match; empty when no suffix occurs earlier."""
        if limit < 1:
            return []
        for size in range(min(self.largest, len(ids) - 1), self.smallest - 1, -1):
            suffix = list(ids[-size:])
            for begin in range(len(ids) - size - 1, -1, -1):
                if ids[begin + size - 1] == suffix[-1] and list(ids[begin : begin + size]) == suffix:
                    return list(ids[begin + size : begin + size + limit])
        return []

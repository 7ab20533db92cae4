"""Expected acceptance of every pair of levels at every pair of temperatures, with intervals. No torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from ssd.bench.length_bins import Bin, bin_name, bins_of
from ssd.bench.statistics import Array, Estimate, paired_bootstrap, ratio_of_totals


class Cell(NamedTuple):
    """Level ``draft`` at one temperature drafts for level ``verifier`` at another."""

    draft: int
    verifier: int
    draft_temperature: float
    verifier_temperature: float


@dataclass(frozen=True)
class OverlapTable:
    """Sums over positions of sum over the vocabulary of min(verifier, draft).

    Attributes:
        prompts: id of each row; all texts of a prompt are added up in its row.
        tasks: task of each row.
        bounds: first output position of each bin.
        counts: [P, bins] positions.
        sums: per cell, [P, bins] summed overlaps.
    """

    prompts: tuple[str, ...]
    tasks: tuple[str, ...]
    bounds: tuple[int, ...]
    counts: Array
    sums: Mapping[Cell, Array]

    @property
    def positions(self) -> int:
        """All positions of all texts."""
        return int(self.counts.sum())

    def rows(self, cell: Cell, task: str | None = None, bin_index: int | None = None) -> Array:
        """[P, 2] summed overlap and positions of each prompt, of one task or of one bin where asked for."""
        if cell not in self.sums:
            raise ValueError(f"overlaps: {cell} was not measured")
        bins = slice(None) if bin_index is None else slice(bin_index, bin_index + 1)
        chosen = [i for i, own in enumerate(self.tasks) if task in (None, own)]
        pair = np.stack([self.sums[cell][chosen, bins].sum(1), self.counts[chosen, bins].sum(1)], axis=1)
        own: Array = pair[pair[:, 1] > 0]
        return own

    def value(self, cell: Cell) -> float:
        """Mean overlap over all positions."""
        total = self.rows(cell).sum(0)
        return float(total[0] / total[1])

    def best_draft(self, draft: int, verifier: int, temperature: float) -> Cell:
        """The cell of most overlap with the verifier at ``temperature``, of equally good ones the draft's nearest.

        Raises:
            ValueError: if no such cell was measured.
        """
        tried = [c for c in self.sums if c[:2] == (draft, verifier) and c.verifier_temperature == temperature]
        if not tried:
            raise ValueError(f"overlaps: nothing was measured of {draft} drafting for {verifier} at {temperature}")
        return max(tried, key=lambda c: (self.value(c), -abs(c.draft_temperature - temperature)))

    def alpha(self, cell: Cell, task: str | None = None, bin_index: int | None = None) -> Estimate:
        """Mean overlap with its interval over prompts."""
        return paired_bootstrap(ratio_of_totals, self.rows(cell, task, bin_index))

    def difference(self, ours: Cell, theirs: Cell) -> Estimate:
        """Mean overlap of one cell minus that of another, the same prompts drawn for both."""
        pairs = np.concatenate([self.rows(ours), self.rows(theirs)], axis=1)
        return paired_bootstrap(lambda t: ratio_of_totals(t[..., :2]) - ratio_of_totals(t[..., 2:]), pairs)

    def merged(self, other: OverlapTable) -> OverlapTable:
        """The cells of both.

        Raises:
            ValueError: if they are not of the same texts.
        """
        mine, theirs = (x.prompts + x.tasks + tuple(map(str, x.bounds)) for x in (self, other))
        if mine != theirs or not np.array_equal(self.counts, other.counts):
            raise ValueError("overlaps: two tables of different texts cannot be merged")
        return OverlapTable(self.prompts, self.tasks, self.bounds, self.counts, {**other.sums, **self.sums})

    def temperatures(self, level: int) -> list[float]:
        """Every temperature of ``level`` in any cell, ascending."""
        own = {c.draft_temperature for c in self.sums if c.draft == level}
        return sorted(own | {c.verifier_temperature for c in self.sums if c.verifier == level})

    def entries(self) -> list[dict[str, Any]]:
        """Every cell as plain data: value, interval, positions."""
        return [self._entry(cell, self.alpha(cell), self.positions) for cell in sorted(self.sums)]

    def split_entries(self, cells: Iterable[Cell]) -> list[dict[str, Any]]:
        """The chosen cells by task and by bin of output positions, where there is any position."""
        found = []
        for cell in cells:
            for task in dict.fromkeys(self.tasks):
                n = int(self.rows(cell, task)[:, 1].sum())
                found.append({"task": task, **self._entry(cell, self.alpha(cell, task), n)})
            for i, positions in self.bins():
                n = int(self.counts[:, i].sum())
                if n:
                    found.append({"positions": bin_name(positions), **self._entry(cell, self.alpha(cell, None, i), n)})
        return found

    def bins(self) -> Iterator[tuple[int, Bin]]:
        """Index and bounds of every bin."""
        return enumerate(bins_of(self.bounds))

    @staticmethod
    def _entry(cell: Cell, alpha: Estimate, n: int) -> dict[str, Any]:
        return {**cell._asdict(), "alpha": alpha.value, "low": alpha.low, "high": alpha.high, "positions_n": n}


def all_cells(temperatures: Sequence[Sequence[float]]) -> list[Cell]:
    """Every pair of levels, the lower one drafting, at every pair of their temperatures."""
    return [
        Cell(a, b, s, t)
        for a, b in combinations(range(len(temperatures)), 2)
        for s in temperatures[a]
        for t in temperatures[b]
    ]

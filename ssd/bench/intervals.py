"""Intervals of acceptance numbers: conversations are resampled, their counts added up, then divided."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ssd.bench.acceptance import EdgeCounts, Record, edge_counts
from ssd.bench.fates import FATES, acceptance_by_fate
from ssd.bench.statistics import Array, Estimate, paired_bootstrap, ratio_of_totals
from ssd.bench.turns import conversation_of

METRICS: dict[str, tuple[Callable[[EdgeCounts], float | None], Callable[[EdgeCounts], float | None]]] = {
    "alpha": (lambda c: c.accepted, lambda c: c.tested),
    "alpha_overlap": (lambda c: c.overlap, lambda c: c.positions),
    "draft_acceptance_rate": (lambda c: c.accepted, lambda c: c.drafted),
    "tau": (lambda c: c.emitted, lambda c: c.rounds),
}


def edge_estimates(records: Sequence[Record], edge: int, **bootstrap: Any) -> dict[str, Estimate]:
    """alpha, alpha_overlap, draft_acceptance_rate and tau of an edge, each with its interval over prompts.

    Args:
        records: of one method.
        edge: index.
        bootstrap: ``n``, ``seed`` and ``level`` of ``paired_bootstrap``.

    Returns:
        Values equal those of ``edge_counts``; None where that is None, so an overlap that one prompt
        lacks voids ``alpha_overlap``.
    """
    counts = [edge_counts(own, edge) for own in _conversations(records)]
    edge_counts(records, edge)  # refuses mixed methods
    return {
        name: _estimate([(top(c), bottom(c)) for c in counts], ratio_of_totals, **bootstrap)
        for name, (top, bottom) in METRICS.items()
    }


def fate_estimates(records: Sequence[Record], edge: int, **bootstrap: Any) -> dict[str, Estimate]:
    """Counted alpha of the tokens tested on ``edge`` by their fate one level below, with intervals over prompts.

    All of ``FATES`` are keys. Where some resample holds no token of a fate, that fate has no interval.
    """
    rows = _fate_rows(records, edge)
    return {fate: _estimate([row[fate] for row in rows], ratio_of_totals, **bootstrap) for fate in FATES}


def fate_difference(
    records: Sequence[Record], edge: int, fate: str = "draft", other: str = "recovered", **bootstrap: Any
) -> Estimate:
    """Alpha of tokens of one fate minus alpha of those of another, both from the same resampled prompts."""
    for name in (fate, other):
        if name not in FATES:
            raise ValueError(f"fate: {name!r} is not one of {', '.join(FATES)}")
    rows = [(*row[fate], *row[other]) for row in _fate_rows(records, edge)]
    return _estimate(rows, lambda t: ratio_of_totals(t[..., :2]) - ratio_of_totals(t[..., 2:]), **bootstrap)


def _fate_rows(records: Sequence[Record], edge: int) -> list[dict[str, tuple[int, int]]]:
    """Per prompt and fate: (accepted, tested)."""
    edge_counts(records, edge)  # refuses mixed methods
    return [
        {fate: (tally.accepted, tally.tested) for fate, tally in acceptance_by_fate(own, edge).items()}
        for own in _conversations(records)
    ]


def _conversations(records: Sequence[Record]) -> list[list[Record]]:
    """Records of each conversation; a single turn is one of its own."""
    unit = conversation_of(record["prompt_id"] for record in records)
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(unit[record["prompt_id"]], []).append(record)
    return list(found.values())


def _estimate(
    rows: Sequence[tuple[float | None, ...]], ratio_fn: Callable[[Array], Array], **bootstrap: Any
) -> Estimate:
    """The bootstrap over prompts; no value at all if one prompt's count is not known."""
    if any(value is None for row in rows for value in row):
        return Estimate(None, None, None, len(rows))
    return paired_bootstrap(ratio_fn, np.array(rows, dtype=np.float64), **bootstrap)

"""Summary rows of a run's methods: the numbers that tables and ``summary.json`` share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ssd.bench.acceptance import edge_counts, edges
from ssd.bench.metrics import exact_match, pass_shares, speedup, tokens_per_second
from ssd.bench.records import group_by
from ssd.bench.summary import Row

Record = Mapping[str, Any]


def method_summary(prefix: str, records: Sequence[Record], baseline: str) -> list[Row]:
    """Rows ``prefix/method/metric`` for every method of one run, speedups over ``baseline``."""
    groups = {method: own for (method,), own in group_by(records, "method").items()}
    rows = []
    for method, own in groups.items():
        name = f"{prefix}/{method}"
        rows.append(Row(f"{name}/tokens_per_second", tokens_per_second(own), "tokens/s", n=len(own)))
        rows.append(Row.of(f"{name}/speedup", speedup(own, groups[baseline]), "x"))
        rows.append(Row.of(f"{name}/speedup_e2e", speedup(own, groups[baseline], kind="e2e"), "x"))
        rows.append(Row(f"{name}/outside_passes", pass_shares(own)["rest"], "share", n=len(own)))
        match = exact_match(own, groups[baseline])
        rows.append(Row(f"{name}/exact_match", match.share, "share", n=match.n))
        rows.extend(edge_rows(name, own))
    return rows


def edge_rows(name: str, records: Sequence[Record]) -> Iterable[Row]:
    """alpha, alpha_overlap, draft acceptance rate and tau of each edge."""
    for edge in edges(records):
        counts = edge_counts(records, edge)
        for metric in ("alpha", "alpha_overlap", "draft_acceptance_rate", "tau"):
            unit = "tokens" if metric == "tau" else "share"
            yield Row(f"{name}/edge{edge}/{metric}", getattr(counts, metric), unit, n=counts.rounds)

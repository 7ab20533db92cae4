"""Rows of ``results/cascade/summary.json``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.calibration_page import DIFFERING
from experiments.cascade_config import EXACTLY
from ssd.bench.statistics import paired_bootstrap, ratio_of_totals
from ssd.bench.summary import Row
from ssd.calibrate.cascade import (
    FALSE_ALARMS,
    alpha,
    can_reject,
    counted,
    counted_by_fate,
    difference,
    expected,
    records_of,
    same_law,
)

CHAIN = "in the chain"
FIRST = ", first draft token"
WORDS = {"draft": "accepted", "plain": "computed"}  # the fates that the figures of a report call otherwise
Records = Sequence[Mapping[str, Any]]


def pair(edge: int) -> str:
    """How rows call the levels of an edge."""
    return f"L{edge}→L{edge + 1}"


def upper_rows(records: Records, windows: Sequence[str], top: int) -> list[Row]:
    """The last edge: alone, in the chain under each window, and there by fate."""
    alone = records_of(records, "alone")  # levels of their own: the pair's only edge is 0
    rows = []
    for first in (False, True):
        rows += both_ways(f"{pair(top)}, alone{FIRST if first else ''}", alone, 0, first=first)
    for window in windows:
        own, where = records_of(records, f"{CHAIN}, {window}"), f"{pair(top)}, {CHAIN}, {window}"
        for first in (False, True):
            rows += both_ways(f"{where}{FIRST if first else ''}", own, top, alone, first)
        rows += fate_rows(own, top, where)
    return rows


def both_ways(what: str, records: Records, edge: int, alone: Records | None = None, first: bool = False) -> list[Row]:
    """Acceptance of an edge as counted, and as expected from the overlaps of the same tested tokens.

    Args:
        alone: records of the edge's two levels alone, to compare with.
        first: only the first draft token of each round.
    """
    rows = []
    for kind, count in (("alpha", counted), ("overlap", expected)):
        ours = count(records, edge, first)
        rows.append(Row.of(f"{kind} {what}", alpha(ours), "share"))
        if alone is not None:
            rows.append(Row.of(f"{kind} {what} - alone", difference(ours, count(alone, 0, first)), "share"))
    return rows


def fate_rows(records: Records, top: int, where: str) -> list[Row]:
    """Alpha by what became of a token one level below, each fate's share, and accepted below against recovered."""
    fates = counted_by_fate(records, top)
    every = counted(records, top)
    rows = []
    for own, counts in fates.items():
        fate = WORDS.get(own, own)
        rows.append(Row.of(f"alpha {where}, {fate} below", alpha(counts), "share"))
        table = [(counts[p][1], every[p][1]) for p in every]
        rows.append(Row.of(f"share of tested {where}, {fate} below", paired_bootstrap(ratio_of_totals, table), "share"))
    if {"draft", "recovered"} <= set(fates):
        gap = difference(fates["draft"], fates["recovered"])
        rows.append(Row.of(f"alpha {where}, accepted - recovered below", gap, "share"))
    return rows


def control_rows(records: Records, control: Records, top: int) -> list[Row]:
    """Under ``exactly`` the last edge accepts alike whatever drafts below: one test per alternative.

    The goal is a p-value of at least the false-alarm rate, which each test misses that often by chance. With so few
    prompts that no result could miss it there is no goal.
    """
    own = records_of(records, f"{CHAIN}, {EXACTLY}")
    ours = counted(own, top)
    rows = []
    for method in dict.fromkeys(r["method"] for r in control):
        other, edge = records_of(control, method), 0 if method == "alone" else top
        try:
            found = same_law(ours, counted(other, edge))
        except ValueError as error:
            raise ValueError(f"control {pair(top)}, {EXACTLY}: {CHAIN} - {method}: {error}") from error
        name = f"control {pair(top)}, {EXACTLY}: {CHAIN} - {method}"
        rows.append(Row(f"{name}, alpha", found.difference, "share", n=found.prompts))
        gap = difference(expected(own, top), expected(other, edge))
        rows.append(Row.of(f"{name}, overlap", gap, "share"))
        goal = FALSE_ALARMS if can_reject(found.prompts) else None
        rows.append(Row(f"{name}, p-value", found.p, "probability", n=found.prompts, goal=goal))
    return rows


def lower_rows(records: Records, alone: Records, windows: Sequence[str], edge: int) -> list[Row]:
    """A lower edge: alone, along its verifier's own text, and in the chain, there by fate if a level is below it."""
    rows = both_ways(f"{pair(edge)}, alone", alone, 0)
    for window in windows:
        own, where = records_of(records, f"{CHAIN}, {window}"), f"{pair(edge)}, {CHAIN}, {window}"
        rows += both_ways(where, own, edge, alone)
        if edge >= 1:
            rows += fate_rows(own, edge, where)
    return rows


def recovery_rows(records: Records, vector: Sequence[float | None], top: int) -> list[Row]:
    """What calibrated temperatures change on every edge, in the chain under ``exactly`` and alone.

    The first row says on how many levels they differ from equal ones; if on none, nothing was run beside these and
    it is the only row.
    """
    before, after = f"{CHAIN}, {EXACTLY}", f"{CHAIN}, {EXACTLY}, calibrated"
    differing = Row(DIFFERING, sum(t is not None for t in vector), "count")
    if not differing.value:
        return [differing]
    cases = [(before, after, edge, f"{pair(edge)}, {CHAIN}, {EXACTLY}") for edge in range(top + 1)]
    if any(r["method"] == "alone, calibrated" for r in records):
        cases.append(("alone", "alone, calibrated", 0, f"{pair(top)}, alone"))
    rows = [differing]
    for old, new, edge, where in cases:
        for kind, count in (("alpha", counted), ("overlap", expected)):
            ours, theirs = count(records_of(records, new), edge), count(records_of(records, old), edge)
            rows.append(Row.of(f"{kind} {where}, calibrated", alpha(ours), "share"))
            rows.append(Row.of(f"{kind} {where}, calibrated - equal", difference(ours, theirs), "share"))
    return rows


def figure_rows(rows: Sequence[Row], top: int) -> list[dict[str, Any]]:
    """What the figure shows: every alpha of the last edge that is no difference; in the chain unless alone."""
    prefix = f"alpha {pair(top)}, "
    chosen = [r for r in rows if r.name.startswith(prefix) and " - " not in r.name]
    names = [r.name.removeprefix(prefix).removeprefix(f"{CHAIN}, ") for r in chosen]
    return [{"name": n, "value": r.value, "low": r.low, "high": r.high} for n, r in zip(names, chosen, strict=True)]

"""Rows of ``results/calibrate/summary.json``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from analysis.calibration_page import SAME_RUN
from ssd.bench.experiment import BASELINE
from ssd.bench.intervals import edge_estimates
from ssd.bench.metrics import speedup
from ssd.bench.records import group_by
from ssd.bench.summary import Row
from ssd.calibrate.choice import Vector, edge_cells
from ssd.calibrate.overlap_table import Cell, OverlapTable

EQUAL, TOP_DOWN, JOINT = "equal", "top_down", "joint"
CALIBRATED = (TOP_DOWN, JOINT)
MARGIN = 0.005  # that a calibrated vector may lose to equal temperatures: of the speed, and of an edge's alpha


def pair_name(names: Sequence[str], cell: Cell) -> str:
    """How rows call the pair of a cell."""
    return f"{names[cell.draft]}→{names[cell.verifier]}"


def cell_rows(
    prefix: str, names: Sequence[str], vectors: Mapping[str, Vector], speeds: Mapping[str, float], table: OverlapTable
) -> list[Row]:
    """The chosen temperatures, their expected acceptance on the calibration texts, and the predicted gain."""
    rows = []
    for vector, own in vectors.items():
        for k, t in enumerate(own[:-1]):
            rows.append(Row(f"{prefix}: temperature of {names[k]}, {vector}", t, "temperature"))
        for cell in edge_cells(own):
            name = f"{prefix}: alpha {pair_name(names, cell)}, {vector}, calibration texts"
            rows.append(Row.of(name, table.alpha(cell), "share"))
    rows += best_cell_rows(prefix, names, vectors[EQUAL][-1], table)
    for vector in CALIBRATED:
        rows.append(Row(f"{prefix}: predicted speed, {vector} / equal", speeds[vector] / speeds[EQUAL], "x"))
    return rows


def best_cell_rows(prefix: str, names: Sequence[str], target: float, table: OverlapTable) -> list[Row]:
    """Per pair of levels, the verifier at the row's temperature: the draft's best temperature, and its gain in alpha.

    Best on the very texts that the gain is measured on, so that the gain is rather too large. A pair whose draft was
    tried at one temperature has no row.
    """
    rows = []
    for draft, verifier in combinations(range(len(names)), 2):
        same = Cell(draft, verifier, target, target)
        tried = [c for c in table.sums if c[:2] == same[:2] and c.verifier_temperature == target]
        if len(tried) < 2 or same not in tried:
            continue
        best = table.best_draft(draft, verifier, target)
        pair = pair_name(names, same)
        rows.append(Row(f"{prefix}: temperature of {pair}, best cell", best.draft_temperature, "temperature"))
        name = f"{prefix}: alpha {pair}, best cell - equal, calibration texts"
        rows.append(Row.of(name, table.difference(best, same), "share"))
    return rows


def held_out_rows(prefix: str, names: Sequence[str], vectors: Mapping[str, Vector], table: OverlapTable) -> list[Row]:
    """Expected acceptance along the target's texts of other prompts, calibrated against equal temperatures."""
    rows = []
    for vector, own in vectors.items():
        for cell in edge_cells(own):
            name = f"{prefix}: alpha {pair_name(names, cell)}, {vector}"
            rows.append(Row.of(name, table.alpha(cell), "share"))
    for vector in CALIBRATED:
        for cell in edge_cells(vectors[vector]):
            theirs = best_equal(table, cell, vectors[EQUAL][-1])
            name = f"{prefix}: alpha {pair_name(names, cell)}, {vector} - equal"
            rows.append(Row.of(name, table.difference(cell, theirs), "share", goal=-MARGIN))
    return rows


def best_equal(table: OverlapTable, cell: Cell, target: float) -> Cell:
    """The better, on these very texts, of the two equal settings a draft has for this verifier.

    The draft at its verifier's own temperature, or at the row's; for the edge into the target they are one.
    """
    options = [cell._replace(draft_temperature=t) for t in (cell.verifier_temperature, target)]
    return max((c for c in options if c in table.sums), key=table.value)


def speed_rows(
    prefix: str, names: Sequence[str], methods: Mapping[str, str], records: Sequence[Mapping[str, Any]]
) -> list[Row]:
    """Measured speed and counted acceptance of every vector.

    A vector that is equal temperatures shares their run: nothing is compared, so its ratio of 1 has no interval and no
    goal, and its name says so.
    """
    by = {str(method): own for (method,), own in group_by(records, "method").items()}
    ours = {vector: by[method] for vector, method in methods.items()}
    rows = []
    for vector in CALIBRATED:
        name = f"{prefix}: speed, {vector} / equal"
        if methods[vector] == methods[EQUAL]:
            rows.append(Row(f"{name}{SAME_RUN}", 1.0, "x"))
            continue
        goals = {"goal": 1 - MARGIN} if vector == JOINT else {}
        rows.append(Row.of(name, speedup(ours[vector], ours[EQUAL]), "x", **goals))
    for vector, own in ours.items():
        rows.append(Row.of(f"{prefix}: speedup over AR, {vector}", speedup(own, by[BASELINE]), "x"))
        for k in range(len(names) - 1):
            found = edge_estimates(own, k)
            for metric, unit in (("alpha", "share"), ("tau", "tokens")):
                name = f"{prefix}: {metric} {names[k]}→{names[k + 1]} in the chain, {vector}"
                rows.append(Row.of(name, found[metric], unit))
    return rows

"""docs/metrics.md and the code name the same things."""

from __future__ import annotations

import ast
import importlib
import re
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in TEXT.splitlines()
    if line.startswith("|") and not line.startswith(("|---", "| metric "))
]
DOCUMENTED = (
    "ssd/bench/metrics.py",
    "ssd/bench/acceptance.py",
    "ssd/bench/fates.py",
    "ssd/bench/length_bins.py",
    "ssd/bench/intervals.py",
    "ssd/bench/quality.py",
    "ssd/bench/evaluate_metrics.py",
    "ssd/bench/repetition.py",
    "ssd/bench/memory.py",
    "ssd/bench/statistics.py",
    "ssd/bench/draft_positions.py",
    "ssd/bench/equivalence.py",
    "ssd/bench/equivalence_measures.py",
    "ssd/certify/goodness_of_fit.py",
    "ssd/certify/transform.py",
    "analysis/rows.py",
    "analysis/divergence_rows.py",
    "analysis/evaluate_rows.py",
    "analysis/quality_rows.py",
    "analysis/frames.py",
)


def functions(path):
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_the_tables_are_whole():
    assert len(ROWS) > 40
    assert all(len(row) == 5 and all(row) for row in ROWS), [row for row in ROWS if len(row) != 5]
    names = [row[0] for row in ROWS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_every_metric_names_code_and_a_test_that_exist(row):
    source, test = (re.fullmatch(r"`([^`]+)`", cell).group(1) for cell in row[3:])
    parts = source.split(".")
    depth = max(n for n in range(1, len(parts)) if (ROOT / Path(*parts[:n])).with_suffix(".py").is_file())
    found = importlib.import_module(".".join(parts[:depth]))
    for name in parts[depth:]:
        known = is_dataclass(found) and name in {f.name for f in fields(found)}
        assert known or hasattr(found, name), source
        found = None if known else getattr(found, name)
    path, _, name = test.partition("::")
    assert name in functions(path), test


@pytest.mark.parametrize("path", DOCUMENTED)
def test_every_public_function_is_mentioned(path):
    mentioned = {part for name in re.findall(r"`([\w.]+)`", TEXT) for part in name.split(".")}
    assert {name for name in functions(path) if not name.startswith("_")} <= mentioned

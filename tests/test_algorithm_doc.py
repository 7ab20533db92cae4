"""Every lemma of docs/algorithm.md names tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "docs" / "algorithm.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`(tests/\w+\.py)::(\w+)`", TEXT)


def test_every_named_test_exists():
    assert len(NAMED) > 40
    for path, name in NAMED:
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        assert name in {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}, f"{path}::{name}"


def test_every_lemma_and_corollary_names_one():
    parts = re.split(r"\n(?=\*\*(?:Lemma|Corollary|Proof of the theorem))", TEXT)[1:]
    assert len(parts) == 10 + 3 + 1
    for part in parts:
        assert re.search(r"Checked by:\s+`tests/", part), part[:60]

"""The README's numbers: each stands in the summary it names, and a planted one is found."""

from __future__ import annotations

import json

import pytest

from experiments.readme_check import ROOT, blocks, numbers, stands_in, strangers


@pytest.mark.parametrize(
    ("number", "stands"),
    [("1.11", True), ("1.1", True), ("1.12", False), ("3.0%", True), ("3.1%", False), ("24", True), ("25", False)],
)
def test_a_number_stands_as_it_is_rounded(number, stands):
    assert stands_in(number, [1.108, 0.0298, 24]) is stands


def test_a_planted_number_is_found(tmp_path):
    rows = [{"name": "speedup", "value": 1.108, "low": 1.087, "high": 1.129, "n": 24}]
    (tmp_path / "summary.json").write_text(json.dumps({"rows": rows}))
    text = "<!-- measured: summary.json -->\n| ar | 1.11 [1.09, {}] |\n<!-- /measured -->\n"
    assert strangers(text.format("1.13"), tmp_path) == []
    assert strangers(text.format("1.31"), tmp_path) == ["1.31: not in summary.json"]


def test_names_of_levels_and_code_are_no_numbers():
    assert numbers("L0→L2 `x[3]` 0.35 ÷ T=0") == ["0.35", "0"]


def test_our_own_readme_has_no_number_without_a_source_and_blocks_to_run():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert strangers(text, ROOT) == []
    assert [language for language, _ in blocks(text)] == ["bash", "python"]

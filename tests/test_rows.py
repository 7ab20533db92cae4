"""Summary rows: their names, and values that are those of the metrics."""

from __future__ import annotations

import subprocess
import sys

import pytest

from analysis.rows import method_summary
from ssd.bench.metrics import distinct_ngrams, passes_per_token, time_to_first_token, token_latency
from ssd.bench.quality import against_baseline, against_references
from tests.simulated_runs import METHODS, simulated

CHAIN = "L0→L1→L2"


@pytest.fixture(scope="module")
def records():
    return simulated("run", 1.0, 6, 70)


@pytest.fixture(scope="module")
def rows(records):
    return {row.name: row for row in method_summary("T1", records, "ar")}


def test_every_method_has_the_same_kinds_of_rows(rows, records):
    assert len(rows) == len(method_summary("T1", records, "ar"))
    kinds = {name: {n.split("/", 2)[2] for n in rows if n.startswith(f"T1/{name}/")} for name in METHODS}
    common = {"tokens_per_second", "speedup", "speedup_e2e", "outside_passes", "exact_match", "time_to_first_token_p50"}
    common |= {f"token_latency_{q}" for q in ("p50", "p90", "p99")} | {"passes_per_token/L0"}
    common |= {f"{metric}/{place}" for metric in ("distinct_4", "ngram_acceptance") for place in ("0-64", "64-128")}
    assert kinds["ar"] == common
    against = {f"{metric}_vs_ar" for metric in ("exact_share", "bleu", "rouge_l")}
    edge = {"alpha", "alpha_overlap", "draft_acceptance_rate", "tau"}
    edges = {f"edge{k}/{metric}" for k in (0, 1) for metric in edge}
    assert kinds[CHAIN] == common | against | edges | {"passes_per_token/L1", "passes_per_token/L2"}


def test_values_are_those_of_the_metrics(rows, records):
    for method in METHODS:
        own, theirs = ([r for r in records if r["method"] == name] for name in (method, "ar"))
        name, following = f"T1/{method}", token_latency(own)
        assert rows[f"{name}/time_to_first_token_p50"].value == time_to_first_token(own).p50
        assert rows[f"{name}/time_to_first_token_p50"].n == len(own)
        assert [rows[f"{name}/token_latency_{q}"].value for q in ("p50", "p90", "p99")] == [
            following.p50, following.p90, following.p99,
        ]  # fmt: skip
        for level, passes in passes_per_token(own).items():
            assert rows[f"{name}/passes_per_token/{level}"].value == passes
        long = [r for r in own if len(r["output_ids"]) >= 64]
        assert rows[f"{name}/distinct_4/64-128"].value == distinct_ngrams(long)
        assert rows[f"{name}/ngram_acceptance/64-128"].n == sum(len(r["output_ids"]) for r in long)
        if method != "ar":
            scores = against_baseline(own, theirs)
            assert rows[f"{name}/bleu_vs_ar"].value == scores.bleu.value
            assert rows[f"{name}/bleu_vs_ar"].unit == scores.bleu.signature
            assert rows[f"{name}/rouge_l_vs_ar"].value == scores.rouge_l.value
            assert rows[f"{name}/exact_share_vs_ar"].value == scores.exact_share


def test_scores_against_references_where_they_are_given(records):
    references = {r["prompt_id"]: r["text"] for r in records if r["method"] == "ar" and r["task"] != "code"}
    references |= {r["prompt_id"]: None for r in records if r["task"] == "code"}
    made = {row.name: row for row in method_summary("x", records, "ar", references, "char")}
    assert made["x/ar/exact_share"].value == 1
    assert made["x/ar/bleu"].n == 5
    assert "tok:char" in made["x/ar/bleu"].unit
    own = [r for r in records if r["method"] == CHAIN]
    assert made[f"x/{CHAIN}/rouge_l"].value == against_references(own, references).rouge_l.value
    nothing = method_summary("x", records, "ar", dict.fromkeys(references))
    assert not [row for row in nothing if row.name.endswith(("/bleu", "/rouge_l", "/exact_share"))]


def test_importing_the_module_imports_no_torch():
    code = "import sys, analysis.rows; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)

"""What came of imposed acceptance is marked in records, run.json, report and summary, and judged by nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from bigram_chains import bigram_chain, random_logits

from ssd.bench.acceptance import acceptance_check, edge_counts
from ssd.bench.equivalence import by_key
from ssd.bench.metrics import exact_match, speedup
from ssd.bench.quality import against_baseline, against_references, bleu_difference, rouge_l_difference
from ssd.bench.records import RunFolder, check_real, read_run, record_line
from ssd.bench.summary import Row, read_summary, write_summary
from ssd.certify.target_scores import log_probabilities
from ssd.core.chain import Edge
from ssd.core.generate import generate
from ssd.core.requests import Request, Sampling
from ssd.runtime.imposed import EdgeRates, generate_imposed

PROMPTS = [(1, 2), (3, 4, 5)]
REFUSED = r"{}: the record of prompt 'p0', method 'chain' is synthetic: its drafts were accepted at imposed rates"


def lines(method, results):
    return [
        record_line("run", f"{method}-{i}", method, f"p{i}", "math", r, len(PROMPTS[i]), "a text", Sampling(0.0),
                    max_new_tokens=12, prompt_ids=PROMPTS[i])
        for i, r in enumerate(results)
    ]  # fmt: skip


@pytest.fixture(scope="module")
def made():
    """(records of AR, of a chain with imposed acceptance, of the chain itself)."""
    tables = [random_logits(seed, 8) for seed in range(2)]
    requests = [Request(p, Sampling(0.0), max_new_tokens=12) for p in PROMPTS]
    chain, ar = bigram_chain(tables, [Edge(3)]), bigram_chain(tables[1:], [])
    return (
        lines("ar", generate(ar, requests)),
        lines("chain", generate_imposed(chain, requests, [EdgeRates.of(0.5)])),
        lines("chain", generate(chain, requests)),
    )


def test_records_and_runs_say_so(made, tmp_path):
    baseline, imposed, real = made
    assert [r["synthetic"] for r in (*baseline, *imposed, *real)] == [False, False, True, True, False, False]
    for name, records, mark in (("a", imposed, True), ("b", real, False)):
        with RunFolder(tmp_path / name) as folder:
            for record in (*baseline, *records):
                folder.append(record)
        run = read_run(tmp_path / name)
        assert run.run["synthetic"] is mark
        assert [r["synthetic"] for r in run.records] == [False, False, mark, mark]


def test_records_from_before_the_mark_are_real(made, tmp_path):
    with RunFolder(tmp_path / "run") as folder:
        for record in made[2]:
            folder.append(record)
    path = tmp_path / "run" / "records.jsonl"
    text = path.read_text()
    path.write_text(text.replace(', "synthetic": false', ""))
    assert path.read_text() != text
    assert [r["synthetic"] for r in read_run(path.parent).records] == [False, False]
    path.write_text(text.replace('"synthetic": false', '"synthetic": "no"'))
    with pytest.raises(ValueError, match="synthetic: expected bool"):
        read_run(path.parent)


@pytest.mark.parametrize(
    ("what", "judge"),
    [
        ("exact match", lambda ours, theirs: exact_match(ours, theirs)),
        ("quality", lambda ours, theirs: against_baseline(ours, theirs)),
        ("quality", lambda ours, theirs: against_references(ours, {"p0": "a", "p1": "b"})),
        ("quality", lambda ours, theirs: bleu_difference(ours, theirs, {"p0": "a", "p1": "b"})),
        ("quality", lambda ours, theirs: rouge_l_difference(ours, theirs, {"p0": "a", "p1": "b"})),
        ("equivalence", lambda ours, theirs: by_key(ours)),
        ("acceptance check", lambda ours, theirs: acceptance_check(ours, 0)),
    ],
)
def test_nothing_judges_them(made, what, judge):
    baseline, imposed, real = made
    with pytest.raises(ValueError, match=REFUSED.format(what)):
        judge(imposed, baseline)
    judge(real, baseline)


def test_the_certificate_does_not_score_them(made, tmp_path):
    with RunFolder(tmp_path / "run") as folder:
        for record in made[1]:
            folder.append(record)
    with pytest.raises(ValueError, match=REFUSED.format("log-probabilities")):
        log_probabilities(read_run(tmp_path / "run"), None, None)


def test_times_and_counts_are_still_told(made):
    baseline, imposed, _ = made
    assert speedup(imposed, baseline).value is not None
    assert edge_counts(imposed, 0).rounds > 0
    check_real(baseline, "anything")


def test_the_report_marks_them_and_has_no_quality(tmp_path):
    pytest.importorskip("matplotlib")
    from analysis.report import build
    from tests.simulated_runs import config, simulated, write_run

    real = simulated("real", 0.0, 3, 12)
    chains = {"chain", "recursive", "triple"} & {r["method"] for r in real} or {real[-1]["method"]}
    made_up = [r | {"run_id": "made-up", "synthetic": r["method"] in chains} for r in real]
    root = tmp_path / "results"
    for name, records in (("real", real), ("made-up", made_up)):
        write_run(root / name, records, config(name, 0.0, 12, "float32"))
    sections = {s.setting.run.run["run_id"]: s for s in build(root).sections}
    said = {name: any(m.startswith("synthetic: ") for m in s.marks) for name, s in sections.items()}
    assert said == {"real": False, "made-up": True}
    tables = {name: {t.title for t in s.tables} for name, s in sections.items()}
    assert "Quality" in tables["real"]
    assert not {"Quality", "Repetition"} & tables["made-up"]
    assert build(root).title != "Acceptance was imposed: times of made-up outputs"
    only = tmp_path / "only"
    write_run(only / "made-up", made_up, config("made-up", 0.0, 12, "float32"))
    assert build(only).title == "Acceptance was imposed: times of made-up outputs"


def test_a_summary_keeps_the_mark(tmp_path):
    path = Path(tmp_path / "summary.json")
    for mark in (True, False):
        write_summary(path, "run.json", [Row("speedup", 2.0, "x")], synthetic=mark)
        assert read_summary(path).synthetic is mark
        assert ("synthetic" in path.read_text()) is mark

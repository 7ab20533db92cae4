"""What a report says about texts: chosen metrics, tokenizers, and where outputs leave AR's."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("matplotlib")
from analysis.quality_rows import bleu_tokenizer
from analysis.report import build
from experiments import report as entry
from ssd.bench.evaluate_metrics import EvaluateMetric
from ssd.bench.json_files import write_json
from ssd.bench.records import Run
from tests.simulated_runs import METHODS, config, simulated, write_run
from tests.test_evaluate_metrics import SCRIPT

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def no_figures(monkeypatch):
    monkeypatch.setattr("analysis.report.blocks", lambda *settings: [])


@pytest.fixture
def folder(tmp_path):
    return write_run(
        tmp_path / "raw" / "m" / "run", simulated("run", 0.0, 2, 8), config("m", 0.0, 8, "float32")
    )  # fmt: skip


def tables(folder, *arguments, **options):
    (section,) = build(folder.parent, *arguments, **options).sections
    return {table.title: table for table in section.tables}


@pytest.mark.parametrize(
    ("direction", "tokenizer"),
    [("en-zh_CN", "zh"), ("en-ja", "char"), ("en-ko", "char"), ("en-th", "char"), ("zh_CN-en", "13a"), ("de-en", "13a"),
     ("main", "13a"), (None, "13a")],
)  # fmt: skip
def test_the_tokenizer_follows_the_target_language(direction, tokenizer):
    assert bleu_tokenizer(Run({"config": {"prompts": {"config": direction}}}, [])) == tokenizer


def test_the_tokenizer_is_told_and_a_run_need_not_tell_its_prompts(folder):
    assert bleu_tokenizer(Run({}, [])) == "13a"
    told = config("m", 0.0, 8, "float32") | {"prompts": {"name": "docs_translation", "config": "en-zh_CN"}}
    other = write_run(folder.parent.parent / "zh" / "run", simulated("run", 0.0, 2, 8), told)
    assert "tok:zh" in tables(other)["Quality"].note
    assert "tok:13a" in tables(folder)["Quality"].note


def parting(method, gap, **changes):
    told = {"prompt_id": "math-02", "method": method, "position": 5, "ours": 7, "theirs": 9, "gap": gap}
    return told | {"epsilon": 0.25} | changes


def test_first_divergences_and_their_verdicts(folder):
    assert "First divergence" not in tables(folder)
    apart = [parting("L0→L2", 0.5), parting("L1→L2", 0.51), parting("L0→L1→L2", None, theirs=-1)]
    write_json(folder / "identity.json", {"baseline": "ar", "partings": apart})
    table = tables(folder)["First divergence"]
    assert [row["verdict"] for row in table.rows] == ["tie", "structural", "structural"]
    assert table.rows[0] == {
        "method": "L0→L2", "prompt_id": "math-02", "position": 5, "gap": 0.5, "epsilon": 0.25, "verdict": "tie",
    }  # fmt: skip
    assert table.note.startswith("1 ties, 2 structural.")
    write_json(folder / "identity.json", {"baseline": "ar", "partings": []})
    assert "First divergence" not in tables(folder)


def test_a_broken_file_of_divergences_is_a_problem_of_its_run(folder):
    write_json(folder / "identity.json", {"baseline": "ar", "partings": [{"method": "L0→L2"}]})
    report = build(folder.parent)
    assert report.sections == []
    ((where, reason),) = report.problems
    assert where == "run"
    assert reason == "cannot be reported: run/identity.json: not a list of first differences (KeyError: 'gap')"


def test_chosen_metrics_stand_beside_the_quality(folder):
    def compute(predictions, references):
        if predictions == references:
            raise RuntimeError("same")
        return {"share": 0.5, "each": [1.0] * len(predictions)}

    references = {r["prompt_id"]: "w1 w2" for r in simulated("run", 0.0, 2, 8)}
    metric = EvaluateMetric("/somewhere/half.py", SimpleNamespace(compute=compute))
    found = tables(folder, lambda run: references, metrics=[metric])
    assert list(found)[:2] == ["Quality", "Quality by chosen metrics"]
    table = found["Quality by chosen metrics"]
    assert {(r["metric"], r["score"], r["value"]) for r in table.rows} == {("half", "share", 0.5)}
    assert len([r for r in table.rows if r["against"] == "reference"]) == 2 * len(METHODS)  # by task
    assert [r["method"] for r in table.rows if r["against"] == "ar"] == ["L0→L2"]  # the others' texts are AR's
    assert "against ar: evaluate metric '/somewhere/half.py': same" in table.note
    assert "Quality by chosen metrics" not in tables(folder)


@pytest.mark.timeout(120)
def test_a_script_is_a_metric_and_an_absent_hub_metric_is_one_error(folder, tmp_path):
    pytest.importorskip("evaluate")
    script = tmp_path / "same_length.py"
    script.write_text(SCRIPT)
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "experiments.report", "experiment=m", f"results_dir={tmp_path}"]

    def report(metrics):
        began = time.perf_counter()
        done = subprocess.run(
            [*command, f"metrics={metrics}"], env={**os.environ, **offline}, capture_output=True, text=True, check=False
        )
        return done, time.perf_counter() - began

    done, seconds = report("sari")
    assert done.returncode == 2
    assert done.stderr.startswith("error: metrics: evaluate metric 'sari': not in the local cache")
    assert len(done.stderr.splitlines()) == 1
    assert seconds < 60  # most of it imports
    assert not (tmp_path / "m" / "report.html").exists()
    done, _ = report(script)
    assert done.returncode == 0, done.stderr
    assert "same_length" in (tmp_path / "m" / "report.html").read_text(encoding="utf-8")


def test_an_absent_script_is_a_wrong_argument(folder, tmp_path, capsys):
    assert entry.main(["experiment=m", f"results_dir={tmp_path}", "metrics=./absent.py"]) == 2
    assert "error: metrics: evaluate metric './absent.py': there is no such file" in capsys.readouterr().err

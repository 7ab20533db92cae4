"""Metrics of the evaluate library: a local script works without network, a hub name fails at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from ssd.bench import evaluate_metrics
from ssd.bench.evaluate_metrics import evaluate_all, load_metric

SCRIPT = """\
import datasets
import evaluate


class SameLength(evaluate.Metric):
    def _info(self):
        features = datasets.Features({"predictions": datasets.Value("string"), "references": datasets.Value("string")})
        return evaluate.MetricInfo(description="", citation="", inputs_description="", features=features)

    def _compute(self, predictions, references):
        return {"share": sum(len(p) == len(r) for p, r in zip(predictions, references)) / len(predictions)}
"""
PROGRAM = """\
import json, sys, time
from ssd.bench.evaluate_metrics import evaluate_all, load_metric
import evaluate  # seconds that are not the look-up's
found = evaluate_all(sys.argv[1:3], ["ab", "c"], ["xy", "long"])
began = time.perf_counter()
try:
    load_metric("bleu")
except ValueError as error:
    print(json.dumps([list(found.values()), str(error), time.perf_counter() - began]))
"""


def test_a_local_script_works_offline_and_a_hub_name_does_not_hang(tmp_path):
    """B41: the library itself says after many tries that the metric does not exist."""
    pytest.importorskip("evaluate")
    folder = tmp_path / "same_length"
    folder.mkdir()
    (folder / "same_length.py").write_text(SCRIPT)
    offline = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path / "cache"), "NO_PROXY": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder), str(folder / "same_length.py")],
        env={**os.environ, **offline}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    results, message, seconds = json.loads(done.stdout.splitlines()[-1])
    assert results == [{"share": 0.5}, {"share": 0.5}]
    assert "evaluate metric 'bleu': not in the local cache, and the hub cannot be reached" in message
    assert seconds < 8


class Library:
    """Stands in for ``evaluate``: holds what its cache and its hub have."""

    def __init__(self, cached=(), hub=(), offline=False):
        self.config = SimpleNamespace(HF_EVALUATE_OFFLINE=offline)
        self.cached, self.hub, self.asked = cached, hub, []

    def load(self, source, keep_in_memory):
        self.asked.append((source, self.config.HF_EVALUATE_OFFLINE))
        if source in self.cached or (source in self.hub and not self.config.HF_EVALUATE_OFFLINE):
            return SimpleNamespace(compute=lambda predictions, references: {"n": len(predictions)})
        raise FileNotFoundError(f"Couldn't find {source}\nadvice")


def use(monkeypatch, library, unreachable="no route"):
    monkeypatch.setitem(sys.modules, "evaluate", library)
    if not library.config.HF_EVALUATE_OFFLINE:
        monkeypatch.setattr(evaluate_metrics, "_unreachable", lambda config: unreachable)
    return library


def test_a_cached_hub_metric_works_offline(monkeypatch):
    library = use(monkeypatch, Library(cached=("rouge",)))
    assert evaluate_all(["rouge"], ["a"], ["b"]) == {"rouge": {"n": 1}}
    assert library.asked == [("rouge", True)]  # only the cache was asked
    assert library.config.HF_EVALUATE_OFFLINE is False
    assert load_metric("rouge").compute([], []) is None


def test_errors_name_metric_and_reason(monkeypatch, tmp_path):
    use(monkeypatch, Library(offline=True))
    with pytest.raises(ValueError, match=r"metric 'x': not in the local cache.*offline: HF_EVALUATE_OFFLINE is set"):
        load_metric("x")
    use(monkeypatch, Library(hub=("rouge",)), unreachable=None)
    with pytest.raises(ValueError, match=r"metric 'x': the hub did not deliver it: Couldn't find x$"):
        load_metric("x")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"the folder has no empty\.py"):
        load_metric(str(tmp_path / "empty"))
    with pytest.raises(ValueError, match="no such file or folder"):
        load_metric("./missing.py")
    script = tmp_path / "bad.py"
    script.write_text("raise")
    with pytest.raises(ValueError, match=r"cannot load .*bad\.py: Couldn't find"):
        load_metric(str(script))
    monkeypatch.setitem(sys.modules, "evaluate", None)
    with pytest.raises(ModuleNotFoundError, match="pip install evaluate"):
        load_metric("rouge")


def test_lists_are_checked_before_anything_is_loaded(monkeypatch):
    """B42: unequal lists are an error of ours."""
    library = use(monkeypatch, Library(hub=("rouge",)), unreachable=None)
    with pytest.raises(ValueError, match="2 hypotheses but 1 references"):
        evaluate_all(["rouge"], ["a", "b"], ["a"])
    assert library.asked == []
    metric = load_metric("rouge")
    with pytest.raises(ValueError, match="expected a text, got list"):
        metric.compute(["a"], [["a"]])
    metric.module.compute = lambda **given: nullcontext()["x"]
    with pytest.raises(ValueError, match="metric 'rouge': "):
        metric.compute(["a"], ["a"])


def test_importing_the_module_imports_neither_evaluate_nor_torch():
    code = "import sys, ssd.bench.evaluate_metrics; assert not {'evaluate', 'torch', 'datasets'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)

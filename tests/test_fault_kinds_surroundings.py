"""Neighbours of reported faults around the decoding: failing jobs, values of the command line, no network, pages."""

from __future__ import annotations

import json
import socket
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.errors import HydraException

from experiments import job as job_module
from experiments import report, schema
from experiments.run import CONF, dotted
from experiments.schema import check_options, plain_config, run_spec
from ssd.bench.json_files import dumps
from ssd.bench.loading import Loader
from ssd.bench.method_spec import EdgeSpec
from ssd.bench.reading import read_run, read_runs
from ssd.bench.spec import RunSpec, parse
from ssd.bench.suite import build_all
from tests.entry_point import TINY, caller, folders


class Odd(BaseException):
    """No ``Exception``, as some libraries raise to get past handlers."""


class MuteError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


# The name of a file that is no UTF-8 arrives in error messages like this.
ERRORS: dict[float, BaseException] = {
    0.25: Odd("x"),
    0.5: OSError("no such file: caf\udce9.json"),
    0.75: SystemExit(0),
    1.0: MuteError(),
    1.25: BaseExceptionGroup("two", [Odd("a"), ValueError("b")]),
}


def breaking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs at a temperature of ``ERRORS`` raise that error after their first output."""
    real = job_module.run_pass

    def run_pass(spec: RunSpec, folder: Path, loader: Loader, progress: Any, **more: Any) -> Any:
        def step(name: str, done: int, total: int) -> None:
            if done == 1 and spec.sampling.temperature in ERRORS:
                raise ERRORS[spec.sampling.temperature]
            progress(name, done, total)

        return real(spec, folder, loader, step, **more)

    monkeypatch.setattr(job_module, "run_pass", run_pass)


def test_b36_no_kind_of_error_hides_another_job(tmp_path, monkeypatch, capsys):
    """Errors that no ``except Exception`` catches, that say nothing, or that no file takes as they are."""
    run = caller(tmp_path, monkeypatch, capsys)
    temperatures = [0.0, *ERRORS, 1.5]
    sweep = f"sampling.temperature={','.join(map(str, temperatures))}"
    with monkeypatch.context() as patch:
        breaking(patch)
        status, out = run("-m", "chain=tiny_pair", "dataset.limit=1", "max_new_tokens=2", "tracker=none", sweep)
    assert status == 1
    good, problems = read_runs(tmp_path / "raw")
    assert sorted(r.run["config"]["sampling"]["temperature"] for r in good) == [0.0, 1.5]
    assert len(problems) == len(ERRORS)
    assert f"{len(temperatures)} jobs: " in out
    assert "2 complete" in out
    assert f"{len(ERRORS)} failed" in out
    for temperature, error in ERRORS.items():
        folder = folders(tmp_path)[temperature]
        failed = read_run(folder).run
        assert (failed["status"], failed["records"]) == ("failed", 1)
        assert type(error).__name__ in failed["error"]
        trace = (folder / "error.txt").read_text("utf-8")
        assert type(error).__name__ in trace
        assert "Traceback" in trace
    assert r"caf\udce9.json" in read_run(folders(tmp_path)[0.5]).run["error"]


@pytest.fixture
def composing():
    schema.register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        yield


@pytest.mark.usefixtures("composing")
@pytest.mark.parametrize(
    ("written", "field"),
    [
        ("sampling.temperature=nan", "sampling.temperature: nan"),
        ("sampling.temperature=inf", "sampling.temperature: inf"),
        ("sampling.temperature=-1e-6", "sampling.temperature: -1e-06"),
        ("sampling.temperature=true", "sampling.temperature"),
        ("sampling.temperature=null", "sampling.temperature"),
        ("sampling.top_p=0", "sampling.top_p: 0.0"),
        ("sampling.top_k=1e3", "sampling.top_k"),
        ("sampling.min_p=1.5", "sampling.min_p: 1.5"),
        ("sampling.repetition_penalty=0", "sampling.repetition_penalty: 0.0"),
        ("sampling.min_new_tokens=-1", "sampling.min_new_tokens"),
        ("sampling.bad_words_ids=[[]]", "sampling.bad_words_ids"),
        ("sampling.logit_bias=[[5]]", "sampling.logit_bias[0]: expected 2 entries"),
        ("sampling.logit_bias=[[5,nan]]", "sampling.logit_bias"),
        ("max_new_tokens=0", "max_new_tokens: expected at least 1, got 0"),
        ("max_new_tokens=true", "max_new_tokens"),
        ("samples=0", "samples"),
        ("batch=-1", "batch"),
        ("seed=-1", "seed: -1"),
        ("seed=18446744073709551616", "seed: 18446744073709551616"),
        ("target_dtype=int4", "target_dtype: 'int4'"),
        ("stop=['']", "stop: an empty string"),
        ("schedule=fast", "schedule: 'fast'"),
        ("tracker.mode=1e-6", "tracker.mode: '1e-06'"),
        ("chain.levels.0.temperature=-1", "chain.levels[0]: level sampling.temperature: -1.0"),
        ("chain.levels.1.temperature=0.5", "chain.levels[1]"),
        ("chain.levels.0.device=gpu", "chain.levels[0]: device: 'gpu'"),
        ("chain.edges.0.gamma=0", "chain.edges[0]: edge.gamma: expected an integer >= 1, got 0"),
        ("chain.edges.0.window=confidence", "chain.edges[0]: edge.window_value: None"),
        ("chain.edges.0.verification=tree", "chain.edges[0]: edge.verification: 'tree'"),
        ("+methods.x={kind: transformers_assisted, levels: [ngram, -1], gamma: 2}", "methods.x.levels"),
        ("+methods.x={kind: transformers_lookup, gamma: 0}", "gamma: expected an integer >= 1, got 0"),
        ("+methods.x={levels: [0, 1], edges: [{gamma: -2}]}", "methods.x: chain.edges[0]: edge.gamma"),
    ],
)
def test_b38_a_wrong_value_is_named_before_weights_are_read(written, field, monkeypatch):
    monkeypatch.setattr("ssd.bench.loading.load_module", lambda *_: pytest.fail("weights were read"))

    def built() -> None:
        data = plain_config(compose("config", overrides=["chain=tiny_pair", "~methods.recursive", dotted(written)]))
        check_options(data)
        build_all(run_spec(data), Loader())

    with pytest.raises((ValueError, HydraException)) as caught:
        built()
    assert field in f"{caught.value} {caught.value.__cause__}"


@pytest.mark.usefixtures("composing")
def test_b38_a_method_is_added_on_the_command_line():
    written = (
        "+methods.x={levels: [0, -1], edges: [{gamma: 4}]}",
        "+methods.y.kind=transformers_ar",
        "++methods.x.edges=[{gamma: 2}]",
    )
    spec = run_spec(plain_config(compose("config", overrides=["chain=tiny_pair", *map(dotted, written)])))
    assert list(spec.methods) == ["ar", "recursive", "x", "y"]
    assert (spec.methods["x"].levels, spec.methods["x"].edges) == ((0, -1), (EdgeSpec(2),))
    assert spec.methods["y"].kind == "transformers_ar"


@pytest.mark.usefixtures("composing")
def test_b38_lists_of_lists_arrive_and_come_back_from_a_record():
    written = (
        "sampling.logit_bias=[[5,-1.5],[7,1e-6]]",
        "sampling.bad_words_ids=[[1,2],[3]]",
        "sampling.min_new_tokens=3",
    )
    spec = run_spec(plain_config(compose("config", overrides=list(written))))
    assert spec.sampling.logit_bias == ((5, -1.5), (7, 1e-6))
    assert spec.sampling.bad_words_ids == ((1, 2), (3,))
    assert parse(RunSpec, json.loads(dumps(asdict(spec)))) == spec


def test_b41_a_local_set_needs_no_network_from_run_to_page(tmp_path, monkeypatch, capsys):
    """Three examples in a file with a space in its path; every attempt to connect is an error."""
    attempts: list[Any] = []

    def refuse(*address: Any) -> None:
        attempts.append(address)
        raise OSError("no network")

    monkeypatch.setattr(socket.socket, "connect", lambda self, address: refuse(address))
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    path = tmp_path / "my data" / "test.jsonl"
    path.parent.mkdir()
    rows = [{"question": f"{n} + {n}?", "answer": f"Twice {n}.\n#### {2 * n}"} for n in (1, 2, 3)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = caller(tmp_path, monkeypatch, capsys)
    chosen = [f"dataset.path={path}", "dataset=gsm8k", "dataset.limit=3"]
    status, out = run(*[x for x in TINY if not x.startswith("dataset")], *chosen)
    assert status == 0, out
    assert report.main(["experiment=runs", f"results_dir={tmp_path}"]) == 0
    page = (tmp_path / "runs" / "report.html").read_text("utf-8")
    assert "BLEU" in page
    assert "nrefs:1|" in page
    assert not attempts


def test_b44_a_page_without_a_display_and_with_a_backend_that_needs_one(tmp_path, monkeypatch, capsys):
    """One good run, one without a record, one that failed and damaged ones: all are on the page, and it says which."""
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.setenv("MPLBACKEND", "TkAgg")
    status, _ = caller(tmp_path, monkeypatch, capsys)(*TINY)
    assert status == 0
    raw = tmp_path / "raw" / "runs"
    (good,) = folders(tmp_path).values()
    state = json.loads((good / "run.json").read_text())
    for name, changes in {"failed": {"status": "failed", "error": "<b>boom</b>"}, "bare": {"records": 0}}.items():
        (raw / name).mkdir()
        (raw / name / "run.json").write_text(json.dumps(state | changes | {"run_id": name}))
        (raw / name / "records.jsonl").write_text("")
    lines = (good / "records.jsonl").read_text().splitlines()
    for name, text in {"nulls": "\0" * 40, "shape": json.dumps(json.loads(lines[0]) | {"rounds": [3]})}.items():
        (raw / name).mkdir()
        (raw / name / "run.json").write_text(json.dumps(state | {"records": 1}))
        (raw / name / "records.jsonl").write_text(text + "\n")
    (raw / "empty").mkdir()
    assert report.main(["experiment=runs", f"results_dir={tmp_path}"]) == 0
    page = (tmp_path / "runs" / "report.html").read_text("utf-8")
    printed = capsys.readouterr().err
    for name in ("failed", "bare", "nulls", "shape", "empty"):
        assert f"not reported: {name}" in printed
        assert name in page
    assert "<b>boom</b>" not in page
    assert page.count("<svg") > 0

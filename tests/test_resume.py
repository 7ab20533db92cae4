"""A run that was killed or failed goes on at the group of requests in flight, as if nothing had happened."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ssd.bench import records as records_module
from ssd.bench.byte_tokenizer import ByteTokenizer
from ssd.bench.environment import BusyMeter
from ssd.bench.experiment import run_pass
from ssd.bench.json_files import read_json, write_json
from ssd.bench.loading import Loader, load_chain
from ssd.bench.method_spec import MethodSpec
from ssd.bench.prompts import bundled, encode
from ssd.bench.records import RunFolder, read_run
from ssd.bench.runner import whole_groups
from ssd.bench.spec import ChainSpec, LevelSpec, PromptSpec, RunSpec, read_chain
from ssd.core.generate import generate
from ssd.core.requests import Request, Sampling
from tests.scripted_records import record

SPEC = RunSpec(
    "tiny",
    read_chain("tiny_pair"),
    {"ar": MethodSpec(levels=(-1,)), "pair": MethodSpec(), "transformers": MethodSpec("transformers_ar")},
    PromptSpec(limit=3),
    Sampling(1.0),
    max_new_tokens=8,
    samples=2,
)


class Killed(BaseException):
    """Stands for the end of the process."""


def share(value: float) -> BusyMeter:
    """A meter that finds this share of a machine of one core busy."""
    machine = iter([(0.0, 1), (value + 1.0, 1)])
    return BusyMeter(machine.__next__, iter([0.0, 1.0]).__next__, iter([0.0, 1.0]).__next__)


def begun(path: Path, prompts=("p0", "p1"), status="running", tail=b"", **more) -> Path:
    """A run that did not complete."""
    with RunFolder(path, meter=share(0.0)) as folder:
        for prompt in prompts:
            folder.append(record(prompt))
    write_json(path / "run.json", read_json(path / "run.json") | {"status": status, "finished": None, **more})
    with (path / "records.jsonl").open("ab") as file:
        file.write(tail)
    return path


def test_whole_records_stay_and_a_half_written_line_goes(tmp_path):
    path = begun(tmp_path / "r", tail=b'{"run_id": "run", "batch')
    with RunFolder(path, resume=True, meter=share(0.0)) as folder:
        assert [r["prompt_id"] for r in folder.kept] == ["p0", "p1"]
        assert read_run(path).run["status"] == "running"
        folder.append(record("p2"))
    run = read_run(path)
    assert run.is_complete
    assert run.notes == []
    assert run.records == [record("p0"), record("p1"), record("p2")]
    (entry,) = run.run["resumed"]
    assert (entry["status"], entry["kept"], entry["dropped"]) == ("running", 2, 0)


def test_records_that_are_not_kept_leave_the_file(tmp_path):
    path = begun(tmp_path / "r", status="failed", error="RuntimeError: out of memory")
    with RunFolder(path, resume=True, meter=share(0.0)) as folder:
        folder.keep(folder.kept[:1])
        assert read_run(path).records == [record("p0")]
    run = read_run(path).run
    assert (run["records"], run["error"], run["status"]) == (1, None, "complete")
    assert run["resumed"][0]["error"] == "RuntimeError: out of memory"
    assert (run["resumed"][0]["kept"], run["resumed"][0]["dropped"]) == (1, 1)


def test_what_changed_of_code_and_libraries_is_noted_once(tmp_path, monkeypatch):
    path = begun(tmp_path / "r")
    first = read_run(path).run
    monkeypatch.setattr(records_module, "git_state", lambda root: {"commit": "abc", "dirty": False})
    monkeypatch.setattr(records_module, "versions", lambda: first["versions"] | {"torch": "9.9"})
    for _ in range(2):
        RunFolder(path, resume=True, meter=share(0.0)).fail("again")
    run = read_run(path).run
    assert (run["git"], run["versions"], run["started"]) == (first["git"], first["versions"], first["started"])
    assert run["resumed"][0]["git"] == {"commit": "abc", "dirty": False}
    assert run["resumed"][0]["versions"] == {"torch": "9.9"}
    assert not {"git", "versions"} & set(run["resumed"][1])


def test_the_busiest_attempt_marks_the_run(tmp_path):
    path = tmp_path / "r"
    RunFolder(path, meter=share(0.5)).fail("first")
    assert read_run(path).run["busy_elsewhere"] == 0.5
    RunFolder(path, resume=True, meter=share(0.0)).finish()
    run = read_run(path).run
    assert (run["busy_elsewhere"], run["busy"]) == (0.5, True)


def test_what_cannot_be_resumed_is_left_as_it_is(tmp_path):
    path = begun(tmp_path / "r", status="complete", records=2)
    with pytest.raises(ValueError, match="the run is complete"):
        RunFolder(path, resume=True)
    assert read_run(path).is_complete
    broken = begun(tmp_path / "b")
    text = (broken / "records.jsonl").read_bytes()
    (broken / "records.jsonl").write_bytes(text[:40] + b"\n" + text)
    with pytest.raises(ValueError, match=r"records.jsonl: line 1"):
        RunFolder(broken, resume=True)
    assert (broken / "records.jsonl").read_bytes() == text[:40] + b"\n" + text


def test_nothing_to_resume_is_a_new_run(tmp_path):
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "records.jsonl").write_bytes(b'{"half')  # killed before run.json was there
    for path in (tmp_path / "r", tmp_path / "new"):
        with RunFolder(path, resume=True, meter=share(0.0)) as folder:
            assert folder.kept == []
            folder.append(record("p0"))
        assert read_run(path).run["resumed"] == []
        assert len(read_run(path).records) == 1
    begun(tmp_path / "lost").joinpath("records.jsonl").unlink()
    with RunFolder(tmp_path / "lost", resume=True, meter=share(0.0)) as folder:
        assert folder.kept == []


def key(r: dict) -> tuple:
    return r["method"], r["prompt_id"], r["sample"]


@pytest.mark.parametrize(
    ("batch", "finished", "expected"),
    [(1, 7, 6), (1, 6, 6), (1, 2, 0), (2, 6, 6), (2, 9, 6), (3, 6, 0), (4, 18, 18), (4, 17, 12)],
)
def test_only_groups_that_all_methods_finished_are_kept(batch, finished, expected):
    """3 prompts x 2 samples x 3 methods: a group holds ``batch`` requests, the last one what is left."""
    spec, prompts = replace(SPEC, batch=batch), bundled("measure", limit=3)
    requests = [(p.id, sample) for p in prompts for sample in range(2)]
    groups = [requests[i : i + batch] for i in range(0, 6, batch)]
    lines = [record(p, method, sample=s) for group in groups for method in spec.methods for p, s in group]
    assert [key(r) for r in whole_groups(spec, prompts, lines[:finished])] == [key(r) for r in lines[:expected]]


def stop_after(count: int):
    def progress(name: str, done: int, total: int) -> None:
        if done == count:
            raise Killed

    return progress


def ignore(name: str, done: int, total: int) -> None:
    pass


@pytest.mark.parametrize(("batch", "stops"), [(1, (7, 11)), (2, (4,))])
def test_an_interrupted_run_ends_as_an_uninterrupted_one(tmp_path, batch, stops):
    spec, loader = replace(SPEC, batch=batch), Loader()
    whole = run_pass(spec, tmp_path / "whole", loader, ignore)
    for count in stops:
        with pytest.raises(Killed):
            run_pass(spec, tmp_path / "parts", loader, stop_after(count), resume=True)
    seen: list[int] = []
    done = run_pass(spec, tmp_path / "parts", loader, lambda name, n, total: seen.append(n), resume=True)
    assert seen[0] >= 1  # the bar begins where the run does
    assert [key(r) for r in done.records] == [key(r) for r in whole.records]
    assert [r["output_ids"] for r in done.records] == [r["output_ids"] for r in whole.records]
    assert [r["batch_id"] for r in done.records] == [r["batch_id"] for r in whole.records]
    assert len(done.run["resumed"]) == len(stops)
    assert sum(entry["dropped"] for entry in done.run["resumed"]) > 0


def test_other_prompts_or_weights_are_not_mixed_in(tmp_path):
    loader = Loader()
    with pytest.raises(Killed):
        run_pass(SPEC, tmp_path / "r", loader, stop_after(4), resume=True)
    path = tmp_path / "r" / "run.json"
    run = read_json(path)
    write_json(path, run | {"data": run["data"] | {"sha256": "00"}})
    with pytest.raises(ValueError, match=r"data: changed since this run began .*'sha256': '00'"):
        run_pass(SPEC, tmp_path / "r", loader, ignore, resume=True)
    assert len(read_run(tmp_path / "r").records) == 4
    assert read_run(tmp_path / "r").run["status"] == "failed"


def test_stop_strings_reach_every_method(tmp_path):
    text = {r["method"]: r for r in run_pass(SPEC, tmp_path / "a", Loader(), ignore).records if not r["sample"]}
    stop = text["ar"]["text"][2]
    done = run_pass(replace(SPEC, stop=(stop,), samples=1), tmp_path / "b", Loader(), ignore)
    for r in done.records:
        assert (r["stop_reason"] == "stop") == (stop in r["text"])
    assert {r["stop_reason"] for r in done.records if r["method"] == "ar"} >= {"stop"}
    fixed = run_pass(replace(SPEC, stop=(stop,), ignore_eos=True), tmp_path / "c", Loader(), ignore)
    assert {len(r["output_ids"]) for r in fixed.records} == {8}
    assert json.loads((tmp_path / "b" / "run.json").read_text())["config"]["stop"] == [stop]


def test_a_random_chain_speaks_bytes():
    chain = load_chain("tiny_pair")
    assert isinstance(chain.tokenizer, ByteTokenizer)
    prompt = bundled("measure", limit=1)[0]
    ids = encode(prompt, chain.tokenizer)
    assert bytes(ids).decode() == f"user: {prompt.turns[0]}\nassistant: "
    (out,) = generate(chain, [Request(tuple(ids), Sampling(0), max_new_tokens=4)])
    assert chain.tokenizer.decode([*"grün".encode(), 300]) == "grün"
    assert isinstance(chain.tokenizer.decode(out.ids), str)
    assert len(chain.tokenizer.get_vocab()) == 256
    small = ChainSpec((LevelSpec("random:llama?vocab=64"),))
    assert load_chain(small).tokenizer is None


def test_a_loader_forgets_what_a_chain_does_not_use():
    loader = Loader()
    loader.chain(read_chain("tiny_triple"))
    assert len(loader.describe()) == 3
    loader.keep_only(read_chain("tiny_pair"))
    assert len(loader.describe()) == 2

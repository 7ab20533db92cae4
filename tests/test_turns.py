"""Every turn of a conversation is decoded, after the target's own greedy replies."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from experiments import report
from ssd.bench.byte_tokenizer import ByteTokenizer
from ssd.bench.experiment import differences, run_pass
from ssd.bench.json_files import read_json, write_json
from ssd.bench.loading import Loader
from ssd.bench.method_spec import MethodSpec
from ssd.bench.methods import ChainMethod
from ssd.bench.prompts import Prompt, encode
from ssd.bench.records import read_run
from ssd.bench.runner import Requests
from ssd.bench.spec import ChainSpec, PromptSpec, RunSpec, read_chain
from ssd.bench.turns import REPLIES_FILE, STRIDE, conversations, turn_ids, turn_references
from ssd.core.generate import generate
from ssd.core.requests import Request, Sampling

ROWS = [
    {"question_id": 81, "category": "writing", "turns": ["Write.", "Shorter."]},
    {"question_id": 2, "category": "math", "turns": ["1+1?", "Plus 2?"], "reference": ["2", "4"]},
    {"question_id": 7, "category": "qa", "turns": ["Who?"], "reference": ["Ada."]},
]
IDS = ["writing-81", "writing-81#2", "math-2", "math-2#2", "qa-7"]
THREE = Prompt("three", "math", "test", ("a", "b", "c"), None)
ONE = Prompt("one", "math", "test", ("d",), None)


@pytest.fixture
def spec(tmp_path) -> RunSpec:
    """Two conversations and a question, at temperature 1, by methods of three kinds."""
    path = tmp_path / "question.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return RunSpec(
        "tiny",
        read_chain("tiny_pair"),
        {"ar": MethodSpec(levels=(-1,)), "pair": MethodSpec(), "transformers": MethodSpec("transformers_ar")},
        PromptSpec(name="spec_bench", path=str(path), split=None),
        Sampling(1.0),
        max_new_tokens=6,
        samples=2,
    )


def target() -> ChainMethod:
    return ChainMethod("target", Loader().chain(ChainSpec(read_chain("tiny_pair").levels[-1:])))


class Counting:
    """A method that counts its calls."""

    def __init__(self) -> None:
        self.name, self.inner, self.calls = "target", target(), 0

    def generate(self, requests):
        self.calls += 1
        return self.inner.generate(requests)


def ignore(name: str, done: int, total: int) -> None:
    pass


def greedy(ids) -> str:
    """The target's reply to prompt ids, as text."""
    (out,) = generate(target().chain, [Request(tuple(ids), Sampling(0.0), max_new_tokens=6)])
    return ByteTokenizer().decode(out.ids)


def test_a_conversation_is_written_out_once_and_whole():
    tokenizer = ByteTokenizer()
    text = bytes(encode(THREE, tokenizer, ["x", ""])).decode()
    assert text == "user: a\nassistant: x\nuser: b\nassistant: \nuser: c\nassistant: "
    for replies in (["x", "y", "z"], "xy"):
        with pytest.raises(ValueError, match=r"replies: .* leave none of the 3 turns of prompt 'three'"):
            encode(THREE, tokenizer, replies)
    with pytest.raises(ValueError, match="template: prompt 'three' has replies"):
        encode(THREE, tokenizer, ["x"], template=False)


def test_later_turns_follow_the_targets_greedy_replies():
    tokenizer = ByteTokenizer()
    turns = conversations([ONE, THREE], target(), tokenizer, 6)
    assert [t.prompt_id for t in turns] == ["one", "three", "three#2", "three#3"]
    assert [t.number for t in turns] == [0, 1, 1 + STRIDE, 1 + 2 * STRIDE]
    first = greedy(encode(THREE, tokenizer))
    second = greedy(encode(THREE, tokenizer, [first]))
    expected = [encode(ONE, tokenizer), *(encode(THREE, tokenizer, [first, second][:k]) for k in range(3))]
    assert [list(t.ids) for t in turns] == expected


def test_a_reply_ends_at_a_stop_string():
    tokenizer = ByteTokenizer()
    reply = greedy(encode(THREE, tokenizer))
    stop = reply[1]
    _, second, _ = conversations([THREE], target(), tokenizer, 6, stop=(stop,))
    kept = reply[: reply.index(stop) + 1]
    assert list(second.ids) == encode(THREE, tokenizer, [kept])


def test_single_turns_need_no_reply(tmp_path):
    method, path = Counting(), tmp_path / REPLIES_FILE
    assert [t.ids for t in conversations([ONE], method, ByteTokenizer(), 6, path=path)] == [
        tuple(encode(ONE, ByteTokenizer()))
    ]
    assert method.calls == 0
    assert not path.exists()


def test_stored_replies_are_used_and_completed(tmp_path):
    path = tmp_path / REPLIES_FILE
    method, seen = Counting(), []
    turns = conversations(
        [THREE], method, ByteTokenizer(), 6, path=path, progress=lambda name, done, total: seen.append((done, total))
    )
    assert (method.calls, seen) == (2, [(0, 2), (1, 2), (2, 2)])
    assert conversations([THREE], method, ByteTokenizer(), 6, path=path) == turns
    assert method.calls == 2
    write_json(path, {"three": read_json(path)["three"][:1]})  # killed between two replies
    assert conversations([THREE], method, ByteTokenizer(), 6, path=path) == turns
    assert method.calls == 3
    write_json(path, {"three": "text"})
    with pytest.raises(ValueError, match=r"replies.json: three: expected a list of replies, got 'text'"):
        conversations([THREE], method, ByteTokenizer(), 6, path=path)


def test_two_turns_with_one_id_are_refused():
    with pytest.raises(ValueError, match="two turns have the prompt id 'three#2'"):
        conversations([THREE, replace(ONE, id="three#2")], target(), ByteTokenizer(), 6)


@pytest.mark.parametrize("batch", [1, 4])
def test_all_methods_see_the_same_ids_at_every_turn(spec, tmp_path, batch):
    run = run_pass(replace(spec, batch=batch), tmp_path / "r", Loader(), ignore)
    seen = {}
    for r in run.records:
        seen.setdefault((r["prompt_id"], r["sample"]), []).append((r["method"], r["prompt_ids"], r["task"]))
    assert list(dict.fromkeys(prompt for prompt, _ in seen)) == IDS
    for found in seen.values():
        assert sorted(method for method, *_ in found) == ["ar", "pair", "transformers"]
        assert all(ids == found[0][1] and task == found[0][2] for _, ids, task in found)
    replies = read_json(tmp_path / "r" / REPLIES_FILE)
    assert list(replies) == ["writing-81", "math-2"]
    text = bytes(seen["math-2#2", 0][0][1]).decode()
    assert text == f"user: 1+1?\nassistant: {replies['math-2'][0]}\nuser: Plus 2?\nassistant: "


def test_replies_are_what_ar_says_at_temperature_0(spec, tmp_path):
    spec = replace(spec, sampling=Sampling(0.0), samples=1)
    run = run_pass(spec, tmp_path / "r", Loader(), ignore)
    said = {r["prompt_id"]: r["text"] for r in run.records if r["method"] == "ar"}
    assert read_json(tmp_path / "r" / REPLIES_FILE) == {name: [said[name]] for name in ("writing-81", "math-2")}
    assert all(p.prompt_id in IDS for p in differences(spec, run, Loader()))


def test_a_difference_at_a_later_turn_is_judged_in_its_context(spec, tmp_path):
    spec = replace(spec, sampling=Sampling(0.0), samples=1)
    run = run_pass(spec, tmp_path / "r", Loader(), ignore)
    (record,) = (r for r in run.records if (r["method"], r["prompt_id"]) == ("pair", "math-2#2"))
    record["output_ids"][0] ^= 1
    parting = next(p for p in differences(spec, run, Loader()) if p.method == "pair")
    assert (parting.prompt_id, parting.position) == ("math-2#2", 0)
    assert parting.gap > 0  # AR's own choice is the likelier one, as it is in this context


@pytest.mark.parametrize("count", [1, 9])
def test_a_resumed_run_uses_the_replies_again(spec, tmp_path, count):
    class Killed(BaseException):
        """Stands for the end of the process."""

    def stop(name: str, done: int, total: int) -> None:
        if done == count and name != "target's replies":
            raise Killed

    def no_replies(name: str, done: int, total: int) -> None:
        assert name != "target's replies"

    loader, folder = Loader(), tmp_path / "parts"
    whole = run_pass(spec, tmp_path / "whole", loader, ignore)
    with pytest.raises(Killed):
        run_pass(spec, folder, loader, stop, resume=True)
    done = run_pass(spec, folder, loader, no_replies, resume=True)
    fields = ("method", "prompt_id", "sample", "batch_id", "prompt_ids", "output_ids")
    assert [[r[f] for f in fields] for r in done.records] == [[r[f] for f in fields] for r in whole.records]
    assert done.run["resumed"][0]["kept"] == count // 3 * 3


def test_replies_of_another_run_are_not_used(spec, tmp_path):
    loader, folder = Loader(), tmp_path / "r"
    run_pass(spec, folder, loader, ignore)
    right = read_json(folder / REPLIES_FILE)
    wrong = {name: ["something else"] for name in right}
    write_json(folder / REPLIES_FILE, wrong)
    run_pass(spec, folder, loader, ignore)  # starts over
    assert read_json(folder / REPLIES_FILE) == right
    run = read_json(folder / "run.json")
    write_json(folder / "run.json", run | {"status": "failed", "data": run["data"] | {"sha256": "00"}})
    (folder / "records.jsonl").write_bytes(b"")
    write_json(folder / REPLIES_FILE, wrong)
    run_pass(spec, folder, loader, ignore, resume=True)
    assert read_json(folder / REPLIES_FILE) == right


def test_requests_of_first_turns_keep_their_numbers(spec):
    prompts = [ONE, THREE, replace(ONE, id="last")]
    requests = Requests(spec, conversations(prompts, target(), ByteTokenizer(), 2), ()).requests
    numbers = {name: request.request for name, request in requests}
    assert [numbers[p.id] for p in prompts] == [0, 1, 2]
    assert len(set(numbers.values())) == len(numbers) == 5


def test_references_of_every_turn(spec, tmp_path):
    assert turn_ids(THREE) == ["three", "three#2", "three#3"]
    assert turn_references(replace(THREE, reference="r")) == {"three": "r", "three#2": None, "three#3": None}
    run = run_pass(replace(spec, samples=1, methods={"ar": spec.methods["ar"]}), tmp_path / "r", Loader(), ignore)
    assert report.references(read_run(tmp_path / "r")) == dict(zip(IDS, [None, None, "2", "4", "Ada."], strict=True))
    assert {r["prompt_id"] for r in run.records} == set(IDS)

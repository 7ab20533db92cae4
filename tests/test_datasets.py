"""Prompt sets by name: what a specification may say, local formats, selection, and what a run notes."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from ssd.bench.dataset_formats import gsm8k_answer
from ssd.bench.datasets import DatasetSpec, describe, load, read_spec
from ssd.bench.prompts import TASKS, bundled, data_sha256
from ssd.bench.spec import parse

CONF = Path(__file__).parent.parent / "conf" / "dataset"
KEYS = ["name", "path", "repo", "config", "revision", "split", "tasks", "limit", "offset", "fields"]
HUB = {"name": "hub", "repo": "org/set", "split": "test", "fields": {"turns": "{q}", "task": "math"}}

SPEC_BENCH = [
    {"question_id": 81, "category": "writing", "turns": ["Write.", "Again."]},
    {"question_id": 82, "category": "writing", "turns": ["Write more.", "Again."]},
    {"question_id": 103, "category": "reasoning", "turns": ["Why?", "Sure?"], "reference": ["Because.", ""]},
    {"question_id": 161, "category": "translation", "turns": ["Translate: Hund"], "reference": ["dog"]},
    {"question_id": 481, "category": "rag", "turns": ["Who? In\u2028short."], "reference": ["Ada"]},
]
HUMAN_EVAL = [
    {
        "task_id": "HumanEval/0",
        "prompt": '\n\ndef one():\n    """One."""\n',
        "entry_point": "one",
        "canonical_solution": "    return 1\n",
        "test": "def check(candidate):\n    assert candidate() == 1\n",
    }
]
GSM8K = [{"question": f"What is {n} + 1?", "answer": f"It is {n}+1=<<{n}+1={n + 1}>>.\n#### {n + 1}"} for n in range(5)]


def write(path: Path, rows: list[dict[str, object]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.fixture
def data(tmp_path, monkeypatch) -> Path:
    write(tmp_path / "spec_bench" / "question.jsonl", SPEC_BENCH)
    write(tmp_path / "human_eval" / "HumanEval.jsonl.gz", HUMAN_EVAL)
    write(tmp_path / "gsm8k" / "test.jsonl", GSM8K)
    monkeypatch.setenv("SSD_DATA", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("path", sorted(CONF.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_file_has_all_keys_and_is_for_evaluation(path):
    assert [line.partition(":")[0] for line in path.read_text().splitlines() if line[0] not in "# "] == KEYS
    spec = read_spec(path)
    assert spec.purpose == "evaluate"
    assert set(spec.tasks) <= set(TASKS)


def test_the_public_sets_have_files():
    specs = {path.stem: read_spec(path) for path in CONF.glob("*.yaml")}
    assert {name: (specs[name].repo, specs[name].config) for name in specs if specs[name].name == "hub"} == {
        "wmt16_de_en": ("wmt/wmt16", "de-en"),
        "cnn_dailymail": ("abisee/cnn_dailymail", "3.0.0"),
        "xsum": ("EdinburghNLP/xsum", None),
        "mbpp": ("google-research-datasets/mbpp", "full"),
        "mt_bench": ("HuggingFaceH4/mt_bench_prompts", None),
    }


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "squad"}, "name: 'squad' is not one of bundled"),
        ({"name": "bundled", "split": "test"}, "split: 'test' of bundled is not one of tune"),
        ({"name": "bundled", "limit": 0}, "limit: expected an integer >= 1, got 0"),
        ({"name": "bundled", "limit": True}, "limit: expected int"),
        ({"name": "bundled", "offset": -1}, "offset: expected an integer >= 0, got -1"),
        ({"name": "bundled", "tasks": ["poetry"]}, "tasks: 'poetry' is not one of translation"),
        ({"name": "bundled", "limits": 3}, "limits: unknown field"),
        ({"name": "gsm8k", "fields": {"turns": "{q}"}}, "fields: gsm8k takes none"),
        ({**HUB, "repo": None}, "repo: hub needs it, got None"),
        ({**HUB, "split": None}, "split: hub needs it"),
        ({**HUB, "fields": {"turns": "{q}"}}, "a hub set needs turns, and task or category; got turns"),
        ({**HUB, "fields": {**HUB["fields"], "use": "fun"}}, "fields.use: 'fun' is not one of train"),
        ({"name": "docs_translation", "repo": "gnome-user-docs"}, "config: docs_translation needs it"),
        ({"name": "docs_summarization"}, "repo: docs_summarization needs it"),
    ],
)
def test_a_wrong_specification_is_named(fields, message):
    with pytest.raises(ValueError) as caught:
        parse(DatasetSpec, fields, "dataset")
    assert message in str(caught.value)
    assert str(caught.value).startswith("dataset")


@pytest.mark.parametrize("text", ["[1, 2]", "name: [", "limits: 3\nname: gsm8k"])
def test_a_wrong_file_is_named(tmp_path, text):
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(ValueError, match=r"x\.yaml"):
        read_spec(tmp_path / "x.yaml")


def test_bundled_is_the_bundled_set():
    assert load(DatasetSpec("bundled", split="measure", limit=6)) == bundled("measure", limit=6)
    assert load(DatasetSpec("bundled", split="measure", tasks=("code",), offset=1)) == bundled("measure", ["code"])[1:]
    assert load(DatasetSpec("bundled")) == bundled("measure") + bundled("extended")
    assert load(DatasetSpec("bundled", tasks=("code",))) == bundled("measure", ["code"]) + bundled("extended", ["code"])
    assert describe(DatasetSpec("bundled"))["name"] == "bundled/measure+extended"
    assert describe(DatasetSpec("bundled", split="tune")) == {
        "name": "bundled/tune",
        "revision": None,
        "sha256": data_sha256(),
    }


def test_spec_bench_keeps_turns_references_and_lets_categories_take_turns(data):
    prompts = load(DatasetSpec("spec_bench"))
    assert [p.id for p in prompts] == ["writing-81", "reasoning-103", "translation-161", "rag-481", "writing-82"]
    assert [p.task for p in prompts] == [
        "long_form",
        "question_answering",
        "translation",
        "question_answering",
        "long_form",
    ]
    assert prompts[0].turns == ("Write.", "Again.")
    assert prompts[0].reference is None
    assert prompts[1].reference == "Because."
    assert prompts[1].extra == {"category": "reasoning", "references": ["Because.", None]}
    assert prompts[3].turns == ("Who? In\u2028short.",)
    assert [p.id for p in load(DatasetSpec("spec_bench", tasks=("long_form",), limit=1, offset=1))] == ["writing-82"]


def test_human_eval_keeps_what_running_it_needs(data):
    [prompt] = load(DatasetSpec("human_eval"))
    assert (prompt.id, prompt.task, prompt.split) == ("HumanEval/0", "code", "test")
    assert prompt.turns[0].endswith('```python\ndef one():\n    """One."""\n```')
    namespace: dict[str, object] = {}
    exec(prompt.extra["prompt"] + prompt.reference + prompt.extra["test"], namespace)
    namespace["check"](namespace[prompt.extra["entry_point"]])


def test_gsm8k_keeps_the_worked_answer_and_its_number(data):
    prompts = load(DatasetSpec("gsm8k", offset=2, limit=2))
    assert [p.id for p in prompts] == ["gsm8k-0002", "gsm8k-0003"]
    assert prompts[0].reference.endswith("#### 3")
    assert prompts[0].extra["answer"] == "3"
    assert gsm8k_answer(prompts[0].reference) == "3"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("#### 2,125", "2125"),
        ("#### -10", "-10"),
        ("so 5 #### 7\n#### $1,450.00.", "1450"),
        ("She has 3 eggs, worth $0.50 each.", "0.5"),
        ("It costs -$3.", "-3"),
        ("5-3=2", "2"),
        ("The range is 3-5", "5"),
        ("The answer is 18.", "18"),
        ("#### none, but 4", "4"),
        ("#### none", None),
        ("no number", None),
        ("1" * 60, "1" * 60),
    ],
)
def test_the_final_number_of_a_solution(text, number):
    assert gsm8k_answer(text) == number


def test_the_file_is_described_and_can_be_pinned(data):
    path = data / "gsm8k" / "test.jsonl"
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    spec = DatasetSpec("gsm8k", path=str(path), revision=f"sha256:{digest}")
    assert describe(spec) == {"name": "gsm8k/test", "revision": f"sha256:{digest}", "sha256": digest}
    write(path, GSM8K[:2])
    with pytest.raises(ValueError, match=r"gsm8k.*revision sha256:.*is another version, sha256:"):
        load(spec)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"question": "a"}', r"line 2: field 'answer' is missing"),
        ("{", r"line 2: not valid JSON"),
        ("[1]", r"line 2: expected an object, got list"),
        ('{"question": "", "answer": "1"}', r"line 2: prompt.turns"),
    ],
)
def test_a_wrong_line_is_named(tmp_path, line, message):
    path = tmp_path / "test.jsonl"
    path.write_text(json.dumps(GSM8K[0]) + "\n" + line + "\n")
    with pytest.raises(ValueError, match=rf"test\.jsonl: {message}"):
        load(DatasetSpec("gsm8k", path=str(path)))


def test_an_id_that_occurs_twice_is_named_even_past_the_limit(data):
    write(data / "human_eval" / "HumanEval.jsonl.gz", [HUMAN_EVAL[0], {**HUMAN_EVAL[0], "task_id": "b"}, HUMAN_EVAL[0]])
    with pytest.raises(ValueError, match=r"dataset human_eval, split test: prompt id 'HumanEval/0' occurs more than"):
        load(DatasetSpec("human_eval", limit=1))


def test_damaged_and_empty_files_are_named(tmp_path):
    (tmp_path / "x.jsonl.gz").write_bytes(b"no gzip")
    (tmp_path / "x.jsonl").write_text("\n")
    with pytest.raises(ValueError, match=r"x\.jsonl\.gz: cannot be read"):
        load(DatasetSpec("human_eval", path=str(tmp_path / "x.jsonl.gz")))
    with pytest.raises(ValueError, match=r"x\.jsonl: holds no prompt"):
        load(DatasetSpec("gsm8k", path=str(tmp_path / "x.jsonl")))


def test_a_missing_file_says_where_it_belongs(tmp_path, monkeypatch):
    monkeypatch.delenv("SSD_DATA", raising=False)
    with pytest.raises(ValueError, match=r"dataset gsm8k, split train: set path, or SSD_DATA .*gsm8k/train\.jsonl"):
        load(DatasetSpec("gsm8k", split="train"))
    monkeypatch.setenv("SSD_DATA", str(tmp_path))
    with pytest.raises(ValueError, match=r"no file .*question\.jsonl \(published at .*Spec-Bench"):
        load(DatasetSpec("spec_bench"))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"limit": 6}, r"limit: 6 prompts from offset 0 asked for, 5 are there"),
        ({"limit": 2, "offset": 4}, r"limit: 2 prompts from offset 4 asked for, 5 are there"),
        ({"offset": 5}, r"limit: all prompts from offset 5 asked for, 5 are there"),
        ({"tasks": ("code",)}, r"limit: all prompts from offset 0 of tasks code asked for, 0 are there"),
    ],
)
def test_fewer_prompts_than_asked_for_are_an_error(data, fields, message):
    with pytest.raises(ValueError, match=message):
        load(DatasetSpec("gsm8k", **fields))


def test_the_module_needs_neither_torch_nor_datasets():
    code = (
        "import sys; from ssd.bench.datasets import DatasetSpec, load; load(DatasetSpec('bundled'));"
        "assert not {'torch', 'transformers', 'datasets', 'huggingface_hub'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.skipif("SSD_DATA" not in os.environ, reason="SSD_DATA names no folder with the public sets")
def test_the_public_files():
    assert Counter(p.task for p in load(DatasetSpec("spec_bench"))) == {
        "question_answering": 180,
        "math": 90,
        "translation": 80,
        "summarization": 80,
        "long_form": 40,
        "code": 10,
    }
    assert len({p.id for p in load(DatasetSpec("spec_bench"))}) == 480
    assert sum(len(p.turns) == 2 for p in load(DatasetSpec("spec_bench"))) == 80
    for prompt in load(DatasetSpec("human_eval")):
        namespace: dict[str, object] = {}
        exec(prompt.extra["prompt"] + prompt.reference, namespace)
        assert callable(namespace[prompt.extra["entry_point"]])
    assert len(load(DatasetSpec("human_eval"))) == 164
    answers = [p.extra["answer"] for p in load(DatasetSpec("gsm8k"))]
    assert len(answers) == 1319
    assert all(answer.lstrip("-").isdigit() for answer in answers)

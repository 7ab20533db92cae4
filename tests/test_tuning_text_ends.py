"""Texts that a plan or a calibration measures on end where generation ends: at every id that the target states."""

from __future__ import annotations

import pytest
from test_fault_kinds_bench import saved

from experiments import calibrate, calibrate_runs
from experiments.plan_config import level_names
from experiments.plan_profile import measure
from ssd.bench.loading import Loader
from ssd.bench.method_spec import EdgeSpec
from ssd.bench.prompts import Prompt, encode
from ssd.bench.spec import ChainSpec
from ssd.bench.target_texts import target_texts
from ssd.core.requests import Sampling

TOKENS = 9
PROMPT = Prompt("p", "math", "tune", ("w7 w8 w7 w8",), None)
ASKED = {
    "temperature": 0.0, "batches": [1], "draft_batches": [], "tokens": TOKENS, "ignore_eos": False, "guesses": False,
    "profiling": {"widths": [1, 2], "repeats": 1}, "adaptive_gamma": None, "temperature_factors": [],
}  # fmt: skip


def chain_in(folder, **stored):
    return ChainSpec((saved(folder / "draft", 2, 1), saved(folder / "target", 0, 2, **stored)), (EdgeSpec(3),))


@pytest.fixture(scope="module")
def third_token(tmp_path_factory):
    """What the target says third where nothing ends it, and did not say before."""
    chain = Loader().chain(chain_in(tmp_path_factory.mktemp("free")))
    texts = target_texts(chain, [encode(PROMPT, chain.tokenizer)], Sampling(0.0), TOKENS, 1, False)
    new = texts.texts[0][-TOKENS:]
    assert texts.new == (TOKENS,)
    assert new[2] not in new[:2]
    return new[2]


def test_a_profiles_texts_end_at_an_id_that_only_the_models_folder_states(tmp_path, third_token):
    found = {}
    for name, stored in (("free", {}), ("ended", {"eos_token_id": [third_token, 298]})):
        chain = chain_in(tmp_path / name, **stored)
        found[name] = measure(chain, level_names(chain, False), Loader(), [PROMPT], ASKED)["texts"]["new_tokens"]
    assert found == {"free": TOKENS, "ended": 3}


def test_a_calibrations_texts_and_replies_end_there_too(tmp_path, monkeypatch):
    chain = chain_in(tmp_path, eos_token_id=[5, 298])
    lines = [f"- {{source: '{level.source}'}}" for level in chain.levels]
    (tmp_path / "chain.yaml").write_text("levels:\n" + "\n".join(lines) + "\nedges:\n- {gamma: 3}\n")
    ended = []

    def noted(function):
        def called(*given, **named):
            ended.append(tuple(named["eos_ids"]))
            return function(*given, **named)

        return called

    monkeypatch.setattr(calibrate, "own_texts", noted(calibrate.own_texts))
    monkeypatch.setattr("experiments.calibrate_runs.conversations", noted(calibrate_runs.conversations))
    arguments = [
        f"chain={tmp_path / 'chain.yaml'}", f"results_dir={tmp_path}", f"temperatures_dir={tmp_path}",
        "evaluate=false", "tune.limit=1", "tune.max_new_tokens=3", "sampling.temperature=0.0",
        "profiling={widths: [1, 2], repeats: 1, context: 4}",
    ]  # fmt: skip
    assert calibrate.main(arguments) == 0
    assert ended == [(299, 5, 298)] * 2  # the tokenizer's id, and those of the model's folder

"""Neighbours of reported faults in runs and numbers: hidden defaults, end ids, intervals, scores, damaged files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import GenerationConfig, PreTrainedTokenizerFast

from experiments.outcome import Outcome
from experiments.sweep import Finished, summary_rows
from ssd.bench import quality
from ssd.bench.end_of_text import end_ids, stated_end_ids
from ssd.bench.experiment import run_pass
from ssd.bench.intervals import edge_estimates
from ssd.bench.loading import Loader
from ssd.bench.method_spec import EdgeSpec, MethodSpec
from ssd.bench.metrics import speedup, tokens_per_second
from ssd.bench.reading import read_run, read_runs
from ssd.bench.records import Run, RunFolder
from ssd.bench.runner import WARMUP_TOKENS, run
from ssd.bench.sources import parse_source
from ssd.bench.spec import ChainSpec, LevelSpec, PromptSpec, RunSpec, read_chain
from ssd.bench.suite import build_all
from ssd.bench.turns import Turn, conversation_of
from ssd.certify.tiny_models import tiny_llama
from ssd.core.requests import Sampling
from tests.scripted_records import record, scripted
from tests.tiny_baselines import method

NARROW = {
    "repetition_penalty": 1.3, "top_k": 5, "temperature": 0.3, "do_sample": True, "no_repeat_ngram_size": 2,
    "min_new_tokens": 40, "max_length": 9, "suppress_tokens": [3], "forced_eos_token_id": 7, "bad_words_ids": [[9]],
    "typical_p": 0.5, "epsilon_cutoff": 0.1, "encoder_repetition_penalty": 1.5, "sequence_bias": [[[5], 10.0]],
    "exponential_decay_length_penalty": (1, 2.0), "cache_implementation": "static", "prompt_lookup_num_tokens": 4,
}  # fmt: skip
AR = {"ar": MethodSpec(levels=(-1,))}
TINY = LevelSpec("random:llama?seed=3")


def saved(folder: Path, seed: int, layers: int, **stored: Any) -> LevelSpec:
    """A model in a folder with a tokenizer of words and whatever its generation config says."""
    module = tiny_llama(seed, layers, vocab=300, dtype=torch.float32, max_position_embeddings=2048)
    module.config.eos_token_id = None
    module.generation_config = GenerationConfig(**stored)
    module.save_pretrained(folder)
    words = Tokenizer(WordLevel({f"w{i}": i for i in range(300)}, unk_token="w0"))
    words.pre_tokenizer = WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="w0", eos_token="w299")
    tokenizer.chat_template = "w5 w9 w5 {% for m in messages %}{{ m['content'] }} {% endfor %}"
    tokenizer.save_pretrained(folder)
    return LevelSpec(f"folder:{folder}")


def everything(root: Path, temperature: float, /, **stored: Any) -> Run:
    """Every kind of method on two prompts, models saved with ``stored``."""
    levels = (saved(root / "draft", 2, 1, **stored), saved(root / "target", 0, 2, **stored))
    methods = {
        **AR, "chain": MethodSpec(), "look-up": MethodSpec(levels=("ngram", -1), edges=(EdgeSpec(3),)),
        "their ar": MethodSpec("transformers_ar"), "assisted": MethodSpec("transformers_assisted", gamma=3),
        "their look-up": MethodSpec("transformers_lookup", gamma=3),
    }  # fmt: skip
    chain = ChainSpec(levels, (EdgeSpec(3),))
    spec = RunSpec("x", chain, methods, PromptSpec(limit=2), Sampling(temperature), max_new_tokens=9)
    return run_pass(spec, root / "run", Loader(), lambda *_: None)


def outputs(done: Run) -> dict[tuple[str, str], list[int]]:
    return {(r["method"], r["prompt_id"]): r["output_ids"] for r in done.records}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_b35_nothing_stored_beside_any_level_narrows_a_run(tmp_path: Path, temperature: float) -> None:
    plain = everything(tmp_path / "plain", temperature)
    narrow = everything(tmp_path / "narrow", temperature, **NARROW)
    assert outputs(narrow) == outputs(plain)
    if temperature == 0:
        assert all(ids == outputs(plain)["ar", prompt] for (_, prompt), ids in outputs(plain).items())
    settings = {json.dumps(r["sampling"]) for r in narrow.records}
    assert len(settings) == 1
    assert json.loads(settings.pop())["repetition_penalty"] == 1.0
    assert narrow.run["config"]["sampling"]["top_k"] == 0


def test_b01_every_end_id_of_the_models_folder_ends_every_method(tmp_path: Path) -> None:
    """Chat models end a turn with another id than their tokenizer names; the run says which ids it used."""
    free = outputs(everything(tmp_path / "free", 0.0))
    end = free["ar", min(p for _, p in free)][3]
    done = everything(tmp_path / "ended", 0.0, eos_token_id=[end, 298])
    assert done.run["end_of_text"] == {"tokenizer": [299], "generation_config.json": [end, 298]}
    for key, ids in outputs(done).items():
        assert ids == free[key][: free[key].index(end) + 1 if end in free[key] else None]
    assert {"eos"} <= {r["stop_reason"] for r in done.records}


def test_end_ids_by_place(tmp_path: Path) -> None:
    class Named:
        eos_token_id = 2

    source = parse_source(f"folder:{tmp_path}")
    (tmp_path / "config.json").write_text('{"text_config": {"eos_token_id": 4}}')
    assert stated_end_ids(source, Named()) == {"tokenizer": [2], "config.json": [4]}
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": null}')
    assert end_ids(stated_end_ids(source, Named())) == (2, 4)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [7, 2]}')
    assert end_ids(stated_end_ids(source, Named())) == (2, 7)
    assert stated_end_ids(parse_source("random:llama"), None) == {}
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": "</s>"}')
    with pytest.raises(ValueError, match=r"generation_config\.json: eos_token_id: expected an id .* got '</s>'"):
        stated_end_ids(source, Named())


def test_turns_of_a_conversation_are_one_unit_of_an_interval() -> None:
    names = ["a", "a#2", "a#3", "b#2", "c", "c#3", "d#1", "d", "e#02", "e", "a#2#2"]
    units = {"a#2": "a", "a#3": "a", "a#2#2": "a"}
    assert conversation_of(names) == {name: units.get(name, name) for name in names}

    def told(turns: list[str], name: str, seconds: float) -> list[dict[str, Any]]:
        accepted = [(4, 0), (2, 2), (0, 0), (4, 4)]
        return [record(t, name, rounds=scripted(4, a, overlap=0.5), tokens=sum(a) + 2, seconds=(0, seconds), text=t)
                for t, a in zip(turns, accepted, strict=True)]  # fmt: skip

    for turns, n in ((["p", "p#2", "q", "q#2"], 2), (["p", "q", "r", "s"], 4)):
        assert edge_estimates(told(turns, "spec", 1), 0)["alpha"].n == n
        assert speedup(told(turns, "spec", 1), told(turns, "ar", 2)).n == n
        gain = quality.rouge_l_difference(told(turns, "spec", 1), told(turns, "ar", 2), dict.fromkeys(turns, "p"))
        assert gain.n == n


REFUSED: list[tuple[Any, Any, Mapping[str, MethodSpec], str]] = [
    ((replace(TINY, source="ngram", temperature=0.5), TINY), (EdgeSpec(2),), AR, r"levels\[0\]\.temperature: 0\.5"),
    ((replace(TINY, source="ngram:4-2", top_k=3), TINY), (EdgeSpec(2),), AR, r"levels\[0\]\.top_k: 3 .*'ngram:4-2'"),
    ((LevelSpec("ngram"), TINY), (EdgeSpec(2, "confidence", 0.5),), AR, r"edges\[0\]\.window: 'confidence'"),
    ((TINY, TINY), (EdgeSpec(2),), {"n": MethodSpec(levels=("ngram", 1), edges=(EdgeSpec(2, "confidence", 0.1),))},
     r"methods\.n: edges\[0\]\.window: 'confidence'"),
    ((TINY, TINY), (EdgeSpec(2),), {"n": MethodSpec("transformers_assisted", levels=("ngram", 1), gamma=2)},
     r"methods\.n\.levels: .*needs a draft model"),
    ((LevelSpec("ngram"), TINY), (EdgeSpec(2),), {"n": MethodSpec("transformers_assisted", gamma=2)},
     r"methods\.n\.levels: .*needs a draft model"),
    ((TINY, TINY, TINY), (EdgeSpec(2),) * 2, {"n": MethodSpec("transformers_assisted", levels=(0, 1), gamma=2)},
     r"methods\.n\.levels: \[0, 1\] does not end with the target, level 2"),
    ((TINY, TINY), (EdgeSpec(2),), {"ar": MethodSpec(levels=(0,))}, r"methods\.ar\.levels: \[0\] does not end"),
    ((TINY, TINY), (EdgeSpec(2),), {"n": MethodSpec(levels=(0, 1))}, r"methods\.n\.edges: 2 levels need 1, got 0"),
    ((TINY, TINY), (EdgeSpec(2),), {"n": MethodSpec("transformers_ar", edges=(EdgeSpec(2),))}, r"methods\.n\.edges"),
    ((TINY, TINY), (EdgeSpec(2),), {"n": MethodSpec(levels=(0, 1), edges=(EdgeSpec(0),))}, r"methods\.n: .*gamma.*0"),
    ((replace(TINY, temperature=float("nan")), TINY), (EdgeSpec(2),), AR, r"levels\[0\]: .*temperature: nan"),
]  # fmt: skip


@pytest.mark.parametrize(("levels", "edges", "methods", "message"), REFUSED, ids=[r[3] for r in REFUSED])
def test_settings_without_effect_are_refused_before_weights_are_read(levels, edges, methods, message, monkeypatch):
    monkeypatch.setattr("ssd.bench.loading.load_module", lambda *_: pytest.fail("weights were read"))
    with pytest.raises(ValueError, match=message):
        build_all(RunSpec("x", ChainSpec(levels, edges), {**AR, **methods}), Loader())


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_b14_a_seed_that_another_would_equal_is_refused(seed: int) -> None:
    with pytest.raises(ValueError, match=f"seed: {seed} is outside"):
        RunSpec("x", ChainSpec((TINY,)), AR, seed=seed)


def test_b38_numbers_without_a_point_in_a_chains_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("levels: [{source: ngram}, {source: x, temperature: 1e-6, top_p: 9E-1}, {source: 1e-6x}]\n"
                    "edges: [{gamma: 2}, {gamma: 3, window: confidence, window_value: 5e-1}]\n")  # fmt: skip
    chain = read_chain(path)
    assert (chain.levels[1].temperature, chain.levels[1].top_p, chain.edges[1].window_value) == (1e-6, 0.9, 0.5)
    assert chain.levels[2].source == "1e-6x"
    path.write_text("levels: [{source: ngram}, {source: x, temperature: warm}]\nedges: [{gamma: 2}]\n")
    with pytest.raises(ValueError, match=r"chain\.levels\[1\]\.temperature: expected float, got 'warm'"):
        read_chain(path)


def test_b42_summaries_score_chinese_with_its_own_tokenizer() -> None:
    for direction, tokenizer in (("en-zh_CN", "zh"), ("en-de", "13a")):
        config = {"prompts": {"config": direction}, "sampling": {"temperature": 0.0}}
        records = [record("a", m, text="我们今天去公园玩", ids=(1, 2)) for m in ("ar", "spec")]
        done = Run({"run_id": "r", "status": "complete", "config": config}, records)
        rows = {row.name: row for row in summary_rows(Finished("x", Outcome(0, ""), done, None))}
        assert f"tok:{tokenizer}|" in rows["x/spec/bleu_vs_ar"].unit
        assert (rows["x/spec/bleu_vs_ar"].value == pytest.approx(100)) == (tokenizer == "zh")


@pytest.mark.parametrize(
    "texts", [{"a", "b"}, {"a": "b"}, (t for t in "ab"), np.array(["a", "b"]), None, [["a"]], "ab"]
)
def test_b42_what_is_no_list_of_texts_is_refused(texts: Any) -> None:
    for score in (quality.bleu, quality.rouge_l, quality.chrf, quality.quality):
        with pytest.raises(ValueError, match="hypotheses"):
            score(texts, ["a", "b"])
        with pytest.raises(ValueError, match="references"):
            score(["a", "b"], texts)


def test_b31_b33_every_method_is_warmed_up_alike_and_it_counts_nowhere(tmp_path: Path) -> None:
    seen: dict[str, list[Any]] = {}

    class Noting:
        def __init__(self, name: str, inner: str) -> None:
            self.name, self.inner = name, method(inner)

        def generate(self, requests):
            seen.setdefault(self.name, []).append(requests)
            return self.inner.generate(requests)

    class Digits:
        def decode(self, ids, skip_special_tokens=False):
            return " ".join(map(str, ids))

    methods = [Noting(n, k) for n, k in (("a", "ar"), ("b", "assisted"), ("c", "lookup"))]
    spec = RunSpec("x", ChainSpec((TINY,)), dict.fromkeys("abc", MethodSpec()), sampling=Sampling(0), max_new_tokens=12)
    turns = [Turn(f"p{i}", "math", (1, 5, 9, 5, 9), i) for i in range(2)]
    with RunFolder(tmp_path) as folder:
        run(spec, methods, turns, Digits(), folder, eos_ids=(60,))  # type: ignore[arg-type]
    done = read_run(tmp_path)
    firsts = [calls[0] for calls in seen.values()]
    assert [[(r.max_new_tokens, r.ignore_eos) for r in first] for first in firsts] == [[(WARMUP_TOKENS, True)]] * 3
    assert {name: len(calls) for name, calls in seen.items()} == {"a": 3, "b": 3, "c": 3}
    assert list(done.run["warmup_seconds"]) == ["a", "b", "c"]
    assert len(done.records) == 6
    for name in "abc":
        own = [r for r in done.records if r["method"] == name]
        assert tokens_per_second(own) == pytest.approx(
            sum(len(r["output_ids"]) - r["first_pass_tokens"] for r in own)
            / sum(r["seconds"]["total"] - r["seconds"]["prefill"] for r in own)
        )


DAMAGE: list[tuple[str, Any]] = [
    ("rounds", None), ("rounds", "abc"), ("rounds", [[1]]), ("rounds", [{"edge": 0}]), ("output_ids", None),
    ("first_pass_tokens", None), ("seconds", None), ("seconds", 3), ("passes", []), ("text", None), ("method", 3),
]  # fmt: skip


def test_b44_damaged_results_are_listed_and_the_others_read(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "good", config={}) as folder:
        folder.append(record("a", rounds=scripted(4, (4, 0, 2))))
    line = read_run(tmp_path / "good").records[0]
    whole = json.dumps({"run_id": "x", "schema": 1, "status": "complete", "records": 1}).encode()
    bad = {f"field {i}": (whole, json.dumps(line | {name: value}).encode()) for i, (name, value) in enumerate(DAMAGE)}
    bad |= {"bytes": (b"\x93\xff\x00", b""), "deep": (b"[" * 50_000, b""), "null": (b"null", b""), "empty": (b"", b"")}
    bad |= {"deep line": (whole, b"[" * 50_000), "bytes line": (whole, b"\xff\xfe\x00"), "text": (whole, b'"a"')}
    for name, (run_file, lines) in bad.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_bytes(run_file)
        (tmp_path / name / "records.jsonl").write_bytes(lines + b"\n")
    (tmp_path / "nothing").mkdir()
    good, problems = read_runs(tmp_path)
    assert [done.path and done.path.name for done in good] == ["good"]
    assert {problem.path.name for problem in problems} == {*bad, "nothing"}
    assert all(problem.reason for problem in problems)

"""The page about a chain: everything that is wrong with it at once, what it takes, and what its output is worth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from tokenizers import Tokenizer, models
from transformers import AutoConfig, PreTrainedTokenizerFast

from experiments import check
from experiments.check_page import size
from ssd.bench import loading, memory_plan
from ssd.bench.chain_check import inspect_chain
from ssd.bench.json_files import read_json
from ssd.bench.level_pairs import compare_pairs, padding_rows
from ssd.bench.loading import Loader
from ssd.bench.random_weights import RandomWeights, random_config
from ssd.certify.mini import mini_certificate
from ssd.certify.planted import PLANTED

QUICK = ("seconds=0.01", "prompts=2", "prompt_tokens=16", "max_new_tokens=4")
BYTES = "random:llama?hidden=16&layers=1&heads=2&vocab=256&range=0.1"


def chain_file(folder: Path, levels: list[Any], edges: list[Any] | None = None, name: str = "mine") -> str:
    """A chain's YAML file; edges of gamma 2 unless given."""
    entries = [{"source": level} if isinstance(level, str) else level for level in levels]
    wanted = [{"gamma": 2}] * (len(levels) - 1) if edges is None else edges
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump({"levels": entries, "edges": wanted}))
    return str(path)


def saved(folder: Path, config: Any, tokenizer: Any = None) -> str:
    """The source of a folder with a configuration, and no weights."""
    config.save_pretrained(folder)
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)
    return f"folder:{folder}"


def words(*names: str, **special: str) -> PreTrainedTokenizerFast:
    core = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token=names[0]))
    return PreTrainedTokenizerFast(tokenizer_object=core, unk_token=names[0], **special)


@pytest.fixture
def page(tmp_path, capsys):
    """A function of overrides that runs the check: (exit status, what was printed, its JSON file)."""

    def run(chain: str, *arguments: str) -> tuple[int, str, dict[str, Any]]:
        status = check.main([f"chain={chain}", f"results_dir={tmp_path}", *arguments])
        file = tmp_path / "check" / Path(chain).stem / "check.json"
        return status, capsys.readouterr().out, read_json(file)

    return run


def test_all_problems_are_shown_at_once_and_no_weight_is_read(tmp_path, monkeypatch, page):
    monkeypatch.setattr(loading, "load_module", lambda *a: pytest.fail("weights were read"))
    stretched = random_config(RandomWeights("llama"))
    stretched.rope_parameters = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
    levels = [
        saved(tmp_path / "a", AutoConfig.for_model("mamba", hidden_size=32, num_hidden_layers=1, vocab_size=64)),
        {"source": "nope"},
        {"source": "random:llama", "dtype": "float8"},
        {"source": "random:llama", "device": "gpu"},
        {"source": saved(tmp_path / "b", stretched), "top_k": 5},
    ]
    edges = [{"gamma": 0}, {"gamma": 2, "window": "sometimes"}, {"gama": 2}, {"gamma": 1}]
    status, out, data = page(chain_file(tmp_path, levels, edges))
    wanted = [
        "level 0 (folder:", "not addressed by position", "chain.levels[1]: source 'nope'",
        "chain.levels[2]: dtype: 'float8'", "chain.levels[3]: device: 'gpu'", "rope_type 'dynamic'",
        "chain.levels[4]", "the target uses the row's settings", "chain.edges[0]: edge.gamma",
        "chain.edges[1]: edge.window: 'sometimes'", "chain.edges[2].gama: unknown field",
    ]  # fmt: skip
    listed = "\n".join(data["problems"])
    assert [text for text in wanted if text not in listed] == []
    assert all(" ".join(problem.split()) in out for problem in data["problems"])
    assert (status, data["verdict"], data["profile"]) == (1, "refused", None)
    assert [row["level"] for row in data["levels"]] == ["L0", "L1", "L2", "L3", "L4"]
    assert data["levels"][0]["weight_bytes"] > 0  # known, although the engine cannot run it


def test_the_loader_names_every_problem_too(tmp_path):
    levels = [{"source": "random:llama", "temperature": -1.0}, {"source": "random:llama", "top_k": 5}]
    spec = loading.read_chain(chain_file(tmp_path, levels))
    with pytest.raises(ValueError) as caught:
        Loader().chain(spec)
    first, second = str(caught.value).splitlines()
    assert first.startswith("chain.levels[0]: level sampling.temperature: -1.0")
    assert second.startswith("chain.levels[1]: ")


@pytest.mark.parametrize("family", ["gpt_oss", "gemma2", "stablelm"])
def test_attention_that_the_engine_lacks_is_a_problem_before_weights_are_read(family, tmp_path, page):
    shape = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = AutoConfig.for_model(family, vocab_size=64, intermediate_size=32, **shape)
    status, _, data = page(chain_file(tmp_path, ["ngram", saved(tmp_path / "model", config)]))
    (problem,) = data["problems"]
    assert problem.startswith(f"level 1 (folder:{tmp_path / 'model'})")
    assert status == 1


def test_a_model_used_twice_is_counted_once_and_its_caches_twice(tmp_path, page):
    _, out, data = page(chain_file(tmp_path, [BYTES, BYTES]), "weights=false", "batch=2", "length=64")
    first, second = data["levels"]
    (device,) = data["devices"]
    assert device["weight_bytes"] == first["weight_bytes"] == second["weight_bytes"]
    assert device["cache_bytes"] == first["cache_bytes"] + second["cache_bytes"] == 2 * 64 * 64 * 2
    assert (first["shares_weights"], second["shares_weights"]) == (False, True)
    assert "shared" in out
    assert data["next"] == f"python -m experiments.check chain={data['chain']}"


def test_a_chain_that_does_not_fit_is_refused_with_the_numbers(tmp_path, monkeypatch, page):
    monkeypatch.setattr(memory_plan, "free_bytes", lambda device: 40_000)
    status, _, data = page(chain_file(tmp_path, [BYTES]), "length=64")
    (problem,) = data["problems"]
    (device,) = data["devices"]
    needed = device["weight_bytes"] + device["cache_bytes"]
    assert problem.startswith(f"memory: cpu has 40000 bytes free, and its levels need {needed} ")
    assert status == 1


def test_lengths_beyond_the_targets_positions_are_refused(tmp_path, page):
    chain = chain_file(tmp_path, ["random:llama?positions=32", "random:llama?positions=16"])
    status, _, data = page(chain, "weights=false", "length=18")
    assert data["problems"] == ["length: 18 tokens a row do not fit the target's position limit 16"]
    assert status == 1
    assert page(chain, "weights=false", "length=17")[0] == 0
    status, _, data = page(chain, "weights=false")
    assert (status, data["length"]) == (0, 16)


@pytest.mark.parametrize(("draft", "target"), [(72, 64), (64, 72)])
def test_padded_vocabularies_are_one_line_with_both_sizes(draft, target, tmp_path, capsys, page):
    levels = [
        f"random:llama?vocab={draft}&seed=1",
        f"random:llama?vocab={draft}&seed=2",
        f"random:llama?vocab={target}",
    ]
    chain = chain_file(tmp_path, levels)
    loader, spec = Loader(), loading.read_chain(chain)
    loader.chain(spec)
    loader.chain(spec)
    lines = capsys.readouterr().err.splitlines()  # once per level, however often the chain is built
    assert [line.partition(" (")[0] for line in lines] == ["warning: level 0", "warning: level 1"]
    assert all(f"vocab_size: {draft} against {target} of level 2" in line for line in lines)
    _, out, data = page(chain, "weights=false", "length=64")
    assert [pair["vocabulary"].partition(",")[0] for pair in data["pairs"]] == [
        f"{draft} / {draft}", f"{draft} / {target}", f"{draft} / {target}"
    ]  # fmt: skip
    side = "lower" if draft > target else "upper"
    assert data["pairs"][1]["vocabulary"].endswith(f", ids 64 to 71 only in the {side}")
    assert data["warnings"] == [line.removeprefix("warning: ") for line in lines]
    assert all(line in out for line in data["warnings"])


def test_pairs_say_how_tokenizers_and_ends_of_text_differ(tmp_path):
    def folder(name: str, tokenizer: Any, **fields: Any) -> str:
        config = random_config(RandomWeights("llama", positions=32 if name == "a" else 64))
        for field, value in fields.items():
            setattr(config, field, value)
        return saved(tmp_path / name, config, tokenizer)

    levels = [
        folder("a", words("u", "x", "y", "z", eos_token="z"), eos_token_id=3),
        folder("b", words("u", "x", "y", "z", eos_token="y"), eos_token_id=[2, 1]),
        folder("c", words("u", "y", "x", "z", eos_token="z"), eos_token_id=3),
    ]
    found = inspect_chain(chain_file(tmp_path, levels))
    first, outer, upper = compare_pairs(found)
    assert first.tokenizer == "equal, 4 entries"
    assert outer.tokenizer == upper.tokenizer == "2 of 4 entries differ"
    assert first.special == "eos 3 / 2"
    assert first.end_of_text == "3 / 2,1"
    assert first.positions == "32 / 64"
    assert padding_rows(found.levels[0], found.tokenizer) == 60
    assert [p.partition(":")[0] for p in found.problems] == ["level 0 (folder", "level 1 (folder"]


def test_an_end_of_text_id_that_is_none_is_a_problem(tmp_path):
    source = saved(tmp_path / "model", random_config(RandomWeights("llama")))
    (tmp_path / "model" / "generation_config.json").write_text('{"eos_token_id": ["2"]}')
    (problem,) = inspect_chain(chain_file(tmp_path, ["ngram", source])).problems
    assert problem.startswith(f"chain.levels[1]: {source}: generation_config.json: eos_token_id: ")


def test_a_tokenizer_that_cannot_be_read_is_a_problem(tmp_path):
    source = saved(tmp_path / "model", random_config(RandomWeights("llama")))
    (tmp_path / "model" / "tokenizer.json").write_text("{")
    (problem,) = inspect_chain(chain_file(tmp_path, ["ngram", source])).problems
    assert problem.startswith(f"chain.levels[1]: {source}: cannot read its tokenizer: ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["chain"], "'chain': expected key=value"),
        (["chian=tiny_pair"], "chian: unknown key; known are chain, batch"),
        (["batch=0"], "batch: expected more than 0, got 0"),
        (["batch=true"], "batch: expected int, got True"),
        (["seconds=long"], "seconds: expected a number, got 'long'"),
        (["weights=1"], "weights: expected bool, got 1"),
        (["chain=nowhere"], "chain: 'nowhere' is neither a YAML file nor one of"),
    ],
)
def test_a_wrong_argument_is_named(arguments, message, capsys):
    assert check.main(arguments) == 2
    assert capsys.readouterr().err.startswith(f"error: {message}")


@pytest.mark.parametrize("text", ["levels: [", "levels: 3", "edges: []", "3"])
def test_a_file_that_is_no_chain_is_an_error(text, tmp_path, capsys):
    path = tmp_path / "broken.yaml"
    path.write_text(text)
    assert check.main([f"chain={path}"]) == 2
    assert capsys.readouterr().err.startswith("error: chain")


def test_a_sound_chain_is_ok_and_everything_stands_in_the_file(tmp_path, page):
    chain = chain_file(tmp_path, [f"{BYTES}&seed=1", f"{BYTES}&seed=2", BYTES])
    status, out, data = page(chain, *QUICK)
    assert (status, data["verdict"], data["problems"]) == (0, "ok", [])
    assert data["counted_weight_bytes"] == data["devices"][0]["weight_bytes"]
    assert [rung["number"] for rung in data["certificate"]["rungs"]] == [0, 3, 4]
    assert all(rung["outcome"] == "passed" for rung in data["certificate"]["rungs"])
    assert 0 < data["certificate"]["false_alarm"] < 0.01
    names = [c["name"] for c in data["certificate"]["rungs"][0]["checks"]]
    assert "L2 drafts for itself, by token" in names
    assert "no token of probability 0 at u = 0" in names
    assert [edge["edge"] for edge in data["profile"]["edges"]] == ["L0->L1", "L1->L2"]
    assert data["profile"]["widths"] == [1, 2, 3]
    assert "\nok\nnext: python -m experiments.certify chain=" in out


def test_a_faulty_decoder_is_refused(tmp_path, page):
    """Negative control: the mini-certificate fails where AR's text is not kept."""
    (fault,) = [f for f in PLANTED if f.name == "off-by-one verification row"]
    with fault.active():
        status, out, data = page(chain_file(tmp_path, [f"{BYTES}&seed=1", BYTES]), *QUICK)
    assert (status, data["verdict"]) == (1, "refused")
    assert any(problem.startswith("mini-certificate: ") for problem in data["problems"])
    assert "FAILED" in out


def test_what_a_model_raises_when_loaded_is_a_reason_and_the_page_is_kept(tmp_path, page):
    source = saved(tmp_path / "model", random_config(RandomWeights("llama")))
    status, out, data = page(chain_file(tmp_path, ["ngram", source]))
    (problem,) = data["problems"]
    assert "no complete weights" in problem
    assert "pairs of levels" in out
    assert status == 1


@pytest.mark.parametrize(("room", "rungs"), [(True, [0, 3, 4, 5]), (False, [5])])
def test_a_chain_in_16_bit_is_checked_for_ties_and_its_copy_for_the_rest(room, rungs, tmp_path):
    spec = inspect_chain(chain_file(tmp_path, [{"source": f"{BYTES}&seed=1", "dtype": "bfloat16"}, BYTES])).spec
    wide = inspect_chain(chain_file(tmp_path, [f"{BYTES}&seed=1", BYTES])).spec
    loader, prompts = Loader(), [list(range(20)), list(range(40, 60))]
    found = mini_certificate(loader.chain(spec), prompts, (lambda: loader.chain(wide)) if room else None)
    assert [rung.number for rung in found.rungs] == rungs
    assert found.failures == []
    assert "float32" in found.note


def test_a_target_alone_has_nothing_to_certify(tmp_path, page):
    status, out, data = page(chain_file(tmp_path, [BYTES]), *QUICK)
    assert status == 0
    assert data["certificate"]["rungs"] == data["pairs"] == data["profile"]["edges"] == []
    assert "no draft, so there is nothing to certify" in out


@pytest.mark.parametrize(
    "levels",
    [
        ["ngram", BYTES],
        ["ngram:2-1", f"{BYTES}&seed=1", BYTES],
        ["random:llama?positions=16&seed=1", "random:llama?positions=64"],
        ["random:gpt2?seed=2&vocab=72", "random:llama?seed=1&vocab=60", "random:llama?vocab=64"],
    ],
)
def test_chains_of_other_kinds_are_ok(levels, tmp_path, page):
    status, _, data = page(chain_file(tmp_path, levels), *QUICK)
    assert data["problems"] == []
    assert status == 0
    assert {rung["outcome"] for rung in data["certificate"]["rungs"]} == {"passed"}
    assert [edge["cost_ratio"] is None for edge in data["profile"]["edges"]] == [
        level.startswith("ngram") for level in levels[:-1]
    ]


def test_sizes_are_read_by_people():
    assert [size(x) for x in (None, 64, 1920, 269e6, 1.5e12)] == [None, "64 B", "1.92 kB", "269 MB", "1.5 TB"]

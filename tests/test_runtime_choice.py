"""Which runtime a level gets: by name, refused by level and field before any weights are read."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch
import transformers as hf

from experiments import certify, check
from ssd.bench import loading
from ssd.bench.json_files import read_json
from ssd.bench.loading import Loader, load_chain
from ssd.bench.method_spec import EdgeSpec, MethodSpec
from ssd.bench.random_weights import RandomWeights, random_config, random_module
from ssd.bench.run_id import run_id
from ssd.bench.spec import ChainSpec, LevelSpec, RunSpec, parse
from ssd.bench.suite import build_all, sub_chain
from ssd.core.generate import generate
from ssd.core.model import CachedModel
from ssd.core.requests import Request, Sampling
from ssd.runtime.choose import RUNTIMES, check_runtime, with_runtime
from ssd.runtime.lean import LeanModel
from ssd.runtime.packing import can_pack
from ssd.runtime.static import StaticModel

SOURCE = "random:llama?seed=3"


def test_eager_is_the_model_itself() -> None:
    model = CachedModel(random_module(RandomWeights("gpt2")), "L1")
    assert RUNTIMES == ("eager", "graph", "compiled")
    assert with_runtime(model, "eager") is model
    graph = with_runtime(model, "graph")
    assert type(graph) is StaticModel
    assert (graph.name, graph.module) == ("L1", model.module)


@pytest.mark.parametrize("family", ["gpt2", "gemma3_text", "phi3", "opt", "gpt_neox", "olmo2", "granite"])
def test_other_families_are_not_compiled(family: str) -> None:
    model = CachedModel(random_module(RandomWeights(family)), "L1 (small)")
    said = rf"^L1 \(small\)\.runtime: 'compiled' computes llama, mistral, qwen2, qwen3, not '{family}'$"
    with pytest.raises(ValueError, match=said):
        with_runtime(model, "compiled")


def test_an_unknown_runtime_is_refused() -> None:
    model = CachedModel(random_module(RandomWeights("llama")), "L0")
    with pytest.raises(ValueError, match=r"^L0\.runtime: 'fast' is not one of eager, graph, compiled$"):
        with_runtime(model, "fast")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_act": "gelu"}, r"^L2\.hidden_act: 'gelu'; runtime 'graph' gates by silu only"),
        ({"quantization_config": {"quant_method": "x"}}, r"^L2\.quantization_config: runtime 'graph' takes plain"),
    ],
)
def test_layers_of_another_kind_are_refused_by_their_configuration(change: dict[str, Any], message: str) -> None:
    config = random_config(RandomWeights("llama"))
    for name, value in change.items():
        setattr(config, name, value)
    check_runtime(config, "eager", "L2")
    with pytest.raises(ValueError, match=message):
        check_runtime(config, "graph", "L2")


def test_a_rotation_of_part_of_a_head_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    module = random_module(RandomWeights("llama"))
    half = hf.models.llama.modeling_llama.LlamaRotaryEmbedding(hf.LlamaConfig(hidden_size=16, num_attention_heads=4))
    module.model.rotary_emb = half
    with pytest.raises(ValueError, match="L0: its rotary embedding turns 4 of the 8 numbers of a head"):
        with_runtime(CachedModel(module, "L0"), "graph")


@pytest.mark.parametrize(
    ("source", "runtime", "message"),
    [
        ("random:gpt2", "compiled", r"chain\.levels\[0\]\.runtime: 'compiled' computes llama, .* not 'gpt2'"),
        ("random:gemma3_text", "compiled", r"chain\.levels\[0\]\.runtime: 'compiled' computes llama, .* not 'gemma3_t"),
    ],
)
def test_a_chain_is_refused_before_weights_are_read(
    source: str, runtime: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "load_module", lambda *a: pytest.fail("weights were read"))
    with pytest.raises(ValueError, match=message):
        load_chain(ChainSpec((LevelSpec(source, runtime=runtime), LevelSpec(SOURCE)), (EdgeSpec(1),)))


def test_a_spec_refuses_what_it_can_name() -> None:
    with pytest.raises(ValueError, match=r"^chain\.levels\[0\]: runtime: 'fast' is not one of eager, graph, compiled"):
        parse(ChainSpec, {"levels": [{"source": SOURCE, "runtime": "fast"}]}, "chain")
    with pytest.raises(ValueError, match=r"levels\[0\]\.runtime: 'graph' has no meaning for 'ngram', a look-up"):
        ChainSpec((LevelSpec("ngram", runtime="graph"), LevelSpec(SOURCE)), (EdgeSpec(1),))


def test_levels_of_a_chain_run_as_their_specs_say() -> None:
    loader = Loader()
    specs = [LevelSpec(SOURCE, "float64", runtime=r) for r in ("graph", "eager", "graph")]
    chain = loader.chain(ChainSpec(tuple(specs), (EdgeSpec(2), EdgeSpec(3))))
    assert [type(x.model) for x in chain.levels] == [LeanModel, CachedModel, LeanModel]
    assert len({id(x.model.module) for x in chain.levels}) == 1  # the weights are loaded once
    (result,) = generate(chain, [Request((1, 5, 9), Sampling(1.0), max_new_tokens=20)])
    assert all(r.accepted == r.tested for r in result.rounds)
    again = loader.chain(ChainSpec((specs[0], *specs[1:]), (EdgeSpec(1), EdgeSpec(1))))
    assert again.scorer(0) is chain.scorer(0)


def test_the_runtime_is_part_of_a_runs_name_only_where_it_is_not_eager() -> None:
    def named(**fields: str) -> str:
        chain = ChainSpec((LevelSpec(SOURCE, **fields),))
        return run_id(RunSpec("x", chain, {"ar": MethodSpec(levels=(-1,))}))

    assert named() == named(runtime="eager") != named(runtime="graph")


def test_a_methods_runtime_replaces_that_of_every_model() -> None:
    chain = ChainSpec((LevelSpec("ngram"), LevelSpec(SOURCE, runtime="graph"), LevelSpec(SOURCE)), (EdgeSpec(2),) * 2)

    def runtimes(method: MethodSpec) -> list[str]:
        return [level.runtime for level in sub_chain(chain, method).levels]

    assert runtimes(MethodSpec()) == ["eager", "graph", "eager"]
    assert runtimes(MethodSpec(runtime="graph")) == ["eager", "graph", "graph"]  # a look-up has no passes
    assert runtimes(MethodSpec(runtime="eager")) == ["eager"] * 3
    assert runtimes(MethodSpec(levels=(1, -1), edges=(EdgeSpec(1),), runtime="eager")) == ["eager"] * 2
    assert runtimes(MethodSpec(levels=("ngram", -1), edges=(EdgeSpec(1),), runtime="graph")) == ["eager", "graph"]
    assert sub_chain(chain, MethodSpec(runtime="graph")).edges == chain.edges


def test_two_methods_of_one_run_may_differ_in_runtime_alone() -> None:
    chain = ChainSpec((LevelSpec(f"{SOURCE}&layers=1", "float64"), LevelSpec(SOURCE, "float64")), (EdgeSpec(3),))
    methods = {"ar": MethodSpec(levels=(-1,)), **{r: MethodSpec(runtime=r) for r in ("eager", "graph")}}
    built: list[Any] = build_all(RunSpec("x", chain, methods), Loader())
    assert [[type(x.model) for x in m.chain.levels] for m in built] == [
        [CachedModel],
        [CachedModel, CachedModel],
        [LeanModel, LeanModel],
    ]
    request = Request((1, 5, 9), Sampling(1.0), max_new_tokens=20, ignore_eos=True)
    outputs = [m.generate([request])[0].ids for m in built[1:]]
    assert outputs[0] == outputs[1]


def test_a_methods_runtime_is_refused_before_weights_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "load_module", lambda *a: pytest.fail("weights were read"))
    with pytest.raises(ValueError, match=r"^methods\.x: runtime: 'fast' is not one of eager, graph, compiled$"):
        parse(MethodSpec, {"runtime": "fast"}, "methods.x")
    for kind, gamma in (("transformers_ar", None), ("transformers_assisted", 2), ("transformers_lookup", 2)):
        with pytest.raises(ValueError, match=rf"^runtime: 'graph' does not fit kind '{kind}'$"):
            MethodSpec(kind, gamma=gamma, runtime="graph")
    chain = ChainSpec((LevelSpec("random:gpt2"), LevelSpec(SOURCE)), (EdgeSpec(1),))
    methods = {"ar": MethodSpec(levels=(-1,), runtime="compiled"), "mine": MethodSpec(runtime="compiled")}
    said = r"^methods\.mine: chain\.levels\[0\]\.runtime: 'compiled' computes llama, .* not 'gpt2'"
    with pytest.raises(ValueError, match=said):
        build_all(RunSpec("x", chain, methods), Loader())


def test_a_methods_runtime_is_part_of_a_runs_name_only_where_it_is_given() -> None:
    def named(**fields: str) -> str:
        return run_id(RunSpec("x", ChainSpec((LevelSpec(SOURCE),)), {"ar": MethodSpec(levels=(-1,), **fields)}))

    assert len({named(), named(runtime="eager"), named(runtime="graph")}) == 3
    assert named() == named()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_chain_of_this_runtime_is_checked_like_any_other(dtype: str, tmp_path: Any) -> None:
    """Profile and small certificate, in 16 bit with a copy in 32; a certificate's rungs on the chain as well."""
    source = "random:llama?hidden=16&layers=1&heads=2&vocab=256&range=0.1"
    levels = [f'{{source: "{source}&seed={seed}", dtype: {dtype}, runtime: graph}}' for seed in (1, 2)]
    path = tmp_path / "lean.yaml"
    path.write_text(f"levels: [{', '.join(levels)}]\nedges: [{{gamma: 2}}]\n")
    quick = ["seconds=0.01", "prompts=2", "prompt_tokens=16", "max_new_tokens=4"]
    assert check.main([f"chain={path}", f"results_dir={tmp_path}", *quick]) == 0
    data = read_json(tmp_path / "check" / "lean" / "check.json")
    rungs = {rung["number"]: rung["outcome"] for rung in data["certificate"]["rungs"]}
    assert rungs == dict.fromkeys((0, 3, 4) if dtype == "float32" else (0, 3, 4, 5), "passed")
    packs = can_pack(torch.device("cpu"), getattr(torch, dtype))
    assert [level["packed_bytes"] > 0 for level in data["levels"]] == [packs] * 2
    assert data["counted_packed_bytes"] == data["devices"][0]["packed_bytes"]


def test_a_certificate_can_be_made_of_a_chain_of_this_runtime(tmp_path: Any) -> None:
    source = "random:llama?hidden=16&layers=1&heads=2&vocab=256&range=0.1"
    levels = [f'{{source: "{source}&seed={seed}", runtime: graph}}' for seed in (1, 2)]
    path = tmp_path / "lean.yaml"
    path.write_text(f"levels: [{', '.join(levels)}]\nedges: [{{gamma: 2}}]\n")
    small = ["identity.prompts=2", "identity.prompt_tokens=8", "identity.tokens=8", "bookkeeping.tokens=6"]
    status = certify.main([f"chain={path}", f"results_dir={tmp_path}", "rungs=[0, 3]", "matrix=false", *small])
    data = read_json(tmp_path / "certify" / "lean" / "certificate.json")
    assert [(rung["number"], rung["outcome"]) for rung in data["rungs"]] == [(0, "passed"), (3, "passed")]
    assert status == 0


def test_baselines_of_transformers_keep_the_module(tmp_path: Any) -> None:
    """The same run's foreign AR computes with the module, whose outputs are what they were."""
    chain = ChainSpec((LevelSpec(SOURCE, "float64", runtime="graph"),))
    spec = RunSpec("x", chain, {"ar": MethodSpec(levels=(-1,)), "theirs": MethodSpec("transformers_ar")})
    request = Request((1, 5, 9), Sampling(0.0), max_new_tokens=20, ignore_eos=True)
    ours, theirs = (method.generate([request]) for method in build_all(spec, Loader()))
    assert ours[0].ids == theirs[0].ids


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_a_model_can_go_to_another_process(family: str) -> None:
    """As weights and a runtime: keys and values stay, scores are the same."""
    model = with_runtime(CachedModel(random_module(RandomWeights(family)), "L0"), "graph")
    model.allocate(1, 8)
    other = pickle.loads(pickle.dumps(model))
    assert (type(other), other.name, other.owner) == (type(model), "L0", None)
    assert not other.cache.buffers()
    other.allocate(1, 8)
    tokens, start = torch.tensor([[1, 5, 9]]), torch.tensor([0])
    assert torch.equal(other.score(tokens, start, 3), model.score(tokens, start, 3))

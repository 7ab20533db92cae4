"""Every runtime scores what ``eager`` scores: rollbacks, ragged rows, re-fed tokens, whole chains."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

import ssd.runtime.lean
from ssd.bench.bundled_drafts import load_l0, load_l1
from ssd.bench.random_weights import RandomWeights, random_module
from ssd.certify.tiny_models import P, near, tiny_llama, with_draft_vocabulary
from ssd.core.chain import Chain, Edge, Level
from ssd.core.generate import generate
from ssd.core.model import CachedModel
from ssd.core.requests import Request, Sampling
from ssd.runtime.choose import with_runtime
from ssd.runtime.graphs import WIDEST
from ssd.runtime.lean import LeanModel
from ssd.runtime.static import StaticModel

LEAN = (
    "llama",
    "mistral?window=6",
    "qwen2?window=6",
    "qwen2",
    "qwen3?window=6",
    "llama?kv_heads=4",
    "llama?kv_heads=1",
)
OTHERS = ("gpt2", "gemma3_text?window=6", "phi3?window=6", "opt", "gpt_neox", "olmo2", "granite")
SLOTS, VOCAB = 150, 64  # two slot buckets of 64 and 128, and a third that ends with the buffers


def module_of(text: str, dtype: torch.dtype = torch.float32, seed: int = 0) -> Any:
    family, _, query = text.partition("?")
    shape = {k: int(v) for k, _, v in (item.partition("=") for item in filter(None, query.split("&")))}
    return random_module(RandomWeights(family, positions=SLOTS, seed=seed, **shape)).to(dtype)


def script(model: CachedModel) -> list[Tensor]:
    """Logits of passes that write ahead, fall back by different amounts, and feed tokens again."""
    generator = torch.Generator().manual_seed(1)
    text = torch.randint(0, VOCAB, (2, SLOTS), generator=generator)
    junk = torch.randint(0, VOCAB, (2, 9), generator=generator)
    model.allocate(2, SLOTS)
    at = torch.tensor([40, 47])
    model.fill(text[:, :48], torch.tensor([0, 0]))
    found = []
    for step, width in enumerate((1, 5, 3, 8, 1, 2, 9, 4) * 3):
        model.score(junk[:, :width], at, keep=width)  # a draft that is rejected
        tokens = text.gather(1, at[:, None] + torch.arange(width))
        found.append(model.score(tokens, at, keep=1 + step % width))
        at = at + torch.tensor([width, max(width - 2, 1)])
    assert int(at.max()) > 128
    # One row of the two; the other is left as it is.
    found.append(model.score(junk[:1, :4], at[:1], keep=4))
    found.append(model.score(text[:, 60:63], torch.tensor([60, 50]), keep=3))
    model.copy(0, 1, 0, 60)  # the second row goes on from the first one's text
    found.append(model.score(junk[:, :4], torch.tensor([60, 60]), keep=4))
    return found


def assert_same_scores(ours: Any, theirs: CachedModel, bound: float) -> None:
    for got, right in zip(script(ours), script(theirs), strict=True):
        assert got.dtype == right.dtype
        assert got.shape == right.shape
        torch.testing.assert_close(got, right, atol=bound, rtol=0)


@pytest.mark.parametrize("family", [*LEAN, *OTHERS])
def test_graph_scores_what_eager_scores(family: str) -> None:
    eager = CachedModel(module_of(family))
    graph = with_runtime(eager, "graph")
    assert type(graph) is (LeanModel if family in LEAN else StaticModel)
    assert_same_scores(graph, eager, 1e-4)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_other_types_agree_to_their_rounding(dtype: torch.dtype) -> None:
    """Logits reach 9; one rounding step there is 0.03 in bfloat16, and several lie between the two orders."""
    eager = CachedModel(module_of("qwen3?window=6", dtype))
    bound = {torch.float64: 1e-10, torch.bfloat16: 0.4, torch.float16: 0.06}[dtype]
    assert_same_scores(with_runtime(eager, "graph"), eager, bound)


@pytest.mark.parametrize("fault", ["window", "rotation", "mask"])
def test_the_comparison_sees_a_wrong_pass(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: a window too wide by one, rotations the wrong way, masks of the wrong query."""
    eager = CachedModel(module_of("mistral?window=6"))
    lean = with_runtime(eager, "graph")
    assert isinstance(lean, LeanModel)
    if fault == "window":
        lean.weights = lean.weights._replace(windows=(7, 7))
    elif fault == "rotation":
        table = ssd.runtime.lean.rope_table
        signs = torch.tensor([1.0, -1.0])[:, None]
        monkeypatch.setattr(ssd.runtime.lean, "rope_table", lambda m, n: table(m, n) * signs)
    else:
        folded = ssd.runtime.lean.folded
        monkeypatch.setattr(ssd.runtime.lean, "folded", lambda m, g: folded(m, g).roll(1, 2))
    with pytest.raises(AssertionError):
        assert_same_scores(lean, eager, 1e-2)


def test_widest_passes_leave_the_chosen_layer_function() -> None:
    """A compiler would be asked for a new version of every prompt's length."""
    widths = []

    def noting(x: Tensor, *rest: Any) -> Tensor:
        widths.append(x.shape[1])
        return ssd.runtime.lean.layer(x, *rest)

    model = LeanModel(module_of("llama"))
    model.function = noting
    model.allocate(1, SLOTS)
    for width in (WIDEST + 1, WIDEST, 1):
        model.score(torch.zeros(1, width, dtype=torch.int64), torch.tensor([0]), keep=1)
    assert widths == [WIDEST, WIDEST, 1, 1]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_chain_of_graphs_writes_the_same_tokens(temperature: float) -> None:
    """Depth 2 over a draft vocabulary, four prompts of unequal lengths in one batch, float64."""
    ids = [*range(0, VOCAB, 2), 9, 5, 1]
    target = tiny_llama(0)
    middle, low = near(target, 0.1, 1), with_draft_vocabulary(near(target, 0.2, 2), ids)
    prompts = (P, P[:2], (7, 3, 60, 1, 44, 12, 5, 9, 31, 8), (1,))
    requests = [Request(p, Sampling(temperature), seed=3, max_new_tokens=40) for p in prompts]

    def made(runtime: str) -> Chain:
        models = [with_runtime(CachedModel(m), runtime) for m in (low, middle, target)]
        levels = (Level(models[0], draft_to_target=torch.tensor(ids)), Level(models[1]), Level(models[2]))
        return Chain(levels, (Edge(2), Edge(4)))

    ours, theirs = generate(made("graph"), requests), generate(made("eager"), requests)
    assert [r.ids for r in ours] == [r.ids for r in theirs]
    assert [r.rounds for r in ours] == [r.rounds for r in theirs]
    assert sum(x.accepted for r in ours for x in r.rounds) > 20


@pytest.mark.parametrize("which", ["l0", "l1"])
def test_bundled_drafts_score_over_their_draft_vocabulary(which: str) -> None:
    """L1 under a random embedding: logits of two passes, the second two tokens back."""
    embedding = torch.randn(49152, 576, generator=torch.Generator().manual_seed(0)) * 0.1
    module, ids = load_l0() if which == "l0" else load_l1(embedding)
    eager = CachedModel(module)
    graph = with_runtime(eager, "graph")
    text = torch.randint(0, 49152, (1, 20), generator=torch.Generator().manual_seed(1))
    for start, width in ((0, 12), (10, 5)):
        logits = []
        for model in (eager, graph):
            if start == 0:
                model.allocate(1, 20)
            logits.append(model.score(text[:, start : start + width], torch.tensor([start]), keep=3))
        assert logits[0].shape == (1, 3, len(ids))
        torch.testing.assert_close(logits[1], logits[0], atol=1e-4 * max(1.0, float(logits[0].abs().max())), rtol=0)


def test_llama3_scaling_is_the_modules_own() -> None:
    scaled = {
        "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    }  # fmt: skip
    shape = {"dtype": torch.float32, "max_position_embeddings": SLOTS}
    module, unscaled = tiny_llama(0, rope_parameters=scaled, **shape), tiny_llama(0, **shape)
    eager = CachedModel(module)
    assert_same_scores(with_runtime(eager, "graph"), eager, 1e-4)
    with pytest.raises(AssertionError):
        assert_same_scores(with_runtime(CachedModel(unscaled), "graph"), eager, 1e-2)


def test_biases_of_every_product_are_added() -> None:
    """Random biases in attention and gate, which random modules start at zero."""
    module = tiny_llama(0, dtype=torch.float32, attention_bias=True, mlp_bias=True, max_position_embeddings=SLOTS)
    generator = torch.Generator().manual_seed(2)
    for name, parameter in module.named_parameters():
        if name.endswith("bias"):
            parameter.data = torch.randn(parameter.shape, generator=generator)
    eager = CachedModel(module)
    assert_same_scores(with_runtime(eager, "graph"), eager, 1e-4)
    plain = copy.deepcopy(module)
    for layer in plain.model.layers:
        layer.self_attn.o_proj.bias.data.zero_()
    with pytest.raises(AssertionError):
        assert_same_scores(with_runtime(CachedModel(plain), "graph"), eager, 1e-2)

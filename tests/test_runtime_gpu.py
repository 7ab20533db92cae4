"""CUDA graphs and compiled layers on a GPU: eager's tokens, buffers that stay, ragged rows."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from ssd.bench.random_weights import RandomWeights, random_module
from ssd.core.chain import Chain, Edge, Level
from ssd.core.generate import generate
from ssd.core.model import CachedModel
from ssd.core.requests import Request, Sampling
from ssd.runtime.choose import with_runtime
from ssd.runtime.graphs import WIDEST
from ssd.runtime.lean import LeanModel
from ssd.runtime.static import StaticModel

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch.*"),
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores:UserWarning"),  # the compiler would like them
]
VOCAB = 64


def model_of(runtime: str, family: str = "llama", dtype: torch.dtype = torch.float32, seed: int = 0) -> StaticModel:
    """Exact products: float32 ones are not shortened to TF32 by default."""
    window = 6 if family in ("mistral", "qwen3") else None
    module: Any = random_module(RandomWeights(family, window=window, seed=seed, positions=256)).to(dtype).to("cuda")
    model = with_runtime(CachedModel(module, family), runtime)
    assert isinstance(model, StaticModel | CachedModel)
    return model  # type: ignore[return-value]


def on_gpu(*values: Any) -> Tensor:
    return torch.tensor(values, device="cuda")


@pytest.mark.parametrize("runtime", ["graph", "compiled"])
@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3", "gpt2", "gemma3_text"])
def test_ragged_passes_with_rollbacks_score_what_eager_scores(family: str, runtime: str) -> None:
    if runtime == "compiled" and family in ("gpt2", "gemma3_text"):
        pytest.skip("not compiled by design")
    eager, ours = model_of("eager", family), model_of(runtime, family)
    text = torch.randint(0, VOCAB, (2, 160), generator=torch.Generator().manual_seed(1)).to("cuda")
    for model in (eager, ours):
        model.allocate(2, 160)
        model.fill(text[:, : WIDEST + 8], on_gpu(0, 0))
    at = on_gpu(30, 38)
    for width in (1, 4, 1, 4, 1, 4) * 4:
        eager.score(text[:, :width], at, width)  # a draft that is rejected
        ours.score(text[:, :width], at, width)
        tokens = text.gather(1, at[:, None] + torch.arange(width, device="cuda"))
        torch.testing.assert_close(ours.score(tokens, at, width), eager.score(tokens, at, width), atol=1e-3, rtol=0)
        at = at + on_gpu(width, max(width - 1, 1))
    assert ours.graphs is not None
    assert 2 <= len(ours.graphs) <= 6  # two widths in at most three buckets: recordings came back


@pytest.mark.parametrize("runtime", ["graph", "compiled"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_chain_writes_the_same_tokens(runtime: str, temperature: float) -> None:
    """Depth 2, float64, four prompts of unequal lengths in one batch."""
    prompts = ((1, 5, 9, 5, 9, 5, 9), (1, 5), (7, 3, 60, 1, 44, 12, 5, 9, 31, 8), (1,))
    requests = [Request(p, Sampling(temperature), seed=3, max_new_tokens=30) for p in prompts]

    def made(name: str) -> Chain:
        levels = tuple(Level(model_of(name, dtype=torch.float64, seed=k)) for k in range(3))
        return Chain(levels, (Edge(2), Edge(3)))

    ours, theirs = generate(made(runtime), requests), generate(made("eager"), requests)
    assert [r.ids for r in ours] == [r.ids for r in theirs]


def test_recordings_outlive_a_shorter_text_and_end_with_their_buffers() -> None:
    """What a recording returns is not overwritten by the next, and a new text does not see the old one."""
    model = model_of("graph")
    eager = CachedModel(model.module)
    tokens = on_gpu([3, 1, 4, 1])
    for slots in (120, 90, 128, 200):
        model.allocate(1, slots)
        eager.allocate(1, slots)
        before = len(model.graphs or ())
        assert before == (0 if slots in (120, 200) else 1)
        first = model.score(tokens, on_gpu(0), 4)
        kept = first.clone()
        model.score(tokens.flip(1), on_gpu(4), 4)
        assert torch.equal(first, kept)
        torch.testing.assert_close(kept, eager.score(tokens, on_gpu(0), 4), atol=1e-3, rtol=0)
        assert len(model.graphs or ()) == 1


def test_a_pass_can_be_part_of_a_larger_graph() -> None:
    """Two static passes, the second fed with the first one's choice, recorded as one and replayed elsewhere."""
    model = model_of("graph")
    assert isinstance(model, LeanModel)
    model.allocate(1, 64)
    token, start = on_gpu([5]), on_gpu(0)

    def two_steps() -> Tensor:
        first = model.score_static(token, start, 64)[:, -1].argmax(-1, keepdim=True)
        return model.score_static(first, start + 1, 64)

    with torch.inference_mode():
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            two_steps()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            logits = two_steps()
        for value in (5, 9):
            token.fill_(value)
            graph.replay()
            recorded = logits.clone()
            torch.testing.assert_close(recorded, two_steps(), atol=1e-4, rtol=0)

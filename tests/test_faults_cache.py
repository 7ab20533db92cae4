"""Faults that users of other decoders have reported: keys, values, rollback and rows of unequal length.

B15: the bonus token is missing from the draft's cache (vllm-project/vllm #4212, meta-pytorch/gpt-fast #107).
B17: rollback and reset at the edges, state left for the next prompt (huggingface/transformers #47433).
B18: sliding windows (huggingface/transformers #48280, ml-explore/mlx-lm #1423).
B20: stale slots that still weigh something (huggingface/transformers #30312, Blaizzy/mlx-vlm #2113).
B21: rows that accept different numbers of tokens (Blaizzy/mlx-vlm #1155, hemingkx/Spec-Bench #17).
B22: positions of short rows, fully masked rows (unslothai/unsloth #3699, pytorch/pytorch #103749).
"""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import MistralConfig, MistralForCausalLM

import ssd.core.generate
from ssd.certify.tiny_models import P, chain_of, greedy, next_logits, tiny_gpt2, tiny_llama
from ssd.core.chain import Edge
from ssd.core.decode import Decoder
from ssd.core.generate import generate, stream
from ssd.core.model import CachedModel
from ssd.core.requests import Request, Sampling

GREEDY = Sampling(0)
PROMPTS = ((7,), (3, 8, 2), P, (11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22))
LLAMA = [tiny_llama(2, layers=1), tiny_llama(1), tiny_llama(0)]
GPT2 = [tiny_gpt2(2, layers=1), tiny_gpt2(1), tiny_gpt2(0)]


def tiny_mistral(seed: int, window: int, layers: int = 2) -> Any:
    config = MistralConfig(
        vocab_size=64, hidden_size=32, num_hidden_layers=layers, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=64, max_position_embeddings=128, initializer_range=0.5, sliding_window=window,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return MistralForCausalLM(config).double().eval()


class CacheFree(Decoder):
    """Recomputes every proposal without a cache, and every cached key of a committed token."""

    proposals = rows = 0

    def propose(self, k: int, start: Tensor, limit: Tensor, key: Tensor) -> Any:
        before = self.text.clone()
        draft = super().propose(k, start, limit, key)
        module = self.chain.levels[k].model.module
        for i, (s, n) in enumerate(zip(start.tolist(), draft.count.tolist(), strict=True)):
            prefix = before[i, :s].tolist()
            for token in draft.tokens[i, :n].tolist():
                assert token == int(next_logits(module, tuple(prefix)).argmax()), (k, s, n)
                prefix.append(token)
            CacheFree.proposals += n
        return draft

    def round(self, k: int, *rest: Any) -> Any:
        emitted = super().round(k, *rest)
        if k == self.top:
            for j, level in enumerate(self.chain.levels):
                self._compare(j, level.model)
        return emitted

    def _compare(self, k: int, model: CachedModel) -> None:
        for i, valid in enumerate(self.valid[k].tolist()):
            if valid == 0:
                continue
            fresh = CachedModel(model.module)
            fresh.allocate(1, valid)
            fresh.fill(self.text[i : i + 1, :valid], torch.tensor([0]))
            for ours, theirs in zip(model.cache.layers, fresh.cache.layers, strict=True):
                torch.testing.assert_close(ours.keys[i, :, :valid], theirs.keys[0], atol=1e-5, rtol=1e-5)
                torch.testing.assert_close(ours.values[i, :, :valid], theirs.values[0], atol=1e-5, rtol=1e-5)
            CacheFree.rows += 1


@pytest.mark.parametrize("gamma", [1, 2, 4, 7])
@pytest.mark.parametrize("kind", ["self", "strangers"])
def test_b15_proposals_and_caches_equal_those_computed_without(
    kind: str, gamma: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssd.core.generate, "Decoder", CacheFree)
    monkeypatch.setattr(CacheFree, "proposals", 0)
    monkeypatch.setattr(CacheFree, "rows", 0)
    modules = [LLAMA[-1]] * 3 if kind == "self" else LLAMA
    requests = [Request(p, GREEDY, max_new_tokens=41 if kind == "self" else 20) for p in (P, (3, 8, 2))]
    for depth in (1, 2):
        chain = chain_of(modules[2 - depth :], [Edge(gamma)] * depth)
        for request, got in zip(requests, generate(chain, requests), strict=True):
            assert list(got.ids) == greedy(LLAMA[-1], request.ids, request.max_new_tokens)
            if kind == "self":
                assert all(r.accepted == r.drafted for r in got.rounds)
    assert CacheFree.proposals > 60
    assert CacheFree.rows > 20


class Lengths(Decoder):
    """After each target round far from the end, how many committed tokens each level lacks."""

    behind: set[tuple[int, int]]

    def round(self, k: int, start: Tensor, room: Tensor, *rest: Any) -> Any:
        emitted = super().round(k, start, room, *rest)
        if k == self.top and int(room.min()) > 15:
            for j, valid in enumerate(self.valid):
                Lengths.behind |= {(self.top - j, x) for x in (start + emitted.count - valid).tolist()}
        return emitted


@pytest.mark.parametrize("gamma", [1, 2, 4, 7])
def test_b15_a_level_lacks_one_token_for_each_level_above_it(gamma: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssd.core.generate, "Decoder", Lengths)
    monkeypatch.setattr(Lengths, "behind", set(), raising=False)
    for depth in (1, 2, 3):
        chain = chain_of([LLAMA[-1]] * (depth + 1), [Edge(gamma)] * depth)
        generate(chain, [Request(p, GREEDY, max_new_tokens=41) for p in (P, (3, 8, 2))])
    assert Lengths.behind == {(above, above + 1) for above in range(4)}


def cached(module: Any, batch: int = 1, slots: int = 12) -> CachedModel:
    model = CachedModel(module)
    model.allocate(batch, slots)
    return model


def at(*start: int) -> Tensor:
    return torch.tensor(start)


@pytest.mark.parametrize("module", [LLAMA[-1], GPT2[-1], tiny_mistral(0, 8)], ids=["llama", "gpt2", "mistral"])
def test_b17_going_back_to_any_position_is_writing_there(module: Any) -> None:
    tokens, other = torch.tensor([[5, 6, 7]]), torch.tensor([[9, 9, 9]])
    right = cached(module).score(tokens, at(0), keep=3)
    model = cached(module)
    model.score(other, at(0), keep=1)
    assert torch.equal(model.score(tokens, at(0), keep=3), right)  # back to 0
    model.score(other, at(3), keep=1)
    longer = model.score(torch.tensor([[1]]), at(3), keep=1)  # back to 3
    fresh = cached(module)
    fresh.score(tokens, at(0), keep=1)
    assert torch.equal(fresh.score(torch.tensor([[1]]), at(3), keep=1), longer)
    model.allocate(1, 12)
    assert torch.equal(model.score(tokens, at(0), keep=3), right)  # reset, then three again


@pytest.mark.parametrize("start", [[-2], [0, -2]])
def test_b17_going_back_too_far_is_an_error(start: list[int]) -> None:
    model = cached(LLAMA[-1], batch=len(start))
    with pytest.raises(ValueError, match="-2"):
        model.score(torch.ones(len(start), 3, dtype=torch.int64), at(*start), keep=1)


def test_b17_prompts_a_b_a_through_one_chain() -> None:
    chain = chain_of(LLAMA, [Edge(2), Edge(3)])
    for sampling in (GREEDY, Sampling()):
        a = [Request(P, sampling, max_new_tokens=12)]
        for other in ((5, 3, 60, 61, 8, 7, 1), PROMPTS[-1], (2,)):
            b = [Request(other, sampling, max_new_tokens=12)]
            first, between, last = (generate(chain, r)[0] for r in (a, b, a))
            assert (last.ids, last.rounds) == (first.ids, first.rounds)
            assert between.ids == generate(chain_of(LLAMA, chain.edges), b)[0].ids
        abandoned = stream(chain, b)
        next(abandoned)
        assert generate(chain, a)[0].ids == first.ids
        with pytest.raises(RuntimeError, match=r"L[0-2]: its cache was taken over"):
            list(abandoned)
        assert generate(chain, a)[0].ids == first.ids


@pytest.mark.parametrize("attention", ["eager", "sdpa"])  # the module's own, which is restored after a pass
@pytest.mark.parametrize("role", ["target", "draft", "both"])
def test_b18_sliding_windows_survive_rollback(role: str, attention: str) -> None:
    for window, gamma in ((8, 4), (3, 6)):
        narrow = tiny_mistral(0, window)
        narrow.set_attn_implementation(attention)
        modules = {
            "target": [LLAMA[0], LLAMA[1], narrow],
            "draft": [tiny_mistral(3, window, layers=1), narrow, LLAMA[-1]],
            "both": [narrow, tiny_mistral(0, window), narrow],
        }[role]
        requests = [Request(p, GREEDY, max_new_tokens=30) for p in (P, PROMPTS[-1], (7,))]
        right = [greedy(modules[-1], r.ids, 30) for r in requests]
        for depth in (1, 2):
            chain = chain_of(modules[2 - depth :], [Edge(2), Edge(gamma)][2 - depth :])
            for ids, got in zip(right, generate(chain, requests), strict=True):
                assert list(got.ids) == ids
                assert role != "both" or all(r.accepted == r.drafted for r in got.rounds)


@pytest.mark.parametrize("module", [LLAMA[-1], GPT2[-1], tiny_mistral(0, 8)], ids=["llama", "gpt2", "mistral"])
@pytest.mark.parametrize("lengths", [(5, 5), (3, 9)])
@torch.inference_mode()
def test_b20_slots_past_the_length_weigh_nothing(module: Any, lengths: tuple[int, int]) -> None:
    model = cached(module, batch=2, slots=20)
    text = torch.tensor([PROMPTS[-1], PROMPTS[-1][::-1]])
    model.fill(text, at(0, 0))
    step, start = torch.tensor([[1, 2, 3], [4, 5, 6]]), at(*lengths)
    clean = model.score(step, start, keep=3)
    places = [layer.keys.data_ptr() for layer in model.cache.layers]
    for poison in (1e4, -1e4):
        for layer in model.cache.layers:
            for row, length in enumerate(lengths):
                layer.keys[row, :, length:] = poison
                layer.values[row, :, length:] = poison
        assert torch.equal(model.score(step, start, keep=3), clean)
    assert [layer.keys.data_ptr() for layer in model.cache.layers] == places


@pytest.fixture(scope="module", params=["llama", "gpt2"])
def family(request: pytest.FixtureRequest) -> tuple[list[Any], dict[tuple[int, ...], list[int]]]:
    modules = LLAMA if request.param == "llama" else GPT2
    return modules, {p: greedy(modules[-1], p, 40) for p in PROMPTS}


@pytest.mark.parametrize("gamma", range(1, 7))
def test_b21_rows_that_accept_different_numbers_of_tokens(gamma: int, family: Any) -> None:
    modules, right = family
    chain = chain_of(modules, [Edge(2), Edge(gamma)])
    order = random.Random(gamma).sample(PROMPTS, len(PROMPTS))
    results = generate(chain, [Request(p, GREEDY, max_new_tokens=40) for p in order])
    assert [list(g.ids) for g in results] == [right[p] for p in order]
    alone = generate(chain, [Request(order[0], GREEDY, max_new_tokens=12)])[0]
    assert alone.ids == results[0].ids[:12]
    assert len({len(g.rounds) for g in results}) > 1 or gamma == 1


class Finite(CachedModel):
    """Keeps the logits of every pass, which must be finite."""

    def score(self, tokens: Tensor, start: Tensor, keep: int) -> Tensor:
        logits = super().score(tokens, start, keep)
        assert logits.isfinite().all()
        return logits


@pytest.mark.parametrize("end", [None, 0, 63])
def test_b22_short_rows_equal_their_own_runs(end: int | None) -> None:
    """Nothing is padded on the left; id 0, which fills the text buffer, is a token like any other."""
    rows = (P, (1, 7, 8), (0, 0, 3), (0,))
    ends = () if end is None else (end,)
    for chain in (chain_of(GPT2, [Edge(2), Edge(3)]), chain_of(GPT2[-1:], [])):
        requests = [Request(p, GREEDY, max_new_tokens=12, eos_ids=ends) for p in rows]
        for request, got in zip(requests, generate(chain, requests), strict=True):
            right = greedy(GPT2[-1], request.ids, 12)
            stop = right.index(end) + 1 if end in right else 12
            assert list(got.ids) == right[:stop]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("make", [tiny_llama, tiny_gpt2])
def test_b22_no_row_is_ever_fully_masked(make: Any, dtype: torch.dtype) -> None:
    """In 16 bit too, every logit of every row is finite, and rows alone say what they say together."""
    module = make(0, dtype=dtype)
    rows = torch.tensor([[*P, 0, 0], [1, 7, 8, 0, 0, 0, 0, 0, 0]])
    together = Finite(module)
    together.allocate(2, 12)
    together.fill(rows, at(0, 0))
    logits = together.score(torch.tensor([[20, 21], [22, 23]]), at(7, 3), keep=2)
    tolerance = 1e-4 if dtype == torch.float32 else 0.05
    for i, (row, tail) in enumerate(((P, (20, 21)), ((1, 7, 8), (22, 23)))):
        with torch.inference_mode():
            alone = module(torch.tensor([[*row, *tail]])).logits[0, -2:]
        scale = max(1.0, float(alone.abs().max()))
        assert float((logits[i] - alone).abs().max()) <= tolerance * scale

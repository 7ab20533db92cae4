"""The position-addressed cache: stale slots are invisible, buffers stay where they are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import MistralConfig, MistralForCausalLM

import ssd.core.cache
import ssd.core.generate
from ssd.certify.tiny_models import P, chain_of, greedy, tiny_llama
from ssd.core.cache import SlotCache, slot_attention
from ssd.core.chain import WINDOWS, Edge
from ssd.core.decode import Decoder
from ssd.core.generate import generate
from ssd.core.model import CachedModel
from ssd.core.requests import Request, Sampling

PROMPTS = (P, (7,), (3, 8, 2), (11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22))


class Poisoning(Decoder):
    """Writes +-1e4 into every slot that holds nothing valid, before every scoring and after every round."""

    poisoned = 0

    def _poison(self, k: int) -> None:
        model = self.chain.levels[k].model
        if not isinstance(model, CachedModel):
            return
        for i, layer in enumerate(model.cache.layers):
            if not layer.is_initialized:
                continue
            for row, valid in enumerate(self.valid[k].tolist()):
                layer.keys[row, :, valid:] = 1e4 * (-1) ** (i + row)
                layer.values[row, :, valid:] = -1e4 * (-1) ** (i + row)
                Poisoning.poisoned += layer.slots.size - valid

    def _score(self, k: int, *rest: Any) -> Any:
        self._poison(k)
        return super()._score(k, *rest)

    def round(self, k: int, *rest: Any) -> Any:
        emitted = super().round(k, *rest)
        for j in range(k + 1):
            self._poison(j)
        return emitted


class Addresses(Decoder):
    """Notes where the buffers of every level are, pass by pass."""

    seen: dict[int, set[tuple[int, ...]]]

    def _pass(self, k: int, *rest: Any, **options: Any) -> Any:
        out = super()._pass(k, *rest, **options)
        layers = self.chain.levels[k].model.cache.layers
        Addresses.seen.setdefault(k, set()).add(tuple(t.data_ptr() for x in layers for t in (x.keys, x.values)))
        return out


def windowed(seed: int, layers: int) -> Any:
    config = MistralConfig(
        vocab_size=64, hidden_size=32, num_hidden_layers=layers, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=64, max_position_embeddings=128, initializer_range=0.5, sliding_window=8,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return MistralForCausalLM(config).double().eval()


def requests(temperature: float, n: int = 24) -> list[Request]:
    return [Request(p, Sampling(temperature), seed=3, max_new_tokens=n) for p in PROMPTS]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("window", WINDOWS)
def test_poisoned_slots_change_nothing(window: str, temperature: float, monkeypatch: pytest.MonkeyPatch) -> None:
    value = 0.5 if window == "confidence" else None
    edges = [Edge(2, window, value), Edge(3, window, value)]
    chain = chain_of([windowed(2, 1), tiny_llama(1), tiny_llama(0)], edges)
    clean = [(g.ids, g.rounds) for g in generate(chain, requests(temperature))]
    monkeypatch.setattr(ssd.core.generate, "Decoder", Poisoning)
    monkeypatch.setattr(Poisoning, "poisoned", 0)
    assert [(g.ids, g.rounds) for g in generate(chain, requests(temperature))] == clean
    assert Poisoning.poisoned > 10_000


def test_poisoned_slots_change_nothing_with_self_drafts_and_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole blocks are kept, so a level is short of the bonus token and of nothing else."""
    monkeypatch.setattr(ssd.core.generate, "Decoder", Poisoning)
    chain = chain_of([windowed(4, 2), windowed(4, 2), windowed(4, 2)], [Edge(2), Edge(5)])
    for request, got in zip(requests(0, 40), generate(chain, requests(0, 40)), strict=True):
        assert list(got.ids) == greedy(chain.levels[-1].model.module, request.ids, 40)
        assert all(r.accepted == r.drafted for r in got.rounds)


def test_addresses_do_not_change_during_and_between_generations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssd.core.generate, "Decoder", Addresses)
    monkeypatch.setattr(Addresses, "seen", {}, raising=False)
    chain = chain_of([tiny_llama(2, 1), tiny_llama(1), tiny_llama(0)], [Edge(2), Edge(3)])
    first = [g.ids for g in generate(chain, requests(1.0))]
    assert [g.ids for g in generate(chain, requests(1.0))] == first
    assert {k: len(places) for k, places in Addresses.seen.items()} == {0: 1, 1: 1, 2: 1}


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (4, 2), (4, 1)])
def test_keys_reach_attention_with_their_own_number_of_heads(
    heads: int, kv_heads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    original = ssd.core.cache.scaled_dot_product_attention

    def spy(query: Any, key: Any, value: Any, **options: Any) -> Any:
        seen.append((query.shape[1], key.shape[1], value.shape[1], options.get("enable_gqa", False)))
        return original(query, key, value, **options)

    monkeypatch.setattr(ssd.core.cache, "scaled_dot_product_attention", spy)
    modules = [tiny_llama(s, num_attention_heads=heads, num_key_value_heads=kv_heads) for s in (1, 0)]
    got = generate(chain_of(modules, [Edge(3)]), requests(0, 12))
    assert set(seen) == {(kv_heads, kv_heads, kv_heads, False)}
    assert [list(g.ids) for g in got] == [greedy(modules[-1], p, 12) for p in PROMPTS]


def test_attention_without_a_mask_is_an_error() -> None:
    x = torch.zeros(1, 2, 3, 4)
    with pytest.raises(ValueError, match="Identity: ssd_slots sees slots through a mask, and none"):
        slot_attention(torch.nn.Identity(), x, x, x, None)


@pytest.mark.parametrize("option", ["softcap", "s_aux", "position_bias"])
def test_attention_options_it_lacks_are_errors(option: str) -> None:
    x = torch.zeros(1, 2, 3, 4)
    with pytest.raises(ValueError, match=f"Identity asks attention for {option}"):
        slot_attention(torch.nn.Identity(), x, x, x, torch.zeros(1, 1, 3, 3), **{option: x})


@pytest.mark.parametrize("start", [[4, 4], [1, 4]])
def test_writing_beyond_the_last_slot_is_an_error(start: list[int]) -> None:
    model = CachedModel(tiny_llama(0))
    model.allocate(2, 6)
    tokens = torch.tensor([[1, 2, 3], [4, 5, 6]])
    model.score(tokens, torch.tensor([3, 3]), keep=1)
    with pytest.raises(ValueError, match=r"cache: positions \d to 6 do not fit its 6 slots"):
        model.score(tokens, torch.tensor(start), keep=1)


def test_bytes_of_all_buffers() -> None:
    model = CachedModel(tiny_llama(0, layers=3, dtype=torch.float32))
    assert model.cache.bytes() == 0
    model.allocate(2, 10)
    model.fill(torch.tensor([[1], [2]]), torch.tensor([0, 4]))
    assert model.cache.bytes() == 2 * 3 * 2 * 2 * 10 * 8 * 4  # K and V, layers, rows, KV heads, slots, width, bytes


def test_allocating_again_zeroes_and_keeps_buffers_of_the_same_shape() -> None:
    model = CachedModel(tiny_llama(0))
    model.allocate(2, 10)
    tokens, zero = torch.tensor([[1, 2], [3, 4]]), torch.tensor([0, 0])
    first = model.score(tokens, zero, keep=2)
    layers = model.cache.layers
    places = [layer.keys.data_ptr() for layer in layers]
    model.fill(tokens, torch.tensor([2, 5]))
    model.allocate(2, 10)
    assert [layer.keys.data_ptr() for layer in layers] == places
    assert not any(t.any() for layer in layers for t in (layer.keys, layer.values))
    assert torch.equal(model.score(tokens, zero, keep=2), first)
    model.allocate(1, 12)
    model.fill(tokens[:1], zero[:1])
    assert layers[0].keys.shape == (1, 2, 12, 8)
    assert not layers[0].keys[:, :, 2:].any()


def test_two_caches_share_nothing_and_layers_of_one_share_positions() -> None:
    one, other = SlotCache(2), SlotCache(2)
    one.allocate(1, 4)
    assert (other.slots.batch, other.slots.size) == (0, 0)
    assert one.layers[0].slots is one.layers[1].slots

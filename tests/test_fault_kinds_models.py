"""Neighbours of the faults in ``test_faults_cache.py`` and ``test_faults_models.py``: other levels and settings."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from test_faults_models import Own, PretendDevices, pretending
from torch import Tensor
from transformers import (
    LogitNormalization,
    MinLengthLogitsProcessor,
    MistralConfig,
    MistralForCausalLM,
    NoBadWordsLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
)

from ssd.certify.consistency import contradictions
from ssd.certify.tiny_models import P, chain_of, greedy, near, tiny_gpt2, tiny_llama, with_draft_vocabulary
from ssd.certify.twins import twin_ids
from ssd.core.chain import VERIFICATIONS, WINDOWS, Chain, Edge, Level
from ssd.core.generate import generate
from ssd.core.model import CachedModel
from ssd.core.ngram import Ngram
from ssd.core.requests import Override, Request, Sampling

GREEDY = Sampling(0)
PROMPTS = (P, (7,), (3, 8, 2), (11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22))


def edge(gamma: int = 3, window: str = "at_least", verification: str = "token") -> Edge:
    return Edge(gamma, window, 0.4 if window == "confidence" else None, verification)


def told(chain: Chain, requests: Sequence[Request]) -> list[Any]:
    """Tokens and rounds of every row, overlaps left out: they are sums of another order."""
    return [(g.ids, [replace(r, overlap=()) for r in g.rounds]) for g in generate(chain, requests)]


def tiny_mistral(seed: int, window: int | None) -> Any:
    config = MistralConfig(
        vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=64, max_position_embeddings=128, initializer_range=0.5, sliding_window=window,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return MistralForCausalLM(config).double().eval()


@pytest.mark.parametrize("verification", VERIFICATIONS)
@pytest.mark.parametrize("narrow", [(0,), (1,), (0, 1, 2), (0, 2)])
def test_b18_windows_at_any_level_and_shorter_than_a_block(narrow: tuple[int, ...], verification: str) -> None:
    """Windows of one and two slots; drafts of six tokens; prompts shorter and longer than the window."""
    for window in (1, 5):
        modules = [tiny_mistral(0, window if k in narrow else None) for k in range(3)]
        chain = chain_of(modules, [edge(2), edge(6, verification=verification)])
        requests = [Request(p, GREEDY, max_new_tokens=12) for p in PROMPTS[1:]]
        for request, got in zip(requests, generate(chain, requests), strict=True):
            assert list(got.ids) == greedy(modules[-1], request.ids, 12)
            assert len(narrow) < 3 or all(r.accepted == r.drafted for r in got.rounds)
        sampled = Request(P, request=0, max_new_tokens=10)
        together = generate(chain, [sampled, *(replace(sampled, ids=p, request=i) for i, p in enumerate(PROMPTS, 1))])
        assert together[0].ids == generate(chain, [sampled])[0].ids
        if verification == "token":
            assert list(together[0].ids) == twin_ids(chain, sampled)


class Poisoned(CachedModel):
    """After every pass, what lies beyond the tokens of each row is overwritten with large numbers."""

    poison = 1e4

    def score(self, tokens: Tensor, start: Tensor, keep: int) -> Tensor:
        logits = super().score(tokens, start, keep)
        for layer, (row, begin) in itertools.product(self.cache.layers, enumerate(start.tolist())):
            layer.keys[row, :, begin + tokens.shape[1] :] = self.poison
            layer.values[row, :, begin + tokens.shape[1] :] = -self.poison
        return logits


@pytest.mark.parametrize("make", [tiny_llama, tiny_gpt2])
@pytest.mark.parametrize("verification", VERIFICATIONS)
def test_b20_b21_deep_chains_with_stale_slots_and_rows_of_all_lengths(make: Any, verification: str) -> None:
    target = make(0)
    modules = [make(3), make(2), make(1), target] if make is tiny_gpt2 else [
        *(near(target, 0.05, s) for s in (3, 2, 1)), target]  # fmt: skip
    edges = [edge(2, "rounds", verification), edge(3, "exactly", verification), edge(4, verification=verification)]
    requests = [
        Request(p, Sampling(t), request=i, max_new_tokens=6 + 2 * i)
        for i, (p, t) in enumerate(itertools.product(PROMPTS, (0.0, 1.0)))
    ]
    clean = chain_of(modules, edges)
    right = [generate(clean, [r])[0].ids for r in requests]
    order = random.Random(1).sample(range(len(requests)), len(requests))
    poisoned = chain_of([Level(Poisoned(m)) for m in modules], edges)
    for chain in (clean, poisoned):
        results = generate(chain, [requests[i] for i in order])
        assert [g.ids for g in results] == [right[i] for i in order]
    for request, ids in zip(requests, right, strict=True):
        assert request.sampling.temperature or list(ids) == greedy(target, request.ids, request.max_new_tokens)


SIZES = [(None, 72, 64), (None, 64, 72), (72, 60, 64), (60, 72, 64), (72, 64, 68, 64), (64, 60, 72, 66)]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_b24_vocabularies_shrink_and_grow_along_the_chain(sizes: tuple[int | None, ...], temperature: float) -> None:
    """No level proposes what the target lacks; a look-up (None) may stand below levels of other sizes."""
    target = tiny_llama(0, vocab=sizes[-1])
    modules = [Ngram(2, 2) if v is None else near(target, 0.04, 9 + k, vocab=v) for k, v in enumerate(sizes[:-1])]
    chain = chain_of([*modules, target], [edge(2), edge(3), edge(3)][: len(sizes) - 1])
    requests = [
        Request((*p, 61, 61), Sampling(temperature), request=i, max_new_tokens=10) for i, p in enumerate(PROMPTS)
    ]
    for request, got in zip(requests, generate(chain, requests), strict=True):
        assert max(got.ids) < (sizes[-1] or 0)
        assert list(got.ids) == twin_ids(chain, request)
        assert not contradictions(chain, request, got)


@pytest.mark.parametrize("verification", VERIFICATIONS)
@pytest.mark.parametrize("draft", ["look-up", "small", "wide", "cut", "look-up below small"])
def test_b24_ids_that_are_fed_but_never_said(draft: str, verification: str) -> None:
    """A target with more embeddings than outputs: ids above 63 stand in the prompt, and no draft may count on them."""
    target = with_draft_vocabulary(tiny_llama(0, vocab=72), range(64))
    levels = {
        "look-up": [Ngram()],
        "small": [tiny_llama(1, vocab=64)],
        "wide": [tiny_llama(1, vocab=72)],
        "cut": [with_draft_vocabulary(tiny_llama(1, vocab=72), range(60))],
        "look-up below small": [Ngram(), tiny_llama(1, vocab=64)],
    }[draft]
    chain = chain_of([*levels, target], [edge(3, verification=verification)] * len(levels))
    settings = (GREEDY, Sampling(), Sampling(0, repetition_penalty=1.3), Sampling(frequency_penalty=1.0))
    requests = [Request((70, 71, 65, 70, 71, 65, 70), s, request=i, max_new_tokens=8) for i, s in enumerate(settings)]
    alone = generate(chain_of([target], []), requests)
    for request, right, got in zip(requests, alone, generate(chain, requests), strict=True):
        assert max(got.ids) < 64
        assert request.sampling.temperature or got.ids == right.ids


VOCABULARY = [*range(40, 64), *range(30)]


def two_places(devices: Sequence[str], verification: str) -> Chain:
    """L0 with a draft vocabulary, L1 and the target, each on its device."""
    modules = [with_draft_vocabulary(tiny_llama(2, layers=1), VOCABULARY), tiny_llama(1), tiny_llama(0)]
    levels = [Level(Own(pretending(m, d), f"L{i}")) for i, (m, d) in enumerate(zip(modules, devices, strict=True))]
    levels[0] = replace(levels[0], draft_to_target=torch.tensor(VOCABULARY), sampling=Override(top_k=9))
    return Chain(tuple(levels), (edge(2, verification=verification), edge(3, verification=verification)))


@pytest.mark.parametrize("verification", VERIFICATIONS)
@pytest.mark.parametrize("devices", [("cpu", "mps:0", "mps:0"), ("mps:0", "mps:1", "cpu"), ("mps:1", "cpu", "mps:0")])
def test_b26_processors_and_penalties_on_levels_of_other_devices(devices: tuple[str, ...], verification: str) -> None:
    repeated = partial(RepetitionPenaltyLogitsProcessor, penalty=1.3)
    settings: list[dict[str, Any]] = [
        {"sampling": Sampling(0, repetition_penalty=1.4, min_new_tokens=3), "eos_ids": (19, 20, 33)},
        {"sampling": Sampling(1.0, frequency_penalty=0.5, presence_penalty=0.5, logit_bias=((7, 4.0),))},
        {"sampling": Sampling(0.8, top_p=0.9, bad_words_ids=((11,), (33, 47)))},
        {"sampling": Sampling(1.0), "processors": (repeated(), LogitNormalization())},
        {"sampling": Sampling(0), "processors": (repeated(),), "seed": 5},
    ]
    requests = [Request(P, request=i, max_new_tokens=8, **s) for i, s in enumerate(settings)]
    right = told(two_places(("cpu",) * 3, verification), requests)
    with PretendDevices():
        assert told(two_places(devices, verification), requests) == right


def test_b26_a_processor_with_tensors_of_its_own() -> None:
    """It makes them where it is called first, which has to be where the target is."""

    def requests() -> list[Request]:
        banned = NoBadWordsLogitsProcessor([[11], [33, 47]], eos_token_id=19)
        return [Request(P, GREEDY, max_new_tokens=8, processors=(banned,))]

    right = told(two_places(("cpu",) * 3, "token"), requests())
    with PretendDevices():
        assert told(two_places(("cpu", "mps:1", "mps:0"), "token"), requests()) == right


class Tied(CachedModel):
    """Output ``copy`` always has the logit of output ``of``."""

    copy, of = 1, 33

    def score(self, tokens: Tensor, start: Tensor, keep: int) -> Tensor:
        logits = super().score(tokens, start, keep)
        logits[..., self.copy] = logits[..., self.of]
        return logits


@pytest.mark.parametrize("verification", VERIFICATIONS)
@pytest.mark.parametrize("tied", [(0,), (1,), (2,), (0, 1, 2)])
def test_b27_exact_ties_at_any_level(tied: tuple[int, ...], verification: str) -> None:
    """A tie in a draft moves no token; a tie in the target goes to the lower id, penalties or not."""
    target = tiny_llama(0)
    modules = [near(target, 0.02, 8), near(target, 0.02, 9), target]
    plain = Level(Tied(target)) if 2 in tied else target
    levels = [Level(Tied(m)) if k in tied else m for k, m in enumerate(modules)]
    chain = chain_of(levels, [edge(2, verification=verification), edge(3, verification=verification)])
    alone = chain_of([plain], [])
    for sampling in (GREEDY, Sampling(0, repetition_penalty=1.2), Sampling(0, logit_bias=((1, 0.5), (33, 0.5)))):
        requests = [Request(p, sampling, max_new_tokens=12) for p in PROMPTS]
        assert [g.ids for g in generate(chain, requests)] == [g.ids for g in generate(alone, requests)]
        if 2 in tied and sampling.repetition_penalty == 1:
            assert all(33 not in g.ids for g in generate(alone, requests))


class Reused(CachedModel):
    """Every pass writes its logits into the tensor of the pass before, which is overwritten first."""

    memory = torch.empty(0)

    def score(self, tokens: Tensor, start: Tensor, keep: int) -> Tensor:
        logits = super().score(tokens, start, keep)
        self.memory.fill_(float("nan"))
        out = self.memory[: logits.numel()].view(logits.shape)
        return out.copy_(logits)


@pytest.mark.parametrize("verification", VERIFICATIONS)
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("where", [(0,), (1,), (2,), (3,), (0, 1, 2, 3)])
def test_b29_reused_output_memory_at_any_level(
    where: tuple[int, ...], window: str, verification: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Reused, "memory", torch.zeros(20_000, dtype=torch.float64))
    target = tiny_llama(0)
    modules = [*(near(target, 0.05, s) for s in (3, 2, 1)), target]
    edges = [edge(g, window, verification) for g in (1, 2, 3)]
    rows = (GREEDY, Sampling(), Sampling(0.8, repetition_penalty=1.2))
    requests = [Request(p, s, max_new_tokens=7) for p, s in zip(PROMPTS, rows, strict=False)]
    right = told(chain_of(modules, edges), requests)
    levels = [Level(Reused(m)) if k in where else m for k, m in enumerate(modules)]
    assert told(chain_of(levels, edges), requests) == right


def test_a_processor_that_remembers_or_needs_a_device_is_no_part_of_a_request() -> None:
    """Minimum lengths by position work at every level; the history of each position is its own."""
    chain = chain_of([tiny_llama(2, layers=1), tiny_llama(1), tiny_llama(0)], [edge(2), edge(3)])
    end = greedy(tiny_llama(0), P, 1)[0]
    longer = MinLengthLogitsProcessor(len(P) + 4, eos_token_id=end)
    plain, kept = (
        generate(chain, [Request(P, GREEDY, eos_ids=(end,), max_new_tokens=9, processors=p)])[0]
        for p in ((), (longer,))
    )
    assert plain.ids == (end,)
    assert end not in kept.ids[:4]

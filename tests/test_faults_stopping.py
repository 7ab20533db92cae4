"""Faults that users of other decoders have reported: where a sequence ends.

B01: an end token inside a block (huggingface/transformers #47912, LostRuins/koboldcpp #1276).
B03: drafts longer than what may still be said (huggingface/transformers #46993, #47195).
B04: past the position limit of target or draft (vllm-project/vllm #5342, ggml-org/llama.cpp #10641).
B05: rows that finish in different rounds (InternLM/lmdeploy #4671, Dao-AILab/flash-attention #2784).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from ssd.certify.consistency import contradictions
from ssd.certify.tiny_models import P, chain_of, greedy, tiny_gpt2, tiny_llama
from ssd.core.chain import WINDOWS, Chain, Edge, Level
from ssd.core.generate import generate, stream
from ssd.core.model import CachedModel
from ssd.core.ngram import Ngram
from ssd.core.requests import Request, Sampling

TARGET, MIDDLE, SMALL = tiny_llama(0), tiny_llama(1), tiny_llama(2, layers=1)
AR30 = greedy(TARGET, P, 30)
GREEDY = Sampling(0)


class Numbers:
    """Text of ids, one word each."""

    def decode(self, ids: Any) -> str:
        return " ".join(str(i) for i in ids)


def modes(gamma: int, tokenizer: Any = None) -> dict[str, Chain]:
    options = {"tokenizer": tokenizer}
    return {
        "ar": chain_of([TARGET], [], **options),
        "ngram": chain_of([Ngram(2, 2), TARGET], [Edge(min(gamma, 3))], **options),
        "self": chain_of([TARGET, TARGET], [Edge(gamma)], **options),
        "pair": chain_of([SMALL, TARGET], [Edge(gamma)], **options),
        "triple": chain_of([SMALL, MIDDLE, TARGET], [Edge(gamma), Edge(gamma)], **options),
        "self triple": chain_of([TARGET, TARGET, TARGET], [Edge(gamma), Edge(gamma)], **options),
    }


def until(ids: list[int], *ends: int) -> list[int]:
    """Up to and including the first end token."""
    return next((ids[: i + 1] for i, t in enumerate(ids) if t in ends), ids)


def test_b01_end_token_anywhere_in_an_accepted_block() -> None:
    for name, chain in modes(8, Numbers()).items():
        for index in (1, 2, 4):
            request = Request(P, GREEDY, max_new_tokens=30, eos_ids=(AR30[index],))
            right = until(AR30, AR30[index])
            got = generate(chain, [request])[0]
            assert (list(got.ids), got.stop_reason) == (right, "eos"), (name, index)
            assert not contradictions(chain, request, got)
            shown = list(stream(chain, [request]))
            assert [t for _, ids, _ in shown for t in ids] == right
            assert "".join(text for _, _, text in shown) == Numbers().decode(right)


@pytest.mark.parametrize("window", WINDOWS)
def test_b01_the_end_only_cuts_what_would_have_been_sampled(window: str) -> None:
    """At T = 1 the run with an end token is the run without it, cut."""
    edges = [Edge(3, window, 0.5 if window == "confidence" else None)] * 2
    chain = chain_of([SMALL, MIDDLE, TARGET], edges)
    free = [Request(P, request=i, max_new_tokens=30) for i in range(12)]
    whole = [list(g.ids) for g in generate(chain, free)]
    index = [(0, 3, 11, 29, 7, 18)[i % 6] for i in range(12)]
    ended = [replace(r, eos_ids=(ids[i],)) for r, ids, i in zip(free, whole, index, strict=True)]
    for request, ids, got in zip(ended, whole, generate(chain, ended), strict=True):
        assert list(got.ids) == until(ids, *request.eos_ids)
        assert not contradictions(chain, request, got)


class Eager(CachedModel):
    """Thinks that the end token comes next, always."""

    end = 0

    def score(self, tokens: Tensor, start: Tensor, keep: int) -> Tensor:
        logits = super().score(tokens, start, keep)
        logits[..., self.end] += 100
        return logits


def test_b01_a_rejected_end_token_ends_nothing() -> None:
    end = next(t for t in range(64) if t not in AR30)
    drafts = [Eager(SMALL), Eager(MIDDLE)]
    for draft in drafts:
        draft.end = end
    chains = [chain_of([Level(drafts[0]), TARGET], [Edge(8)])]
    chains.append(chain_of([SMALL, Level(drafts[1]), TARGET], [Edge(2), Edge(8)]))
    for chain in chains:
        got = generate(chain, [Request(P, GREEDY, max_new_tokens=30, eos_ids=(end,))])[0]
        assert (list(got.ids), got.stop_reason) == (AR30, "length")
        assert sum(r.accepted for r in got.rounds if r.edge == chain.depth - 1) == 0


def test_b03_no_mode_goes_beyond_the_budget_or_drafts_for_it() -> None:
    for name, chain in modes(8).items():
        for n in range(5):
            for window in ("at_least", "exactly"):
                chain = replace(chain, edges=tuple(replace(e, window=window) for e in chain.edges))
                request = Request(P, GREEDY, max_new_tokens=n)
                got = generate(chain, [request])[0]
                assert list(got.ids) == AR30[:n], (name, n, window)
                assert not contradictions(chain, request, got)
                assert all(r.start + r.drafted < len(P) + n for r in got.rounds)
                if n == 1:
                    assert [(r.edge, r.drafted, r.end) for r in got.rounds] == [(chain.depth - 1, 0, "plain")]


def test_b03_budgets_differ_within_a_batch() -> None:
    requests = [Request(P, GREEDY, max_new_tokens=n) for n in (3, 0, 1, 17, 2)]
    for chain in modes(8).values():
        for request, got in zip(requests, generate(chain, requests), strict=True):
            n = request.max_new_tokens
            assert list(got.ids) == AR30[:n]
            assert all(r.start + r.drafted < len(P) + n for r in got.rounds)


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_b04_up_to_the_targets_last_position(depth: int, window: str) -> None:
    target = tiny_gpt2(0, positions=16)
    edges = [Edge(5, window, 0.5 if window == "confidence" else None)] * depth
    chain = chain_of([target] * (depth + 1), edges)
    right = greedy(target, P, 10)  # the last token is never fed back
    assert list(generate(chain, [Request(P, GREEDY, max_new_tokens=10)])[0].ids) == right
    rows = [Request(P[:n], GREEDY, max_new_tokens=17 - n) for n in (7, 1, 4)]
    for request, got in zip(rows, generate(chain, rows), strict=True):
        assert list(got.ids) == greedy(target, request.ids, request.max_new_tokens)
    with pytest.raises(ValueError, match=r"requests\[0\].max_new_tokens: 7 prompt \+ 11 new .* limit 16"):
        generate(chain, [Request(P, GREEDY, max_new_tokens=11)])


LIMITS = [(16, 64), (16, 64, 64), (64, 16, 64), (16, 16, 64), (9, 16, 64), (5, 64, 64), (64, 5, 64)]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("limits", LIMITS)
def test_b04_a_draft_with_fewer_positions_stops_drafting(limits: tuple[int, ...], temperature: float) -> None:
    """Rows on both sides of the limit at once; alone and together they say the same."""
    copies = [tiny_gpt2(0, positions=64) for _ in limits]
    for module, limit in zip(copies, limits, strict=True):
        module.config.n_positions = limit
        module.transformer.wpe.weight = torch.nn.Parameter(copies[-1].transformer.wpe.weight[:limit].detach().clone())
    chain = chain_of(copies, [Edge(3)] * (len(limits) - 1))
    requests = [Request(p, Sampling(temperature), request=i, max_new_tokens=20) for i, p in enumerate(
        (P, P[:1], P * 2, P * 3, P + (33,) * 8))]  # fmt: skip
    for request, got in zip(requests, generate(chain, requests), strict=True):
        if temperature == 0:
            assert list(got.ids) == greedy(copies[-1], request.ids, 20)
        else:
            assert got.ids == generate(chain, [request])[0].ids
        assert not contradictions(chain, request, got)
        for r in got.rounds:  # position p is said by a model that was fed p - 1
            assert r.drafted == 0 or r.start + r.drafted <= limits[r.edge] + 1
            assert r.accepted == r.drafted  # copies of the target, within their limits
        if len(request.ids) > max(limits[:-1]):
            assert all(r.end == "plain" for r in got.rounds)
        elif len(request.ids) < min(limits[:-1]) - 3:
            assert any(r.drafted for r in got.rounds if r.edge == chain.depth - 1)


@pytest.mark.parametrize("gamma", range(1, 7))
def test_b05_one_row_ends_and_the_others_go_on(gamma: int) -> None:
    prompts = (P, (11, 12, 13), (60, 44, 8, 21, 3))
    plain = [greedy(TARGET, p, 24) for p in prompts]
    end = plain[0][2]
    assert all(end not in ids for ids in plain[1:])
    requests = [Request(p, GREEDY, max_new_tokens=24, eos_ids=(end,)) for p in prompts]
    for name, chain in modes(gamma).items():
        if name in ("ar", "self triple") and gamma > 1:
            continue
        results = generate(chain, requests)
        assert list(results[0].ids) == until(plain[0], end), name
        assert [list(g.ids) for g in results[1:]] == plain[1:], name
        assert [g.stop_reason for g in results] == ["eos", "length", "length"]
        for request, got in zip(requests, results, strict=True):
            assert not contradictions(chain, request, got)
        alone = generate(chain, requests[1:2])[0]
        assert (alone.ids, alone.rounds) == (results[1].ids, results[1].rounds)


def test_b05_stop_rules_do_not_leak_between_rows() -> None:
    """Each row has end tokens and stop strings of its own; id 0, a usual filler, is one of them."""
    chain = modes(4, Numbers())["triple"]
    rules: list[dict[str, Any]] = [{"eos_ids": (AR30[5],)}, {"stop": (f" {AR30[9]} ",)}, {}, {"eos_ids": (0,)}]
    requests = [Request(P, GREEDY, max_new_tokens=30, **r) for r in rules]
    expected = [until(AR30, AR30[5]), None, AR30, until(AR30, 0)]
    results = generate(chain, requests)
    for right, got, request in zip(expected, results, requests, strict=True):
        assert right is None or list(got.ids) == right
        assert got.ids == generate(chain, [request])[0].ids
    text = Numbers().decode(AR30)
    assert Numbers().decode(results[1].ids).startswith(text[: text.index(f" {AR30[9]} ")])
    assert results[1].stop_reason == "stop"

"""Neighbours of the faults in the ``test_faults_*`` files: the same kinds, other instances.

Every comparison is exact. At temperature 0 the reference is one token at a time by the target alone; above it a row
alone, a run without the thing under test, or the twin.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from ssd.certify.consistency import contradictions
from ssd.certify.row_scorer import RowScorer
from ssd.certify.tiny_models import P, chain_of, greedy, near, tiny_gpt2, tiny_llama
from ssd.certify.twins import twin_ids
from ssd.core import randomness as rng
from ssd.core.chain import VERIFICATIONS, WINDOWS, Chain, Edge, Level
from ssd.core.generate import generate, stream
from ssd.core.model import CachedModel
from ssd.core.ngram import Ngram
from ssd.core.requests import Generation, Override, Request, Sampling

TARGET, GREEDY = tiny_llama(0), Sampling(0)
MODULES = [*(near(TARGET, noise, seed) for noise, seed in ((0.06, 4), (0.05, 3), (0.04, 2), (0.02, 1))), TARGET]
AR30 = greedy(TARGET, P, 30)
PROMPTS = (P, (7,), (3, 8, 2), (60, 44, 8, 21, 3, 5, 9, 11))


class Words:
    """Text of ids, one word each."""

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(map(str, ids))


def edge(gamma: int = 3, window: str = "at_least", verification: str = "token") -> Edge:
    return Edge(gamma, window, 0.5 if window == "confidence" else None, verification)


def deep(depth: int, one: Edge, bottom: Any = None, **options: Any) -> Chain:
    """A chain of ``depth`` equal edges; ``bottom`` takes the place of L0."""
    modules = MODULES[len(MODULES) - 1 - depth :]
    return chain_of([bottom, *modules[1:]] if bottom else modules, [one] * depth, **options)


def one(chain: Chain, request: Request) -> Generation:
    (got,) = generate(chain, [request])
    assert not contradictions(chain, request, got)
    return got


@pytest.mark.parametrize("verification", VERIFICATIONS)
@pytest.mark.parametrize("depth", [1, 3])
def test_b01_the_end_token_as_draft_bonus_and_recovered_token(depth: int, verification: str) -> None:
    """The same draws, cut where the end token first occurs; among ends that nobody says, or by text over two tokens."""
    chain, met = deep(depth, edge(3, verification=verification), tokenizer=Words()), set()
    free = [Request(P, Sampling(0.3), request=i, max_new_tokens=12) for i in range(6)]
    cases: list[tuple[Request, tuple[int, ...], str]] = []
    for request, whole in zip(free, generate(chain, free), strict=True):
        for i in {whole.ids.index(t) for t in whole.ids} & {1, 2, 4, 6, 9}:
            met.add(whole.origins[depth][i])
            cases.append((replace(request, eos_ids=(10**6, whole.ids[i])), whole.ids[: i + 1], "eos"))
            stop = f"{whole.ids[i - 1]} {whole.ids[i]}"
            keep = next(n for n in range(13) if stop in Words().decode(whole.ids[:n]))
            cases.append((replace(request, stop=("nowhere", stop)), whole.ids[:keep], "stop"))
    requests, right, reasons = zip(*cases, strict=True)
    results = generate(chain, requests)
    assert [(g.ids, g.stop_reason) for g in results] == list(zip(right, reasons, strict=True))
    assert not [c for r, g in zip(requests, results, strict=True) for c in contradictions(chain, r, g)]
    shown = [""] * len(requests)
    for row, _, text in stream(chain, requests):
        shown[row] += text
    assert shown == [Words().decode(ids) for ids in right]
    assert met >= {"draft", "recovered"} | ({"bonus"} if depth == 1 else set())


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("depth", [1, 4])
@pytest.mark.parametrize("bottom", [None, Ngram(2, 2)])
def test_b03_no_level_of_a_deep_chain_goes_beyond_the_budget(bottom: Any, depth: int, window: str) -> None:
    chain = deep(depth, edge(8, window), bottom)
    requests = [Request(P, GREEDY, max_new_tokens=n) for n in (1, 2, 3, 5)]
    for request, got in zip(requests, generate(chain, requests), strict=True):
        n = request.max_new_tokens
        assert list(got.ids) == AR30[:n]
        assert all(r.start + r.drafted < len(P) + n for r in got.rounds)  # one token is always the verifier's own
    assert [p.count for p in one(chain, requests[0]).passes] == [0] * depth + [1]


LIMITS = ((64, 64, 9, 64), (64, 12, 64, 64), (11, 64, 13, 64), (64, 64, 64, 18))


@pytest.mark.parametrize("verification", VERIFICATIONS)
@pytest.mark.parametrize("limits", LIMITS)
def test_b04_any_level_may_have_the_fewest_positions(limits: tuple[int, ...], verification: str) -> None:
    """Of the rows only one comes near the limit."""
    whole, copies = tiny_gpt2(0, positions=64), [tiny_gpt2(0, positions=64) for _ in limits]
    for module, limit in zip(copies, limits, strict=True):
        module.config.n_positions = limit
        module.transformer.wpe.weight = torch.nn.Parameter(whole.transformer.wpe.weight[:limit].detach().clone())
    chain = chain_of(copies, [edge(2), edge(3), edge(4, verification=verification)])
    requests = [Request(p, GREEDY, max_new_tokens=n) for p, n in (((7,), 5), (P, 12), ((3, 8), 6))]
    for request, got in zip(requests, generate(chain, requests), strict=True):
        assert list(got.ids) == greedy(copies[-1], request.ids, request.max_new_tokens)
        assert not contradictions(chain, request, got)
        assert all(r.start + r.drafted <= limits[r.edge] + 1 for r in got.rounds if r.drafted)


@pytest.mark.parametrize("depth", [1, 3])
def test_b05_rows_end_for_different_reasons_in_different_rounds(depth: int) -> None:
    chain = deep(depth, edge(3), tokenizer=Words())
    rules: list[dict[str, Any]] = [
        {"eos_ids": (AR30[3],)}, {"stop": (f"{AR30[7]} {AR30[8]}",)}, {"max_new_tokens": 4}, {"max_new_tokens": 0},
        {"eos_ids": (AR30[3],), "stop": (" ",), "ignore_eos": True},
        {"eos_ids": tuple({*range(64)} - {*AR30}), "stop": ("-1",)},
    ]  # fmt: skip
    requests = [Request(P, GREEDY, **{"max_new_tokens": 12, "request": i, **r}) for i, r in enumerate(rules)]
    alone = [one(chain, r) for r in requests]
    for order in ((0, 1, 2, 3, 4, 5), (5, 3, 4, 0, 2, 1)):
        for i, got in zip(order, generate(chain, [requests[j] for j in order]), strict=True):
            assert (got.ids, got.stop_reason) == (alone[i].ids, alone[i].stop_reason)
            assert got.rounds == alone[i].rounds
    assert [g.stop_reason for g in alone] == ["eos", "stop", "length", "length", "length", "length"]


def with_zeros(rows: Sequence[Sequence[float]], verification: str, overrides: Sequence[Override]) -> Chain:
    levels = [Level(RowScorer([row] * len(row)), o) for row, o in zip(rows, overrides, strict=True)]
    return Chain(tuple(levels), (edge(2, verification=verification),) * (len(rows) - 1))


@pytest.mark.parametrize("verification", VERIFICATIONS)
@pytest.mark.parametrize("u", [0.0, 2**-53, 1 - 2**-53])
def test_b10_extreme_uniforms_never_emit_what_the_target_excludes(
    u: float, verification: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B07 and B09 too: whatever the drafts' own settings are, filters of the row hold."""
    monkeypatch.setattr(rng, "uniform", lambda key, level, stream, position: torch.full(
        torch.broadcast_shapes(key.shape, position.shape), u, dtype=torch.float64))  # fmt: skip
    rows = ((0.0, 0.5, 0.0, 0.5), (0.25, 0.25, 0.25, 0.25), (0.5, 0.0, 0.3, 0.2), (0.0, 0.6, 0.3, 0.1))
    for shift, override in itertools.product(range(4), (Override(), Override(temperature=0), Override(top_k=1))):
        ordered = [*rows[shift:], *rows[:shift]]
        chain = with_zeros(ordered, verification, [override, Override(), override, Override()])
        settings = (Sampling(), Sampling(0.5, top_p=0.7), Sampling(2.0, top_k=2), Sampling(min_p=0.7))
        results = generate(chain, [Request((1,), s, max_new_tokens=7) for s in settings])
        for sampling, got in zip(settings, results, strict=True):
            kept = {t for t, p in enumerate(ordered[-1]) if p > 0}
            if sampling != Sampling() and ordered[-1] == rows[3]:
                kept = {Sampling(min_p=0.7): {1}, Sampling(0.5, top_p=0.7): {1}}.get(sampling, {1, 2})
            assert set(got.ids) <= kept


@pytest.mark.parametrize("verification", VERIFICATIONS)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_b12_the_first_wrong_token_ends_what_is_accepted(temperature: float, verification: str) -> None:
    """The draft follows the target's cycle up to one token, at every place of the block in turn."""
    size, gamma = 9, 4
    right = torch.eye(size).roll(1, dims=1)
    for wrong in range(gamma + 1):
        rows = right.clone()
        rows[1 + wrong] = rows[1 + wrong].roll(3)
        levels = [Level(RowScorer(r.tolist())) for r in (rows, right)]
        chain = Chain(tuple(levels), (edge(gamma, verification=verification),))
        got = one(chain, Request((0, 1), Sampling(temperature), max_new_tokens=7))
        first = got.rounds[0]
        assert got.ids == (2, 3, 4, 5, 6, 7, 8)
        assert (first.drafted, first.accepted, first.emitted) == (gamma, wrong, wrong + 1)


def penalise(ids: Tensor, scores: Tensor) -> Tensor:
    """Less of the last token."""
    return scores.scatter(1, ids[:, -1:], scores.gather(1, ids[:, -1:]) - 3)


SETTINGS = (
    {"sampling": Sampling(0)},
    {"sampling": Sampling(1.0, top_k=3)},
    {"sampling": Sampling(0.7, top_p=0.6)},
    {"sampling": Sampling(1.5, min_p=0.2)},
    {"sampling": Sampling(0, repetition_penalty=1.7)},
    {"sampling": Sampling(1.0, bad_words_ids=((AR30[0],), (5, 9)))},
    {"sampling": Sampling(1.0, logit_bias=((7, 6.0),), frequency_penalty=1.5), "seed": 3},
    {"sampling": Sampling(0.8, min_new_tokens=6), "eos_ids": tuple(range(0, 64, 2))},
    {"sampling": Sampling(1.0), "processors": (penalise,), "seed": 2**64 - 1},
    {"sampling": Sampling(1.0), "sample": 10**12, "max_new_tokens": 3},
)


@pytest.mark.parametrize(("depth", "window"), [(0, "at_least"), (1, "confidence"), (3, "at_least")])
def test_b13_b14_every_row_has_its_own_settings_at_every_depth(depth: int, window: str) -> None:
    chain = deep(depth, edge(3, window))
    rows = [Request(P, **{"max_new_tokens": 10, "request": 1, **s}) for s in SETTINGS]
    alone = [one(chain, r).ids for r in rows]
    for shift in (0, 4):
        turned = [*rows[shift:], *rows[:shift]]
        assert [g.ids for g in generate(chain, turned)] == [*alone[shift:], *alone[:shift]]
    assert len(set(alone)) >= len(rows) - 1
    for request, ids in zip(rows, alone, strict=True):
        if depth < 2 and not request.eos_ids:
            assert list(ids) == twin_ids(chain, request)


@pytest.mark.parametrize("temperature", [1e-6, 1e-39, 1e-300])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_b10_the_coldest_temperatures_are_greedy(temperature: float, dtype: torch.dtype) -> None:
    modules = [tiny_llama(s, dtype=dtype) for s in (2, 1, 0)]
    chain = chain_of(modules, [edge(2), edge(3)])
    got = generate(chain, [Request(p, Sampling(temperature), max_new_tokens=15) for p in PROMPTS])
    assert [list(g.ids) for g in got] == [greedy(modules[-1], p, 15) for p in PROMPTS]


@pytest.mark.parametrize("verification", VERIFICATIONS)
@pytest.mark.parametrize("window", WINDOWS)
def test_b15_a_deep_self_draft_is_always_accepted(window: str, verification: str) -> None:
    chain = chain_of([TARGET] * 5, [edge(g, window, verification) for g in (1, 2, 3, 2)])
    requests = [Request(p, Sampling(t), max_new_tokens=14) for p in PROMPTS[:2] for t in (0.0, 1.0)]
    for request, got in zip(requests, generate(chain, requests), strict=True):
        assert all(r.accepted == r.drafted for r in got.rounds)
        assert not contradictions(chain, request, got)
        assert request.sampling.temperature or list(got.ids) == greedy(TARGET, request.ids, 14)


class Breaking(CachedModel):
    """Raises at one pass, as an interrupt or an exhausted memory does."""

    left = 0

    def score(self, tokens: Tensor, start: Tensor, keep: int) -> Tensor:
        self.left -= 1
        if self.left == 0:
            raise self.error
        return super().score(tokens, start, keep)

    error: BaseException = KeyboardInterrupt()


def test_b17_what_broke_off_leaves_nothing_behind() -> None:
    """One chain again and again: other batch sizes, an error in any level's pass, a stream left at any point."""
    models = [Breaking(m) for m in MODULES[2:]]
    chain = chain_of([Level(m) for m in models], [edge(2), edge(3)])
    requests = [Request(p, request=i, max_new_tokens=9) for i, p in enumerate(PROMPTS)]
    right = [one(chain, r).ids for r in requests]

    def everything() -> Iterator[tuple[int, ...]]:
        for some in (requests[1:2], requests, requests[2:], requests[:1]):
            yield from (g.ids for g in generate(chain, some))

    expected = [right[1], *right, *right[2:], right[0]]
    for model, place, error in zip(
        models * 2, (1, 2, 4, 2, 3, 1), [KeyboardInterrupt(), MemoryError()] * 3, strict=True
    ):
        model.left, model.error = place, error
        with pytest.raises(type(error)):
            generate(chain, requests[:3])
        model.left = 0
        assert one(chain, requests[0]).ids == right[0]
    assert list(everything()) == expected
    for steps in range(4):
        left = stream(chain, requests)
        list(itertools.islice(left, steps))
        if steps % 2:
            left.close()
        assert list(everything()) == expected

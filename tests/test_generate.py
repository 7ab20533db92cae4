"""Generating: self-drafts, seeds, stop rules, streaming, and what a ``Generation`` says about itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

import ssd.core.decode
from ssd.certify.consistency import contradictions
from ssd.certify.table_models import Logits, TableScorer
from ssd.certify.tiny_models import P, chain_of, greedy, tiny_llama
from ssd.certify.twins import twin_ids
from ssd.core.chain import WINDOWS, Chain, Edge, Level
from ssd.core.generate import generate, stream
from ssd.core.ngram import Ngram
from ssd.core.requests import Generation, Override, Request, Sampling

TARGET, MIDDLE, SMALL = tiny_llama(0), tiny_llama(1), tiny_llama(2, layers=1)
LONG = tuple((7 * i * i + 3) % 64 for i in range(30))


def three(window: str = "at_least", **options: Any) -> Chain:
    value = 0.4 if window == "confidence" else None
    return chain_of([SMALL, MIDDLE, TARGET], [Edge(2, window, value), Edge(3, window, value)], **options)


def told(g: Generation) -> tuple[Any, ...]:
    """What must not depend on the batch: everything but times, and overlaps up to rounding."""
    return g.ids, g.stop_reason, g.origins, [replace(r, overlap=()) for r in g.rounds]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_self_draft_is_always_accepted(depth: int, temperature: float) -> None:
    for gamma in (1, 2, 4, 7):
        chain = chain_of([TARGET] * (depth + 1), [Edge(gamma)] * depth)
        requests = [Request(p, Sampling(temperature), max_new_tokens=41) for p in (P, P[:2])]
        for request, got in zip(requests, generate(chain, requests), strict=True):
            assert {r.edge for r in got.rounds} == set(range(depth))
            assert all(r.accepted == r.tested == r.drafted for r in got.rounds)
            assert all(math.isclose(x, 1, rel_tol=1e-6) for r in got.rounds for x in r.overlap)
            if temperature == 0:
                assert list(got.ids) == greedy(TARGET, request.ids, 41)
            if depth == 1:
                assert [r.emitted for r in got.rounds[:-1]] == [gamma + 1] * (len(got.rounds) - 1)


@pytest.mark.parametrize("window", WINDOWS)
def test_a_seed_fixes_the_tokens_for_any_batch_and_order(window: str) -> None:
    chain = three(window)
    prompts = (P, (7,), LONG, (3, 8, 2), P[:4], (60, 61))
    settings = (Sampling(), Sampling(0.6, top_k=20), Sampling(0), Sampling(1.3), Sampling(top_p=0.9), Sampling(2.0))
    requests = [
        Request(p, s, seed=5, request=10 + i, max_new_tokens=8 + i)
        for i, (p, s) in enumerate(zip(prompts, settings, strict=True))
    ]
    alone = [told(generate(chain, [r])[0]) for r in requests]
    assert [told(g) for g in generate(chain, requests)] == alone
    assert [told(g) for g in generate(chain, requests[::-1])] == alone[::-1]
    assert [told(g) for g in generate(chain, requests[1:3])] == alone[1:3]
    assert list(alone[0][0]) == twin_ids(chain, requests[0])


def test_seed_request_and_sample_each_move_the_draws() -> None:
    chain = three()

    def ids(**identity: int) -> tuple[int, ...]:
        return generate(chain, [Request(P, max_new_tokens=24, **identity)])[0].ids

    assert ids() == ids(seed=0, request=0, sample=0)
    assert len({ids(), ids(seed=1), ids(request=1), ids(sample=1)}) == 4
    twice = generate(chain, [Request(P, max_new_tokens=24)] * 2)
    assert twice[0].ids == ids()
    assert twice[1].ids == ids(request=1)


def test_every_row_stops_at_its_own_number_of_tokens() -> None:
    chain, counts = three(), (0, 1, 2, 7, 0, 19)
    requests = [Request(P[: 1 + i], max_new_tokens=n, request=i) for i, n in enumerate(counts)]
    for request, got in zip(requests, generate(chain, requests), strict=True):
        assert (len(got.ids), got.stop_reason) == (request.max_new_tokens, "length")
        assert not contradictions(chain, request, got)
    empty = generate(chain, [Request(P, max_new_tokens=0)])[0]
    assert (empty.ids, empty.rounds, empty.origins, empty.arrivals) == ((), (), ((), (), ()), ())
    assert [p.count for p in empty.passes] == [0, 0, 0]
    assert generate(chain, []) == []
    assert list(stream(chain, [])) == []


def test_any_of_several_end_tokens_ends_a_row_and_is_kept() -> None:
    chain = three()
    plain = generate(chain, [Request(P, Sampling(0), max_new_tokens=20)])[0].ids
    ends = (plain[9], plain[4], 63)
    request = Request(P, Sampling(0), max_new_tokens=20, eos_ids=ends)
    got = generate(chain, [request])[0]
    first = min(plain.index(e) for e in ends if e in plain)
    assert (got.ids, got.stop_reason) == (plain[: first + 1], "eos")
    assert not contradictions(chain, request, got)
    free = generate(chain, [replace(request, ignore_eos=True)])[0]
    assert (free.ids, free.stop_reason) == (plain, "length")


def scripted(ids: Sequence[int], prompt: int, vocab: int) -> Logits:
    """A table that goes through ``ids`` whatever was said before."""
    return lambda prefix: tuple(20.0 * (t == ids[min(len(prefix) - prompt, len(ids) - 1)]) for t in range(vocab))


class Bytes:
    """Ids are bytes of UTF-8, so a character may take four tokens."""

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(ids).decode("utf-8", errors="replace")


class Pieces:
    """Ids are pieces of text of several characters."""

    pieces = ("he", "llo", " wor", "ld", "!", " ST", "OP he", "re")

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(self.pieces[i] for i in ids)


def scripted_chain(ids: Sequence[int], vocab: int, tokenizer: Any, gamma: int = 3) -> Chain:
    """The target goes through the script; the draft knows every third token wrong."""
    wrong = [(t + 1) % vocab if i % 3 == 2 else t for i, t in enumerate(ids)]
    levels = [Level(TableScorer(scripted(x, 1, vocab), vocab)) for x in (wrong, ids)]
    return Chain(tuple(levels), (Edge(gamma),), tokenizer)


@pytest.mark.parametrize(
    ("stop", "kept"),
    [
        (("lo w",), 3),
        (("STOP",), 7),
        (("nowhere", "ld!"), 5),
        (("OP", "e"), 1),
        (("here",), 8),
        (("nowhere",), 8),
        (("hello wor", "o"), 2),
    ],
)
def test_stop_strings_are_found_across_tokens(stop: tuple[str, ...], kept: int) -> None:
    for gamma in range(1, 7):
        chain = scripted_chain(range(8), 8, Pieces(), gamma)
        request = Request((0,), Sampling(0), max_new_tokens=8, stop=stop)
        got = generate(chain, [request])[0]
        assert got.ids == tuple(range(kept))
        text = Pieces().decode(got.ids)
        assert got.stop_reason == ("stop" if any(s in text for s in stop) else "length")
        assert not contradictions(chain, request, got)
        free = generate(chain, [replace(request, ignore_eos=True)])[0]
        assert (free.ids, free.stop_reason) == (tuple(range(8)), "length")


def test_a_stop_string_of_the_prompt_does_not_count() -> None:
    chain = scripted_chain(range(1, 5), 8, Pieces())
    request = Request((0,), Sampling(0), max_new_tokens=4, stop=("hello",))
    assert generate(chain, [request])[0].stop_reason == "length"


@pytest.mark.parametrize("gamma", [1, 2, 3, 5, 8])
def test_streamed_text_never_splits_a_character(gamma: int) -> None:
    said = "naïve — 𝄞 5 € 漢字!"
    chain = scripted_chain(list(said.encode()), 256, Bytes(), gamma)
    requests = [Request((65,), Sampling(0), max_new_tokens=n) for n in (len(said.encode()), 12)]
    text, ids = ["", ""], [[], []]
    for row, tokens, piece in stream(chain, requests):
        assert tokens
        text[row] += piece
        ids[row] += tokens
        assert "\ufffd" not in text[0]
    assert [tuple(x) for x in ids] == [g.ids for g in generate(chain, requests)]
    assert text[0] == said
    assert text[1] == Bytes().decode(ids[1])  # cut inside a character: shown as far as it goes


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_stream_yields_what_generate_returns(temperature: float) -> None:
    chain = three()
    requests = [Request(p, Sampling(temperature), max_new_tokens=n) for p, n in ((P, 20), ((7,), 5), (LONG, 31))]
    requests.append(Request(P[:3], Sampling(temperature), max_new_tokens=0))
    ids: list[list[int]] = [[] for _ in requests]
    for row, tokens, text in stream(chain, requests):
        ids[row] += tokens
        assert text == ""  # no tokenizer
    assert [tuple(x) for x in ids] == [g.ids for g in generate(chain, requests)]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("window", WINDOWS)
def test_a_generation_agrees_with_itself_and_with_independent_hooks(window: str, temperature: float) -> None:
    chain = three(window)
    requests = [Request(p, Sampling(temperature), max_new_tokens=n) for p, n in ((P, 23), ((7,), 9), (LONG, 17))]
    calls: list[list[int]] = [[], [], []]
    hooks = [
        level.model.module.register_forward_pre_hook(
            lambda m, args, kwargs, seen=seen: seen.append(kwargs["input_ids"].shape[1]), with_kwargs=True
        )
        for level, seen in zip(chain.levels, calls, strict=True)
    ]
    results = generate(chain, requests)
    for hook in hooks:
        hook.remove()
    for request, got in zip(requests, results, strict=True):
        assert not contradictions(chain, request, got)
        assert [(p.count, p.tokens) for p in got.passes] == [(len(seen), sum(seen)) for seen in calls]


@pytest.mark.parametrize("first", [Ngram(), SMALL])
def test_chunked_prompts_equal_whole_ones(first: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    chain = chain_of([first, MIDDLE, TARGET], [Edge(2), Edge(5)])
    requests = [Request(p, Sampling(1.0), max_new_tokens=15) for p in (LONG, P, (7,), LONG[:12])]
    batches = [requests, requests[:1], [replace(r, ids=LONG[i:][:20]) for i, r in enumerate(requests)]]
    whole = [[told(g) for g in generate(chain, batch)] for batch in batches]
    monkeypatch.setattr(ssd.core.decode, "CHUNK", 4)
    assert [[told(g) for g in generate(chain, batch)] for batch in batches] == whole


WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: Sampling(temperature=-0.1), r"sampling\.temperature: -0\.1"),
    (lambda: Sampling(temperature=math.nan), r"sampling\.temperature: nan"),
    (lambda: Sampling(temperature="1"), r"sampling\.temperature: .*'1'"),
    (lambda: Sampling(top_k=-1), r"sampling\.top_k: -1"),
    (lambda: Sampling(top_k=2.5), r"sampling\.top_k: .*2\.5"),
    (lambda: Sampling(top_p=0), r"sampling\.top_p: 0 "),
    (lambda: Sampling(top_p=1.01), r"sampling\.top_p: 1\.01"),
    (lambda: Sampling(min_p=True), r"sampling\.min_p: .*True"),
    (lambda: Override(min_p=2), r"level sampling\.min_p: 2"),
    (lambda: Request(()), r"request\.ids: the prompt is empty"),
    (lambda: Request(P, stop="END"), r"request\.stop: .*'END'"),
    (lambda: Request(P, stop=("a", "")), r"request\.stop: an empty stop string"),
    (lambda: Request(P, max_new_tokens=-1), r"request\.max_new_tokens: .*-1"),
    (lambda: Request(P, seed=1.5), r"request\.seed: .*1\.5"),
    (lambda: Request(P, sample=-2), r"request\.sample: .*-2"),
    (lambda: Edge(0), r"edge\.gamma: .*0"),
    (lambda: Edge(True), r"edge\.gamma: .*True"),
    (lambda: Edge(2, "sometimes"), r"edge\.window: 'sometimes'"),
    (lambda: Edge(2, "confidence"), r"edge\.window_value: None"),
    (lambda: Edge(2, "rounds", 0.5), r"edge\.window_value: 0\.5"),
    (lambda: Edge(2, "confidence", 1.5), r"edge\.window_value: 1\.5"),
    (lambda: Edge(2, verification="tree"), r"edge\.verification: 'tree'"),
    (lambda: Chain(()), r"chain\.levels: "),
    (lambda: chain_of([SMALL, TARGET], []), r"chain\.edges: 2 levels need 1 edges, got 0"),
    (lambda: chain_of([TARGET, Ngram()], [Edge(2)]), r"chain\.levels\[1\]\.model: an n-gram"),
    (lambda: chain_of([SMALL, TARGET], [Edge(2)], names=("a",)), r"chain\.names: 2 levels but names \('a',\)"),
    (lambda: Ngram(2, 3), "ngram: sizes 2 down to 3"),
    (lambda: generate(three(), [Request((1, 64))]), r"requests\[0\]\.ids: .*64"),
    (lambda: generate(three(), [Request(P, max_new_tokens=1), Request((1, -1))]), r"request\.ids\[1\]: .*-1"),
    (lambda: generate(three(), [Request(P, max_new_tokens=123)]), r"requests\[0\]\.max_new_tokens: .*128"),
    (lambda: generate(three(), [Request(P, max_new_tokens=1, stop=("x",))]), r"requests\[0\]\.stop: "),
    (lambda: generate(three(), [Request(P)], schedule="pipelined"), "schedule: 'pipelined'"),
]


@pytest.mark.parametrize(("make", "message"), WRONG, ids=[m for _, m in WRONG])
def test_errors_name_field_and_value(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_levels_check_their_place() -> None:
    ids = torch.arange(64)
    model = chain_of([SMALL, TARGET], [Edge(2)]).levels
    with pytest.raises(ValueError, match=r"chain\.levels\[1\]\.sampling"):
        Chain((model[0], replace(model[1], sampling=Override(temperature=0.5))), (Edge(2),))
    with pytest.raises(ValueError, match=r"chain\.levels\[1\]\.draft_to_target"):
        Chain((model[0], replace(model[1], draft_to_target=ids)), (Edge(2),))
    for bad, why in ((ids[:9], "9"), (ids + 1, "1..64"), (ids // 2, "same target id")):
        with pytest.raises(ValueError, match=rf"chain\.levels\[0\]\.draft_to_target: .*{why}"):
            Chain((replace(model[0], draft_to_target=bad), model[1]), (Edge(2),))

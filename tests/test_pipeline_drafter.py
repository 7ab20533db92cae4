"""The drafting side of an edge, driven by hand: what it answers, prepares for, and need not compute again."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ssd.certify.tiny_models import P, near, tiny_llama
from ssd.core import randomness as rng
from ssd.core.chain import Chain, Edge
from ssd.core.clock import PassClock
from ssd.core.decode import Decoder
from ssd.core.generate import generate
from ssd.core.requests import Request, Sampling
from ssd.pipeline.drafter import Drafter
from ssd.pipeline.group_decoder import GroupDecoder
from ssd.pipeline.messages import Ask
from ssd.pipeline.settings import PipelineSettings
from ssd.pipeline.start import held_by
from tests.test_pipeline import SMALL, TARGET, chain, three

GAMMA, ROOM = 3, 20


def pair(draft: Any = SMALL) -> Chain:
    return chain([draft, TARGET], [Edge(GAMMA)])


def drafter_of(c: Chain, request: Request, budget: int = 3, fan_out: int = 2, force: str | None = None) -> Drafter:
    group = range(c.depth)
    settings = PipelineSettings(kind="thread", budget=budget, fan_out=fan_out, force=force)
    rows, clock = [request] * budget, PassClock(c.devices)
    return Drafter(GroupDecoder(held_by(c, group), rows, clock, group, None, 0.0, fan_out + 2), 1, settings)


def ask(drafter: Drafter, text: list[int], begin: int, limit: int = ROOM) -> Ask:
    """A target's question after ``text``, of which what is before ``begin`` is known."""
    return Ask([len(text)], [limit], [int(drafter.decoder.root[0])], None, [(begin, text[begin:])])


def drafted(c: Chain, request: Request, text: list[int], limit: int) -> tuple[list[int], torch.Tensor | None]:
    """The same draft by a decoder of its own that was asked nothing before."""
    decoder = Decoder(c, [request])
    decoder.text[0, : len(text)] = torch.tensor(text)
    start = torch.tensor([len(text)])
    key = rng.round_key(decoder.root, start) if decoder.random else decoder.root
    with torch.inference_mode():
        draft = decoder.propose(c.depth - 1, start, torch.tensor([limit]), key)
    count = int(draft.count)
    return draft.tokens[0, :count].tolist(), None if draft.probs is None else draft.probs[0, :count]


def passes(drafter: Drafter) -> list[int]:
    """Tokens a row was fed in every pass so far."""
    return [i.tokens for i in drafter.decoder.clock.intervals()]


def equal(reply: Any, expected: tuple[list[int], torch.Tensor | None]) -> None:
    tokens, probs = expected
    assert reply.tokens == [tokens]
    assert (reply.probs is None) == (probs is None)
    if probs is not None:
        torch.testing.assert_close(reply.probs[0], probs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("make", [pair, three])
def test_every_prepared_outcome_has_the_draft_that_would_be_made_then(make: Any, temperature: float) -> None:
    c, request = make(), Request(P, Sampling(temperature), seed=3, max_new_tokens=ROOM)
    with torch.inference_mode():
        drafter = drafter_of(make(), request)
        first = ask(drafter, list(P), 0)
        assert drafter.hear(first) == [False]
        reply = drafter.answer(first)
        assert reply.ready == [None]
        equal(reply, drafted(c, request, list(P), ROOM))
        drafter.predict()
        drafter.prepare(None)
        drafter.draft_ahead()
        branches = drafter._verified[0].branches
        assert len(branches) == 3
        for branch in branches:
            text = [*P, *reply.tokens[0][: branch.guess.accepted], branch.guess.token]
            assert branch.made is not None
            tokens, probs = drafted(c, request, text, ROOM - len(branch.text))
            assert branch.made.tokens == tokens
            if probs is not None:
                torch.testing.assert_close(branch.made.probs, probs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_predicted_outcome_is_a_hit_and_any_other_is_not(temperature: float) -> None:
    request = Request(P, Sampling(temperature), seed=3, max_new_tokens=ROOM)
    with torch.inference_mode():
        for pick in (0, 1, 2, None):
            drafter = drafter_of(pair(), request)
            first = ask(drafter, list(P), 0)
            drafter.hear(first)
            tokens = drafter.answer(first).tokens[0]
            drafter.predict()
            drafter.prepare(None)
            drafter.draft_ahead()
            known = [b.guess[:2] for b in drafter._verified[0].branches]
            other = next((0, t) for t in range(64) if (0, t) not in known and t != tokens[0])
            accepted, token = other if pick is None else known[pick]
            text = [*P, *tokens[:accepted], token]
            second = ask(drafter, text, len(P), ROOM - accepted - 1)
            assert drafter.hear(second) == [pick is not None]
            before = len(passes(drafter))
            reply = drafter.answer(second)
            assert reply.ready == [pick is not None]
            assert (len(passes(drafter)) == before) == (pick is not None)
            equal(reply, drafted(pair(), request, text, ROOM - accepted - 1))
            # Another limit, another key: the same text is not enough.
            for limit, parent in ((ROOM - accepted - 2, second.parent), (ROOM - accepted - 1, [5])):
                strange = Ask(second.start, [limit], parent, None, [(len(text), [])])
                assert drafter.hear(strange) == [False]


def test_forced_misses_use_nothing_and_forced_hits_prepare_for_what_comes() -> None:
    request = Request(P, Sampling(1.0), seed=3, max_new_tokens=ROOM)
    for force in ("misses", "hits"):
        with torch.inference_mode():
            drafter = drafter_of(pair(), request, budget=1, fan_out=1, force=force)
            first = ask(drafter, list(P), 0)
            drafter.hear(first)
            tokens = drafter.answer(first).tokens[0]
            drafter.predict()
            strange = next(t for t in range(64) if t not in (tokens[0], *drafter._verified[0].guesses[0]))
            second = ask(drafter, [*P, strange], len(P), ROOM - 1)
            drafter.hear(second)
            drafter.prepare(second)
            drafter.draft_ahead()
            assert drafter.answer(second).ready == [force == "hits"]


def test_the_bonus_token_is_guessed_with_the_uniform_that_draws_it() -> None:
    """A draft with the target's weights draws what the target will: every guess is right, at any temperature."""
    c = pair(tiny_llama(0))
    for seed in range(8):
        request = Request(P, Sampling(1.0), seed=seed, max_new_tokens=GAMMA + 1)
        (g,) = generate(c, [request])
        assert g.rounds[-1].end == "bonus"
        with torch.inference_mode():
            drafter = drafter_of(pair(tiny_llama(0)), request)
            first = ask(drafter, list(P), 0)
            drafter.hear(first)
            assert tuple(drafter.answer(first).tokens[0]) == g.ids[:GAMMA]
            drafter.predict()
            guesses = drafter._verified[0].guesses
            assert guesses[-1][0] == g.ids[GAMMA]
            assert all(token not in own for token, own in zip(g.ids, guesses[:-1], strict=False))
            drafter.prepare(None)
            assert (GAMMA, g.ids[GAMMA]) in [b.guess[:2] for b in drafter._verified[0].branches]


@pytest.mark.parametrize("whole", [True, False])
def test_after_a_hit_no_token_is_fed_again(whole: bool) -> None:
    """A cycle of hits is a pass of one token for every drafted one, and one that guesses what comes next."""
    request = Request(P, Sampling(1.0), seed=1, max_new_tokens=60)
    with torch.inference_mode():
        drafter = drafter_of(pair(near(TARGET, 0.3, 9)), request)
        text, known, limit = list(P), 0, 59
        for cycle in range(5):
            question = ask(drafter, text, known, limit)
            drafter.hear(question)
            before = len(passes(drafter))
            reply = drafter.answer(question)
            assert (reply.ready == [True]) == (cycle > 0)
            if cycle:
                assert len(passes(drafter)) == before
            begun = len(passes(drafter))
            drafter.predict()
            drafter.prepare(None)
            drafter.draft_ahead()
            assert passes(drafter)[begun:] == [1] * (GAMMA + 1)
            branches = drafter._verified[0].branches
            chosen = branches[0] if whole else next(b for b in branches if b.place != 0)
            known, text = len(text), [*text, *chosen.text]
            limit -= len(chosen.text)


def test_a_draft_that_nothing_can_follow_is_not_prepared_for() -> None:
    request = Request(P, Sampling(0.0), max_new_tokens=ROOM)
    with torch.inference_mode():
        drafter = drafter_of(pair(), request)
        last = ask(drafter, list(P), 0, 1)
        drafter.hear(last)
        drafter.answer(last)
        before = len(passes(drafter))
        drafter.predict()
        drafter.prepare(None)
        drafter.draft_ahead()
        assert len(passes(drafter)) == before
        assert drafter._verified[0].branches == []

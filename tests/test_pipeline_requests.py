"""Every kind of chain and request under the pipelined schedule: the serial schedule's tokens, rounds and stops."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import NoRepeatNGramLogitsProcessor

from ssd.certify.cases import Words
from ssd.certify.tiny_models import P, near, tiny_gpt2, tiny_llama, with_draft_vocabulary, with_positions
from ssd.core.chain import VERIFICATIONS, WINDOWS, Chain, Edge, Level
from ssd.core.generate import generate, stream
from ssd.core.model import CachedModel
from ssd.core.ngram import Ngram
from ssd.core.requests import Generation, Override, Request, Sampling
from ssd.pipeline.pipeline import Pipeline
from ssd.pipeline.settings import PipelineSettings
from tests.test_pipeline import LEAST, MIDDLE, SMALL, TARGET, THREADS, chain, requests, three, told

SLOW_TARGET = replace(THREADS, delays=(0.0, 0.004))
NARROW = [*range(0, 64, 2), *range(1, 40, 2)]


def same(
    c: Chain, rows: list[Request], settings: PipelineSettings = SLOW_TARGET, hits: bool = True
) -> list[Generation]:
    """The generations, held against the serial schedule's; something was used that had been drafted ahead."""
    serial = generate(c, rows)
    with Pipeline(c, settings) as pipeline:
        got = generate(c, rows, schedule=pipeline)
    assert [told(g) for g in got] == [told(g) for g in serial]
    assert not hits or sum(edge[0] for edge in got[0].ahead) > 0
    assert len(got[0].ahead) == c.depth
    assert all(g.ahead == () for g in serial)
    return got


@pytest.mark.parametrize("verification", VERIFICATIONS)
@pytest.mark.parametrize("window", WINDOWS)
def test_every_window_and_verification(window: str, verification: str) -> None:
    for workers in (((0, 1), (2,)), ((0,), (1,), (2,))):
        slow = replace(THREADS, workers=workers, delays=(*[0.0] * (len(workers) - 1), 0.004))
        same(three(window, verification), requests(1.0, 16), slow)


def test_a_look_up_below_a_draft() -> None:
    c = chain([Ngram(), MIDDLE, TARGET], [Edge(3), Edge(4)])
    for temperature in (0.0, 1.0):
        same(c, requests(temperature, 20))


def test_draft_vocabularies_in_any_order() -> None:
    shuffled = NARROW[::-1]
    mapped = Level(CachedModel(with_draft_vocabulary(SMALL, shuffled)), draft_to_target=torch.tensor(shuffled))
    wide = Level(CachedModel(near(TARGET, 0.02, 5, vocab=72)))
    target = Level(CachedModel(TARGET))
    for drafts, edges in (([mapped], [Edge(3)]), ([mapped, wide], [Edge(2), Edge(3)])):
        c = Chain((*drafts, target), tuple(edges))
        for temperature in (0.0, 1.0):
            same(c, requests(temperature, 20))


def test_drafts_reach_their_position_limits() -> None:
    target = tiny_gpt2(0)
    small = CachedModel(with_positions(near(target, 0.05, 1, tiny_gpt2), 14))
    middle = CachedModel(with_positions(near(target, 0.03, 2, tiny_gpt2), 18))
    c = Chain((Level(small), Level(middle), Level(CachedModel(target))), (Edge(2), Edge(3)))
    for temperature in (0.0, 1.0):
        rounds = same(c, requests(temperature, 24))[0].rounds
        assert any(r.end == "plain" for r in rounds)


def test_processors_and_penalties_and_settings_differ_from_row_to_row() -> None:
    rows = [
        Request(P, Sampling(1.0, repetition_penalty=1.4), max_new_tokens=20),
        Request(
            (7,), Sampling(0.8, top_p=0.9, bad_words_ids=((3,), (1, 2)), logit_bias=((4, 2.0),)), max_new_tokens=20
        ),
        Request((3, 8), Sampling(0.0, frequency_penalty=0.7), max_new_tokens=20),
        Request((5, 5), Sampling(1.3, 8), max_new_tokens=20, processors=(NoRepeatNGramLogitsProcessor(2),)),
    ]
    same(three(), rows)
    same(three(verification="block"), rows, replace(THREADS, force="hits", workers=((0,), (1, 2))))


def test_levels_with_settings_of_their_own() -> None:
    levels = [Level(CachedModel(SMALL), Override(temperature=0.0)), Level(CachedModel(MIDDLE), Override(0.7, 5))]
    c = Chain((*levels, Level(CachedModel(TARGET))), (Edge(2), Edge(3)))
    for temperature in (0.0, 1.0):
        same(c, requests(temperature, 20))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_rows_end_in_turn_at_tokens_strings_and_lengths(temperature: float) -> None:
    c = replace(three(), tokenizer=Words())
    plain = generate(c, requests(temperature, 24))
    rows = requests(temperature, 24)
    rows[0] = replace(rows[0], eos_ids=(plain[0].ids[9],))
    rows[1] = replace(rows[1], stop=(f" {plain[1].ids[4]} ",))
    rows.append(Request((9, 9, 9), Sampling(temperature), max_new_tokens=0))
    rows.append(Request((9, 9, 9), Sampling(temperature), max_new_tokens=1))
    got = same(c, rows)
    assert [g.stop_reason for g in got] == ["eos", "stop", "length", "length", "length"]
    assert len({len(g.ids) for g in got}) == 5


def test_streamed_tokens_are_those_of_the_whole() -> None:
    c = replace(three(), tokenizer=Words())
    rows = requests(1.0, 20)
    whole = generate(c, rows)
    with Pipeline(c, SLOW_TARGET) as pipeline:
        found: list[list[int]] = [[] for _ in rows]
        for row, tokens, text in stream(c, rows, schedule=pipeline):
            found[row] += tokens
            assert text == Words().decode(tokens)
        abandoned = stream(c, rows, schedule=pipeline)
        next(abandoned)
        abandoned.close()
        assert [told(g) for g in generate(c, rows, schedule=pipeline)] == [told(g) for g in whole]
    assert [tuple(ids) for ids in found] == [g.ids for g in whole]


@pytest.mark.parametrize(
    "workers", [((0,), (1,), (2, 3)), ((0, 1), (2,), (3,)), ((0,), (1,), (2,), (3,)), ((0, 1, 2), (3,))]
)
def test_three_drafts(workers: Any) -> None:
    c = chain([LEAST, SMALL, MIDDLE, TARGET], [Edge(2), Edge(2), Edge(3)])
    for force in ("hits", None):
        same(c, requests(1.0, 14), replace(THREADS, workers=workers, force=force, budget=2), hits=force == "hits")


def test_a_schedule_of_another_chain_is_refused() -> None:
    c, other = three(), three()
    with (
        Pipeline(c, THREADS) as pipeline,
        pytest.raises(ValueError, match=r"^schedule: its workers hold another chain"),
    ):
        generate(other, requests(0.0), schedule=pipeline)
    with pytest.raises(RuntimeError, match=r"^schedule: its workers were closed"):
        generate(c, requests(0.0), schedule=pipeline)


def test_float32_rows_differ_at_most_by_ties() -> None:
    modules = [near(TARGET, n, s).float() for n, s in ((0.04, 2), (0.02, 1))] + [tiny_llama(0).float()]
    same(chain(modules, [Edge(2), Edge(3)]), requests(1.0, 20))

"""The decoder and its twin over generated cases: 300 examples of each property, and each property can fail.

Cases are chains of depth 0 to 4 over tables and tiny models, with every window, verification, draft vocabulary,
position limit, processor and stop rule, and batches of up to four rows. Nothing is left to chance: seeds are part
of a case and hypothesis derives its examples from the test itself.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from transformers import NoRepeatNGramLogitsProcessor

from ssd.certify.cases import MODELS, OUTPUTS, Case, DraftLevel, chain_of_case, vocabulary, whole_history
from ssd.certify.pairwise import prompt
from ssd.certify.twin_equality import check_case, same_round
from ssd.core import block_verification, decode, processors, verification
from ssd.core import generate as generation
from ssd.core import randomness as rng
from ssd.core.chain import VERIFICATIONS, WINDOWS, Edge
from ssd.core.generate import SCHEDULES, generate
from ssd.core.requests import Generation, Override, Request, Sampling
from ssd.core.sampling import LevelSampling

EXAMPLES = 300

# --- cases ------------------------------------------------------------------------------------

temperatures = st.sampled_from([1.0, 0.0, 0.6, 1.5])
filters = st.sampled_from([{}, {}, {"top_k": 3}, {"top_p": 0.8}, {"min_p": 0.1}, {"top_k": 5, "top_p": 0.9}])
processed = st.sampled_from(
    [
        {}, {}, {},
        {"repetition_penalty": 1.4},
        {"frequency_penalty": 0.7, "presence_penalty": -0.2},
        {"bad_words_ids": ((1,), (0, 2)), "logit_bias": ((3, 1.5), (0, -2.0))},
        {"min_new_tokens": 3},
    ]
)  # fmt: skip
own_processors = st.sampled_from([(), (), (), (whole_history,), (NoRepeatNGramLogitsProcessor(3),)])
overrides = st.one_of(
    st.just(Override()),
    st.builds(Override, temperature=temperatures),
    st.builds(Override, temperature=st.just(0.8), top_k=st.just(4), top_p=st.just(0.9)),
)


@st.composite
def edges(draw: st.DrawFn) -> Edge:
    window = draw(st.sampled_from(WINDOWS))
    sure = draw(st.sampled_from([0.4, 0.7])) if window == "confidence" else None
    return Edge(draw(st.integers(1, 5)), window, sure, draw(st.sampled_from(VERIFICATIONS)))


@st.composite
def drafts(draw: st.DrawFn, k: int) -> DraftLevel:
    outputs = draw(st.sampled_from(OUTPUTS if k == 0 else OUTPUTS[:-1]))
    if outputs == "ngram":
        return DraftLevel(draw(edges()), outputs)
    return DraftLevel(draw(edges()), outputs, draw(overrides), draw(st.sampled_from([None, None, 4, 9])))


@st.composite
def requests(draw: st.DrawFn, model: str) -> Request:
    vocab = vocabulary(model)
    ends = draw(st.sampled_from(["length", "eos", "stop", "both"]))
    picked = draw(st.lists(st.integers(0, vocab - 1), min_size=1, max_size=1 + vocab // 6, unique=True))
    return Request(
        prompt(draw(st.integers(1, 8)), vocab),
        Sampling(draw(temperatures), **draw(filters), **draw(processed)),
        seed=draw(st.integers(0, 3)),
        request=draw(st.sampled_from([None, 0, 7])),
        sample=draw(st.integers(0, 1)),
        max_new_tokens=draw(st.sampled_from([8, 6, 3, 1, 0, 12] if model == "tables" else [5, 3, 1, 0, 8])),
        eos_ids=tuple(picked) if ends in ("eos", "both") else (),
        stop=tuple(f" {token} " for token in picked[:2]) if ends in ("stop", "both") else (),
        processors=draw(own_processors),
    )


@st.composite
def cases(draw: st.DrawFn, least_rows: int = 1) -> Case:
    """Cases of at least ``least_rows`` rows; two in three over tables."""
    model = draw(st.sampled_from(["tables", "tables", "tables", "tables", "llama", "gpt2"]))
    depth = draw(st.sampled_from([2, 1, 3, 2, 0, 4] if model == "tables" else [2, 1, 3, 0]))
    most = 4 if model == "tables" else max(2, least_rows)
    return Case(
        model,
        tuple(draw(drafts(k)) for k in range(depth)),
        tuple(draw(st.lists(requests(model), min_size=least_rows, max_size=most))),
        draw(st.integers(0, 1)),
        draw(st.booleans()),
        draw(st.sampled_from(SCHEDULES)),
    )


# --- properties -------------------------------------------------------------------------------


def run(case: Case, rows: list[Request] | None = None) -> list[Generation]:
    """The generations of a case, or of other rows on its chain, in a chain of their own."""
    return generate(chain_of_case(case), case.requests if rows is None else rows, case.schedule)


def numbered(case: Case) -> list[Request]:
    """The rows with the identity they have by their place."""
    return [replace(r, request=i if r.request is None else r.request) for i, r in enumerate(case.requests)]


def assert_same(one: Generation, other: Generation) -> None:
    assert (one.ids, one.stop_reason, one.origins) == (other.ids, other.stop_reason, other.origins)
    assert len(one.rounds) == len(other.rounds)
    for mine, theirs in zip(one.rounds, other.rounds, strict=True):
        assert same_round(mine, theirs), (mine, theirs)


def decoder_equals_twin(case: Case) -> None:
    assert check_case(case) is None


def rows_are_what_they_are_alone(case: Case) -> None:
    for row, together in zip(numbered(case), run(case), strict=True):
        assert_same(run(case, [row])[0], together)


def order_is_irrelevant(case: Case) -> None:
    rows, there = numbered(case), run(case)
    order = random.Random(len(rows)).sample(range(len(rows)), len(rows))
    order = order if order != sorted(order) else order[::-1]
    for place, got in zip(order, run(case, [rows[i] for i in order]), strict=True):
        assert_same(got, there[place])


def stop_rules_only_cut(case: Case) -> None:
    rows = numbered(case)
    whole = run(case, [replace(r, ignore_eos=True) for r in rows])
    for row, ended, free in zip(rows, run(case), whole, strict=True):
        assert (len(free.ids), free.stop_reason) == (row.max_new_tokens, "length")
        assert ended.ids == free.ids[: len(ended.ids)]
        cut = [
            n for n in range(1, len(free.ids) + 1)
            if free.ids[n - 1] in row.eos_ids or any(s in "".join(f"{i} " for i in free.ids[:n]) for s in row.stop)
        ]  # fmt: skip
        assert len(ended.ids) == (cut[0] if cut else row.max_new_tokens)
        assert (ended.stop_reason == "length") == (not cut)


PROPERTIES = {
    decoder_equals_twin: cases(),
    rows_are_what_they_are_alone: cases(2),
    order_is_irrelevant: cases(2),
    stop_rules_only_cut: cases(),
}


def try_examples(prop: Callable[[Case], None], **options: Any) -> list[Case]:
    """The cases a property was tried on."""
    seen = []

    @settings(max_examples=EXAMPLES, deadline=None, derandomize=True, database=None, **options)
    @given(PROPERTIES[prop])
    def holds(case: Case) -> None:
        seen.append(case)
        prop(case)

    holds()
    return seen


@pytest.mark.parametrize("prop", PROPERTIES, ids=lambda p: p.__name__)
def test_it_holds(prop: Callable[[Case], None]) -> None:
    seen = try_examples(prop)
    assert len(seen) >= EXAMPLES
    assert_varied(seen)


def assert_varied(seen: list[Case]) -> None:
    """The cases leave out nothing that the strategies offer."""
    levels = [draft for case in seen for draft in case.drafts]
    rows = [row for case in seen for row in case.requests]
    assert {case.model for case in seen} == {*MODELS}
    assert {len(case.drafts) for case in seen} == {0, 1, 2, 3, 4}
    assert {(d.edge.window, d.edge.verification) for d in levels} == {*product(WINDOWS, VERIFICATIONS)}
    assert {d.outputs for d in levels} == {*OUTPUTS}
    assert any(len({d.edge.verification for d in case.drafts}) == 2 for case in seen)
    assert {d.positions for d in levels} > {None}
    assert {case.tight for case in seen} == {True, False}
    for name in ("repetition_penalty", "frequency_penalty", "min_new_tokens", "bad_words_ids", "temperature", "top_p"):
        assert len({getattr(row.sampling, name) for row in rows}) > 1
    assert {bool(row.eos_ids) + 2 * bool(row.stop) for row in rows} == {0, 1, 2, 3}
    assert len({row.processors for row in rows}) > 2


def test_only_the_twins_own_refusal_is_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = tuple((token,) for token in range(vocabulary("tables")))
    refused = Case("tables", (), (Request((1,), Sampling(bad_words_ids=everything), max_new_tokens=2),))
    assert check_case(refused) is None

    def broken(*args: Any) -> None:
        raise ValueError("no such row")

    monkeypatch.setattr(decode, "law", broken)
    assert check_case(refused).startswith("the decoder raised ValueError: no such row")


# --- planted faults ---------------------------------------------------------------------------


def residual_not_subtracted(monkeypatch: pytest.MonkeyPatch) -> None:
    def target(draft, probs, ids, own, accepted):
        return probs[torch.arange(len(accepted)), accepted].double()

    monkeypatch.setattr(verification, "owed", target)


def residual_of_a_block_not_weighted(monkeypatch: pytest.MonkeyPatch) -> None:
    real = block_verification.owed

    def unweighted(draft, probs, ids, own, weight, accepted):
        return real(draft, probs, ids, own, torch.ones_like(weight), accepted)

    monkeypatch.setattr(block_verification, "owed", unweighted)


def processors_see_one_token_less(monkeypatch: pytest.MonkeyPatch) -> None:
    real = processors.process
    monkeypatch.setattr(processors, "process", lambda scores, history, request: real(scores, history[:-1], request))


def settings_of_the_first_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "LevelSampling", lambda rows, *rest: LevelSampling([rows[0]] * len(rows), *rest))


def keys_of_the_place(monkeypatch: pytest.MonkeyPatch) -> None:
    real = rng.root
    monkeypatch.setattr(rng, "root", lambda rows, device: real([(s, i, n) for i, (s, _, n) in enumerate(rows)], device))


def only_the_last_token_can_end_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    real = generation._Row._stop
    monkeypatch.setattr(generation._Row, "_stop", lambda self, before: real(self, max(before, len(self.ids) - 1)))


FAULTS = [
    (decoder_equals_twin, residual_not_subtracted),
    (decoder_equals_twin, residual_of_a_block_not_weighted),
    (decoder_equals_twin, processors_see_one_token_less),
    (rows_are_what_they_are_alone, settings_of_the_first_row),
    (order_is_irrelevant, settings_of_the_first_row),
    (order_is_irrelevant, keys_of_the_place),
    (stop_rules_only_cut, only_the_last_token_can_end_a_row),
]


@pytest.mark.parametrize(("prop", "plant"), FAULTS, ids=lambda f: f.__name__)
def test_a_planted_fault_shows(
    prop: Callable[[Case], None], plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError, match="assert"):
        try_examples(prop, phases=[Phase.generate], report_multiple_bugs=False)

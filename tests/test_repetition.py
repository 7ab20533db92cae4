"""Repetition on texts short enough to count by hand, and the look-up against the one that drafts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssd.bench.length_bins import BINS, bin_name, bin_of, bins_of
from ssd.bench.repetition import distinct_by_length, distinct_by_output, guesses, ngram_acceptance
from ssd.core.ngram import Ngram
from tests.scripted_records import record

TOKENS = st.lists(st.integers(0, 3), max_size=30)


@given(TOKENS, TOKENS, st.sampled_from([(3, 1), (1, 1), (2, 2), (4, 2)]))
def test_guesses_are_what_the_look_up_level_would_propose(prompt, output, sizes):
    ngram = Ngram(*sizes)
    text = [*prompt, *output]
    wanted = [next(iter(ngram.look_up(text[:at], 1)), None) for at in range(len(prompt), len(text))]
    assert guesses(prompt, output, ngram) == wanted


def test_ngram_acceptance_counts_every_output_token():
    records = [record(ids=[1, 2, 1, 2, 1, 2], prompt_tokens=2), record("b", ids=[5, 5, 6], prompt_tokens=2)]
    alone = ngram_acceptance(records, bins=(0, 4))
    # first text: nothing, nothing, nothing, 2, 1, 2; second: nothing, nothing, 5 (wrong)
    assert [(t.tokens, t.proposed, t.hits) for t in alone.values()] == [(7, 2, 1), (2, 2, 2)]
    assert alone[0, 4].acceptance == 1 / 7
    assert alone[0, 4].precision == 0.5
    with_prompt = ngram_acceptance(records, lambda r: {"p0": [1, 2], "b": [5, 5]}[r["prompt_id"]], bins=(0, 4))
    assert [(t.tokens, t.proposed, t.hits) for t in with_prompt.values()] == [(7, 6, 5), (2, 2, 2)]
    by_length = ngram_acceptance(records, by="length", bins=(0, 4))
    assert [(t.tokens, t.hits) for t in by_length.values()] == [(3, 0), (6, 3)]
    assert sum(t.hits for t in alone.values()) == sum(t.hits for t in by_length.values())


def test_ngram_acceptance_refuses_what_it_cannot_mean():
    with pytest.raises(ValueError, match="prompt 'p0': 3 prompt ids, but its record states 10"):
        ngram_acceptance([record()], lambda r: [1, 2, 3])
    with pytest.raises(ValueError, match="by: 'place'"):
        ngram_acceptance([record()], by="place")
    empty = ngram_acceptance([])
    assert list(empty) == bins_of(BINS)
    assert empty[0, 64].acceptance is None


def test_distinct_ngrams_per_output_and_per_length_bin():
    loop, plain, short = record("a", ids=[1, 2] * 5), record("b", ids=range(10)), record("c", ids=[1, 2])
    assert [share for _, share in distinct_by_output([loop, plain, short])] == [2 / 7, 1.0, None]
    assert distinct_by_length([loop, plain, short], bins=(0, 5, 20)) == {
        (0, 5): None,
        (5, 20): 9 / 14,  # totals before the ratio
        (20, None): None,
    }


def test_bins_are_those_of_published_tables():
    assert [bin_name(each) for each in bins_of()] == ["0-64", "64-128", "128-256", "256-512", "512-1024", "1024+"]
    assert [bin_of(value) for value in (0, 63, 64, 1023, 1024)] == [
        (0, 64),
        (0, 64),
        (64, 128),
        (512, 1024),
        (1024, None),
    ]
    for bounds in ((), (4, 4), (5, 1)):
        with pytest.raises(ValueError, match="do not ascend"):
            bins_of(bounds)

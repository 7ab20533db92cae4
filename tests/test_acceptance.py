"""Acceptance on rounds few enough to count by hand, and on simulated ones for the law of its check."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ssd.bench.acceptance import (
    acceptance_by_output_length,
    acceptance_by_output_position,
    acceptance_by_prompt_length,
    acceptance_check,
    block_efficiency,
    edge_counts,
    edges,
)
from ssd.bench.draft_positions import acceptance_at
from ssd.bench.fates import acceptance_by_fate, fates
from ssd.bench.metrics import tokens_per_second
from ssd.core.requests import Round
from tests.scripted_records import PROMPT, record, scripted


def test_acceptance_counts_of_a_scripted_edge():
    """B31: draft length 4, accepted 4, 0 and 2."""
    records = [record(rounds=scripted(4, (4, 0, 2)))]
    counts = edge_counts(records, 0)
    assert (counts.drafted, counts.accepted, counts.emitted, counts.tested) == (12, 6, 9, 8)
    assert counts.draft_acceptance_rate == 0.5
    assert counts.tau == block_efficiency(records) == 3.0
    assert counts.alpha == 0.75
    assert counts.alpha_overlap is None  # the method does not tell its probabilities
    assert edges(records) == [0]


def test_counts_are_added_before_they_are_divided():
    records = [
        record("a", rounds=scripted(4, (4, 4)), tokens=10),
        record("b", rounds=scripted(1, (0,)), tokens=1),
    ]
    assert edge_counts(records, 0).draft_acceptance_rate == 8 / 9  # not (1 + 0) / 2


def test_without_drafts_rates_are_empty():
    plain = [record(rounds=scripted(0, (0, 0), edge=-1), tokens=2)]
    assert edges(plain) == []
    assert block_efficiency(plain) == 1.0
    for counts in (edge_counts(plain, -1), edge_counts(plain, 0), edge_counts([], 0)):
        assert (counts.alpha, counts.draft_acceptance_rate) == (None, None)
    assert edge_counts(plain, 0).tau is None
    assert block_efficiency([record()]) is None
    assert acceptance_at(plain, 0) == []
    assert acceptance_check(plain, 0) is None


def test_plain_rounds_of_a_drafting_edge_count_as_verifications():
    records = [record(rounds=(*scripted(3, (3,)), *scripted(0, (0,), start=14)), tokens=5)]
    counts = edge_counts(records, 0)
    assert (counts.rounds, counts.plain, counts.tau, counts.alpha) == (2, 1, 2.5, 1.0)
    assert acceptance_at(records, 0)[0].rounds == 1  # the plain round drafted nothing


def test_a_stopped_round_counts_what_it_kept():
    rounds = (Round(0, 10, 10, 4, 2, 2, 2, "stopped", (1.0, 0.5)),)
    counts = edge_counts([record(rounds=rounds, tokens=2)], 0)
    assert (counts.stopped, counts.emitted, counts.accepted, counts.alpha_overlap) == (1, 2, 2, 0.75)


def test_each_edge_has_its_own_counts():
    lower = scripted(2, (2, 1), edge=0)  # level 1 emits 3 + 2 tokens from position 10
    lower = tuple(Round(r.edge, 10, r.start, *_rest(r)) for r in lower)
    rounds = (*lower, Round(1, 10, 10, 5, 4, 3, 4, "recovered", (1.0, 1.0, 0.5, 0.25)))
    records = [record(rounds=rounds, tokens=4)]
    assert edges(records) == [0, 1]
    assert (edge_counts(records, 0).tau, edge_counts(records, 1).tau) == (2.5, 4.0)
    assert (edge_counts(records, 0).alpha, edge_counts(records, 1).alpha) == (0.75, 0.75)
    assert block_efficiency(records) == 4.0
    with pytest.raises(ValueError, match="last edges"):
        block_efficiency([*records, record(rounds=scripted(1, (0,)), tokens=1)])


def _rest(r: Round) -> tuple:
    return r.drafted, r.tested, r.accepted, r.emitted, r.end, r.overlap


def test_alpha_overlap_is_a_mean_over_tested_positions_and_never_over_some_of_them():
    known = record("a", rounds=scripted(2, (2, 0), overlap=0.5), tokens=4)
    assert edge_counts([known], 0).alpha_overlap == 0.5
    unknown = record("b", rounds=scripted(2, (1,)), tokens=2)
    assert edge_counts([known, unknown], 0).alpha_overlap is None
    assert acceptance_check([known, unknown], 0) is None


def test_acceptance_by_position_names_both_rates():
    rows = acceptance_at([record(rounds=scripted(4, (4, 0, 2)))], 0)
    assert [row.position for row in rows] == [1, 2, 3, 4]
    assert [row.unconditional for row in rows] == [2 / 3, 2 / 3, 1 / 3, 1 / 3]
    assert [row.conditional for row in rows] == [2 / 3, 1.0, 0.5, 1.0]
    shorter = acceptance_at([record(rounds=(*scripted(2, (2,)), *scripted(1, (1,), start=13)), tokens=5)], 0)
    assert [(row.rounds, row.drafted, row.accepted) for row in shorter] == [(2, 2, 2), (2, 1, 1)]


def test_acceptance_by_output_position_and_prompt_length():
    records = [record(rounds=scripted(4, (4, 0, 2), overlap=0.5))]
    bins = acceptance_by_output_position(records, 0, bins=(0, 2, 5, 20))
    # tested output places: 0 1 2 3 | 5 | 6 7 8
    assert {k: (t.tested, t.accepted) for k, t in bins.items()} == {
        (0, 2): (2, 2),
        (2, 5): (2, 2),
        (5, 20): (4, 2),
        (20, None): (0, 0),
    }
    assert bins[5, 20].alpha == bins[5, 20].alpha_overlap == 0.5
    assert bins[20, None].alpha is None
    by_length = acceptance_by_prompt_length(records, 0, bins=(0, 10, 50))
    assert [t.tested for t in by_length.values()] == [0, 8, 0]
    with pytest.raises(ValueError, match="below the first bound"):
        acceptance_by_prompt_length(records, 0, bins=(20,))


def test_acceptance_by_output_length_and_of_first_draft_tokens():
    """Bins default to those of published tables; a long output is in one bin, its places are in several."""
    long = record("a", rounds=scripted(4, (4,) * 20), tokens=100)
    records = [long, record("b", rounds=scripted(4, (0,)), tokens=1)]
    by_length = acceptance_by_output_length(records, 0)
    assert list(by_length) == [(0, 64), (64, 128), (128, 256), (256, 512), (512, 1024), (1024, None)]
    assert [(t.tested, t.accepted) for t in by_length.values()][:3] == [(1, 0), (80, 80), (0, 0)]
    by_place = acceptance_by_output_position(records, 0)
    assert [(t.tested, t.accepted) for t in by_place.values()][:3] == [(53, 52), (28, 28), (0, 0)]
    first = acceptance_by_output_position(records, 0, first_only=True)
    assert [(t.tested, t.accepted) for t in first.values()][:3] == [(14, 13), (7, 7), (0, 0)]
    rates = {place: tally.alpha for place, tally in first.items()}
    assert rates[0, 64] == 13 / 14
    assert sum(t.tested for t in first.values()) == edge_counts(records, 0).rounds


def test_methods_are_not_mixed():
    two = [
        record(rounds=scripted(1, (0,)), tokens=1),
        record(method="ar", rounds=scripted(1, (0,)), tokens=1),
    ]
    for metric in (lambda: edge_counts(two, 0), lambda: tokens_per_second(two), lambda: acceptance_by_fate(two, 1)):
        with pytest.raises(ValueError, match="mixed"):
            metric()


def test_fates_one_level_below():
    """Level 1 emitted draft draft bonus | recovered | plain for the target to test five and keep four."""
    rounds = (
        Round(0, 10, 10, 2, 2, 2, 3, "bonus", (1.0, 1.0)),
        Round(0, 10, 13, 2, 1, 0, 1, "recovered", (0.25,)),
        Round(0, 10, 14, 0, 0, 0, 1, "plain", ()),
        Round(1, 10, 10, 5, 5, 4, 5, "recovered", (1.0, 0.5, 0.75, 0.5, 0.25)),
        # second block: the draft of two was cut to one token
        Round(0, 15, 15, 1, 1, 1, 2, "bonus", (1.0,)),
        Round(1, 15, 15, 1, 1, 1, 2, "bonus", (0.5,)),
    )
    records = [record(rounds=rounds, tokens=7)]
    assert [kinds for _, kinds in fates(records[0]["rounds"], 1)] == [
        ["draft", "draft", "bonus", "recovered", "plain"],
        ["draft"],
    ]
    table = acceptance_by_fate(records, 1)
    assert {fate: (t.tested, t.accepted, t.overlap) for fate, t in table.items()} == {
        "draft": (3, 3, 2.0),
        "recovered": (1, 1, 0.5),
        "bonus": (1, 1, 0.75),
        "plain": (1, 0, 0.25),
        "unknown": (0, 0, 0.0),
    }
    assert table["unknown"].alpha is None
    total = edge_counts(records, 1)
    assert sum(t.tested for t in table.values()) == total.tested
    with pytest.raises(ValueError, match="edge 0"):
        acceptance_by_fate(records, 0)


def test_fates_at_depth_three_and_of_abandoned_blocks():
    rounds = (
        Round(0, 10, 10, 1, 1, 1, 2, "bonus", (1.0,)),
        Round(1, 10, 10, 2, 1, 0, 1, "recovered", (0.0,)),
        Round(0, 11, 11, 1, 1, 0, 1, "recovered", (0.0,)),
        Round(1, 10, 11, 1, 1, 1, 2, "bonus", (1.0,)),
        Round(2, 10, 10, 3, 3, 3, 4, "bonus", (1.0, 1.0, 1.0)),
    )
    plain_rounds = [record(rounds=rounds, tokens=4)["rounds"]][0]
    assert [kinds for _, kinds in fates(plain_rounds, 2)] == [["recovered", "draft", "bonus"]]
    assert [kinds for _, kinds in fates(plain_rounds, 1)] == [["draft", "bonus"], ["recovered"]]
    # a block that began elsewhere does not explain this draft
    assert [kinds for _, kinds in fates(plain_rounds[3:], 2)] == [["draft", "bonus", "unknown"]]
    moved = [dict(r, block_start=9) if r["edge"] == 1 else r for r in plain_rounds]
    assert [kinds for _, kinds in fates(moved, 2)] == [["unknown"] * 3]


def test_acceptance_check_is_standard_normal_under_its_hypothesis():
    """z of 400 simulated runs: mean within 4 standard errors of 0, deviation within 4 of 1 (fixed seed)."""
    rng = np.random.default_rng(4)
    zs = []
    for _ in range(400):
        rounds, start = [], PROMPT
        for _ in range(60):
            overlaps = rng.uniform(0, 1, 3)
            passed = rng.uniform(size=3) < overlaps
            kept = 3 if passed.all() else int(np.argmin(passed))
            tested = min(kept + 1, 3)
            end = "bonus" if kept == 3 else "recovered"
            told = tuple(overlaps[:tested])
            rounds.append(Round(0, start, start, 3, tested, kept, kept + 1, end, told))
            start += kept + 1
        check = acceptance_check([{"method": "m", "rounds": [vars(r) for r in rounds]}], 0)
        zs.append(check.z)
    assert abs(np.mean(zs)) < 4 / math.sqrt(400)
    assert abs(np.std(zs) - 1) < 4 / math.sqrt(800)


def test_acceptance_check_sees_a_wrong_rule_and_equality_at_temperature_zero():
    rigged = [record(rounds=scripted(2, (2,) * 100, overlap=0.5), tokens=300)]
    check = acceptance_check(rigged, 0)
    assert (check.tested, check.accepted, check.overlap) == (200, 200, 100.0)
    assert check.z == pytest.approx(100 / math.sqrt(50))
    right = (Round(0, 10, 10, 2, 2, 1, 2, "recovered", (1.0, 0.0)),)
    wrong = (Round(0, 10, 10, 2, 2, 1, 2, "recovered", (1.0, 1.0)),)
    equal, differs = (acceptance_check([record(rounds=r, tokens=2)], 0) for r in (right, wrong))
    assert (equal.z, equal.is_equal, equal.largest_difference) == (None, True, 0.0)
    assert (differs.z, differs.is_equal, differs.largest_difference) == (None, False, 1.0)

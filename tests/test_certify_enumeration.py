"""Rung 1 passes on the twin, looks at everything it names, and fails on a faulty twin in every family."""

from __future__ import annotations

from itertools import product

import pytest

from ssd.certify.enumerated_settings import FAMILIES, PROCESSED, mixed, setting
from ssd.certify.enumeration import check_enumeration
from ssd.certify.exact_laws import PROMPT, TOLERANCE, chain_law, difference, target_law
from ssd.core.chain import VERIFICATIONS, WINDOWS
from ssd.core.reference import Twin, enumerate_law

VISIBLE = 1e-3  # a planted fault must move some sequence by more than this


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_the_targets_law(family):
    (check,) = check_enumeration([family])
    assert (check.name, check.passed, check.false_alarm) == (family, True, 0)
    assert check.value < TOLERANCE / 100
    assert check.n >= 200


def test_all_families_are_the_default(monkeypatch):
    for name in FAMILIES:
        monkeypatch.setitem(FAMILIES, name, FAMILIES["no draft"])
    assert [c.name for c in check_enumeration()] == [*FAMILIES]


def test_an_unknown_family_is_refused():
    with pytest.raises(ValueError, match="families: 'five drafts' is not one of no draft, one draft level"):
        check_enumeration(["five drafts"])


def test_nothing_named_is_left_out():
    found = {name: list(family()) for name, family in FAMILIES.items()}
    every = [s for settings in found.values() for s in settings]
    assert {len(s.edges) for s in every} == {0, 1, 2, 3, 4}
    for depth in (1, 2, 3, 4):
        for k in range(depth):
            edges = [s.edges[k] for s in every if len(s.edges) == depth]
            assert {e.window for e in edges} == {*WINDOWS}
            assert {e.verification for e in edges} == {*VERIFICATIONS}
            assert depth > 2 or {(e.window, e.verification) for e in edges} == {*product(WINDOWS, VERIFICATIONS)}
    for name in ("two draft levels", "three draft levels"):
        neighbours = {(s.edges[k].window, s.edges[k + 1].window) for s in found[name] for k in range(len(s.edges) - 1)}
        assert neighbours == {*product(WINDOWS, WINDOWS)}
    assert all(len({e.verification for e in s.edges}) == 1 for s in found["whole blocks that end early"])
    assert {s.levels[0].look_up is None for s in found["n-gram look-up"]} == {False}
    # At every depth there are sequences long enough for level 0 to draft a second token.
    assert {len(s.edges) for s in every if s.tokens - len(s.edges) >= 2} == {0, 1, 2, 3, 4}


def test_law_by_target_rounds_is_the_law_of_generate_as_a_whole():
    for depth, turn in product((1, 2, 3), (3, 12)):
        s = setting("whole", mixed(turn, depth), 2, 4)
        whole = enumerate_law(lambda c, s=s: Twin(s.levels, s.edges, c).generate(PROMPT, s.tokens, 0))
        assert difference(whole, chain_law(s.levels, s.edges, s.tokens)) < TOLERANCE
        assert abs(sum(whole.values()) - 1) < TOLERANCE


@pytest.mark.parametrize("request_", PROCESSED, ids=range(len(PROCESSED)))
def test_processors_change_the_law_that_is_asked_for(request_):
    own = [request_.sampling] * 2
    plain, processed = (
        target_law(setting("processed", mixed(1, 1), 3, 3, own, r).levels[-1], 3, 3) for r in (None, request_)
    )
    assert difference(plain, processed) > 0.01


# --- planted faults ---------------------------------------------------------------------------


class _Unsubtracted(Twin):
    """The added token has the target's own law, wherever it comes in."""

    @staticmethod
    def verify_by_token(tokens, drafts, laws, accept):
        kept, _ = Twin.verify_by_token(tokens, drafts, laws, accept)
        return kept, laws[kept]

    @staticmethod
    def verify_by_block(tokens, drafts, laws, accept):
        kept, _ = Twin.verify_by_block(tokens, drafts, laws, accept)
        return kept, laws[kept]


class _Sharpened(Twin):
    """The target's rows are squared."""

    def law(self, k, text):
        row = super().law(k, text)
        return [p * p for p in row] if k == len(self.edges) else row


@pytest.mark.parametrize("family", FAMILIES)
def test_a_planted_fault_shows(family):
    (check,) = check_enumeration([family], _Sharpened if family == "no draft" else _Unsubtracted)
    assert not check.passed
    assert check.value > VISIBLE
    assert "the last of them is off: " in check.detail


def test_a_fault_of_whole_blocks_only_shows_where_there_are_some():
    class Faulty(Twin):
        verify_by_block = staticmethod(_Unsubtracted.verify_by_block)

    names = ["no draft", "whole blocks that end early"]
    assert [c.passed for c in check_enumeration(names, Faulty)] == [True, False]

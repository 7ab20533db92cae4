"""Planted faults: each changes what the decoder or the twin does, only while it is planted, and a rung sees it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from ssd.certify import planted
from ssd.certify.bookkeeping import check_bookkeeping
from ssd.certify.certificate import matrix_of, uncaught
from ssd.certify.enumerated_settings import edge, setting
from ssd.certify.exact_laws import error
from ssd.certify.ladder import NotApplicableError
from ssd.certify.matrix import CLOSE, LOOSE, PROMPTS, Trial, control, llamas, matrix, trials
from ssd.certify.planted import PLANTED, Planted, core_modules, lookups
from ssd.certify.result import Check
from ssd.certify.twin_equality import check_twin
from ssd.core import block_verification, decode, verification
from ssd.core.generate import generate
from ssd.core.requests import Request, Sampling
from ssd.core.sampling import Law
from ssd.core.verification import Draft, Ids

FAULTS = {fault.name: fault for fault in PLANTED}
BY_NAME = pytest.mark.parametrize("fault", PLANTED, ids=FAULTS)
# It needs u = 0, which no seed gives.
INJECTED = "acceptance test not strict"

ROWS = (
    Request((1, 5, 9, 5, 9, 5, 9), Sampling(1.0, top_p=0.8), max_new_tokens=16),
    Request((7,), Sampling(0.7), sample=1, max_new_tokens=16),
    Request((3, 8, 2), Sampling(0.0), max_new_tokens=16),
    Request((11, 12, 13, 14), Sampling(1.2, repetition_penalty=1.5), max_new_tokens=16),
)


def outputs(rule, rows=ROWS):
    """What chains of three levels generate, rounds included: for ragged rows of unlike settings, and for one alone.

    The drafts of the row alone fit better, so that whole blocks are accepted.
    """
    found = []
    for noise, batch in ((LOOSE, rows), (CLOSE, [replace(rows[1], max_new_tokens=30)])):
        chain = llamas(*noise)
        chain = replace(chain, edges=tuple(replace(e, verification=rule) for e in chain.edges))
        found += [(g.ids, g.stop_reason, g.rounds) for g in generate(chain, batch)]
    return found


def ending(found):
    """The rows, each ending with a token that it accepts inside a block."""
    rows = []
    for row, (ids, _, rounds) in zip(ROWS, found, strict=False):
        inside = [ids[r.start - len(row.ids)] for r in rounds if r.edge == 1 and r.accepted > 1]
        rows.append(replace(row, eos_ids=tuple(inside[:1])))
    return rows


@pytest.fixture(scope="module")
def clean():
    """Rows, and outputs by verification rule, without a fault: as they are, and where rows end inside a block."""
    plain = {rule: outputs(rule) for rule in ("token", "block")}
    rows = ending(plain["token"])
    return {"plain": (ROWS, plain), "ending": (rows, {rule: outputs(rule, rows) for rule in plain})}


def namespaces():
    """Everything ``ssd.core`` binds, classes included."""
    found = {}
    for module in core_modules():
        for name, value in vars(module).items():
            found[module.__name__, name] = value
            if isinstance(value, type) and value.__module__ == module.__name__:
                found |= {(module.__name__, name, n): v for n, v in vars(value).items()}
    return found


@BY_NAME
def test_a_fault_shows_while_it_is_planted_and_never_after(fault, clean):
    rows, before = clean["ending" if "end of text" in fault.name else "plain"]
    bound = namespaces()
    with fault.active():
        during = {rule: outputs(rule, rows) for rule in before}
        assert namespaces() != bound
    assert namespaces() == bound
    assert (during == before) == (fault.name == INJECTED)


def test_the_decoder_is_itself_after_all_of_them(clean):
    for fault in PLANTED:
        with fault.active():
            pass
    rows, before = clean["plain"]
    assert {rule: outputs(rule, rows) for rule in before} == before


@pytest.mark.parametrize("rule", [verification.verify_by_token, block_verification.verify_by_block])
def test_the_fault_of_the_acceptance_test_shows_at_u_0(rule):
    def accepted():
        draft = Draft(torch.tensor([[0]]), torch.tensor([[[1.0, 0.0]]]), torch.tensor([1]))
        law = Law(torch.tensor([[[0.0, 1.0], [0.5, 0.5]]]), None)
        zeros = torch.zeros(1, 1, dtype=torch.float64)
        return int(rule(draft, law, Ids(), lambda width: zeros, lambda kept: zeros[0]).accepted)

    assert accepted() == 0
    with FAULTS[INJECTED].active():
        assert accepted() == 1
    assert accepted() == 0


@BY_NAME
def test_a_fault_goes_away_when_its_body_raises(fault):
    bound = namespaces()
    with pytest.raises(KeyError), fault.active():
        raise KeyError
    assert namespaces() == bound


def test_a_function_is_replaced_wherever_it_was_imported():
    real = verification.take
    places = {(owner.__name__, name) for owner, name in lookups("x", "ssd.core.verification.take")}
    assert places == {("ssd.core.verification", "take"), ("ssd.core.block_verification", "take")}
    with FAULTS[INJECTED].active():
        assert verification.take is block_verification.take is not real
    assert verification.take is block_verification.take is real
    with planted.patched("x", "ssd.core.verification.verify_by_token", lambda f: len):
        assert decode.verify_by_token is verification.verify_by_token is len


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("ssd.core.verification.owned", "'owned'"),
        ("ssd.core.decode.Decode.round", "'Decode'"),
        ("ssd.core.decode.Decoder.rounds", "'rounds'"),
        ("ssd.core.verify.owed", "no module"),
        ("ssd.bench.metrics.tau", "no module"),
        ("ssd.core.decode.CHUNK", "int, not a function"),
    ],
)
def test_a_name_that_does_not_exist_is_an_error(target, reason):
    fault = Planted("misnamed", target, "Nothing.", lambda real: real)
    with pytest.raises(ValueError, match=f"'misnamed'.*{target}.*{reason}"), fault.active():
        pytest.fail("planted")
    passing = Trial(0, (lambda: [Check("nothing", True, 0.0, 1, "")],))
    with pytest.raises(ValueError, match="'misnamed'"):
        matrix([fault], [passing])


def test_names_are_unique_and_every_fault_is_one_sentence():
    assert len(FAULTS) == len(PLANTED)
    assert all(f.what.endswith(".") and f.what.count(". ") == 0 for f in PLANTED)


# --- the twin ---------------------------------------------------------------------------------


def twin_error():
    """Largest difference between the law of some chains of three levels and their target's, over whole sequences."""
    chains = [setting("planted", [edge("until_correction", 2, rule)] * 2, 2, 4) for rule in ("token", "block")]
    return max(error(c.levels, c.edges, c.vocab, c.tokens) for c in chains)


@pytest.mark.parametrize("fault", [f for f in PLANTED if f.twin], ids=lambda f: f.name)
def test_a_fault_of_the_twin_shows(fault):
    with fault.active_in_twin():
        assert twin_error() > 1e-3
    assert twin_error() < 1e-12


def test_a_fault_without_a_counterpart_in_the_twin_says_so():
    with pytest.raises(ValueError, match="the twin has no counterpart"), FAULTS[INJECTED].active_in_twin():
        pytest.fail("planted")


# --- the matrix -------------------------------------------------------------------------------

BOOKS = Trial(0, (lambda: check_bookkeeping(llamas(*LOOSE), PROMPTS[:2], tokens=6, rows=4),))
TWIN = Trial(2, (lambda: check_twin(16, models=("tables",)),))


def test_every_fault_is_caught_by_some_rung():
    told = []
    rows = matrix(rungs=[TWIN], after=told.append)
    assert told == rows
    assert [row["fault"] for row in rows] == [*FAULTS]
    assert all(row["patches"] == FAULTS[row["fault"]].target and {*row["caught"]} == {2} for row in rows)
    # Tables have no attention to see a wrong slot with, and no keyed uniform is 0.
    missed = uncaught(matrix_of(rows, 0.0))
    assert {*missed} == {INJECTED, "stale slot visible", "a neighbour row's length"}
    rest = matrix([FAULTS[name] for name in missed], [BOOKS])
    assert uncaught(matrix_of(rest, 0.0)) == []
    assert all(row["by"] for row in rest)


def test_the_trials_are_the_rungs_that_need_no_real_chain():
    assert [trial.rung for trial in trials()] == [0, 1, 2, 3, 4]
    assert [trial.rung for trial in trials() if trial.in_twin] == [1]


HARMLESS = Planted("harmless", "ssd.core.verification.leading", "Nothing.", lambda real: lambda x: real(x))
UNSOUND = Planted("unsound", "ssd.core.verification.leading", "Raises.", lambda real: lambda x: x.unknown)


def probe():
    """A rung that asks for the number of leading trues."""
    n = int(verification.leading(torch.tensor([[True, False]])))
    return [Check("one leads", n == 1, 0.0, 1, "")]


def test_a_row_that_nothing_catches_is_told():
    rows = matrix([HARMLESS, UNSOUND], [Trial(0, (probe,)), Trial(1, (probe,), in_twin=True)])
    assert [row["caught"] for row in rows] == [{0: False, 1: None}, {0: True, 1: None}]
    assert rows[0]["by"] is None
    assert "AttributeError" in rows[1]["by"]
    assert uncaught(matrix_of(rows, 0.0)) == ["harmless"]


def test_a_rung_that_fails_or_cannot_tell_without_a_fault_ends_the_matrix():
    def silent():
        raise NotApplicableError("no draft")

    failing = Trial(3, (probe, lambda: [Check("never", False, 0.0, 1, "as ever")]))
    assert control([Trial(0, (probe,))]) == []
    for trial, words in ((failing, "rung 3 fails at never: as ever"), (Trial(4, (silent,)), "rung 4 cannot tell")):
        with pytest.raises(RuntimeError, match=words):
            matrix([HARMLESS], [trial])


def test_later_parts_of_a_rung_are_climbed_only_while_nothing_failed():
    parts = []

    def part(name):
        return lambda: parts.append(name) or probe()

    matrix([HARMLESS, UNSOUND], [Trial(0, (part("cheap"), part("dear")))])
    assert parts == ["cheap", "dear", "cheap", "dear", "cheap"]  # without a fault, harmless, unsound

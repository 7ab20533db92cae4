"""The rungs that run on any loaded chain, on tiny ones: they pass a right decoder and fail a wrong one.

The seeds are fixed, so a right decoder passes always; on other seeds the rungs fail it at the rates they state.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch

from ssd.bench.divergence import Parting, Rescorer
from ssd.certify.bookkeeping import TIE_RATE, check_bookkeeping, two_ties, zero_uniforms
from ssd.certify.cache_free import compare_proposals
from ssd.certify.forensics import check_forensics, explained, narrow_levels
from ssd.certify.identity import Outputs, check_identity, identity_check, one_by_one, ragged
from ssd.certify.ladder import NotApplicableError
from ssd.certify.law import ALARM, check_law
from ssd.certify.planted import PLANTED
from ssd.certify.result import Check
from ssd.certify.subchains import alone
from ssd.certify.tiny_models import P, chain_of, near, tiny_llama, with_draft_vocabulary
from ssd.core import randomness as rng
from ssd.core.chain import Chain, Edge, Level
from ssd.core.generate import generate
from ssd.core.model import CachedModel
from ssd.core.ngram import Ngram
from ssd.core.requests import Request, Sampling

FAULTS = {p.name: p for p in PLANTED}
PROMPTS = ((1, 5, 9, 5, 9), (3, 8, 2), (11, 12, 13, 14, 15, 16, 17), (7, 7, 7, 20))
TARGET = tiny_llama(0)
EDGES = [Edge(2), Edge(3)]


def chain(dtype: torch.dtype = torch.float64) -> Chain:
    modules = [near(TARGET, 0.15, 2), near(TARGET, 0.08, 1), tiny_llama(0)]
    return chain_of([m.to(dtype) for m in modules], EDGES)


def bookkeeping(of: Chain) -> list[Check]:
    return check_bookkeeping(of, PROMPTS, tokens=10, gammas=(3,), rows=16)


def identity(of: Chain) -> list[Check]:
    return check_identity(of, PROMPTS, tokens=12, batch=4)


def law(of: Chain) -> list[Check]:
    return check_law(of, PROMPTS, batch=320, repeats=2, length=3)


def forensics(of: Chain) -> list[Check]:
    return check_forensics(of, PROMPTS, tokens=12, batch=4)


def failed(checks: list[Check]) -> list[str]:
    return [c.name for c in checks if not c.passed]


@pytest.mark.parametrize("rung", [bookkeeping, identity, law])
def test_a_right_chain_climbs_every_rung(rung) -> None:
    for each in (chain(), chain(torch.float32)):
        checks = rung(each)
        assert failed(checks) == []
        assert len({c.name for c in checks}) == len(checks)
        assert sum(c.false_alarm for c in checks) <= 2 * ALARM


def test_chains_with_look_up_draft_vocabulary_and_settings_of_their_own_climb_too() -> None:
    ids = [*range(0, 64, 2), *range(1, 40, 2)]
    small = CachedModel(with_draft_vocabulary(near(TARGET, 0.15, 2), ids))
    mapped = Level(small, draft_to_target=torch.tensor(ids))
    for each in (chain_of([mapped, near(TARGET, 0.08, 1), TARGET], EDGES), chain_of([Ngram(), TARGET], [Edge(3)])):
        for rung in (bookkeeping, identity, law):
            assert failed(rung(each)) == []


@pytest.mark.parametrize(
    ("fault", "rung", "words"),
    [
        ("bonus token forgotten in a draft's cache", bookkeeping, "L1 drafts for itself, temperature 0"),
        ("bonus token forgotten in a draft's cache", bookkeeping, "proposals are those of whole passes, by token"),
        ("acceptance test not strict", bookkeeping, "no token of probability 0 at u = 0"),
        ("bonus counted as accepted", bookkeeping, "the books agree"),
        ("bonus row at a rejection", bookkeeping, "no token of probability 0 at u = 0"),
        ("stale slot visible", bookkeeping, "proposals are those of whole passes, temperature 0"),
        ("off-by-one verification row", identity, "chain, 1 row: AR's text"),
        ("a neighbour row's length", identity, "AR, 4 rows: AR's text"),
        ("settings of the first row", identity, "chain, 2 rows beside others that sample, by block: AR's text"),
        ("stale slot visible", identity, "cached passes equal whole passes"),
        ("residual not subtracted", law, "depth 2 by token: law of first tokens"),
        ("residual not subtracted by block", law, "depth 2 by block: law of first tokens"),
        ("top-p ignored in verification", law, "AR: within the filters"),
        ("one uniform for test and draw", law, "depth 1 by token: law by id"),
        ("requests share their randomness", law, "AR: law by id"),
        ("draft rows of the wrong temperature", law, "depth 1 by token: law by target / L1"),
    ],
)
def test_a_planted_fault_fails_its_check(fault: str, rung, words: str) -> None:
    with FAULTS[fault].active():
        assert words in failed(rung(chain()))


def test_accepted_tokens_are_held_against_their_overlaps() -> None:
    """A level that draws greedily but hands up soft rows: its tokens pass more often than the overlap says."""
    with FAULTS["greedy draft with soft rows"].active():
        checks = check_bookkeeping(chain(), PROMPTS, tokens=12, rows=160)
    assert "accepted = overlap on edge 0, temperature 1" in failed(checks)


def test_16_bit_outputs_may_part_at_ties_and_nowhere_else() -> None:
    """Two tokens with equal logits: AR takes the lower; in a fault the chain takes another row's token."""
    module = tiny_llama(0, dtype=torch.bfloat16)
    drafts = [near(TARGET, 0.15, 2).to(torch.bfloat16), near(TARGET, 0.08, 1).to(torch.bfloat16)]
    each = chain_of([*drafts, module], EDGES)
    checks = forensics(each)
    assert failed(checks) == []
    assert [c.name for c in checks][1] == "chain, 1 row: AR's text"
    with FAULTS["off-by-one verification row"].active():
        wrong = forensics(each)
    assert "chain, 1 row: AR's text" in failed(wrong)
    assert "epsilon" in next(c.detail for c in wrong if c.name == "chain, 1 row: AR's text")


def test_the_largest_noise_of_all_rows_does_not_excuse_a_row_without_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Rescorer, "epsilon", lambda self, prompt, output: 1e9)
    each = chain(torch.bfloat16)
    assert failed(forensics(each)) == []
    with FAULTS["off-by-one verification row"].active():
        wrong = forensics(each)
        assert failed(identity_of_16_bit(each)) == []  # epsilon alone would let it pass
    assert "chain, 1 row: AR's text" in failed(wrong)
    assert "at this row" in next(c.detail for c in wrong if c.name == "chain, 1 row: AR's text")


def identity_of_16_bit(of: Chain) -> list[Check]:
    rows = ragged(PROMPTS, 4)
    own = one_by_one(alone(of), rows, 12)
    return [identity_check(of, rows, Outputs("chain, 1 row", one_by_one(of, rows, 12), own))]


def test_a_tie_is_within_epsilon_and_the_noise_of_its_row() -> None:
    parting = Parting("row 0", "chain", 3, 5, 6, 0.5, 1.0)
    assert [explained(parting, noise) for noise in (0.25, 0.24)] == [True, False]
    assert not explained(replace(parting, epsilon=0.2), 1.0)
    assert not explained(replace(parting, gap=None), 1.0)


def test_narrow_levels_are_told_by_any_weight_and_by_their_configuration() -> None:
    each = chain()
    assert narrow_levels(each) == []
    assert narrow_levels(chain(torch.float16)) == [0, 1, 2]
    half, packed, told = (near(TARGET, 0.1, layers) for layers in (1, 1, 2))
    half.model.norm.to(torch.float16)
    packed.model.packed = torch.nn.Parameter(torch.zeros(3, dtype=torch.uint8), requires_grad=False)
    told.config.quantization_config = {"quant_method": "any"}
    assert narrow_levels(chain_of([half, packed, told, TARGET], [Edge(2)] * 3)) == [0, 1, 2]


def test_the_rate_of_two_rounding_ties() -> None:
    n, r = 4000, TIE_RATE
    wanted = math.fsum(math.comb(n, k) * r**k * (1 - r) ** (n - k) for k in range(2, 12))
    assert two_ties(n) == pytest.approx(wanted, rel=1e-6)
    assert two_ties(n) < (n * r) ** 2 / 2
    assert two_ties(1) < 1e-15
    assert 0.99 < two_ties(10**6) < 1


def test_rungs_say_what_they_cannot_look_at() -> None:
    narrow = chain(torch.bfloat16)
    for rung in (bookkeeping, identity, law):
        with pytest.raises(ValueError, match=r"chain.levels\[0\].dtype: torch.bfloat16"):
            rung(narrow)
        with pytest.raises(NotApplicableError, match="no draft"):
            rung(alone(chain()))
    with pytest.raises(NotApplicableError, match="16 bit"):
        forensics(chain())
    with pytest.raises(ValueError, match=r"settings\[0\]"):
        check_law(chain(), PROMPTS, settings=[Sampling(0.0)])
    with pytest.raises(ValueError, match=r"settings\[1\]"):
        check_law(chain(), PROMPTS, settings=[Sampling(), Sampling(repetition_penalty=1.2)])
    with pytest.raises(ValueError, match="too few"):
        check_law(chain(), PROMPTS, batch=8, repeats=2)
    with pytest.raises(ValueError, match="batches of 1"):
        ragged(PROMPTS, 1)
    with pytest.raises(ValueError, match=r"leave no room in the 128 positions of chain.levels\[0\]"):
        check_bookkeeping(chain(), [(1,) * 128])


def test_rows_of_a_batch_are_ragged() -> None:
    rows = ragged([P], 4)
    assert [len(ids) for ids in rows.values()] == [7, 6, 5, 7]


def test_every_uniform_is_zero_and_comes_back() -> None:
    before = rng.uniform
    request = Request(P, Sampling(1.0), max_new_tokens=4)
    with zero_uniforms():
        assert generate(alone(chain()), [request])[0].ids == (0, 0, 0, 0)
    assert rng.uniform is before
    assert generate(alone(chain()), [request])[0].ids != (0, 0, 0, 0)


@pytest.mark.parametrize("fault", [None, "bonus token forgotten in a draft's cache"])
def test_proposals_are_compared_at_every_level_of_every_round(fault: str | None) -> None:
    requests = [Request(p, Sampling(1.0), 0, i, 0, 20) for i, p in enumerate(PROMPTS)]
    self_chain = chain_of([TARGET, TARGET, TARGET], EDGES)
    with nullcontext() if fault is None else FAULTS[fault].active():
        found = compare_proposals(self_chain, requests)
    rounds = [r for g in generate(self_chain, requests) for r in g.rounds]
    if fault is None:
        assert found.proposals == sum(r.drafted > 0 for r in rounds)
        assert (found.faults, found.ties) == ([], [])
        assert found.distance < 1e-12
    else:
        assert found.faults
        assert found.distance > 1e-3

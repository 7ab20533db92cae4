"""The decoder equals its slow twin token for token, over a sample that covers every pair of settings.

Each configuration runs twice: on tiny random models in float64, and on tables keyed by the whole prefix. The twin has
neither cache nor batch; it gets one row at a time.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product

import pytest
import torch

from ssd.certify.cases import Case, chain_of_case
from ssd.certify.consistency import contradictions
from ssd.certify.pairwise import FACTORS, case_of, level_of, pairs, possible, required, sample
from ssd.certify.twin_equality import check_case, check_twin, row_difference
from ssd.certify.twin_rounds import tell
from ssd.core import block_verification, decode, processors, verification
from ssd.core import generate as generation
from ssd.core import randomness as rng
from ssd.core.generate import generate
from ssd.core.requests import Request, Sampling
from ssd.core.sampling import LevelSampling

SIZE, CHUNKS = 300, 10
CONFIGURATIONS = sample(SIZE)
MODELS = ("llama", "gpt2")
SLOT = "LookupError: a query sees a slot nobody wrote"  # said by a table whose cache is wrong


def case(index, tables):
    """Configuration ``index`` over tables, or over one of the models in turn."""
    return case_of(CONFIGURATIONS[index], index, "tables" if tables else MODELS[index % 2])


def test_the_sample_covers_every_pair_of_values():
    assert len(CONFIGURATIONS) == SIZE
    assert all(possible(c) for c in CONFIGURATIONS)
    seen = {pair for c in CONFIGURATIONS for pair in pairs(c)}
    assert seen >= {*required()}
    # The rule for pairs asks for nothing less than the factors promise.
    deepest = {f: v for f, v in FACTORS.items() if level_of(f) == 2 or f in ("rows", "filters", "processors", "end")}
    for f, g in combinations(deepest, 2):
        assert all(((f, v), (g, w)) in seen for v, w in product(FACTORS[f], FACTORS[g]))


@pytest.mark.parametrize("tables", [False, True], ids=["models", "tables"])
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_token_for_token_and_round_for_round(chunk, tables):
    found = {i: check_case(case(i, tables)) for i in range(chunk, SIZE, CHUNKS)}
    assert not {i: f"{difference}; {case(i, tables)}" for i, difference in found.items() if difference}


@pytest.mark.parametrize("rule", ["token", "block"])
def test_the_sample_is_not_idle(rule):
    """Blocks of several tokens are accepted, rejected at once, rejected within; rows end early."""
    chosen = [case(i, tables=True) for i in range(150)]
    told = [(c, tell(chain_of_case(c), r, i)) for c in chosen for i, r in enumerate(c.requests)]
    assert {t.stop_reason for _, t in told} == {"eos", "stop", "length"}
    drafted = [
        r for c, t in told for r in t.rounds if r.drafted > 1 and c.drafts[r.edge].edge.verification == rule
    ]  # fmt: skip
    assert sum(r.end == "bonus" for r in drafted) > 40
    assert sum(r.end == "recovered" and r.accepted == 0 for r in drafted) > 40
    assert sum(r.end == "recovered" and r.accepted > 0 for r in drafted) > 40
    assert sum(r.end == "stopped" for r in drafted) > 10


# --- planted faults ---------------------------------------------------------------------------


def residual_not_subtracted(monkeypatch):
    def target(draft, probs, ids, own, accepted):
        return probs[torch.arange(len(accepted)), accepted].double()

    monkeypatch.setattr(verification, "owed", target)


def residual_of_a_block_not_weighted(monkeypatch):
    real = block_verification.owed

    def unweighted(draft, probs, ids, own, weight, accepted):
        return real(draft, probs, ids, own, torch.ones_like(weight), accepted)

    monkeypatch.setattr(block_verification, "owed", unweighted)


def blocks_verified_token_by_token(monkeypatch):
    monkeypatch.setattr(decode, "verify_by_block", verification.verify_by_token)


def one_slot_too_many_believed(monkeypatch):
    real = decode.Decoder.round

    def faulty(self, *args):
        emitted = real(self, *args)
        self.valid = [v + 1 for v in self.valid]
        return emitted

    monkeypatch.setattr(decode.Decoder, "round", faulty)


def laws_one_position_late(monkeypatch):
    real = decode.assemble

    def faulty(laws, width):
        probs = real(laws, width)
        return None if probs is None else probs.roll(1, dims=1)

    monkeypatch.setattr(decode, "assemble", faulty)


def corrections_do_not_end_a_block(monkeypatch):
    real = decode.done
    monkeypatch.setattr(
        decode, "done", lambda window, *rest: real("at_least" if window == "until_correction" else window, *rest)
    )


def keys_without_the_start(monkeypatch):
    monkeypatch.setattr(rng, "round_key", lambda key, start: rng.fold(key, rng.ROUND).expand_as(start))


def settings_of_the_first_row(monkeypatch):
    monkeypatch.setattr(decode, "LevelSampling", lambda rows, *rest: LevelSampling([rows[0]] * len(rows), *rest))


def processors_see_one_token_less(monkeypatch):
    real = processors.process
    monkeypatch.setattr(processors, "process", lambda scores, history, request: real(scores, history[:-1], request))


def penalties_count_the_prompt(monkeypatch):
    real = processors.process

    def faulty(scores, history, request):
        return real(scores, history, replace(request, ids=request.ids[:1]))

    monkeypatch.setattr(processors, "process", faulty)


def only_the_last_token_can_end_a_row(monkeypatch):
    real = generation._Row._stop
    monkeypatch.setattr(generation._Row, "_stop", lambda self, before: real(self, max(before, len(self.ids) - 1)))


@pytest.mark.parametrize("tables", [False, True], ids=["models", "tables"])
@pytest.mark.parametrize(
    "plant",
    [residual_not_subtracted, residual_of_a_block_not_weighted, blocks_verified_token_by_token,
     one_slot_too_many_believed, laws_one_position_late, corrections_do_not_end_a_block, keys_without_the_start,
     settings_of_the_first_row, processors_see_one_token_less, penalties_count_the_prompt,
     only_the_last_token_can_end_a_row],
)  # fmt: skip
def test_a_planted_fault_shows(plant, tables, monkeypatch):
    deep = [i for i, c in enumerate(CONFIGURATIONS) if c["depth"] >= 2 and c["temperature"] != "zero"][:40]
    plant(monkeypatch)
    found = (check_case(case(i, tables)) or "" for i in deep)
    assert any("the twin's" in difference or SLOT in difference for difference in found)


# --- the rung ---------------------------------------------------------------------------------


def test_a_rung_of_few_cases_says_what_it_looked_at():
    checks = check_twin(9, seed=3)
    assert [(c.name, c.passed, c.n, c.value) for c in checks] == [
        (f"decoder = twin on {model}", True, 3, 0) for model in ("llama", "gpt2", "tables")
    ]
    assert all(c.false_alarm == 0 for c in checks)


def test_a_rung_names_the_first_case_that_differs(monkeypatch):
    keys_without_the_start(monkeypatch)
    (check,) = check_twin(12, models=["tables"])
    assert not check.passed
    assert check.value >= 1
    assert "first: row 0: " in check.detail
    assert "Case(model='tables'" in check.detail


@pytest.mark.parametrize("n", [2, 0])
def test_a_rung_over_too_few_cases_is_refused(n):
    with pytest.raises(ValueError, match=f"check_twin.n: {n} cases"):
        check_twin(n)


def test_what_the_decoder_raises_is_a_difference(monkeypatch):
    def broken(*args):
        raise IndexError("no such row")

    monkeypatch.setattr(decode, "law", broken)
    assert check_case(case(0, tables=True)).startswith("the decoder raised IndexError: no such row (broken, line ")


def test_a_request_that_twin_and_decoder_refuse_is_no_difference(monkeypatch):
    everything = tuple((token,) for token in range(6))
    refused = Case("tables", (), (Request((1,), Sampling(bad_words_ids=everything), max_new_tokens=2),))
    with pytest.raises(ValueError, match="forbid every token"):
        generate(chain_of_case(refused), refused.requests)
    assert check_case(refused) is None
    monkeypatch.setattr(processors, "process", lambda scores, history, request: scores)
    assert "went on where the twin refused" in check_case(refused)


def test_every_count_is_compared():
    # The first configuration of depth 1 whose first row is rejected somewhere.
    chosen = next(c for c in map(case_of, CONFIGURATIONS, range(SIZE), ["tables"] * SIZE) if len(c.drafts) == 1)
    request = replace(chosen.requests[0], eos_ids=(), stop=())
    chain = chain_of_case(chosen)
    (got,) = generate(chain, [request])
    told = tell(chain, request, 0)
    assert row_difference(got, told) is None
    assert contradictions(chain, request, got) == []
    first = told.rounds[0]
    for field in ("edge", "block_start", "start", "drafted", "accepted", "emitted"):
        changed = replace(first, **{field: getattr(first, field) + 1})
        assert "is not the twin's" in row_difference(got, replace(told, rounds=(changed, *told.rounds[1:])))
    for changed in (replace(first, tested=99), replace(first, end="plain?"), replace(first, overlap=(0.123,) * 9)):
        assert "is not the twin's" in row_difference(got, replace(told, rounds=(changed, *told.rounds[1:])))
    assert "rounds of the decoder" in row_difference(got, replace(told, rounds=told.rounds[1:]))
    assert "stop reason" in row_difference(got, replace(told, stop_reason="eos"))
    assert "lengths" in row_difference(got, replace(told, ids=told.ids[:-1]))
    assert "first at token 1" in row_difference(got, replace(told, ids=(told.ids[0], -1, *told.ids[2:])))
    claims = contradictions(chain, request, replace(got, ids=got.ids[:-1], first_pass_tokens=-1))
    assert any("tokens came out of target rounds" in c for c in claims)
    assert any("first_pass_tokens -1" in c for c in claims)

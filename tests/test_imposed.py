"""Acceptance at given rates: counted equals imposed per edge, position and fate, with the passes of a real run.

Counts are compared by exact binomial tails at a level of 1e-6 per cell; with under 200 cells in this file a false
alarm has probability below 2e-4, and the seeds are fixed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, replace
from functools import partial

import pytest
import torch
from bigram_chains import bigram_chain, random_logits

from ssd.bench.fates import fates
from ssd.certify.goodness_of_fit import poisson_binomial_p
from ssd.core.chain import Edge
from ssd.core.generate import generate
from ssd.core.requests import Request, Sampling
from ssd.plan.acceptance import ByFate, ByPosition, Constant
from ssd.runtime.imposed import EdgeRates, ImposedDecoder, generate_imposed

VOCAB = 12
LEVEL = 1e-6
PROMPTS = [(1, 2, 3), (4,), (5, 6, 7, 8, 9), (2, 2)]
MANY = 16  # rows of a count: they cost little, rounds cost much


def chain(depth, windows="at_least", verification="token", gammas=(3, 4, 3)):
    tables = [random_logits(seed, VOCAB) for seed in range(depth + 1)]
    return bigram_chain(tables, [Edge(gammas[k], windows, verification=verification) for k in range(depth)])


def requests(temperature, tokens, seed=0, rows=4):
    asked = [Request(p, Sampling(temperature), seed=seed, max_new_tokens=tokens) for p in PROMPTS]
    return [replace(asked[i % len(asked)], request=i) for i in range(rows)]


def counts(results, edge):
    """(accepted, tested) by (fate one level below, draft position)."""
    accepted, tested = Counter(), Counter()
    for result in results:
        rounds = [asdict(r) for r in result.rounds]
        bottom = [(r, ["plain"] * r["drafted"]) for r in rounds if r["edge"] == 0]
        for entry, kinds in fates(rounds, edge) if edge else bottom:
            known = entry["accepted"] + (entry["end"] == "recovered")  # also where a rule tests blocks
            for i, fate in enumerate(kinds[:known]):
                accepted[fate, i] += i < entry["accepted"]
                tested[fate, i] += 1
    return {key: (accepted[key], n) for key, n in tested.items()}


def surprising(results, edge, rates, level=LEVEL):
    """Cells whose count would be this far off with a probability below ``level``."""
    found = counts(results, edge)
    return {
        key: (a, n, rates.at(key[1], key[0]))
        for key, (a, n) in found.items()
        if poisson_binomial_p(a, [rates.at(key[1], key[0])] * n) < level
    }


CASES = {
    "one rate": [Constant(0.7), Constant(0.55), Constant(0.8)],
    "by position": [ByPosition((0.9, 0.6, 0.3)), ByPosition((0.5, 0.7, 0.9)), ByPosition((0.8, 0.4))],
    "by fate": [Constant(0.6), ByFate(0.9, 0.4, 0.65, 0.7), ByFate(0.5, 0.95, 0.7, 0.8)],
    "by fate and position": [
        EdgeRates.of([0.8, 0.5]),
        EdgeRates.of({"draft": [0.9, 0.7], "recovered": [0.3, 0.6], "bonus": 0.5, "plain": 0.8}),
        EdgeRates.of({"draft": 0.6, "recovered": [0.9, 0.4], "bonus": [0.3, 0.8], "plain": 0.7}),
    ],
}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("name", CASES)
def test_counted_is_what_was_imposed(name, temperature):
    results = generate_imposed(chain(3), requests(temperature, 60, rows=MANY), CASES[name])
    for edge, rates in enumerate(CASES[name]):
        assert not surprising(results, edge, rates)
        assert sum(n for _, n in counts(results, edge).values()) > 500
    seen = {fate for edge in (1, 2) for fate, _ in counts(results, edge)}
    assert seen >= {"draft", "recovered", "bonus"}


def test_block_verification_keeps_prefixes_at_the_rates():
    rates = [ByPosition((0.8, 0.5, 0.9)), Constant(0.6)]
    results = generate_imposed(chain(2, verification="block"), requests(1.0, 60, rows=MANY), rates)
    assert not surprising(results, 0, rates[0])
    assert not surprising(results, 1, rates[1])


@pytest.mark.parametrize("edge", [0, 1])
def test_a_rate_that_was_not_imposed_is_found_out(edge):
    imposed = [Constant(0.7), ByFate(0.8, 0.5, 0.6, 0.7)]
    other = [Constant(0.62), ByFate(0.8, 0.7, 0.6, 0.7)]
    results = generate_imposed(chain(2), requests(1.0, 150, rows=MANY), imposed)
    assert not surprising(results, edge, imposed[edge])
    assert surprising(results, edge, other[edge])


def test_the_real_rule_is_found_out():
    """Without imposition the same chain accepts at other rates: the counts above come from the coins."""
    results = generate(chain(2), requests(1.0, 60, rows=MANY))
    assert surprising(results, 0, Constant(0.7))


def told(result):
    """What a round did, without its overlaps."""
    return [(r.edge, r.block_start, r.start, r.drafted, r.accepted, r.emitted, r.end) for r in result.rounds]


@pytest.mark.parametrize("window", ["at_least", "exactly", "rounds", "until_correction"])
@pytest.mark.parametrize("agree", [True, False])
def test_passes_widths_and_rounds_are_those_of_a_real_run(window, agree):
    """Rates 1 and 0 do what levels do that always, or never, agree with the one above."""
    target = random_logits(0, VOCAB)
    tables = [target if agree else target.roll(k, 1) for k in (2, 1, 0)]
    real = bigram_chain(tables, [Edge(3, window), Edge(4, window)])
    imposed = chain(2, window, gammas=(3, 4))
    rate = float(agree)
    a = generate(real, requests(0.0, 60))
    b = generate_imposed(imposed, requests(0.0, 60), [Constant(rate)] * 2)
    assert [told(x) for x in a] == [told(x) for x in b]
    assert a[0].passes == b[0].passes
    assert [len(x.ids) for x in b] == [60] * len(b)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_decisions_do_not_depend_on_the_batch(temperature):
    rates = CASES["by fate"][:2]
    together = generate_imposed(chain(2, "rounds"), requests(temperature, 80), rates)
    for i, request in enumerate(requests(temperature, 80)):
        alone = generate_imposed(chain(2, "rounds"), [request], rates)
        assert (alone[0].ids, told(alone[0])) == (together[i].ids, told(together[i]))


def test_seeds_differ_and_repeat():
    runs = [generate_imposed(chain(2), requests(0.0, 60, seed), CASES["one rate"][:2]) for seed in (1, 1, 2)]
    assert [told(x) for x in runs[0]] == [told(x) for x in runs[1]]
    assert [told(x) for x in runs[0]] != [told(x) for x in runs[2]]


def test_tokens_are_the_models_own():
    """The token behind the accepted ones is drawn as the real rule would: at temperature 0 the target's argmax."""
    results = generate_imposed(chain(2), requests(0.0, 120), CASES["one rate"][:2])
    table = random_logits(2, VOCAB).argmax(-1)
    for prompt, result in zip(PROMPTS, results, strict=True):
        text = [*prompt, *result.ids]
        for r in result.rounds:
            if r.edge == 1 and r.end != "stopped":
                at = r.start + r.accepted
                assert text[at] == int(table[text[at - 1]])


def test_results_are_marked():
    assert all(r.synthetic for r in generate_imposed(chain(1), requests(1.0, 8), [Constant(0.5)]))
    assert not any(r.synthetic for r in generate(chain(1), requests(1.0, 8)))


def test_a_schedule_with_workers_keeps_the_real_rule():
    with pytest.raises(ValueError, match=r"decoder: .* only schedule 'serial' can run"):
        generate(chain(1), requests(0.0, 4), schedule=object(), decoder=partial(ImposedDecoder, rates=[Constant(1)]))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ImposedDecoder(chain(2), requests(0.0, 8), rates=[Constant(0.5)]), "imposed: 2 edges need"),
        (lambda: EdgeRates.of(1.5), r"imposed.draft\[0\]: expected a probability .* got 1.5"),
        (lambda: EdgeRates.of([]), "imposed.draft: at least one rate"),
        (lambda: EdgeRates.of({"draft": 0.5}), "imposed: 'recovered' is unknown or missing"),
        (lambda: EdgeRates.of({**dict.fromkeys(["draft", "recovered", "bonus", "plain"], 1), "odd": 1}), "'odd'"),
        (lambda: ImposedDecoder(chain(1), requests(0.0, 8), rates=[type("R", (), {"at": lambda *a: torch.nan})()]),
         r"imposed\[0\], draft\[0\]: expected a probability"),
    ],
)  # fmt: skip
def test_rates_that_do_not_fit_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()

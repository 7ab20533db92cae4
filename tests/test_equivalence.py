"""Quality equivalence: what is called equal, different or inconclusive, and how often wrongly."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from ssd.bench import equivalence
from ssd.bench.equivalence import FALSE_ALARM, LEAST_CONVERSATIONS, Difference, Measure, compare, difference, judge
from ssd.bench.equivalence_measures import (
    ACCURACY,
    BLEU,
    DISTINCT,
    LOG_PROBABILITY,
    ROUGE_L,
    UNITS,
    Texts,
    check_margins,
    measures,
)
from ssd.bench.quality import bleu, bleu_difference
from ssd.bench.records import Run
from ssd.bench.statistics import ratio_of_totals
from ssd.certify.quality import METHOD, checks, could_tell, quality_rows

WORDS = [f"w{i}" for i in range(40)]


def record(prompt, text="", *, method="ar", sample=0, temperature=1.0, ids=(1, 2, 3), task="translation", run="r"):
    return {
        "run_id": run, "method": method, "prompt_id": prompt, "sample": sample, "task": task, "text": text,
        "output_ids": list(ids), "sampling": {"temperature": temperature}, "max_new_tokens": 8, "prompt_ids": [1],
        "batch_id": f"{prompt}-{sample}", "seconds": {}, "passes": {},
    }  # fmt: skip


def number(values, margin=1.0):
    """A measure whose score is the mean of one number per prompt."""
    return Measure("number", "", margin, "", lambda r: (values[r["method"], r["prompt_id"]], 1), ratio_of_totals)


def found(low, high, outer=None, n=24):
    value = (low + high) / 2
    outer_low, outer_high = (2 * low - value, 2 * high - value) if outer is None else outer
    return Difference(1.0, 1.0 - value, value, low, high, outer_low, outer_high, n)


NOTHING = Difference(None, None, None, None, None, None, None, 0)
WARM = found(2.0, 4.0)


@pytest.mark.parametrize(
    ("method", "control", "verdict", "words"),
    [
        (found(-0.5, 0.9), WARM, "equal", "within the margin"),
        (found(-0.5, 1.1), WARM, "inconclusive", "leaves the margin"),
        (found(0.2, 0.4), WARM, "equal", "within the margin"),
        (found(1.5, 2.5), WARM, "different", "does not hold 0"),
        (found(1.5, 2.5), None, "different", "does not hold 0"),
        (found(0.5, 1.5, outer=(-0.1, 2.1)), WARM, "inconclusive", "leaves the margin"),
        (found(0.0, 0.0), found(0.0, 0.0), "inconclusive", "could not tell"),
        (found(-0.1, 0.1), found(-0.2, 0.6), "inconclusive", "could not tell"),
        (found(-0.1, 0.1), found(0.5, 1.5, outer=(-0.1, 2.1)), "inconclusive", "could not tell"),
        (found(-0.1, 0.1), None, "inconclusive", "no records of the control"),
        (found(-0.1, 0.1), NOTHING, "inconclusive", "could not tell"),
        (found(-0.1, 0.1, n=20), WARM, "equal", "within the margin"),
        (found(-0.1, 0.1, n=19), WARM, "inconclusive", "19 conversations with a value, 20 are needed"),
        (found(1.5, 2.5, n=19), WARM, "inconclusive", "19 conversations"),
        (NOTHING, WARM, "inconclusive", "0 conversations"),
    ],
)
def test_the_verdict(method, control, verdict, words):
    told, reason = judge(method, control, margin=1.0)
    assert told == verdict
    assert words in reason


def test_a_difference_is_of_totals_and_conversations_are_the_unit():
    ours = [record(p, method="chain") for p in ("a", "a#2", "b")]
    theirs = [record(p) for p in ("a", "a#2", "b")]
    table = {("chain", "a"): 1.0, ("chain", "a#2"): 2.0, ("chain", "b"): 6.0}
    got = difference(ours, theirs, number(table | {("ar", p): 0.0 for p in ("a", "a#2", "b")}))
    assert (got.ours, got.theirs, got.value, got.n) == (3.0, 0.0, 3.0, 2)
    assert got.low <= 3.0 <= got.high
    assert got.outer_low <= got.low
    assert got.outer_high >= got.high


def test_what_cannot_be_paired_is_refused():
    with pytest.raises(ValueError, match=r"differ from the baseline's, among others \[\('b', 0\)\]"):
        difference([record("a"), record("b")], [record("a")], number({}))
    with pytest.raises(ValueError, match=r"prompt, sample \('a', 0\) occurs twice"):
        difference([record("a"), record("a")], [record("a")], number({}))
    with pytest.raises(ValueError, match="no records to compare"):
        difference([], [], number({}))


def test_error_rates_are_those_stated(monkeypatch):
    """Normal prompts, 24 of them, 150 times, seed 0; fewer resamples for speed.

    At no difference TOST at the smallest detectable margin finds equality in 80%; at a true difference of the
    margin in 5%. Bounds are four standard errors wide.
    """
    monkeypatch.setattr(equivalence, "RESAMPLES", {0.90: 1000, 0.998: 5000})
    source = np.random.default_rng(0)
    prompts = [f"p{i}" for i in range(24)]
    ours, theirs = [record(p, method="chain") for p in prompts], [record(p) for p in prompts]
    true = 2.926 / math.sqrt(24)  # smallest detectable with standard deviation 1: (1.645 + 1.282) standard errors
    powers, false_equal, smallest = 0, 0, []
    for _ in range(150):
        table = dict(zip((("chain", p) for p in prompts), source.normal(size=24), strict=True))
        got = difference(ours, theirs, number(table | {("ar", p): 0.0 for p in prompts}))
        powers += got.lies_within(got.smallest_detectable)
        moved = Difference(None, None, None, got.low + true, got.high + true, None, None, 24)
        false_equal += moved.lies_within(true)
        smallest.append(got.smallest_detectable)
    assert 0.67 < powers / 150 < 0.93
    assert false_equal <= 18
    assert np.mean(smallest) == pytest.approx(true, rel=0.12)


def false_differences(conversations, draw, times=300):
    """How often the 99.8% interval leaves 0 though the scores of both sides are drawn alike; seed 0."""
    source = np.random.default_rng(0)
    prompts = [f"p{i}" for i in range(conversations)]
    ours, theirs = [record(p, method="chain") for p in prompts], [record(p) for p in prompts]
    told = 0
    for _ in range(times):
        values = draw(source, 2 * conversations)
        table = dict(zip(((m, p) for m in ("chain", "ar") for p in prompts), values, strict=True))
        told += difference(ours, theirs, number(table)).excludes_zero
    return told


@pytest.mark.parametrize(
    "draw",
    [lambda source, n: source.normal(size=n), lambda source, n: source.exponential(size=n)],
    ids=["normal", "skewed"],
)
def test_the_false_alarm_is_kept_with_as_few_conversations_as_are_let_through(draw, monkeypatch):
    """300 experiments: at a rate of FALSE_ALARM, 3 expected, more than 10 have probability 3e-4.

    Negative control: with 5 conversations all differences have one sign in 6%.
    """
    monkeypatch.setattr(equivalence, "RESAMPLES", {0.90: 100, 0.998: 10_000})
    assert false_differences(LEAST_CONVERSATIONS, draw) <= 10
    assert FALSE_ALARM == 0.01
    assert false_differences(5, draw) > 10


def test_no_spread_is_no_difference():
    prompts = [f"p{i}" for i in range(6)]
    same = number(dict.fromkeys([(m, p) for m in ("ar", "chain") for p in prompts], 2.0))
    got = difference([record(p, method="chain") for p in prompts], [record(p) for p in prompts], same)
    assert (got.value, got.low, got.high, got.smallest_detectable) == (0.0, 0.0, 0.0, 0.0)
    assert not got.excludes_zero


def test_texts_are_compared_with_their_reference_else_with_another_sample():
    baseline = [record(p, f"{p}{s}", sample=s) for p in ("a", "b") for s in (0, 1, 2)]
    texts = Texts(baseline, {"a": "right", "b": None})
    assert texts.other(record("a", sample=1)) == "right"
    assert [texts.other(record("b", sample=s)) for s in (0, 1, 2)] == ["b1", "b2", "b0"]
    assert texts.against == "1 prompts against their reference, 1 against the target's text of another sample"
    assert Texts([record("b")], {}).other(record("b")) is None  # one sample has no other
    greedy = [record("b", sample=s, temperature=0.0) for s in (0, 1)]
    assert Texts(greedy, {}).other(greedy[0]) is None  # of one law, but one text


@pytest.mark.parametrize(
    ("reference", "text", "right"),
    [
        ("4 * 3 = <<4*3=12>>12\n#### 12", "so the answer is 12.", True),
        ("#### 1,450", "It costs $1450.00", True),
        ("#### 1,450", "It costs 1450, or 3 less", False),
        ("(306 - 90) / 18 = 12", "12 evenings", True),
        ("#### 12", "no idea", False),
    ],
)
def test_accuracy_is_of_the_last_number(reference, text, right):
    texts = Texts([record("m", task="math")], {"m": reference})
    (measure,) = measures(texts, {ACCURACY: 0.1})
    assert measure.columns(record("m", text, task="math")) == (right, 1)
    assert measure.columns(record("m", text, task="code")) is None


def test_measures_by_hand():
    records = [record("a", ids=(1, 2, 1, 2)), record("b", ids=(7,))]
    texts = Texts(records, {"a": "the cat sat on the mat", "b": None})
    known = {("r", "ar", "a", 0): (-3.0, 4)}
    by = {m.name: m for m in measures(texts, dict.fromkeys(UNITS, 1.0), known)}
    assert list(by) == list(UNITS)
    assert by[DISTINCT].columns(records[0]) == (2, 3)
    assert by[LOG_PROBABILITY].columns(records[0]) == (-3.0, 4)
    assert by[LOG_PROBABILITY].columns(records[1]) is None
    text = record("a", "the cat sat on a mat")
    assert by[ROUGE_L].columns(text) == (pytest.approx(5 / 6), 1)
    total = np.array(by[BLEU].columns(text), dtype=float)
    assert by[BLEU].score(total) == pytest.approx(bleu([text["text"]], ["the cat sat on the mat"]).value)
    assert [m.name for m in measures(texts, dict.fromkeys(UNITS, 1.0))] == [n for n in UNITS if n != LOG_PROBABILITY]


@pytest.mark.parametrize(
    ("margins", "words"),
    [
        ({}, "margins: expected some of log-probability"),
        ({"bleu": 1.0}, "margins.bleu: unknown; known are"),
        ({BLEU: 0}, "margins.BLEU: expected a number above 0, got 0"),
        ({BLEU: True}, "margins.BLEU: expected a number above 0, got True"),
    ],
)
def test_a_wrong_margin_is_named(margins, words):
    with pytest.raises(ValueError) as caught:
        check_margins(margins)
    assert str(caught.value).startswith(words)


def run_of(name, temperature, methods, noise, prompts=30, seed=0):
    """Texts that are their reference with ``noise`` of the words replaced; and the references."""
    references = {f"p{i}": " ".join(random.Random(i).choices(WORDS, k=20)) for i in range(prompts)}
    lines = []
    for method in methods:
        source = random.Random(f"{seed} {method}")
        for prompt, reference in references.items():
            words = [source.choice(WORDS) if source.random() < noise else w for w in reference.split()]
            text = " ".join(words)
            lines.append(record(prompt, text, method=method, temperature=temperature, run=name))
    return Run({"run_id": name, "git": {"commit": "c"}}, lines), references


def test_the_pooled_bleu_is_that_of_the_report():
    run, references = run_of("r", 1.0, ("ar", METHOD), 0.2, prompts=8)
    ours, theirs = run.records[8:], run.records[:8]
    (measure,) = measures(Texts(theirs, references), {BLEU: 2.0})
    assert difference(ours, theirs, measure).value == pytest.approx(bleu_difference(ours, theirs, references).value)


def test_rows_and_checks_of_runs():
    own, references = run_of("own", 0.7, ("ar", METHOD), 0.1)
    warm, _ = run_of("warm", 1.0, ("ar",), 0.6, seed=1)
    margins = {BLEU: 14.0, ROUGE_L: 0.08}
    rows = quality_rows([own, warm], lambda run: references, margins)
    assert [(r["method"], r["measure"], r["verdict"]) for r in rows] == [
        (METHOD, BLEU, "equal"),
        (METHOD, ROUGE_L, "equal"),
    ]
    assert all(r["control_temperature"] == 1.0 and r["smallest"] < r["margin"] for r in rows)
    found = checks(rows)
    assert [(c.passed, c.n, c.false_alarm) for c in found] == [(True, 30, FALSE_ALARM)] * 2
    assert all(c.detail.endswith("2 of 2 measures could tell") for c in found)
    assert "30 prompts against their reference" in rows[0]["against"]


def test_a_worse_method_is_found_and_a_missing_control_never_equals():
    own, references = run_of("own", 0.7, ("ar", METHOD), 0.1)
    worse, _ = run_of("own", 0.7, (METHOD,), 0.5)
    lines = [r for r in own.records if r["method"] == "ar"] + worse.records
    (row,) = quality_rows([Run(own.run, lines)], lambda run: references, {ROUGE_L: 0.08})
    assert (row["verdict"], row["control"]) == ("different", None)
    assert [c.passed for c in checks([row])] == [False]
    (row,) = quality_rows([own], lambda run: references, {ROUGE_L: 0.08})
    assert (row["verdict"], checks([row])) == ("inconclusive", [])
    other_prompts, _ = run_of("warm", 1.0, ("ar",), 0.6, prompts=29)
    (row,) = quality_rows([own, other_prompts], lambda run: references, {ROUGE_L: 0.08})
    assert row["control"] is None


def test_a_score_at_its_floor_is_inconclusive():
    """No word is right at any temperature, so all scores are equal, and equally worthless."""
    own, references = run_of("own", 0.7, ("ar", METHOD), 0.0)
    warm, _ = run_of("warm", 1.0, ("ar",), 0.0)
    wrong = {prompt: " ".join(f"x{word}" for word in text.split()) for prompt, text in references.items()}
    (row,) = quality_rows([own, warm], lambda run: wrong, {ROUGE_L: 0.08})
    assert row["difference"]["value"] == 0.0
    assert row["verdict"] == "inconclusive"
    assert could_tell([row]) == "0 of 1 measures could tell"


def test_compare_names_what_it_was_given():
    prompts = [f"p{i}" for i in range(8)]
    table = {("ar", p): 0.0 for p in prompts} | {("chain", p): 0.01 * i for i, p in enumerate(prompts)}
    ours, theirs = [record(p, method="chain") for p in prompts], [record(p) for p in prompts]
    told = compare(ours, theirs, None, number(table)).as_dict()
    assert told["measure"] == "number"
    assert told["difference"]["n"] == 8
    assert told["control"] is None

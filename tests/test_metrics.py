"""Speed, latency and agreement on records small enough to count by hand."""

from __future__ import annotations

import pytest

from analysis.table import METHOD_COLUMNS, format_table, method_rows
from ssd.bench.metrics import (
    Divergence,
    batches,
    distinct_ngrams,
    exact_match,
    pass_shares,
    passes_per_token,
    speedup,
    time_to_first_token,
    token_latency,
    tokens_per_second,
)
from ssd.core.requests import Passes, Round
from tests.scripted_records import record


def test_the_decode_clock_counts_neither_prefill_nor_its_tokens():
    """B33: prefill 0.1 s, 10 ms a target pass; AR 20 tokens in 20 passes, speculative 20 in 5."""
    ar = [record(method="ar", tokens=21, first=1, seconds=(0.1, 0.3))]
    spec = [record(tokens=24, first=4, seconds=(0.1, 0.15))]
    assert tokens_per_second(ar) == pytest.approx(100)
    assert tokens_per_second(spec) == pytest.approx(400)
    assert speedup(spec, ar).value == pytest.approx(4.0)
    assert speedup(spec, ar, "e2e").value == pytest.approx((0.3 / 21) / (0.15 / 24))
    assert tokens_per_second(spec, "e2e") == pytest.approx(24 / 0.15)
    with pytest.raises(ValueError, match="wall"):
        tokens_per_second(spec, "wall")


def test_speedup_is_by_totals():
    """B44: 1.83 by totals, not 1.50."""
    ar = [record("a", "ar", 10, (0, 10)), record("b", "ar", 10, (0, 1))]
    spec = [record("a", "spec", 10, (0, 5)), record("b", "spec", 10, (0, 1))]
    got = speedup(spec, ar)
    assert got.value == pytest.approx(11 / 6)
    assert got.n == 2
    # lengths differ: seconds per token, not seconds
    assert speedup([record("a", tokens=20, seconds=(0, 5))], ar[:1]).value == pytest.approx(4.0)


def test_batch_seconds_count_once_and_their_prompts_are_one_unit():
    shared = {"batch": "b", "seconds": (1.0, 3.0)}
    spec = [record("a", tokens=6, first=1, **shared), record("b", tokens=4, first=1, **shared)]
    spec.append(record("c", tokens=5, first=1, seconds=(1.0, 2.0)))
    assert tokens_per_second(spec) == pytest.approx((5 + 3 + 4) / (2.0 + 1.0))
    assert [len(batch) for batch in batches(spec)] == [2, 1]
    ar = [record(p, "ar", 11, (1.0, 3.0), first=1) for p in "abc"]
    got = speedup(spec, ar)
    assert got.value == pytest.approx((6.0 / 30) / (3.0 / 12))
    assert got.n == 2  # {a, b} and c
    bridged = [record("a", "ar"), record("b", "ar", batch="x"), record("c", "ar", batch="x")]
    assert speedup(spec, bridged).n == 1
    spec[1]["seconds"]["total"] = 4.0
    with pytest.raises(ValueError, match="different seconds"):
        tokens_per_second(spec)


def test_samples_of_a_prompt_are_one_unit():
    ar = [record("a", "ar", sample=s, seconds=(0, 2)) for s in range(3)] + [record("b", "ar", seconds=(0, 2))]
    spec = [record("a", sample=s) for s in range(3)] + [record("b")]
    assert speedup(spec, ar)[::3] == (pytest.approx(2.0), 2)


def test_unpaired_prompts_and_repeats_are_errors():
    """Missing values are not dropped, B42: unequal lists are an error."""
    ar = [record("a", "ar"), record("b", "ar")]
    for metric in (speedup, exact_match):
        with pytest.raises(ValueError, match=r"only the baseline has 1 \(\('run', 'b', 0\)\)"):
            metric([record("a")], ar)
    with pytest.raises(ValueError, match="occurs twice"):
        speedup([record("a"), record("a")], [record("a", "ar")])


def test_unknown_seconds_give_no_rate():
    known, unknown = record("a"), record("b")
    unknown["seconds"] = dict(unknown["seconds"], total=None)
    assert tokens_per_second([known, unknown]) is None
    assert speedup([known, unknown], [record("a", "ar"), record("b", "ar")]).value is None
    assert pass_shares([known, unknown]) == {"rest": None}
    nothing = [record(tokens=0, seconds=(1.0, 1.0))]
    assert tokens_per_second(nothing) is None
    assert pass_shares(nothing)["rest"] is None


def test_passes_and_shares_per_level():
    one = record("a", tokens=10, seconds=(1.0, 5.0), passes=(1.0, 2.0), counts=(Passes(30, 40), Passes(5, 30)))
    two = record("b", tokens=10, seconds=(1.0, 3.0), passes=(0.5, 1.0), counts=(Passes(20, 40), Passes(3, 30)))
    assert passes_per_token([one, two]) == {"L0": 2.5, "L1": 0.4}
    shares = pass_shares([one, two])
    assert shares == {"L0": 1.5 / 6, "L1": 0.5, "rest": pytest.approx(0.25)}
    assert sum(shares.values()) == pytest.approx(1.0)


def test_exact_match_and_first_divergence():
    ar = [record(p, "ar", ids=ids) for p, ids in {"a": (1, 2, 3), "b": (1, 2, 3), "c": (1, 2), "d": ()}.items()]
    ours = [record(p, ids=ids) for p, ids in {"a": (1, 2, 3), "b": (1, 5, 3), "c": (1, 2, 9), "d": ()}.items()]
    match = exact_match(list(reversed(ours)), ar)
    assert (match.n, match.equal, match.share) == (4, 2, 0.5)
    assert match.divergences == [
        Divergence("run", "c", 0, 2, 9, None),
        Divergence("run", "b", 0, 1, 5, 2),
    ]


def test_short_and_empty_outputs_can_be_equal():
    """B42: a score that needs four tokens says 0 where the share of equal outputs is 1."""
    for ids in ((1, 2, 3), ()):
        assert exact_match([record(ids=ids)], [record(method="ar", ids=ids)]).share == 1.0
    assert exact_match([], []).share is None


def test_latency_by_arrival():
    records = [record(tokens=4, arrivals=((0.5, 1), (0.7, 3), (1.0, 5)))]  # 5 known, 4 kept
    latency = token_latency(records)
    assert latency.n == 3
    assert latency.p50 == pytest.approx(0.2)  # waits are 0.2, 0, 0.3
    first = time_to_first_token([*records, record("b", tokens=1, arrivals=((1.5, 1),))])
    assert (first.n, first.p50) == (2, 1.0)
    assert token_latency([record(tokens=1, arrivals=((1.5, 1),))]).p99 is None


def test_records_without_arrivals_are_counted_and_void_the_quantiles():
    records = [record(tokens=2, arrivals=((0.5, 1), (0.7, 2))), record("b", tokens=2)]
    assert vars(token_latency(records)) == {"n": 1, "missing": 1, "p50": None, "p90": None, "p99": None}
    assert time_to_first_token(records).missing == 1


def test_distinct_ngrams_sees_loops():
    assert distinct_ngrams([record(ids=range(10))]) == 1.0
    assert distinct_ngrams([record(ids=[1, 2] * 5)]) == 2 / 7
    assert distinct_ngrams([record(ids=range(10)), record(ids=[1] * 10)]) == 8 / 14
    assert distinct_ngrams([record(ids=range(3))]) is None


def test_table_rows_keep_methods_without_draft_settings():
    """B44: three rows, AR at 11 tokens/s, none lost for an empty key."""
    records = [
        record("a", "ar", 10, (0, 1)),
        record("b", "ar", 12, (0, 1)),
        *(record(p, "spec-0.5", 20, (0, 1)) for p in "ab"),
        *(record(p, "spec-1.0", 30, (0, 1)) for p in "ab"),
    ]
    for r in records[:2]:
        r["sampling"] = dict(r["sampling"], temperature=None)
    rows = method_rows(records)
    assert [(r["method"], r["temperature"], r["tokens_per_second"]) for r in rows] == [
        ("ar", None, 11.0),
        ("spec-0.5", 0.0, 20.0),
        ("spec-1.0", 0.0, 30.0),
    ]
    assert [r["speedup"] for r in rows] == [1.0, None, None]  # AR did not run at temperature 0


def test_table_of_a_chain():
    rounds = (
        Round(0, 10, 10, 2, 2, 2, 3, "bonus", (1.0, 0.5)),
        Round(1, 10, 10, 3, 3, 3, 4, "bonus", (1.0, 1.0, 0.25)),
    )
    counts = (Passes(3, 3), Passes(1, 3), Passes(1, 4))
    records = []
    for p in "abc":
        records.append(record(p, "ar", 4, (0.5, 1.5), (0.9,), first=1, counts=counts[:1]))
        records.append(record(p, "chain", 4, (0.5, 1.0), (0.2, 0.1, 0.15), rounds=rounds, first=1, counts=counts))
    text = format_table(method_rows(records), METHOD_COLUMNS).splitlines()
    assert len(text) == 4
    shown = [" ".join(line.split()) for line in text[2:]]
    assert shown[0] == "ar 0 3 3.0 1.00 [1.00, 1.00] – – 10.0% 3/3"  # noqa: RUF001
    assert shown[1] == "chain 0 3 6.0 2.00 [2.00, 2.00] 1.00 / 1.00 3.00 / 4.00 10.0% 3/3"

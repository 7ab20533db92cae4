"""What the control of the cascade study concludes from few data, and what is expected beside what is counted."""

from __future__ import annotations

import numpy as np
import pytest
from test_cascade import SCRIPT, entry

from experiments.cascade_rows import control_rows
from ssd.calibrate.cascade import DRAWS, FALSE_ALARMS, can_reject, expected, same_law


def dice(generator, rates):
    """Counts of prompts that differ in rate and length."""
    tested = generator.integers(20, 60, len(rates))
    return {
        str(i): (float(generator.binomial(n, r)), float(n)) for i, (n, r) in enumerate(zip(tested, rates, strict=True))
    }


def test_the_control_rejects_one_law_no_more_often_than_stated():
    # 300 pairs of runs of one law at level .1: more than 48 rejections have a chance below 1e-3 (binomial tail).
    generator = np.random.default_rng(1)
    rates = generator.uniform(0.3, 0.9, 24)
    found = [same_law(dice(generator, rates), dice(generator, rates), draws=400).p for _ in range(300)]
    assert sum(p <= 0.1 for p in found) <= 48
    assert min(found) > 0


def test_the_control_sees_a_difference_of_a_tenth():
    # 24 prompts of 40 tokens: the standard error of the difference is .021, so p <= .001 is missed rarely (below 5%).
    generator = np.random.default_rng(2)
    rates = np.full(24, 0.6)
    assert same_law(dice(generator, rates + 0.1), dice(generator, rates)).p <= FALSE_ALARMS


def test_the_control_needs_tested_tokens_and_prompts_enough_to_reject():
    """Without them nothing could be seen, so that nothing is concluded."""
    some, none = {"a": (1.0, 2.0), "b": (1.0, 2.0)}, {"a": (0.0, 0.0), "b": (0.0, 0.0)}
    for ours, theirs in ((some, none), (none, some), (none, none)):
        with pytest.raises(ValueError, match="of 2 none has a tested token in one of the two runs"):
            same_law(ours, theirs)
    assert [can_reject(n) for n in (1, 10, 11, 24)] == [False, False, True, True]
    for n, goal in ((10, None), (14, FALSE_ALARMS)):
        extreme = [
            {"method": m, "prompt_id": f"{i}", "rounds": [entry(1, 0, 0, 1, passed, end)] * 40}
            for m, passed, end in (("in the chain, exactly", 1, "bonus"), ("other", 0, "recovered"))
            for i in range(n)
        ]
        told = [r | {"rounds": [x | {"tested": 1, "overlap": [0.5]} for x in r["rounds"]]} for r in extreme]
        rows = control_rows(told, [r for r in told if r["method"] == "other"], 1)
        assert [row.name.rpartition(", ")[2] for row in rows] == ["alpha", "overlap", "p-value"]
        assert rows[-1].goal == goal
        assert rows[-1].met == (None if goal is None else False)
        assert (rows[0].value, rows[1].value) == (1.0, 0.0)
    # Swaps that leave a run without tokens say nothing against one law.
    lone = same_law({"a": (1.0, 1.0), "b": (0.0, 0.0)}, {"a": (0.0, 1.0), "b": (1.0, 1.0)}, draws=DRAWS // 10)
    assert lone.p > 0.4


def test_what_is_expected_is_the_mean_overlap_of_the_tokens_that_are_counted():
    told = [r | {"rounds": [x | {"overlap": [0.9, 0.8, 0.7, 0.6][: x["tested"]]} for x in r["rounds"]]} for r in SCRIPT]
    assert expected(told, 1) == {"p": (pytest.approx(3.0), 4), "q": (0.9, 1)}
    assert expected(told, 1, first_only=True) == {"p": (0.9, 1), "q": (0.9, 1)}
    with pytest.raises(ValueError, match="edge 1: prompt 'p' has tested tokens without an overlap"):
        expected(SCRIPT, 1)

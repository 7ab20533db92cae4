"""Intervals of acceptance: the values of the counts, prompts as units, nothing known from a part."""

from __future__ import annotations

import pytest

from ssd.bench.acceptance import edge_counts
from ssd.bench.fates import FATES, acceptance_by_fate
from ssd.bench.intervals import edge_estimates, fate_difference, fate_estimates
from ssd.core.requests import Round
from tests.scripted_records import record, scripted


def chained(prompt, kept, sample=0):
    """Level 1 emits draft, draft, bonus and recovered; the target keeps ``kept`` of the four."""
    last = Round(1, 10, 10, 4, min(kept + 1, 4), kept, kept + 1, "bonus" if kept == 4 else "recovered", ())
    rounds = (
        Round(0, 10, 10, 2, 2, 2, 3, "bonus", ()),
        Round(0, 10, 13, 2, 1, 0, 1, "recovered", ()),
        last,
    )
    return record(prompt, rounds=rounds, tokens=kept + 1, sample=sample)


def test_values_are_ratios_of_totals_over_all_prompts():
    records = [record(p, rounds=scripted(4, kept, overlap=0.5), tokens=sum(kept) + len(kept))
               for p, kept in {"a": (4, 0, 2), "b": (1,), "c": (3, 3, 3, 3)}.items()]  # fmt: skip
    counts, found = edge_counts(records, 0), edge_estimates(records, 0, n=500)
    for name, estimate in found.items():
        assert estimate.value == pytest.approx(getattr(counts, name)), name
        assert estimate.low <= estimate.value <= estimate.high
        assert estimate.n == 3
    assert found["draft_acceptance_rate"].value == 19 / 32  # not the mean of 1/2, 1/4 and 3/4
    assert found["alpha_overlap"][:3] == (0.5, 0.5, 0.5)
    assert edge_estimates(records, 0, n=500) == found


def test_one_prompt_without_overlaps_voids_them():
    records = [record("a", rounds=scripted(2, (1,), overlap=0.5), tokens=2),
               record("b", rounds=scripted(2, (1,)), tokens=2)]  # fmt: skip
    found = edge_estimates(records, 0)
    assert found["alpha_overlap"] == (None, None, None, 2)
    assert found["alpha"].value == 0.5
    assert edge_estimates([], 0)["tau"] == (None, None, None, 0)
    assert edge_estimates(records, 3)["alpha"] == (None, None, None, 2)
    with pytest.raises(ValueError, match="mixed"):
        edge_estimates([*records, record("c", "ar", rounds=scripted(2, (1,)), tokens=2)], 0)


def test_samples_of_a_prompt_are_resampled_together():
    records = [record("a", rounds=scripted(2, (k,)), tokens=k + 1, sample=k) for k in range(3)]
    assert edge_estimates(records, 0)["alpha"][1:] == (None, None, 1)


def test_acceptance_by_fate_and_the_difference_between_fates():
    records = [chained("a", 4), chained("b", 3), chained("c", 3), chained("d", 2)]
    found, table = fate_estimates(records, 1, n=200), acceptance_by_fate(records, 1)
    assert list(found) == list(FATES)
    assert {fate: e.value for fate, e in found.items()} == {fate: t.alpha for fate, t in table.items()}
    assert found["draft"][:3] == (1.0, 1.0, 1.0)
    assert found["recovered"].value == pytest.approx(1 / 3)
    assert found["unknown"].value is None
    gap = fate_difference(records[:3], 1, n=200)
    assert gap.value == pytest.approx(2 / 3)
    assert gap.low <= gap.value <= gap.high
    assert fate_difference(records, 1, "draft", "plain").value is None
    with pytest.raises(ValueError, match="fate: 'lost'"):
        fate_difference(records, 1, "lost")
    with pytest.raises(ValueError, match="edge 0"):
        fate_estimates(records, 0)

"""Whether a method's outputs are as good as the baseline's: equal within a margin, different, or not to be told.

Every measure adds up over the turns of a conversation, conversations are resampled in pairs, and the verdict on a
method needs a positive control: outputs of the target at a higher temperature, which the same rule must call
different. Where a score is at its floor the control passes as well, and then nothing has been shown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from ssd.bench.acceptance import Record
from ssd.bench.record_line import check_real
from ssd.bench.statistics import Array, Estimate, paired_bootstrap
from ssd.bench.turns import conversation_of

VERDICTS = ("equal", "different", "inconclusive")
EQUAL_LEVEL = 0.90  # the interval that lies within the margin exactly if both one-sided 5% tests reject
DIFFERENT_LEVEL = 0.998  # the interval that must not hold 0
FALSE_ALARM = 0.01
"""Bound on how often it does not hold 0 where both sides have one law; bootstrap intervals of few conversations are
too short for the nominal 0.002. From ``LEAST_CONVERSATIONS`` on, 2,000 simulated experiments gave at most 0.0065 with
normal, exponential, log-normal and binary scores.
"""
RESAMPLES = {EQUAL_LEVEL: 4000, DIFFERENT_LEVEL: 20000}
LEAST_CONVERSATIONS = 20  # below, bootstrap intervals are too short
# Half-width of the 90% interval, in standard errors, and the further way to 80% power on both sides.
_HALF, _WAY = NormalDist().inv_cdf(0.95), NormalDist().inv_cdf(0.90)

Key = tuple[str, int]


@dataclass(frozen=True)
class Measure:
    """A score of outputs.

    Attributes:
        name: unique among the measures of a comparison.
        unit: of its values and of the margin.
        margin: differences up to it are called equal; stated before anything is measured.
        against: what texts are compared with, in words; empty where they stand for themselves.
        columns: what one record adds to the totals; ``None`` for a record that has nothing to be compared with.
        score: totals [..., C] -> [...]; NaN for no value.
    """

    name: str
    unit: str
    margin: float
    against: str
    columns: Callable[[Record], Sequence[float] | None]
    score: Callable[[Array], Any]

    def __post_init__(self) -> None:
        if not self.margin > 0:
            raise ValueError(f"margins.{self.name}: expected a number above 0, got {self.margin!r}")


@dataclass(frozen=True)
class Difference:
    """A method's score minus the baseline's over the same conversations.

    Attributes:
        ours, theirs: the two scores; None without data.
        value: their difference.
        low, high: its 90% interval.
        outer_low, outer_high: its 99.8% interval.
        n: conversations.
    """

    ours: float | None
    theirs: float | None
    value: float | None
    low: float | None
    high: float | None
    outer_low: float | None
    outer_high: float | None
    n: int

    def lies_within(self, margin: float) -> bool:
        """Whether the 90% interval lies within ±margin: two one-sided tests (TOST) at 5% reject a larger difference."""
        return self.low is not None and self.high is not None and -margin <= self.low and self.high <= margin

    @property
    def excludes_zero(self) -> bool:
        """Whether the 99.8% interval does not hold 0."""
        low, high = self.outer_low, self.outer_high
        return low is not None and high is not None and (low > 0 or high < 0)

    @property
    def smallest_detectable(self) -> float | None:
        """The margin at which TOST would find equality with 80% power if there were no difference.

        With half-width h of the 90% interval, standard error s = h / z(0.95) and a true difference of 0, the
        interval lies within ±m with probability 2 Φ((m - h) / s) - 1, which is 0.8 at m = h + z(0.90) s.
        """
        if self.low is None or self.high is None:
            return None
        half = (self.high - self.low) / 2
        return half * (1 + _WAY / _HALF)


@dataclass(frozen=True)
class Comparison:
    """The verdict on one measure.

    Attributes:
        difference: of the method to the baseline.
        control: the control's difference to the baseline; None if it has no records.
        smallest: the method's smallest detectable difference.
        verdict: one of ``VERDICTS``.
        reason: one sentence that says why.
    """

    measure: str
    unit: str
    margin: float
    against: str
    difference: Difference
    control: Difference | None
    smallest: float | None
    verdict: str
    reason: str

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def compare(
    records: Sequence[Record], baseline: Sequence[Record], control: Sequence[Record] | None, measure: Measure
) -> Comparison:
    """The verdict on one measure.

    Args:
        records: of the method.
        baseline: of the target alone under the same sampling.
        control: of the target alone at a higher temperature; None or empty if there are none.
        measure: what is compared.

    Raises:
        ValueError: if the three do not cover the same prompts and samples once.
    """
    found = difference(records, baseline, measure)
    known = difference(control, baseline, measure) if control else None
    verdict, reason = judge(found, known, measure.margin)
    smallest = found.smallest_detectable
    return Comparison(
        measure.name, measure.unit, measure.margin, measure.against, found, known, smallest, verdict, reason
    )


def judge(found: Difference, control: Difference | None, margin: float) -> tuple[str, str]:
    """(one of ``VERDICTS``, why).

    A difference is *different* iff its 99.8% interval does not hold 0 and its 90% interval leaves the margin. It
    is *equal* iff the 90% interval lies within the margin and the control comes out as different.
    """
    if found.low is None or found.n < LEAST_CONVERSATIONS:
        return "inconclusive", f"{found.n} conversations with a value, {LEAST_CONVERSATIONS} are needed"
    if not found.lies_within(margin):
        if found.excludes_zero:
            return "different", "the 99.8% interval does not hold 0"
        return "inconclusive", "the 90% interval leaves the margin: more prompts are needed"
    if control is None:
        return "inconclusive", "there are no records of the control"
    if control.low is None or control.lies_within(margin) or not control.excludes_zero:
        return "inconclusive", "the control is not found to be different, so this score could not tell"
    return "equal", "the 90% interval lies within the margin, and the control is found to be different"


def difference(records: Sequence[Record], baseline: Sequence[Record], measure: Measure) -> Difference:
    """Score of ``records`` minus score of ``baseline``, resampling conversations in pairs.

    Raises:
        ValueError: if the two do not cover the same prompts and samples once.
    """
    ours, theirs = by_key(records), by_key(baseline)
    if ours.keys() != theirs.keys():
        odd = sorted(ours.keys() ^ theirs.keys())[:3]
        raise ValueError(f"equivalence: prompts and samples differ from the baseline's, among others {odd}")
    unit = conversation_of(prompt for prompt, _ in ours)
    rows: dict[str, Array] = {}
    for key, record in ours.items():
        pair = [measure.columns(record), measure.columns(theirs[key])]
        if pair[0] is None or pair[1] is None:
            continue
        row = np.array([*pair[0], *pair[1]], dtype=np.float64)
        rows[unit[key[0]]] = rows.get(unit[key[0]], 0) + row
    if not rows:
        return Difference(None, None, None, None, None, None, None, 0)
    table = np.array(list(rows.values()))
    half = table.shape[1] // 2
    total = table.sum(axis=0)
    inner, outer = (_interval(table, measure, level) for level in (EQUAL_LEVEL, DIFFERENT_LEVEL))
    ends = (inner.low, inner.high, outer.low, outer.high)
    scores = (_finite(measure.score(total[:half])), _finite(measure.score(total[half:])))
    return Difference(*scores, inner.value, *ends, len(table))


def by_key(records: Sequence[Record]) -> dict[Key, Record]:
    """Records by prompt and sample.

    Raises:
        ValueError: if there are none, a prompt and sample occurs twice, or one is synthetic.
    """
    check_real(records, "equivalence")
    found: dict[Key, Record] = {}
    for record in records:
        key = (record["prompt_id"], record["sample"])
        if key in found:
            raise ValueError(f"equivalence: prompt, sample {key} occurs twice; methods or settings are mixed")
        found[key] = record
    if not found:
        raise ValueError("equivalence: there are no records to compare")
    return found


def _interval(table: Array, measure: Measure, level: float) -> Estimate:
    """The paired bootstrap at one level."""
    half = table.shape[1] // 2

    def gain(totals: Array) -> Any:
        return measure.score(totals[..., :half]) - measure.score(totals[..., half:])

    return paired_bootstrap(gain, table, n=RESAMPLES[level], level=level)


def _finite(value: Any) -> float | None:
    """The number, or None where there is none."""
    return float(value) if np.isfinite(value) else None

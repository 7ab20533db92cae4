"""Predictions judged by the clock: overheads fitted on one half of the configurations, errors on the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from ssd.bench.statistics import Estimate
from ssd.bench.summary import Row
from ssd.plan.residual import NAMES, Features, Overheads, fit

ERROR_GOAL, CHOICE_GOAL = 0.07, 0.95
BASELINE = "ar"
NORMAL_MEDIAN, NORMAL_INTERVAL = 0.6745, 2 * 1.96  # median |z|, and width of a 95% interval, in standard errors


@dataclass(frozen=True)
class Measured:
    """One configuration.

    Attributes:
        group: of configurations that ran in alternation with the same AR.
        name: ``ar`` for AR.
        half: ``fit`` or ``test``.
        features: what it does per token.
        seconds: measured per token of the batch.
        speedup: measured over the group's AR; ``None`` for AR.
        planner: seconds per token of the batch that the planner's own model predicts, nothing fitted.
    """

    group: str
    name: str
    half: str
    features: Features
    seconds: float
    speedup: Estimate | None
    planner: float


@dataclass(frozen=True)
class Verdict:
    """Every configuration beside its prediction."""

    measured: tuple[Measured, ...]
    overheads: Overheads

    def baseline(self, group: str) -> Measured:
        """AR of a group."""
        return next(m for m in self.measured if m.group == group and m.name == BASELINE)

    def predicted(self, one: Measured, overheads: Overheads) -> float:
        """Predicted speedup over AR of the same group."""
        own = self.baseline(one.group)
        return overheads.seconds_per_token(own.features) / overheads.seconds_per_token(one.features)

    def table(self) -> list[dict[str, Any]]:
        """A row per configuration but AR."""
        rows = []
        for m in self.measured:
            if m.speedup is None or m.speedup.value is None:
                continue
            fitted = self.predicted(m, self.overheads)
            planner = self.baseline(m.group).planner / m.planner
            rows.append(
                {
                    "group": m.group,
                    "name": m.name,
                    "half": m.half,
                    "unfitted": self.predicted(m, Overheads()),
                    "fitted": fitted,
                    "planner": planner,
                    "speedup": m.speedup.value,
                    "low": m.speedup.low,
                    "high": m.speedup.high,
                    "n": m.speedup.n,
                    "error": fitted / m.speedup.value - 1,
                    "planner_error": planner / m.speedup.value - 1,
                    "unfitted_error": self.predicted(m, Overheads()) / m.speedup.value - 1,
                }
            )
        return rows

    def choice(self, group: str) -> tuple[Measured, float]:
        """The configuration of a group, AR included, that is predicted to be fastest; its speed ÷ the best's."""
        return self._chosen(group, lambda m: self.overheads.seconds_per_token(m.features))

    def planner_choice(self, group: str) -> tuple[Measured, float]:
        """The same by the planner's own model."""
        return self._chosen(group, lambda m: m.planner)

    def _chosen(self, group: str, seconds: Callable[[Measured], float]) -> tuple[Measured, float]:
        own = [m for m in self.measured if m.group == group]
        chosen = min(own, key=seconds)
        return chosen, min(m.seconds for m in own) / chosen.seconds


def validate(measured: Sequence[Measured]) -> Verdict:
    """Overheads fitted on the configurations of the half ``fit``.

    Raises:
        ValueError: if a group has no AR, or there are too few configurations to fit on.
    """
    for group in {m.group for m in measured}:
        if not any(m.group == group and m.name == BASELINE for m in measured):
            raise ValueError(f"validation: group {group!r} has no {BASELINE!r}")
    half = [m for m in measured if m.half == "fit"]
    return Verdict(tuple(measured), fit([m.features for m in half], [m.seconds for m in half]))


def summary_rows(verdict: Verdict) -> list[Row]:
    """The goals, what they rest on, and the fitted overheads."""
    table = verdict.table()
    test = [row for row in table if row["half"] == "test"]
    trained = [row for row in table if row["half"] == "fit"]
    rows = [Row("configurations", len(table), "count", goal=20)]
    if test:
        rows += [
            Row("median error: test half", _median(test, "error"), "share", n=len(test), goal=ERROR_GOAL, sense="max",
                bound=_noise(test)),
            Row("largest error: test half", max(abs(r["error"]) for r in test), "share", n=len(test)),
            Row("median error without overheads: test half", _median(test, "unfitted_error"), "share", n=len(test)),
        ]  # fmt: skip
    if trained:
        rows.append(Row("median error: fitted half", _median(trained, "error"), "share", n=len(trained)))
    if table:
        error = _median(table, "planner_error")
        name = "median error of the planner's own model, all configurations"
        rows.append(Row(name, error, "share", n=len(table), goal=ERROR_GOAL, sense="max", bound=_noise(table)))
    groups = list(dict.fromkeys(m.group for m in verdict.measured))
    rows += _choice_rows("choice", {group: verdict.choice(group) for group in groups})
    rows += _choice_rows("planner's own choice", {group: verdict.planner_choice(group) for group in groups})
    rows += [Row(f"overhead: {name}", s, "s") for name, s in zip(NAMES, verdict.overheads.seconds, strict=True)]
    return rows


def _choice_rows(title: str, choices: Mapping[str, tuple[Measured, float]]) -> list[Row]:
    """The worst group, then every group."""
    worst = min(share for _, share in choices.values())
    rows = [Row(f"{title} / best measured: worst group", worst, "x", n=len(choices), goal=CHOICE_GOAL, bound=1.0)]
    for group, (chosen, share) in choices.items():
        rows.append(Row(f"{title} / best measured: {group} ({chosen.name})", share, "x"))
    return rows


def _median(rows: Sequence[dict[str, Any]], key: str) -> float:
    return median(abs(row[key]) for row in rows)


def _noise(rows: Sequence[dict[str, Any]]) -> float | None:
    """The median error that a perfect prediction would show, from the intervals of the measured speedups."""
    widths = [(r["high"] - r["low"]) / r["speedup"] for r in rows if r["low"] is not None and r["high"] is not None]
    return NORMAL_MEDIAN / NORMAL_INTERVAL * median(widths) if widths else None

"""The simulator against the clock: fitted on half of the configurations, held to the other half.

Pass times per level and placement are lines in tokens × rows through the traced passes of the fitted half;
acceptance per edge and place in the draft is counted there too. Time outside passes is what serial runs of that
half show per pass. How often a guess of the next token is right comes from the target's own texts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.schedule_methods import BOTH, EACH, ONE, Variant
from ssd.bench.acceptance import Record
from ssd.bench.draft_positions import acceptance_at
from ssd.bench.metrics import batches, clock, tokens_per_second
from ssd.plan.acceptance import ByPosition
from ssd.plan.edge_plan import EdgePlan
from ssd.plan.events import Worker
from ssd.plan.lookahead import Ahead, TopShares
from ssd.plan.pass_times import PassTimes, Profile
from ssd.plan.setting import Machine, Setting
from ssd.plan.simulate import simulate
from ssd.plan.trace import Span, Trace

SEEDS = 40  # simulated requests of each configuration
Shares = Mapping[tuple[int, int], tuple[Sequence[float], Sequence[float]]]


@dataclass(frozen=True)
class Line:
    """Seconds of a pass: a line in tokens × rows, nowhere below its smallest observation."""

    base: float
    slope: float
    least: float

    def __call__(self, width: int, batch: int) -> float:
        """Seconds of a pass over ``width`` tokens in each of ``batch`` rows."""
        return max(self.least, self.base + self.slope * width * batch)

    @staticmethod
    def through(spans: Sequence[Span]) -> Line:
        """Least squares; flat if all passes have one size."""
        size = np.array([s.width * s.batch for s in spans], dtype=float)
        seconds = np.array([s.seconds for s in spans])
        least = float(np.quantile(seconds, 0.05))
        if len(set(size)) == 1:
            return Line(float(seconds.mean()), 0.0, least)
        slope, base = np.polyfit(size, seconds, 1)
        return Line(float(base), float(slope), least)


@dataclass(frozen=True)
class Simulated:
    """A configuration, predicted and measured, in seconds per token; ``hits`` are shares of rounds."""

    variant: Variant
    predicted: float
    measured: float
    predicted_hits: float | None
    measured_hits: float | None

    @property
    def error(self) -> float:
        """Predicted ÷ measured speed, minus 1."""
        return self.measured / self.predicted - 1

    def as_dict(self) -> dict[str, Any]:
        """As it stands in ``simulated.json`` and on the page."""
        return {
            "configuration": self.variant.name,
            "half": "fitted" if self.variant.fitted else "other",
            "predicted_tokens_per_second": 1 / self.predicted,
            "measured_tokens_per_second": 1 / self.measured,
            "error": self.error,
            "predicted_hit_rate": self.predicted_hits,
            "measured_hit_rate": self.measured_hits,
        }


class Fit:
    """What the fitted half says.

    Args:
        records: of every configuration, and of the target alone.
        traces: by method.
        levels: number of levels of the whole chain.
        shares: by (draft, verifier), of next tokens among the best guesses.
    """

    def __init__(
        self,
        found: Sequence[Variant],
        records: Mapping[str, Sequence[Record]],
        traces: Mapping[str, Sequence[Trace]],
        levels: int,
        shares: Shares,
    ) -> None:
        self.records, self.levels, self.shares = records, levels, shares
        half = [v for v in found if v.fitted]
        self._half = half
        self.lines = {
            (where, level): Line.through(spans)
            for where in (BOTH, ONE, EACH)
            for level in range(levels)
            if (spans := list(self._spans([v for v in half if v.placement == where], traces, level)))
        }
        self.overhead = {where: self._overhead([v for v in half if v.placement == where]) for where in (BOTH, ONE)}
        self.overhead[EACH] = self.overhead[ONE]

    def _levels(self, v: Variant) -> list[int]:
        return [k % self.levels for k in v.method.levels if isinstance(k, int)]

    def _spans(self, half: Iterable[Variant], traces: Mapping[str, Sequence[Trace]], level: int) -> Iterable[Span]:
        for v in half:
            own = self._levels(v)
            if level in own:
                for trace in traces[v.name]:
                    yield from (s for s in trace.lane(own.index(level)) if s.what != "prefill")

    def _overhead(self, half: Sequence[Variant]) -> float:
        """Seconds outside passes per pass of serial runs."""
        rest = passes = 0.0
        for v in half:
            for batch in batches(self.records[v.name]):
                rest += batch[0]["seconds"]["rest"]
                passes += sum(p["count"] for p in batch[0]["passes"].values())
        return rest / passes

    def _acceptance(self, v: Variant, edge: int) -> ByPosition:
        tested: Counter[int] = Counter()
        accepted: Counter[int] = Counter()
        for w in self._half:
            if w.family == v.family:
                for place in acceptance_at(self.records[w.name], edge):
                    tested[place.position] += place.tested or 0
                    accepted[place.position] += place.accepted
        return ByPosition(tuple(accepted[i] / tested[i] for i in sorted(tested) if tested[i]))

    def slowed(self, width: int = 3) -> float:
        """A pass of the target on one core over ``width`` tokens while drafts work, divided by one while they wait."""
        top = self.levels - 1
        return self.lines[EACH, top](width, 1) / self.lines[ONE, top](width, 1)

    def setting(self, v: Variant) -> Setting:
        """The configuration as the simulator takes it."""
        own = self._levels(v)
        profile = Profile(
            tuple(PassTimes(f"L{k}", self.lines[v.placement, k], self.overhead[v.placement]) for k in own)
        )
        edges = tuple(EdgePlan(e.gamma, e.window, e.verification) for e in v.method.edges)
        acceptance = tuple(self._acceptance(v, k) for k in range(len(edges)))
        pipeline = v.method.pipeline
        if pipeline is None:
            return Setting(profile, edges, acceptance, Machine((Worker("cores"),) * len(own)))
        curve = TopShares(*map(tuple, self.shares[own[-2], own[-1]]))
        ahead = Ahead(curve, pipeline.budget, pipeline.fan_out)
        machine = Machine((*(Worker("drafts"),) * len(edges), Worker("target")))
        above = (None,) * (len(edges) - 1)
        return Setting(profile, edges, acceptance, machine, "pipelined", (*above, ahead))

    def simulated(self, v: Variant, tokens: int) -> Simulated:
        """The configuration on outputs of ``tokens`` tokens, the first target pass's left out."""
        setting = self.setting(v)
        runs = [simulate(setting, tokens, seed=seed) for seed in range(SEEDS)]
        seconds = sum(run.seconds for run in runs) / sum(run.tokens for run in runs)
        edge = len(setting.edges) - 1
        rates = [rate for run in runs if (rate := run.hit_rate(edge)) is not None]
        speed = tokens_per_second(self.records[v.name])
        assert speed is not None
        return Simulated(
            v, seconds, 1 / speed, float(np.mean(rates)) if rates else None, hit_rate(self.records[v.name])
        )


def hit_rate(records: Iterable[Record]) -> float | None:
    """Share of the target's rounds whose draft had been made ahead; ``None`` where that was not tried."""
    hits = misses = 0
    for batch in batches(records):
        if batch[0]["ahead"]:
            hits, misses = hits + batch[0]["ahead"][-1][0], misses + batch[0]["ahead"][-1][1]
    return hits / (hits + misses) if hits + misses else None


def mean_tokens(records: Iterable[Record]) -> int:
    """New tokens of an output on average, without those of the first target pass."""
    found = [clock(batch) for batch in batches(records)]
    return round(float(np.mean([c.tokens for c in found if c is not None])))


def errors(found: Sequence[Simulated], fitted: bool) -> list[float]:
    """Absolute errors of one half."""
    return [abs(s.error) for s in found if s.variant.fitted == fitted]

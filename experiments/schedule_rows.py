"""What the comparison of schedules comes to, as rows of a summary and as sentences."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from experiments.schedule_fit import Simulated, errors, hit_rate
from experiments.schedule_methods import AR, BOTH, EACH, ONE, PLACEMENTS, Variant
from ssd.bench.acceptance import Record
from ssd.bench.metrics import batches, exact_match, speedup
from ssd.bench.summary import Row
from ssd.plan.trace import Trace

TOGETHER = 0.8  # share of the time in which both have work that both should be busy
TRACE_COST = 0.02  # of decode time
ERROR = 0.07  # median, of the simulated speed of configurations the simulator was not fitted on


def speed_rows(best: Sequence[Variant], records: Mapping[str, Sequence[Record]]) -> list[Row]:
    """Each choice over AR, and pipelined against both serial placements of the same family."""
    rows = [Row.of(f"speedup: {AR[ONE]} / ar on all cores", speedup(records[AR[ONE]], records[AR[BOTH]]))]
    rows += [Row.of(f"speedup: {v.name} / ar on all cores", speedup(records[v.name], records[AR[BOTH]])) for v in best]
    for family in dict.fromkeys(v.family for v in best):
        by = {v.placement: records[v.name] for v in best if v.family == family}
        waiting = without_waiting(by[EACH])
        for rival in (BOTH, ONE):
            found = speedup(by[EACH], by[rival])
            bound = None if found.value is None else found.value * waiting
            name = f"{family}: pipelined / {rival}"
            rows.append(Row.of(name, found, goal=1.0, low_goal=1.0, bound=bound))
        match = exact_match(by[EACH], by[BOTH])
        rows.append(Row(f"{family}: outputs equal to the serial ones", match.share, "share", n=match.n))
        rows.append(Row(f"{family}: hit rate", hit_rate(by[EACH]), "share", n=len(by[EACH])))
    return rows


def without_waiting(records: Sequence[Record]) -> float:
    """How many times as fast a pipelined method would be if the target never waited: decode ÷ its own passes."""
    decode = inside = 0.0
    for batch in batches(records):
        spent = batch[0]["seconds"]
        decode += spent["total"] - spent["prefill"]
        inside += spent["passes"][max(spent["passes"])]
    return decode / inside


def together(traces: Sequence[Trace]) -> float | None:
    """Share of the time in which target and drafts both have work that both are in a pass.

    Both have work from the beginning of a verification until it or the last pass of what is drafted ahead
    meanwhile ends, whichever is first.
    """
    both = has_work = 0.0
    for trace in traces:
        top = len(trace.levels) - 1
        ahead = sorted((s for s in trace.spans if s.level < top and s.ahead), key=lambda s: s.start)
        for check in (s for s in trace.lane(top) if s.what == "verify"):
            own = [s for s in ahead if s.end > check.start and s.start < check.end]
            if own:
                begin, end = check.start, min(check.end, max(s.end for s in own))
                has_work += end - begin
                both += sum(max(0.0, min(s.end, end) - max(s.start, begin)) for s in own)
    return both / has_work if has_work else None


def overlap_rows(best: Sequence[Variant], traces: Mapping[str, Sequence[Trace]], cost: float) -> list[Row]:
    """Whether work really went on at the same time, and what tracing takes."""
    rows = []
    for v in best:
        if v.placement == EACH:
            share = together(traces[v.name])
            name = f"{v.family}: both busy while both have work"
            rows.append(Row(name, share, "share", n=len(traces[v.name]), goal=TOGETHER))
    return [*rows, Row("cost of tracing", cost, "share", goal=TRACE_COST, sense="max")]


def fit_rows(found: Sequence[Simulated], slowed: float) -> list[Row]:
    """How far the simulator is off, on the half it was fitted on and on the other.

    Args:
        slowed: a pass of the target beside working drafts ÷ alone on its core.
    """
    rows = [Row("target's pass on one core: beside working drafts / alone", slowed, "x")]
    for fitted, name in ((True, "fitted half"), (False, "other half")):
        own = errors(found, fitted)
        median, goal = statistics.median(own), None if fitted else ERROR
        title = f"simulator: median error of speed, {name}"
        rows.append(Row(title, median, "share", n=len(own), goal=goal, sense="max"))
        rows.append(Row(f"simulator: largest error of speed, {name}", max(own), "share", n=len(own)))
    return rows


def sentences(best: Sequence[Variant], rows: Sequence[Row]) -> list[str]:
    """What was found, made from the rows."""
    by = {row.name: row for row in rows}
    out = []
    for family in dict.fromkeys(v.family for v in best):
        honest, one = (by[f"{family}: pipelined / {rival}"] for rival in PLACEMENTS[:2])
        rate, hits = _ratio(honest), by[f"{family}: hit rate"].value
        verdict = _verdict(honest)
        out.append(
            f"{family}: with drafts and target on a core each, pipelined makes {rate} times the tokens per second of "
            f"levels that take turns on all cores ({verdict}), and {_ratio(one)} times those of levels that take turns "
            f"on one core; {'no' if hits is None else f'{hits:.0%} of'} drafts had been made ahead."
        )
        out.append(f"If the target never waited for a draft it would be {honest.bound:.2f} times.")
        if verdict != "a gain":
            out.append(f"A scheduler that measures first would let the levels of {family} take turns here.")
    return out


def _ratio(row: Row) -> str:
    if row.value is None:
        return "unknown"
    return f"{row.value:.2f}" + ("" if row.low is None or row.high is None else f" [{row.low:.2f}, {row.high:.2f}]")


def _verdict(row: Row) -> str:
    if row.low is not None and row.low > 1:
        return "a gain"
    if row.high is not None and row.high < 1:
        return "a loss"
    return "no difference that the interval shows"

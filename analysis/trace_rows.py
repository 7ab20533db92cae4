"""What a trace comes to: how busy each level was, together with the target, ahead of time, and in vain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from analysis.table import Column
from ssd.plan.trace import Trace

TRACE_COLUMNS = (
    Column("trace"),
    Column("level"),
    Column("busy", "busy", ".0%"),
    Column("with_target", "of it, beside the target", ".0%"),
    Column("used", "of it, ahead and used", ".0%"),
    Column("wasted", "of it, ahead in vain", ".0%"),
    Column("hit_rate", "outcomes prepared for", ".0%"),
)


def trace_rows(traces: Sequence[Trace]) -> list[dict[str, Any]]:
    """One row per trace and level, prefill left out; shares are of the trace, or of the level's busy time."""
    return [row for trace in traces for row in _rows(decoding(trace))]


def decoding(trace: Trace) -> Trace:
    """The trace without prefill; time begins where that ended."""
    zero = max((s.end for s in trace.spans if s.what == "prefill"), default=0.0)
    kept = [s for s in trace.spans if s.what != "prefill" and s.start >= zero]
    moved = [type(s)(**{**vars(s), "start": s.start - zero, "end": s.end - zero}) for s in kept]
    return Trace(trace.name, trace.levels, tuple(moved))


def _rows(trace: Trace) -> list[dict[str, Any]]:
    target = len(trace.levels) - 1
    rows = []
    for level, name in enumerate(trace.levels):
        own, busy = trace.lane(level), trace.busy(level)
        hits, misses = sum(s.hits for s in own), sum(s.misses for s in own)

        def share(seconds: float, of: float = busy) -> float | None:
            return seconds / of if of else None

        rows.append(
            {
                "trace": trace.name,
                "level": name,
                "busy": share(busy, trace.end),
                "with_target": None if level == target else share(trace.together(level, target)),
                "used": share(sum(s.seconds for s in own if s.ahead == "used")),
                "wasted": share(sum(s.seconds for s in own if s.ahead == "wasted")),
                "hit_rate": hits / (hits + misses) if hits + misses else None,
            }
        )
    return rows

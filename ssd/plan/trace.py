"""What ran when: a lane per level, as a file that Perfetto and chrome://tracing open.

A simulated and a measured run write the same thing. The file holds ``{"traceEvents": [...]}`` with one
complete event (``"ph": "X"``, times in microseconds) per pass; ``pid`` numbers the runs, ``tid`` is the
level, and metadata events (``"ph": "M"``) name both.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

KINDS = ("draft", "verify", "prefill")
AHEAD = ("", "used", "wasted")
SLACK = 2e-9  # seconds by which passes of a lane may seem to overlap: a file holds whole nanoseconds


@dataclass
class Span:
    """One pass of one level.

    Attributes:
        level: whose pass.
        start: seconds since the trace began.
        end: the same, not before ``start``.
        what: ``draft`` (a step of level 0, or a row to guess from), ``verify`` or ``prefill``.
        width: tokens fed per row.
        batch: rows.
        ahead: ``""`` for work needed when it began, else whether work done ahead was ``used`` or ``wasted``.
        hits: rows whose outcome of this verification had been prepared for.
        misses: rows for which other outcomes had been prepared.
    """

    level: int
    start: float
    end: float
    what: str
    width: int = 1
    batch: int = 1
    ahead: str = ""
    hits: int = 0
    misses: int = 0

    def __post_init__(self) -> None:
        if self.what not in KINDS:
            raise ValueError(f"span.what: {self.what!r} is not one of {', '.join(KINDS)}")
        if self.ahead not in AHEAD:
            raise ValueError(f"span.ahead: {self.ahead!r} is not one of {AHEAD!r}")
        if not self.start <= self.end:
            raise ValueError(f"span.end: {self.end!r} is before the start {self.start!r}")

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.end - self.start


@dataclass(frozen=True)
class Trace:
    """The passes of one run.

    Attributes:
        name: of the run, unique in a file.
        levels: name per level, L0 first.
        spans: in any order; those of one level do not overlap.
    """

    name: str
    levels: tuple[str, ...]
    spans: tuple[Span, ...]

    def __post_init__(self) -> None:
        for level, name in enumerate(self.levels):
            lane = self.lane(level)
            for first, second in pairwise(lane):
                if second.start < first.end - SLACK:
                    raise ValueError(
                        f"trace {self.name!r}, level {name}: a pass begins at {second.start} s, "
                        f"before the one that began at {first.start} s ends at {first.end} s"
                    )
        for span in self.spans:
            if not 0 <= span.level < len(self.levels):
                raise ValueError(f"trace {self.name!r}: level {span.level} of a pass is not one of {self.levels}")

    @property
    def end(self) -> float:
        """When the last pass ends, in seconds; 0 without passes."""
        return max((span.end for span in self.spans), default=0.0)

    def lane(self, level: int) -> list[Span]:
        """Passes of a level in order of time."""
        return sorted((s for s in self.spans if s.level == level), key=lambda s: (s.start, s.end))

    def busy(self, level: int) -> float:
        """Seconds within passes of a level."""
        return sum(span.seconds for span in self.spans if span.level == level)

    def together(self, one: int, other: int) -> float:
        """Seconds in which passes of both levels run."""
        total, right, j = 0.0, self.lane(other), 0
        for span in self.lane(one):
            while j < len(right) and right[j].end <= span.start:
                j += 1
            for rival in right[j:]:
                if rival.start >= span.end:
                    break
                total += max(0.0, min(span.end, rival.end) - max(span.start, rival.start))
        return total


def events(trace: Trace, pid: int = 0) -> list[dict[str, Any]]:
    """The events of a trace; lanes are shown with the target on top."""
    out: list[dict[str, Any]] = [_metadata("process_name", pid, 0, name=trace.name)]
    for level, name in enumerate(trace.levels):
        out.append(_metadata("thread_name", pid, level, name=name))
        out.append(_metadata("thread_sort_index", pid, level, sort_index=len(trace.levels) - level))
    for span in sorted(trace.spans, key=lambda s: (s.start, -s.level)):
        start = round(span.start * 1e6, 3)  # whole nanoseconds, so that a pass ends exactly where the next begins
        args = {name: getattr(span, name) for name in ("what", "width", "batch", "ahead", "hits", "misses")}
        out.append(
            {
                "name": f"{span.what} ({span.ahead})" if span.ahead else span.what,
                "cat": "pass",
                "ph": "X",
                "ts": start,
                "dur": round(span.end * 1e6 - start, 3),
                "pid": pid,
                "tid": span.level,
                "args": args,
            }
        )
    return out


def _metadata(kind: str, pid: int, tid: int, **args: Any) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": pid, "tid": tid, "args": args}


def write_traces(path: Path, traces: Sequence[Trace]) -> None:
    """Write traces side by side into one file.

    Raises:
        ValueError: if two traces have the same name.
    """
    names = [trace.name for trace in traces]
    if len(set(names)) < len(names):
        raise ValueError(f"{path}: traces of one file need different names, got {names}")
    content = {
        "displayTimeUnit": "ms",
        "traceEvents": [event for pid, trace in enumerate(traces) for event in events(trace, pid)],
    }
    path.write_text(json.dumps(content, allow_nan=False) + "\n", encoding="utf-8")


def read_traces(path: Path) -> list[Trace]:
    """The traces of a file that ``write_traces`` or a measured run wrote.

    Raises:
        ValueError: if it is not such a file, naming the event.
    """
    try:
        return parse(json.loads(path.read_text(encoding="utf-8"))["traceEvents"])
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path}: not a trace: {error!r}") from error


def parse(found: Iterable[dict[str, Any]]) -> list[Trace]:
    """Traces from events, in order of ``pid``."""
    runs: dict[int, str] = {}
    lanes: dict[int, dict[int, str]] = {}
    spans: dict[int, list[Span]] = {}
    for i, event in enumerate(found):
        try:
            pid, kind = event["pid"], event["ph"]
            if kind == "M" and event["name"] == "process_name":
                runs[pid] = event["args"]["name"]
            elif kind == "M" and event["name"] == "thread_name":
                lanes.setdefault(pid, {})[event["tid"]] = event["args"]["name"]
            elif kind == "X":
                start = event["ts"] / 1e6
                span = Span(event["tid"], start, start + event["dur"] / 1e6, **event["args"])
                spans.setdefault(pid, []).append(span)
        except (KeyError, TypeError) as error:
            raise ValueError(f"event {i} of the trace is not one of ours: {error!r}") from error
    if set(spans) - set(runs):
        raise ValueError(f"runs {sorted(set(spans) - set(runs))} of the trace have no name")
    return [
        Trace(runs[pid], tuple(name for _, name in sorted(lanes.get(pid, {}).items())), tuple(spans.get(pid, ())))
        for pid in sorted(runs)
    ]

"""Traces of a run: what ran when in its first groups of requests, in one file that Perfetto opens. No torch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ssd.plan.trace import Trace, read_traces, write_traces

TRACES_FILE = "traces.json"


def keep_trace(folder: Path, name: str, trace: Trace) -> None:
    """The folder's traces hold this one under ``name``, in place of an older one of that name."""
    path = folder / TRACES_FILE
    old = [t for t in read_traces(path) if t.name != name] if path.exists() else []
    write_traces(path, [*old, replace(trace, name=name)])

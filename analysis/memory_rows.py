"""Bytes of weights and caches, as ``run.json`` states them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analysis.table import Column

MEGABYTE = 1e6
MEMORY_COLUMNS = (
    Column("method"),
    Column("level"),
    Column("weights", "weights, MB", ".1f"),
    Column("packed", "packed copies, MB", ".1f"),
    Column("cache", "largest cache, MB", ".2f"),
)


def memory_rows(run: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A row per method and level, and one for all levels of a method, whose shared weights and copies count once.

    Empty for runs that state no memory. Transformers' own methods are not counted: their caches are
    thrown away inside a call.
    """
    rows = []
    for method, told in (run.get("memory") or {}).get("methods", {}).items():
        parts = [(str(part["level"]), part) for part in told["levels"]]
        if len(parts) > 1:
            parts.append(("together", told))
        rows += [{"method": method, "level": level, **_sizes(part)} for level, part in parts]
    return rows


def _sizes(part: Mapping[str, Any]) -> dict[str, float | None]:
    """Megabytes; ``None`` for packed copies where there are none, as in runs made before they were counted."""
    weights, packed, cache = part["weight_bytes"], part.get("packed_bytes", 0), part["cache_bytes"]
    return {"weights": weights / MEGABYTE, "packed": packed / MEGABYTE or None, "cache": cache / MEGABYTE}


def process_peak(run: Mapping[str, Any]) -> str:
    """One sentence on the measured peak of the process; empty if the run does not state it."""
    peak = (run.get("memory") or {}).get("resident_bytes")
    if peak is None:
        return ""
    return f"Counted. Measured peak of the whole process, everything it ran before included: {peak / 1e9:.2f} GB."

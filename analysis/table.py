"""A plain-text table on the console, from summary rows or from records; nothing to install."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from ssd.bench.acceptance import edge_counts, edges
from ssd.bench.metrics import exact_match, pass_shares, speedup, tokens_per_second
from ssd.bench.records import group_by
from ssd.bench.statistics import Estimate

MISSING = "–"  # noqa: RUF001 - an en dash reads as "no value", a hyphen as a sign


@dataclass(frozen=True)
class Column:
    """One column: which key of a row it shows, under which title, in which number format.

    Attributes:
        key: of the row; an absent key is a missing value.
        title: default the key.
        form: format specification of floats.
        bounds: keys of an interval that is shown behind the value as ``[low, high]``.
    """

    key: str
    title: str | None = None
    form: str = ".3g"
    bounds: tuple[str, str] | None = None


METHOD_COLUMNS = (
    Column("method"),
    Column("temperature", "T", "g"),
    Column("requests"),
    Column("tokens_per_second", "tokens/s", ".1f"),
    Column("speedup", "speedup [95%]", ".2f", ("speedup_low", "speedup_high")),
    Column("alpha", "alpha per edge", ".2f"),
    Column("tau", "tau per edge", ".2f"),
    Column("outside_passes", "outside passes", ".1%"),
    Column("exact_match", "equal to AR"),
)
SUMMARY_COLUMNS = (
    Column("name"),
    Column("value", form=".4g", bounds=("low", "high")),
    Column("unit"),
    Column("n"),
    Column("goal", form="g"),
    Column("low_goal", form="g"),
    Column("met"),
    Column("bound", form=".4g"),
)


def format_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[Column | str]) -> str:
    """Titles, a rule and one line per row; numbers to the right, text to the left, "–" for no value."""
    chosen = [Column(column) if isinstance(column, str) else column for column in columns]
    titles = [column.title or column.key for column in chosen]
    body = [[_cell(row, column) for column in chosen] for row in rows]
    widths = [max(len(line[i]) for line in [titles, *body]) for i in range(len(chosen))]
    textual = [any(isinstance(row.get(column.key), str | bool) for row in rows) for column in chosen]

    def line(cells: Sequence[str]) -> str:
        placed = (c.ljust(w) if left else c.rjust(w) for c, w, left in zip(cells, widths, textual, strict=True))
        return "  ".join(placed).rstrip()

    return "\n".join([line(titles), "  ".join("-" * width for width in widths), *map(line, body)])


def print_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[Column | str], file: TextIO | None = None) -> None:
    """``format_table`` is on ``file`` (default standard output)."""
    text = format_table(rows, columns) + "\n"
    out = sys.stdout if file is None else file
    encoding = getattr(out, "encoding", None) or "utf-8"
    out.write(text.encode(encoding, "replace").decode(encoding))  # an ASCII terminal gets "?" for the dash


def method_rows(records: Sequence[Mapping[str, Any]], baseline: str = "ar") -> list[dict[str, Any]]:
    """One row per method and temperature in order of appearance, for ``METHOD_COLUMNS``.

    Speedup and exact match compare with ``baseline`` at the same temperature; they are missing where
    it did not run, exact match also for outputs of imposed acceptance. Edges are listed from L0 upwards.
    """
    groups = group_by(records, "method", "sampling.temperature")
    rows = []
    for (method, temperature), own in groups.items():
        other = groups.get((baseline, temperature))
        gained = Estimate(None, None, None, 0) if other is None else speedup(own, other)
        is_synthetic = any(record.get("synthetic") for record in own)
        match = None if other is None or is_synthetic else exact_match(own, other)
        counts = [edge_counts(own, edge) for edge in edges(own)]
        rows.append(
            {
                "method": method,
                "temperature": temperature,
                "requests": len(own),
                "tokens_per_second": tokens_per_second(own),
                "speedup": gained.value,
                "speedup_low": gained.low,
                "speedup_high": gained.high,
                "alpha": [count.alpha for count in counts],
                "tau": [count.tau for count in counts],
                "outside_passes": pass_shares(own)["rest"],
                "exact_match": None if match is None else f"{match.equal}/{match.n}",
            }
        )
    return rows


def _cell(row: Mapping[str, Any], column: Column) -> str:
    """Text of one value, with its interval if the column has one and the row knows it."""
    text = _text(row.get(column.key), column.form)
    if column.bounds is None or text == MISSING:
        return text
    low, high = (_text(row.get(key), column.form) for key in column.bounds)
    return text if low == high == MISSING else f"{text} [{low}, {high}]"


def _text(value: Any, form: str) -> str:
    """One value as text."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return " / ".join(_text(item, form) for item in value) or MISSING
    return format(value, form) if isinstance(value, float) else str(value)

"""A report as one HTML page that needs nothing else: no script, no font, no image file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape

from analysis.figure_style import COLORS
from analysis.html_page import fill, replace_page
from analysis.report import Report, Table
from analysis.table import MISSING, Column


def render(report: Report) -> str:
    """The page; equal reports give equal text."""
    known = {"cell": cell, "is_text": is_text, "svg": Markup, "colors": COLORS}
    return fill("report.html.j2", ["report.css"], known, report=report)


def write(path: Path, report: Report) -> None:
    """``path`` holds the page, replaced in one step; its folder is created if need be."""
    replace_page(path, render(report))


def cell(row: Mapping[str, Any], column: Column) -> Markup:
    """A value as it stands in a table, with its interval if the column has one; no value is a dash."""
    value = row.get(column.key)
    if isinstance(value, list | tuple):
        items = (Markup('<span class="item">{}</span>').format(_text(item, column.form)) for item in value)
        return Markup("").join(items) or _absent()
    text = _text(value, column.form)
    if column.bounds is None or value is None:
        return text
    low, high = (row.get(key) for key in column.bounds)
    if low is None or high is None:
        return text
    ends = _text(low, column.form), _text(high, column.form)
    return Markup('{} <span class="interval">[{}, {}]</span>').format(text, *ends)


def is_text(table: Table, column: Column) -> bool:
    """Whether a column holds words, which stand to the left."""
    values = [row.get(column.key) for row in table.rows]
    items = [item for value in values for item in (value if isinstance(value, list | tuple) else [value])]
    return any(isinstance(item, str) for item in items)


def _text(value: Any, form: str) -> Markup:
    """One value."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return _absent()
    if isinstance(value, bool):
        return escape("yes" if value else "no")
    return escape(format(value, form) if isinstance(value, float) else str(value))


def _absent() -> Markup:
    """What stands for a missing value."""
    return Markup('<span class="absent" title="no value">{}</span>').format(MISSING)

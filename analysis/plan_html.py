"""A plan as one HTML page that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.figure_style import COLORS
from analysis.html_page import fill, replace_page
from analysis.report import Table
from analysis.report_html import cell, is_text


@dataclass(frozen=True)
class PlanPage:
    """All of a page.

    Attributes:
        recommendation: the verdict in sentences.
        facts: (name, value) of what it was planned for.
    """

    title: str
    lead: str
    recommendation: str
    facts: Sequence[tuple[str, str]]
    tables: Sequence[Table]


def render(page: PlanPage) -> str:
    """The page; equal plans give equal text."""
    known = {"cell": cell, "is_text": is_text, "colors": COLORS}
    return fill("plan.html.j2", ["report.css"], known, page=page)


def write(path: Path, page: PlanPage) -> None:
    """``path`` holds the page, replaced in one step."""
    replace_page(path, render(page))

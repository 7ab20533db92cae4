"""What could not be run, as one HTML page that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from analysis.figure_style import COLORS
from analysis.html_page import fill, replace_page
from analysis.report import Table
from analysis.report_html import cell, is_text


@dataclass(frozen=True)
class Picture:
    """A figure of the page.

    Attributes:
        name: unique within the page.
        svg: the element, made by ``analysis.figure_style.svg``.
        caption: how to read it.
        table: the numbers behind it.
    """

    name: str
    svg: str
    caption: str
    table: Table


@dataclass(frozen=True)
class WhatIfPage:
    """All of a page.

    Attributes:
        findings: one sentence or two each.
        facts: (name, value) in short.
        assumptions: (what, which) of everything that was not measured.
        tables: further ones, folded.
    """

    title: str
    lead: str
    findings: Sequence[str]
    facts: Sequence[tuple[str, str]]
    assumptions: Sequence[tuple[str, str]]
    pictures: Sequence[Picture]
    tables: Sequence[Table]
    kicker: str = "what could not be run"
    heading: str = "What the simulation says"


def render(page: WhatIfPage) -> str:
    """The page; equal content gives equal text."""
    known = {"cell": cell, "is_text": is_text, "svg": Markup, "colors": COLORS}
    return fill("what_if.html.j2", ["report.css"], known, page=page)


def write(path: Path, page: WhatIfPage) -> None:
    """``path`` holds the page, replaced in one step."""
    replace_page(path, render(page))

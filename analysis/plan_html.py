"""A plan as one HTML page that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from analysis.figure_style import COLORS
from analysis.report import Table
from analysis.report_html import TEMPLATES, cell, is_text


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
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES, encoding="utf-8"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(cell=cell, is_text=is_text, colors=COLORS)
    style = (TEMPLATES / "report.css").read_text(encoding="utf-8")
    text = environment.get_template("plan.html.j2").render(page=page, style=Markup(style))
    return "\n".join(line.rstrip() for line in text.splitlines() if line.strip()) + "\n"


def write(path: Path, page: PlanPage) -> None:
    """``path`` holds the page, replaced in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(render(page), encoding="utf-8", newline="\n")
    temporary.replace(path)

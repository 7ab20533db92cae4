"""A certificate as one HTML page that needs nothing else, in the looks of the report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from analysis.certificate import QUALITY_COLUMNS, build, duration, percent
from analysis.report import Table
from analysis.report_html import TEMPLATES, cell, is_text


def render(data: Mapping[str, Any]) -> str:
    """The page of what ``certificate.json`` holds; equal data give equal text."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES, encoding="utf-8"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(cell=cell, is_text=is_text, percent=percent, duration=duration)
    styles = [(TEMPLATES / name).read_text(encoding="utf-8") for name in ("report.css", "certificate.css")]
    page = build(data)
    quality = Table("Quality equivalence", QUALITY_COLUMNS, page.quality)
    template = environment.get_template("certificate.html.j2")
    text = template.render(page=page, quality=quality, style=Markup("\n").join(map(Markup, styles)))
    return "\n".join(line.rstrip() for line in text.splitlines() if line.strip()) + "\n"


def write(path: Path, data: Mapping[str, Any]) -> None:
    """``path`` holds the page, replaced in one step; its folder is created if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(render(data), encoding="utf-8", newline="\n")
    temporary.replace(path)

"""A certificate as one HTML page that needs nothing else, in the looks of the report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from analysis.certificate import QUALITY_COLUMNS, build, duration, percent
from analysis.html_page import fill, replace_page
from analysis.report import Table
from analysis.report_html import cell, is_text


def render(data: Mapping[str, Any]) -> str:
    """The page of what ``certificate.json`` holds; equal data give equal text."""
    page = build(data)
    known = {"cell": cell, "is_text": is_text, "percent": percent, "duration": duration}
    quality = Table("Quality equivalence", QUALITY_COLUMNS, page.quality)
    return fill("certificate.html.j2", ["report.css", "certificate.css"], known, page=page, quality=quality)


def write(path: Path, data: Mapping[str, Any]) -> None:
    """``path`` holds the page, replaced in one step; its folder is created if need be."""
    replace_page(path, render(data))

"""One HTML page that needs nothing else: a template filled in, and written in one step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

TEMPLATES = Path(__file__).parent / "templates"


def fill(template: str, styles: Sequence[str], known: Mapping[str, Any], **content: Any) -> str:
    """The text of a page; equal content gives equal text.

    Args:
        template: file of ``TEMPLATES``; it finds the style sheets as ``style``.
        styles: files of ``TEMPLATES``, one after the other.
        known: what the template may call or look up.
        content: what it shows; a name it uses and is not given is an error.
    """
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES, encoding="utf-8"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(known)
    style = "\n".join((TEMPLATES / name).read_text(encoding="utf-8") for name in styles)
    text = environment.get_template(template).render(style=Markup(style), **content)
    return "\n".join(line.rstrip() for line in text.splitlines() if line.strip()) + "\n"


def replace_page(path: Path, text: str) -> None:
    """``path`` holds the page, replaced in one step; its folder is created if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text, encoding="utf-8", newline="\n")
    temporary.replace(path)

"""How figures look, and how one becomes part of a page that has a light and a dark face.

No window system is used and none of pyplot's lists: a figure is an object like any other and is gone
when nothing holds it.
"""

from __future__ import annotations

import io
import re
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from html import escape
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

WIDTH = 4.5  # inches of 72 points: a phone's width in CSS pixels
LABEL = 18  # characters of a line of a method's name

# Every colour has a role, and a page sets roles to other colours where it is dark. All differ.
COLORS = {
    "ink": "#1c2128",
    "muted": "#667085",
    "grid": "#e4e7ec",
    "surface": "#fefefe",
    "baseline": "#475467",
    "other": "#98a2b3",
    "draft": "#2563eb",
    "draft-2": "#0891b2",
    "draft-3": "#4f46e5",
    "chain": "#d9480f",
    "chain-2": "#be185d",
    "chain-3": "#b45309",
    "level-target": "#3b4a63",
    "level-0": "#f59f00",
    "level-1": "#12a594",
    "level-2": "#8e4ec6",
    "level-3": "#e0529c",
    "level-none": "#ad8b00",
    "rest": "#cbd2dc",
}
FAMILY_COLORS = {
    "baseline": ("baseline",),
    "other": ("other", "muted", "level-none"),
    "draft": ("draft", "draft-2", "draft-3"),
    "chain": ("chain", "chain-2", "chain-3"),
}
RC: Any = {
    "font.size": 9.5,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9.5,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "legend.handlelength": 1.4,
    "legend.columnspacing": 1.2,
    "text.color": COLORS["ink"],
    "axes.labelcolor": COLORS["muted"],
    "axes.titlecolor": COLORS["ink"],
    "axes.edgecolor": COLORS["grid"],
    "axes.facecolor": "none",
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": COLORS["grid"],
    "grid.linewidth": 0.8,
    "xtick.color": COLORS["grid"],
    "ytick.color": COLORS["grid"],
    "xtick.labelcolor": COLORS["muted"],
    "ytick.labelcolor": COLORS["ink"],
    "lines.linewidth": 1.8,
    "lines.markersize": 5.5,
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "text.parse_math": False,  # names are text, whatever is in them
    "svg.fonttype": "none",  # text stays text: it can be read aloud, found and copied
}


@contextmanager
def style() -> Iterator[None]:
    """Settings of this suite inside, those of before outside."""
    with mpl.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*[Gg]lyph.*")  # the page's own fonts may well have it
        mpl.rcdefaults()
        mpl.rcParams.update(RC)
        yield


def new_figure(height: float, width: float = WIDTH) -> Figure:
    """An empty figure, sizes in inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def nothing(message: str) -> Figure:
    """What is drawn where there is nothing to draw."""
    with style():
        figure = new_figure(1.0)
        figure.text(0.5, 0.5, message, ha="center", va="center", color=COLORS["muted"])
        return figure


def method_colors(methods: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Colour of each method from (name, family): families look alike, and methods within one differ."""
    families: dict[str, list[str]] = {}
    for name, family in methods:
        own = families.setdefault(family, [])
        if name not in own:
            own.append(name)
    return {
        name: COLORS[FAMILY_COLORS[family][i % len(FAMILY_COLORS[family])]]
        for family, names in families.items()
        for i, name in enumerate(names)
    }


def level_color(level: str, role: str) -> str:
    """Colour of a level's time: the same model has the same one in every method."""
    if role in ("target", "rest"):
        return COLORS["level-target" if role == "target" else "rest"]
    number = level.removeprefix("L")
    return COLORS[f"level-{int(number) % 4}" if number.isdigit() else "level-none"]


def wrapped(name: str) -> str:
    """A name on as many lines as it needs."""
    return "\n".join(textwrap.wrap(name, LABEL)) or name


def name_rows(axes: Axes, names: Sequence[str]) -> None:
    """The y axis lists names from the top, without ticks or lines."""
    axes.set_yticks(range(len(names)), [wrapped(name) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0, pad=6)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)


def svg(figure: Figure, name: str, alternative: str) -> str:
    """The figure as an SVG element for a page; equal figures give equal text.

    Colours are CSS variables named ``--fig-<role>``, text takes the page's font.

    Args:
        figure: made within ``style``.
        name: unique within the page; its inner references begin with it.
        alternative: what it shows, for those who cannot see it.
    """
    with style(), mpl.rc_context({"svg.hashsalt": name}):
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"\s*<style.*?</style>", "", text, flags=re.DOTALL)  # it would rule the whole page
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.DOTALL)
    used = set(re.findall(r'(?:url\(|href=")#([^)"]+)', text))
    text = re.sub(r' id="([^"]+)"', lambda m: f' id="{name}-{m[1]}"' if m[1] in used else "", text)
    text = re.sub(r'(url\(|href=")#', rf"\g<1>#{name}-", text)
    for role, color in COLORS.items():
        text = text.replace(color, f"var(--fig-{role})")
    text = re.sub(r"font-family: [^;\"]+", "font-family: var(--fig-font)", text)
    head, body = text.split(">", 1)
    box = re.search(r'viewBox="[^"]+"', head)
    assert box is not None
    label = escape(alternative, quote=True)
    start = f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" {box[0]} role="img"'
    return f'{start} aria-label="{label}">{body.strip()}'

"""Figures of the calibration and of the cascade study: rows in, a matplotlib Figure out, none left open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.figure_style import COLORS, name_rows, new_figure, nothing, style

MARKS = {"equal": "o", "top_down": "v", "joint": "s"}
RAMP = LinearSegmentedColormap.from_list("share", [COLORS["surface"], COLORS["draft"], COLORS["ink"]])
ROW = 0.22  # inches per row


def heat_map(
    cells: Sequence[Mapping[str, Any]], draft: str, verifier: str, marks: Mapping[str, tuple[float, float]]
) -> Figure:
    """Expected acceptance over the temperatures of a draft (down) and its verifier (across), in even steps of a grid.

    Args:
        cells: ``draft_temperature``, ``verifier_temperature`` and ``alpha`` of one pair; a missing one stays blank.
        draft, verifier: names of the two levels.
        marks: by vector, (draft's temperature, verifier's temperature) that it chose, between the steps of the
            grid where they lie between its values.
    """
    known = {(c["draft_temperature"], c["verifier_temperature"]): c["alpha"] for c in cells}
    if not known:
        return nothing("no acceptance was measured")
    across, down = (sorted({pair[i] for pair in known}) for i in (1, 0))
    image = np.array([[known.get((s, t), np.nan) for t in across] for s in down], dtype=np.float64)
    with style():
        figure = new_figure(max(2.4, 0.3 * len(down) + 1.2), 5.0)
        axes = figure.add_subplot()
        axes.grid(visible=False)
        axes.imshow(image, cmap=RAMP, origin="lower", aspect="auto", vmin=0, vmax=1)
        for (y, x), value in np.ndenumerate(image):
            if not np.isnan(value):
                color = COLORS["surface" if value > 0.45 else "ink"]
                axes.text(x, y, f"{value:.2f}".lstrip("0"), ha="center", va="center", color=color, fontsize=7)
        axes.set_xticks(range(len(across)), [f"{t:g}" for t in across])
        axes.set_yticks(range(len(down)), [f"{t:g}" for t in down])
        axes.set_xlabel(f"temperature of {verifier}")
        axes.set_ylabel(f"temperature of {draft}")
        axes.set_title(f"expected acceptance {draft}\N{RIGHTWARDS ARROW}{verifier}")
        handles = [_mark(axes, name, across, down, place) for name, place in marks.items()]
        figure.legend(handles=handles, loc="outside lower center", ncols=3)
        return figure


def alphas(rows: Sequence[Mapping[str, Any]], title: str) -> Figure:
    """Acceptance of one edge under several conditions, one below the other.

    Args:
        rows: ``name``, ``value``, ``low``, ``high``; rows without a value keep their place.
        title: of the figure.
    """
    if not any(row["value"] is not None for row in rows):
        return nothing("no token was tested")
    with style():
        figure = new_figure(ROW * len(rows) + 0.9, 5.5)
        axes = figure.add_subplot()
        name_rows(axes, [""] * len(rows))
        axes.set_yticks(range(len(rows)), [row["name"] for row in rows])  # on one line each
        for y, row in enumerate(rows):
            if row["value"] is None:
                continue
            if row["low"] is not None:
                axes.plot([row["low"], row["high"]], [y, y], color=COLORS["chain"], linewidth=1.2)
            axes.plot([row["value"]], [y], "o", color=COLORS["chain"])
        axes.set_xlabel("acceptance, 95% interval over prompts")
        axes.set_title(title)
        return figure


def save(figure: Figure, path: Path) -> None:
    """``path`` with the endings ``.svg`` and ``.png`` holds the figure on a light ground."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with style():
        for ending in (".svg", ".png"):
            metadata = {"Date": None} if ending == ".svg" else None
            figure.savefig(path.with_suffix(ending), facecolor=COLORS["surface"], dpi=150, metadata=metadata)


def _mark(axes: Axes, name: str, across: Sequence[float], down: Sequence[float], place: tuple[float, float]) -> Line2D:
    """The place of a vector on the map."""
    x, y = (float(np.interp(t, own, range(len(own)))) for t, own in zip(reversed(place), (across, down), strict=True))
    label = name.replace("_", "-")
    look: Any = {"markersize": 9, "markerfacecolor": "none", "markeredgewidth": 1.6, "linestyle": "none"}
    (line,) = axes.plot([x], [y], MARKS[name], color=COLORS["chain"], label=label, **look)
    return line

"""The figures of a report and a notebook: rows in, a matplotlib Figure out, none left open.

Missing values are left blank and their row or place stays. Lines between points guide the eye; every
point stands for a ratio of totals, its whisker for the 95% interval over prompts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from analysis.figure_style import (
    COLORS,
    WIDTH,
    level_color,
    method_colors,
    name_rows,
    new_figure,
    nothing,
    style,
)
from analysis.table import MISSING

Rows = Sequence[Mapping[str, Any]]
ROW = 0.36  # inches per method in a list
PANEL = 1.75  # inches per row of panels
FATE_COLORS = {
    "accepted below": COLORS["draft"],
    "recovered below": COLORS["chain"],
    "bonus below": COLORS["level-1"],
    "computed below": COLORS["muted"],
    "unknown": COLORS["rest"],
}


def speedup(rows: Rows) -> Figure:
    """Speedup of each method over the baseline with its interval.

    Args:
        rows: of ``speed_rows``.
    """
    if not any(row["speedup"] is not None for row in rows):
        return nothing("no speedups: the baseline did not run")
    with style():
        figure = new_figure(ROW * len(rows) + 0.6)
        axes = figure.add_subplot()
        name_rows(axes, [row["method"] for row in rows])
        axes.axvline(1, color=COLORS["muted"], linewidth=1, linestyle=(0, (3, 3)), zorder=1)
        for y, row in enumerate(rows):
            _whisker(axes, row, y)
        low, high = axes.get_xlim()
        for y, row in enumerate(rows):
            text = MISSING if row["speedup"] is None else f"{row['speedup']:.2f}\N{MULTIPLICATION SIGN}"
            axes.text(1.02, y, text, transform=axes.get_yaxis_transform(), va="center", color=COLORS["ink"])
        axes.set_xlim(min(low, 0.95), max(high, 1.05))
        axes.set_xlabel("speedup over plain decoding")
        return figure


def overview(rows: Rows) -> Figure:
    """The best method of each kind, setting by setting.

    Args:
        rows: ``setting``, ``method``, ``family``, ``speedup``, ``speedup_low``, ``speedup_high``; rows of one
            setting stand together.
    """
    names = list(dict.fromkeys(row["setting"] for row in rows))
    if not any(row["speedup"] is not None for row in rows):
        return nothing("no speedups: the baseline did not run")
    kinds = {"other": "another library", "draft": "one draft", "chain": "a draft with a draft"}
    shown = [kind for kind in kinds if any(row["family"] == kind for row in rows)]
    with style():
        figure = new_figure(max(0.5, 0.17 * len(shown) + 0.1) * len(names) + 0.85)
        axes = figure.add_subplot()
        name_rows(axes, names)
        axes.axvline(1, color=COLORS["muted"], linewidth=1, linestyle=(0, (3, 3)), zorder=1)
        for row in rows:
            shift = 0.26 * (shown.index(row["family"]) - (len(shown) - 1) / 2)
            place = names.index(row["setting"]) + shift
            _whisker(axes, row, place)
        axes.set_xlabel("speedup over plain decoding")
        marks = [_mark(COLORS[kind], kind == "other", label=kinds[kind]) for kind in shown]
        figure.legend(handles=marks, loc="outside upper left", ncols=3)
        return figure


def time_per_token(rows: Rows) -> Figure:
    """Decode time per output token, split by whose passes it went into.

    Args:
        rows: of ``time_rows``.
    """
    names = list(dict.fromkeys(row["method"] for row in rows))
    if not any(row["milliseconds"] is not None for row in rows):
        return nothing("no times are known")
    with style():
        figure = new_figure(ROW * len(names) + 0.95)
        axes = figure.add_subplot()
        name_rows(axes, names)
        ends = dict.fromkeys(names, 0.0)
        labels: dict[str, str] = {}
        for row in rows:
            y, spent = names.index(row["method"]), row["milliseconds"]
            color = level_color(row["level"], row["role"])
            label = f"{row['level']}, the target" if row["role"] == "target" else row["level"]
            if spent is None:
                axes.text(0, y, f" {MISSING}", va="center", color=COLORS["muted"])
                continue
            if spent:
                labels.setdefault(label, color)
            axes.barh(y, spent, left=ends[row["method"]], height=0.62, color=color, linewidth=0)
            ends[row["method"]] += spent
        longest = max(ends.values())
        for y, name in enumerate(names):
            if ends[name]:
                axes.text(ends[name] + 0.012 * longest, y, f"{ends[name]:.0f}", va="center", color=COLORS["ink"])
        axes.set_xlim(0, 1.12 * longest)
        axes.set_xlabel("milliseconds per output token")
        ordered = sorted(labels, key=lambda label: (label == "outside passes", "target" in label, label))
        patches = [Patch(color=labels[label], label=label, linewidth=0) for label in ordered]
        figure.legend(handles=patches, loc="outside upper left", ncols=3)
        return figure


def acceptance_by_draft_position(rows: Rows) -> Figure:
    """Acceptance of the first, second, ... token of a draft; a panel per edge, a line per method.

    Solid: given that all earlier tokens passed. Dotted: of all drafts.

    Args:
        rows: of ``by_draft_position``.
    """

    def draw(axes: Axes, own: Rows, color: str) -> None:
        places = [row["place"] for row in own]
        _line(axes, places, own, color)
        whole = [(row["place"], row["unconditional"]) for row in own if row["unconditional"] is not None]
        if whole:
            axes.plot(*zip(*whole, strict=True), color=color, linewidth=1.2, linestyle=(0, (1, 1.6)))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))

    return _by_edge(rows, draw, "position in the draft", "acceptance")


def acceptance_by_place(rows: Rows, label: str) -> Figure:
    """Acceptance by bins of a number of tokens; a panel per edge, a line per method.

    Args:
        rows: of ``by_output_position`` or ``by_output_length``.
        label: what the bins are of.
    """
    places = list(dict.fromkeys(row["place"] for row in rows))

    def draw(axes: Axes, own: Rows, color: str) -> None:
        _line(axes, [places.index(row["place"]) for row in own], own, color)
        _bins(axes, places)

    return _by_edge(rows, draw, label, "\N{GREEK SMALL LETTER ALPHA}")


def acceptance_by_fate(rows: Rows) -> Figure:
    """Acceptance of draft tokens by what they were one level below: in all, and by place.

    Args:
        rows: of ``by_fate``, of one method and edge.
    """
    if not rows:
        return nothing("no draft here was itself drafted")
    fates = list(dict.fromkeys(row["fate"] for row in rows))
    panels = ("all", "draft position", "output position", "output length")
    with style():
        figure = new_figure(2 * PANEL + 0.45)
        grid = figure.subplots(2, 2, sharey=True)
        for axes, by in zip(grid.flat, panels, strict=True):
            own = [row for row in rows if row["by"] == by]
            places = sorted({row["place"] for row in own}, key=_first_number)
            for i, fate in enumerate(fates):
                line = [row for row in own if row["fate"] == fate]
                at = [i if by == "all" else places.index(row["place"]) for row in line]
                _line(axes, at, line, FATE_COLORS[fate], (i - (len(fates) - 1) / 2) * 0.06 if by != "all" else 0)
            axes.set_ylim(-0.03, 1.03)
            axes.set_title("all (n below)" if by == "all" else f"by {by}")
            if by == "all":
                axes.set_xticks(range(len(fates)), [str(_tested(own, fate)) for fate in fates])
                axes.set_xlim(-0.5, len(fates) - 0.5)
            else:
                _bins(axes, [str(place) for place in places])
        grid[0][0].set_ylabel("\N{GREEK SMALL LETTER ALPHA}")
        grid[1][0].set_ylabel("\N{GREEK SMALL LETTER ALPHA}")
        marks = [_mark(FATE_COLORS[fate], False, label=fate) for fate in fates]
        figure.legend(handles=marks, loc="outside upper left", ncols=3)
        return figure


def _by_edge(rows: Rows, draw: Any, xlabel: str, ylabel: str) -> Figure:
    """A panel per edge, two in a row, where ``draw(axes, rows, color)`` draws each method's line."""
    edges = list(dict.fromkeys(row["edge"] for row in rows))
    if not any(row["alpha"] is not None or row.get("unconditional") is not None for row in rows):
        return nothing("no draft tokens were tested")
    methods = list(dict.fromkeys((row["method"], row["family"]) for row in rows))
    colors = method_colors(methods)
    columns = min(2, len(edges))
    lines = -(-len(edges) // columns)
    with style():
        figure = new_figure(PANEL * lines + 0.35 + 0.22 * -(-len(methods) // 2), WIDTH)
        grid = figure.subplots(lines, columns, sharey=True, squeeze=False)
        for place, axes in enumerate(grid.flat):
            if place >= len(edges):
                axes.remove()
                continue
            own = [row for row in rows if row["edge"] == edges[place]]
            for method in dict.fromkeys(row["method"] for row in own):
                draw(axes, [row for row in own if row["method"] == method], colors[method])
            axes.set_title(edges[place])
            axes.set_ylim(-0.03, 1.03)
            axes.set_xlabel(xlabel if place + columns >= len(edges) else "")
            axes.set_ylabel(ylabel if place % columns == 0 else "")
        marks = [_mark(colors[name], False, label=name) for name, _ in methods]
        figure.legend(handles=marks, loc="outside upper left", ncols=2)
        return figure


def _line(axes: Axes, places: Sequence[float], rows: Rows, color: str, shift: float = 0) -> None:
    """Points with whiskers, joined where neighbours are known; without an interval a point is hollow."""
    known = [(x + shift, row) for x, row in zip(places, rows, strict=True) if row["alpha"] is not None]
    axes.plot([x for x, _ in known], [row["alpha"] for _, row in known], color=color)
    for x, row in known:
        face = COLORS["surface"] if row["low"] is None else color
        axes.plot([x], [row["alpha"]], color=color, marker="o", markersize=4, markerfacecolor=face)
        if row["low"] is not None:
            axes.plot([x, x], [row["low"], row["high"]], color=color, linewidth=1.1, alpha=0.55)


def _whisker(axes: Axes, row: Mapping[str, Any], y: float) -> None:
    """The point of a speedup with its interval on a horizontal list."""
    value, low, high = (row[key] for key in ("speedup", "speedup_low", "speedup_high"))
    if value is None:
        return
    color = COLORS[row["family"]]
    if low is not None and high is not None:
        axes.plot([low, high], [y, y], color=color, linewidth=2.2, alpha=0.5, solid_capstyle="round", zorder=2)
    hollow = row["family"] == "other"
    face = COLORS["surface"] if hollow else color
    axes.plot(
        [value], [y], marker="o", markersize=6.5, color=color, markerfacecolor=face, markeredgewidth=1.6, zorder=3
    )


def _mark(color: str, hollow: bool, label: str) -> Line2D:
    """An entry of a legend."""
    face = COLORS["surface"] if hollow else color
    return Line2D([], [], color=color, marker="o", linestyle="", markerfacecolor=face, label=label)


def _bins(axes: Axes, names: Sequence[str]) -> None:
    """The x axis lists bins."""
    axes.set_xticks(range(len(names)), list(names))
    axes.set_xlim(-0.4, len(names) - 0.6)
    if sum(map(len, names)) > 15:
        axes.tick_params(axis="x", labelsize=8)
    if sum(map(len, names)) > 24:
        axes.tick_params(axis="x", labelrotation=35)


def _first_number(place: Any) -> int:
    """What bins and positions are ordered by."""
    digits = str(place).rstrip("+").partition("-")[0]
    return int(digits) if digits.isdigit() else 0


def _tested(rows: Rows, fate: str) -> int:
    """Tokens behind a point."""
    return sum(row["tested"] for row in rows if row["fate"] == fate)

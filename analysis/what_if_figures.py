"""Figures of what could not be run: rows of the simulation in, a matplotlib Figure out, none left open."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from analysis.figure_style import COLORS, name_rows, new_figure, nothing, style

Rows = Sequence[Mapping[str, Any]]
WIDE = 6.0  # inches
PUBLISHED = (0.77, 0.81)  # acceptance of 7B→70B in print
ASSUMED = (0.60, 0.75)  # of 1B→7B, for which nothing is
TIMES_LOOK: dict[str, tuple[str, str]] = {  # column of pass times -> (name, colour)
    "graph": ("CUDA graph", COLORS["other"]),
    "compiled_70b_graph": ("compiled, 70B in a CUDA graph", COLORS["draft-2"]),
    "compiled": ("compiled, 70B at 1.2 floors", COLORS["draft"]),
    "floor": ("bandwidth floor", COLORS["baseline"]),
}
DEVICE_COLORS = {1: COLORS["level-none"], 2: COLORS["chain"], 3: COLORS["draft-3"]}
CURVE_DASHES = {"published": "-", "pessimistic": "--", "always": ":"}
CURVE_NAMES = {"published": "hits as published", "pessimistic": "hits pessimistic", "always": "always a hit (bound)"}


def reach(rows: Rows, serial_goal: float, overlapped_goal: float) -> Figure:
    """Acceptance that two claims need: (lower edge, upper edge), above a line the claim is reached.

    Args:
        rows: of ``goal``, ``schedule``, ``times``, ``devices``, ``curve``, ``lower``, ``needed``; those without a
            ``needed`` leave a gap.
        serial_goal, overlapped_goal: the speedups claimed.
    """
    if not any(r["needed"] is not None for r in rows):
        return nothing("no claim is reached at any acceptance of the map")
    with style():
        figure = new_figure(6.4, WIDE)
        upper, lower = figure.subplots(2, 1, sharex=True)
        for axes, goal in ((upper, serial_goal), (lower, overlapped_goal)):
            corner, size = (ASSUMED[0], PUBLISHED[0]), (ASSUMED[1] - ASSUMED[0], PUBLISHED[1] - PUBLISHED[0])
            axes.add_patch(Rectangle(corner, *size, color=COLORS["rest"], alpha=0.6, linewidth=0))
            axes.set_ylabel("acceptance 7B→70B")
            axes.set_ylim(0.69, 0.97)
            own = [r for r in rows if r["goal"] == goal]
            for (times, devices, curve), line in _lines(own, "times", "devices", "curve"):
                color = TIMES_LOOK[times][1] if axes is upper else DEVICE_COLORS[devices]
                points = [(r["lower"], r["needed"]) for r in line if r["needed"] is not None]
                dash = "-" if axes is upper else CURVE_DASHES[curve]
                axes.plot([x for x, _ in points], [y for _, y in points], dash, color=color, marker="o", markersize=3.5)
        upper.set_title(f"{serial_goal}x, levels in turn on one device")
        lower.set_title(f"{overlapped_goal}x, overlapped, compiled")
        lower.set_xlabel("acceptance 1B→7B")
        reached = {r["times"] for r in rows if r["goal"] == serial_goal and r["needed"] is not None}
        handles = [_line(n if t in reached else f"{n}: above the map", c) for t, (n, c) in TIMES_LOOK.items()]
        _legend(upper, [*handles, _band("7B→70B in print, 1B→7B assumed")])
        devices = sorted({r["devices"] for r in rows if r["goal"] == overlapped_goal and r["needed"] is not None})
        handles = [_line(_devices(d), DEVICE_COLORS[d]) for d in devices]
        shown = {r["curve"] for r in rows if r["goal"] == overlapped_goal and r["needed"] is not None}
        handles += [_line(CURVE_NAMES[c], COLORS["muted"], CURVE_DASHES[c]) for c in CURVE_DASHES if c in shown]
        _legend(lower, handles)
        return figure


def pair(rows: Rows, goal: float) -> Figure:
    """Speedup of the pair over its acceptance: in turn with every column of pass times, overlapped on two devices.

    Args:
        rows: of ``alphas``, ``times``, ``schedule``, ``devices``, ``curve``, ``speedup``.
        goal: the speedup claimed.
    """
    if not rows:
        return nothing("the pair was not simulated")
    with style():
        figure = new_figure(4.2, WIDE)
        axes = figure.add_subplot()
        axes.axvspan(*PUBLISHED, color=COLORS["rest"], alpha=0.45, linewidth=0)
        axes.axhline(goal, color=COLORS["muted"], linewidth=1)
        axes.annotate(f"{goal}x", (0.602, goal), xytext=(0, 3), textcoords="offset points", color=COLORS["muted"])
        handles = []
        for (times, schedule, devices, curve), line in _lines(rows, "times", "schedule", "devices", "curve"):
            if schedule == "pipelined" and devices == 1:
                continue  # below the serial line, and said in words
            color = TIMES_LOOK[times][1] if schedule == "serial" else DEVICE_COLORS[devices]
            dash = "-" if schedule == "serial" else CURVE_DASHES[curve]
            axes.plot([r["alphas"][-1] for r in line], [r["speedup"] for r in line], dash, color=color)
            name = TIMES_LOOK[times][0] if schedule == "serial" else f"2 devices, {CURVE_NAMES[curve]}"
            handles.append(_line(name, color, dash))
        axes.set_ylim(1, 6.5)
        axes.set_xlabel("acceptance 7B→70B")
        axes.set_ylabel("speedup over AR")
        axes.set_title("the pair 7B→70B")
        _legend(axes, [*handles, _band("in print")])
        return figure


def cases(rows: Rows, title: str) -> Figure:
    """Speedup of every chain: levels in turn, and overlapped on one, two and three devices.

    Args:
        rows: of ``name`` (one line of the figure each), ``schedule``, ``devices``, ``curve``, ``speedup``, ``low``,
            ``high``.
        title: of the figure.
    """
    names = list(dict.fromkeys(r["name"] for r in rows))
    if not names:
        return nothing("no chain was simulated")
    with style():
        figure = new_figure(0.52 * len(names) + 1.5, WIDE)
        axes = figure.add_subplot()
        name_rows(axes, names)
        axes.set_yticks(range(len(names)), [name if len(name) < 18 else name.replace("→ ", "→\n") for name in names])
        for r in rows:
            y = names.index(r["name"])
            if r["schedule"] == "serial":
                axes.plot([r["speedup"]], [y], "|", color=COLORS["baseline"], markersize=13, markeredgewidth=2)
                continue
            color, full = DEVICE_COLORS[r["devices"]], r["curve"] == "published"
            offset = 0.13 * (r["devices"] - 2)
            axes.plot([r["low"], r["high"]], [y + offset] * 2, color=color, linewidth=1)
            axes.plot([r["speedup"]], [y + offset], "o", color=color, markerfacecolor=color if full else "none")
        axes.axvline(1, color=COLORS["grid"])
        axes.set_xlim(left=0.9)
        axes.set_xlabel("speedup over AR, 95% interval")
        axes.set_title(title)
        used = sorted({r["devices"] for r in rows if r["schedule"] == "pipelined"})
        handles = [_marker("in turn, one device", COLORS["baseline"], "|")]
        handles += [_marker(_devices(d), DEVICE_COLORS[d], "o") for d in used]
        handles.append(_marker("hits pessimistic", COLORS["muted"], "o", "none"))
        figure.legend(handles=handles, loc="outside lower center", ncols=3)
        return figure


def hits(rows: Rows) -> Figure:
    """Hit rate, and the speedup it buys, over the rows drafted ahead; a line per fan-out.

    Args:
        rows: of ``curve``, ``fan_out`` (``None``: the budget), ``budgets``, ``hit_rates``, ``speedup``.
    """
    if not rows:
        return nothing("hit rates were not simulated")
    fans = list(dict.fromkeys(r["fan_out"] for r in rows))
    shades = dict(zip(fans, (COLORS["draft-2"], COLORS["draft"], COLORS["draft-3"], COLORS["chain-2"]), strict=False))
    with style():
        figure = new_figure(5.6, WIDE)
        panels = figure.subplots(2, 1, sharex=True)
        values: tuple[Callable[[Mapping[str, Any]], float], ...] = (
            lambda r: r["hit_rates"][-1] or 0.0,
            lambda r: r["speedup"],
        )
        for axes, value in zip(panels, values, strict=True):
            for (curve, fan_out), line in _lines(rows, "curve", "fan_out"):
                line = sorted(line, key=lambda r: r["budgets"][-1])
                xs = [r["budgets"][-1] for r in line]
                axes.plot(
                    xs, [value(r) for r in line], CURVE_DASHES[curve], color=shades[fan_out], marker="o", markersize=3.5
                )
            axes.set_xscale("log", base=2)
            ticks = sorted({r["budgets"][-1] for r in rows})
            axes.set_xticks(ticks, [str(t) for t in ticks])
        panels[0].set_ylim(0, 1)
        panels[0].set_ylabel("hit rate")
        panels[1].set_ylabel("speedup over AR")
        panels[1].set_xlabel("rows drafted ahead")
        panels[0].set_title("two devices: hits and what they buy")
        handles = [
            _line("any number of guesses" if f is None else "1 guess" if f == 1 else f"at most {f} guesses", shades[f])
            for f in fans
        ]
        handles += [
            _line(CURVE_NAMES[c], COLORS["muted"], d)
            for c, d in CURVE_DASHES.items()
            if c in {r["curve"] for r in rows}
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=2)
        return figure


def batch(rows: Rows) -> Figure:
    """Speedup over AR of the same batch size, a panel per chain; dashes: time grows where arithmetic must bind.

    Args:
        rows: of ``chain``, ``schedule``, ``devices``, ``knee`` (``None``: where arithmetic must bind), ``batch``,
            ``speedup``.
    """
    chains = list(dict.fromkeys(r["chain"] for r in rows))
    if not chains:
        return nothing("batches were not simulated")
    with style():
        figure = new_figure(2.4 * len(chains) + 0.8, WIDE)
        panels = figure.subplots(len(chains), 1, sharex=True, squeeze=False)[:, 0]
        for axes, chain in zip(panels, chains, strict=True):
            for (schedule, knee), line in _lines([r for r in rows if r["chain"] == chain], "schedule", "knee"):
                line = sorted(line, key=lambda r: r["batch"])
                color = COLORS["baseline"] if schedule == "serial" else DEVICE_COLORS[line[0]["devices"]]
                dash = "--" if knee is None else "-"
                axes.plot(
                    [r["batch"] for r in line],
                    [r["speedup"] for r in line],
                    dash,
                    color=color,
                    marker="o",
                    markersize=3.5,
                )
            axes.axhline(1, color=COLORS["muted"], linewidth=1)
            axes.set_xscale("log", base=2)
            ticks = sorted({r["batch"] for r in rows})
            axes.set_xticks(ticks, [str(t) for t in ticks])
            axes.set_ylim(bottom=0)
            axes.set_ylabel("speedup over AR")
            axes.set_title(chain)
        panels[-1].set_xlabel("rows in the batch")
        knees = [r["knee"] for r in rows if r["knee"] is not None]
        handles = [_line("in turn, one device", COLORS["baseline"]), _line("overlapped, 2 devices", DEVICE_COLORS[2])]
        handles += [_line(f"grows beyond {min(knees):g} tokens", COLORS["muted"])] if knees else []
        handles.append(_line("grows where arithmetic must bind", COLORS["muted"], "--"))
        figure.legend(handles=handles, loc="outside lower center", ncols=2)
        return figure


def save(figure: Figure, path: Path) -> None:
    """``path`` holds the figure as SVG on a light ground; equal figures give equal files."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with style(), mpl.rc_context({"svg.hashsalt": path.stem}):
        figure.savefig(path, facecolor=COLORS["surface"], metadata={"Date": None})


def _lines(rows: Rows, *keys: str) -> list[tuple[tuple[Any, ...], list[Mapping[str, Any]]]]:
    """Rows that agree in ``keys``, groups in order of appearance."""
    order = list(dict.fromkeys(tuple(r[k] for k in keys) for r in rows))
    placed = sorted(rows, key=lambda r: order.index(tuple(r[k] for k in keys)))
    groups = groupby(placed, key=lambda r: tuple(r[k] for k in keys))
    return [(values, sorted(own, key=lambda r: r.get("lower") or 0.0)) for values, own in groups]


def _devices(number: int) -> str:
    return f"overlapped, {number} device{'s' if number > 1 else ''}"


def _line(name: str, color: str, dash: Any = "-") -> Line2D:
    return Line2D([], [], color=color, linestyle=dash, label=name)


def _marker(name: str, color: str, mark: str, face: str | None = None) -> Line2D:
    edge = 2 if mark == "|" else 1.2
    return Line2D(
        [],
        [],
        color=color,
        marker=mark,
        linestyle="none",
        label=name,
        markerfacecolor=face or color,
        markeredgewidth=edge,
    )


def _band(name: str) -> Line2D:
    return Line2D([], [], color=COLORS["rest"], linewidth=7, alpha=0.6, label=name)


def _legend(axes: Axes, handles: Sequence[Line2D]) -> None:
    axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(0, -0.16), ncols=2)

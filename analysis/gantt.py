"""Who worked when: a lane per level, schedules one below the other on one time axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from analysis.figure_style import COLORS, WIDTH, level_color, new_figure, nothing, style
from ssd.plan.trace import Span, Trace

LANE = 0.34  # inches per level
BAR = 0.66  # of a lane
GAP = 0.003  # of the time shown, between bars
ROUNDS = 8  # of the target that are shown unless told otherwise
AHEAD = {"": ("", 1.0), "used": ("", 0.55), "wasted": ("////", 0.0)}  # hatch, opacity of the face


def gantt(traces: Sequence[Trace], start: float = 0.0, seconds: float | None = None) -> Figure:
    """Passes of each level over time; a panel per trace, L0 at the bottom.

    A full bar is work that was needed when it began, a pale one work done ahead that was used, a hatched
    one work done ahead in vain. Dots mark verifications whose outcome had been prepared for, crosses those
    whose outcome had not (work in vain left aside). Beside each lane stands the share of the whole trace in
    which it was idle.

    Args:
        traces: of the same chain.
        start: first second shown.
        seconds: how many are shown; ``None``: until the first trace has finished some target passes.
    """
    if not any(trace.spans for trace in traces):
        return nothing("no passes were traced")
    length = seconds if seconds is not None else _some_rounds(traces[0], start)
    with style():
        lanes = sum(len(trace.levels) for trace in traces)
        figure = new_figure(LANE * lanes + 0.28 * len(traces) + 0.95, WIDTH)
        ratios = [len(trace.levels) for trace in traces]
        grid = figure.subplots(len(traces), 1, sharex=True, squeeze=False, gridspec_kw={"height_ratios": ratios})
        for axes, trace in zip(grid[:, 0], traces, strict=True):
            _panel(axes, trace, start, start + length)
        grid[-1, 0].set_xlabel("milliseconds")
        figure.legend(handles=_legend(traces), loc="outside upper left", ncols=3)
        return figure


def _some_rounds(trace: Trace, start: float) -> float:
    ends = [span.end for span in trace.lane(len(trace.levels) - 1) if span.end > start]
    return (ends[min(ROUNDS, len(ends)) - 1] if ends else trace.end) - start


def _panel(axes: Axes, trace: Trace, start: float, end: float) -> None:
    target = len(trace.levels) - 1
    for level in range(len(trace.levels)):
        color = level_color(f"L{level}", "target" if level == target else "draft")
        shown = [span for span in trace.lane(level) if span.end > start and span.start < end]
        for ahead, (hatch, opacity) in AHEAD.items():
            # Bars are drawn a little short, so that passes stay apart that follow at once.
            gap = GAP * (end - start)
            spans = [span for span in shown if span.ahead == ahead]
            bars = [(1e3 * s.start, 1e3 * (s.seconds - min(gap, s.seconds / 4))) for s in spans]
            faces: dict[str, Any] = {"facecolor": color, "edgecolor": color, "alpha": opacity, "linewidth": 0.3}
            if not opacity:
                faces = {"facecolor": "none", "edgecolor": color, "hatch": hatch, "linewidth": 0.5}
            axes.broken_barh(bars, (level - BAR / 2, BAR), **faces)
        _marks(axes, [span for span in shown if span.end <= end and span.ahead != "wasted"], level)
        idle = 1 - trace.busy(level) / trace.end
        axes.text(1.015, level, f"{idle:.0%}", transform=axes.get_yaxis_transform(), va="center", color=COLORS["ink"])
    axes.text(1.015, target + 0.72, "idle", transform=axes.get_yaxis_transform(), va="bottom", color=COLORS["muted"])
    axes.set_title(trace.name)
    axes.set_yticks(range(len(trace.levels)), list(trace.levels))
    axes.set_ylim(-0.5, target + 0.7)
    axes.set_xlim(1e3 * start, 1e3 * end)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)


def _marks(axes: Axes, spans: Sequence[Span], level: int) -> None:
    """Above the end of a verification: whether what it decided had been prepared for."""
    height = level + BAR / 2 + 0.12
    hit = [1e3 * span.end for span in spans if span.hits and not span.misses]
    miss = [1e3 * span.end for span in spans if span.misses]
    axes.plot(hit, [height] * len(hit), linestyle="", marker="o", markersize=3, color=COLORS["ink"])
    axes.plot(miss, [height] * len(miss), linestyle="", marker="x", markersize=4, color=COLORS["chain"])


def _legend(traces: Sequence[Trace]) -> list[Patch | Line2D]:
    """Only what occurs; passes needed at once need no explanation where there are no others."""
    spans = [span for trace in traces for span in trace.spans]
    ink = COLORS["muted"]
    out: list[Patch | Line2D] = []
    if any(span.ahead for span in spans):
        out.append(Patch(facecolor=ink, linewidth=0, label="needed at once"))
    if any(span.ahead == "used" for span in spans):
        out.append(Patch(facecolor=ink, linewidth=0, alpha=AHEAD["used"][1], label="ahead, used"))
    if any(span.ahead == "wasted" for span in spans):
        out.append(Patch(facecolor="none", edgecolor=ink, hatch=AHEAD["wasted"][0], label="ahead, in vain"))
    if any(span.hits for span in spans):
        out.append(Line2D([], [], linestyle="", marker="o", markersize=3, color=COLORS["ink"], label="hit"))
    if any(span.misses for span in spans):
        out.append(Line2D([], [], linestyle="", marker="x", markersize=4, color=COLORS["chain"], label="miss"))
    return out

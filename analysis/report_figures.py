"""Which figures a report shows, what is said under them, and the numbers behind each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from analysis import acceptance_rows, figures
from analysis.figure_style import svg
from analysis.gantt import gantt
from analysis.settings import Setting
from analysis.speed_rows import TIME_COLUMNS, best, time_rows
from analysis.table import Column
from analysis.trace_rows import TRACE_COLUMNS, decoding, trace_rows
from ssd.bench.statistics import Estimate
from ssd.bench.traces import TRACES_FILE
from ssd.plan.trace import Trace, read_traces

Rows = Sequence[Mapping[str, Any]]
OVERVIEW_COLUMNS = (
    Column("setting"),
    Column("method"),
    Column("speedup", "speedup", ".2f", ("speedup_low", "speedup_high")),
)
SPEEDUP_COLUMNS = OVERVIEW_COLUMNS[1:]
DRAWN = 3  # methods of each kind in a figure of lines; more could not be told apart


@dataclass(frozen=True)
class Block:
    """A figure on a page.

    Attributes:
        name: unique within the page.
        caption: how it is read, and what it says.
        svg: an SVG element.
        columns: of ``rows``, the numbers it was drawn from.
        rows: see ``columns``.
    """

    name: str
    title: str
    caption: str
    svg: str
    columns: Sequence[Column]
    rows: Rows


def overview_rows(settings: Sequence[tuple[Setting, Rows]]) -> list[dict[str, Any]]:
    """The row of the best method of each kind in every setting, with the setting's title.

    Args:
        settings: each with its ``speed_rows``.
    """
    return [
        {**row, "setting": setting.title}
        for setting, rows in settings
        for family in ("other", "draft", "chain")
        if (row := best([dict(r) for r in rows], family)) is not None
    ]


def overview(settings: Sequence[tuple[Setting, Rows]]) -> Block:
    """The best method of each kind in every setting.

    Args:
        settings: each with its ``speed_rows``.
    """
    chosen = overview_rows(settings)
    caption = (
        "Setting by setting, the fastest method of each kind: another library's, ours with one draft, and ours with a "
        "draft that has a draft of its own. Right of the dashed line is faster than plain decoding; bars are 95% "
        "intervals over prompts."
    )
    return _block("overview", "All settings", caption, figures.overview(chosen), OVERVIEW_COLUMNS, chosen)


def blocks(setting: Setting, slug: str, speed: Rows) -> list[Block]:
    """The figures of one setting that have anything to show."""
    made = [
        _block(
            f"{slug}-speedup",
            "Speedup",
            "Time per token of plain decoding ÷ time per token of the method, totals over all prompts, prefill "
            "excluded. Bars are 95% intervals over prompts; hollow points are another library's decoder.",
            figures.speedup(speed),
            SPEEDUP_COLUMNS,
            speed,
        )
    ]
    times = time_rows(setting)
    made.append(
        _block(
            f"{slug}-time",
            "Where the time went",
            "Decode time per output token: passes of each level, and everything outside them (drawing, verifying, "
            "bookkeeping). A draft pays when it shortens the target's part by more than it adds.",
            figures.time_per_token(times),
            TIME_COLUMNS,
            times,
        )
    )
    made += _schedule(setting, slug)
    places = acceptance_rows.by_draft_position(setting)
    if not places:
        return made
    drawn = _drawn(speed)
    note = "" if len(drawn) == len(speed) else f" Drawn are the {DRAWN} fastest methods of each kind."
    made.append(
        _block(
            f"{slug}-draft-position",
            "Acceptance by position in the draft",
            "Per edge, the chance that the first, second, … token of a draft passes: solid if all before it passed, "
            "dotted of all drafts, whatever happened before. Hollow points have too few prompts for an interval."
            + note,
            figures.acceptance_by_draft_position(_of(places, drawn)),
            acceptance_rows.POSITION_COLUMNS,
            places,
        )
    )
    lengths = acceptance_rows.by_output_length(setting)
    bins = list(dict.fromkeys(row["place"] for row in lengths))
    if len(bins) == 1:
        note += f" All outputs have {bins[0]} tokens."
    for name, what, rows in (
        ("output-position", "position in the output", acceptance_rows.by_output_position(setting)),
        ("output-length", "length of the output", lengths if len(bins) > 1 else []),
    ):
        if rows:
            caption = f"Accepted ÷ tested of the tokens in each bin of {what}, per edge. Bins are in tokens.{note}"
            figure = figures.acceptance_by_place(_of(rows, drawn), what)
            made.append(
                _block(f"{slug}-{name}", f"Acceptance by {what}", caption, figure, acceptance_rows.PLACE_COLUMNS, rows)
            )
    return made + _fates(setting, slug, drawn)


def _schedule(setting: Setting, slug: str) -> list[Block]:
    """Who worked when in the first group that was traced, if any was."""
    path = setting.run.path
    if path is None or not (path / TRACES_FILE).exists():
        return []
    traces = read_traces(path / TRACES_FILE)
    first = traces[0].name.rpartition(", ")[2]
    own = [
        Trace(t.name.rpartition(", ")[0], tuple(name.partition(" (")[0] for name in t.levels), t.spans)
        for t in traces
        if t.name.endswith(f", {first}") and len(t.levels) > 1
    ][:DRAWN]
    if not own:
        return []
    rows = trace_rows(own)
    caption = (
        "Passes of each level in the first group of requests, each method on a time axis of its own from the end of "
        "its prefill on. A full bar was needed when it began, a pale one was made ahead and used, a hatched one "
        "made ahead in vain; dots and crosses are outcomes that had, and had not, been prepared for."
    )
    return [
        _block(f"{slug}-schedule", "Who worked when", caption, gantt([decoding(t) for t in own]), TRACE_COLUMNS, rows)
    ]


def _drawn(speed: Rows) -> set[str]:
    """Names of the fastest few methods of each family."""
    chosen: set[str] = set()
    for family in dict.fromkeys(row["family"] for row in speed):
        own = [row for row in speed if row["family"] == family]
        own.sort(key=lambda row: row["speedup"] or row["tokens_per_second"] or 0.0, reverse=True)
        chosen |= {row["method"] for row in own[:DRAWN]}
    return chosen


def _of(rows: Rows, methods: set[str]) -> Rows:
    """The rows of some methods."""
    return [row for row in rows if row["method"] in methods]


def _fates(setting: Setting, slug: str, drawn: set[str]) -> list[Block]:
    """A figure per edge whose drafts were drafted themselves."""
    rows, made = acceptance_rows.by_fate(setting), []
    for number, (method, edge, difference) in enumerate(acceptance_rows.fate_differences(setting), start=1):
        own = [row for row in rows if (row["method"], row["edge"]) == (method, edge)]
        if not own or method not in drawn:
            continue
        caption = (
            f"Accepted ÷ tested on edge {edge}, by what each draft token was one level below: accepted from the "
            "draft's own draft, recovered after a rejection there, or the bonus of a whole block. "
            + _difference(difference)
        )
        title = f"Fate one level below: {method}, edge {edge}"
        figure = figures.acceptance_by_fate(own)
        made.append(_block(f"{slug}-fate-{number}", title, caption, figure, acceptance_rows.FATE_COLUMNS, own))
    return made


def _difference(found: Estimate) -> str:
    """The difference between two fates in words."""
    if found.value is None:
        return "Too few tokens to compare the two."
    text = f"Accepted minus recovered: {found.value:+.3f}"
    return f"{text}." if found.low is None else f"{text} [{found.low:+.3f}, {found.high:+.3f}]."


def _block(name: str, title: str, caption: str, figure: Figure, columns: Sequence[Column], rows: Rows) -> Block:
    return Block(name, title, caption, svg(figure, name, f"{title}. {caption}"), columns, rows)

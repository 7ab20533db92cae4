"""The comparison of schedules as one page, and its Gantt figure as a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from analysis.figure_style import svg
from analysis.gantt import gantt
from analysis.report import Table
from analysis.table import METHOD_COLUMNS, SUMMARY_COLUMNS, Column, method_rows
from analysis.trace_rows import TRACE_COLUMNS, decoding, trace_rows
from analysis.what_if_page import Picture, WhatIfPage, write
from experiments.schedule_fit import Simulated
from experiments.schedule_methods import AR, BOTH, Variant
from ssd.bench.json_files import read_json
from ssd.bench.records import Run
from ssd.bench.summary import Row
from ssd.plan.trace import Trace

WHAT_IF = Path(__file__).resolve().parent.parent / "results" / "what_if" / "table.json"
SIMULATED_COLUMNS = (
    Column("configuration"),
    Column("half"),
    Column("predicted_tokens_per_second", "predicted tokens/s", ".1f"),
    Column("measured_tokens_per_second", "measured tokens/s", ".1f"),
    Column("error", form="+.1%"),
    Column("predicted_hit_rate", "hit rate, predicted", ".0%"),
    Column("measured_hit_rate", "measured", ".0%"),
)


def page(
    path: Path,
    run: Run,
    best: Sequence[Variant],
    traces: Mapping[str, Sequence[Trace]],
    simulated: Sequence[Simulated],
    rows: Sequence[Row],
    said: Sequence[str],
) -> None:
    """``path`` holds the page; one Gantt figure per family stands on it."""
    pictures = []
    for number, family in enumerate(dict.fromkeys(v.family for v in best), start=1):
        own = [short(v, traces[v.name][0]) for v in best if v.family == family]
        caption = (
            "First rounds after prefill, the same request under each schedule. A full bar was needed when it began, "
            "a pale one was made ahead and used, a hatched one made ahead in vain; dots and crosses are outcomes "
            "that had, and had not, been prepared for."
        )
        name = f"gantt-{number}"
        table = Table(f"Who worked when: {family}", TRACE_COLUMNS, trace_rows(own))
        pictures.append(Picture(name, svg(gantt([decoding(t) for t in own]), name, caption), caption, table))
    device = run.run["device"]
    write(
        path,
        WhatIfPage(
            title="Taking turns, or working ahead",
            lead="The same chains under a serial and a pipelined schedule, on the same cores.",
            findings=[*said, *claims()[0]],
            facts=[(key, str(device[key])) for key in device if device[key] is not None][:4],
            assumptions=[*assumptions(), *claims()[1]],
            pictures=pictures,
            tables=[
                Table("Methods", METHOD_COLUMNS, method_rows(run.records, AR[BOTH])),
                Table("Simulated against measured", SIMULATED_COLUMNS, [s.as_dict() for s in simulated]),
                Table("Summary", SUMMARY_COLUMNS, [row.as_dict() for row in rows]),
            ],
            kicker="schedules",
            heading="What was measured",
        ),
    )


def short(v: Variant, trace: Trace) -> Trace:
    """The trace under names that fit beside its lanes."""
    return Trace(v.placement, tuple(v.family.split("→")), trace.spans)


def claims(table: Path = WHAT_IF) -> tuple[list[str], list[tuple[str, str]]]:
    """What the simulation of chains that cannot be run here says of the headline claims, and its assumptions."""
    if not table.exists():
        return ["Which claims need how many devices is not known here: run `make what-if`."], []
    found = read_json(table)
    said = [f"Simulated, not run here: {sentence}" for sentence in found["findings"][:4]]
    return said, [(f"simulated elsewhere, {name}", text) for name, text in found["assumptions"].items()]


def assumptions() -> list[tuple[str, str]]:
    """What the simulated numbers rest on."""
    return [
        ("pass times", "lines in fed tokens through the passes of the fitted half, per level and placement"),
        ("acceptance", "accepted ÷ tested by place in the draft, counted in the fitted half"),
        ("guesses", "how often the next token is among a draft's best guesses, along the target's own texts"),
        ("left out", "growth of passes with the text, messages between processes, copying of slots"),
    ]

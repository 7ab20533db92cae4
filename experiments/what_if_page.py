"""The what-ifs as files: pictures, tables and the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from analysis import what_if_figures as figures
from analysis.figure_style import svg
from analysis.report import Table
from analysis.table import Column
from analysis.what_if_page import Picture, WhatIfPage, write
from experiments.what_if_case import CURVE_ORIGINS, World
from experiments.what_if_chains import CHAINS
from experiments.what_if_findings import MAIN, pick
from experiments.what_if_needs import CLAIMS
from ssd.plan.h200 import BANDWIDTH, COLUMNS, CONTENTION, FLAT, MEMORY, PEAK, SHAPES, TWO_STREAMS, seconds_by_width

Rows = Sequence[Mapping[str, Any]]
CASE_COLUMNS = (
    Column("chain"),
    Column("alphas", "alpha per edge", ".3f"),
    Column("times", "pass times"),
    Column("schedule"),
    Column("devices"),
    Column("curve", "hits"),
    Column("speedup", "speedup [95%]", ".2f", ("low", "high")),
    Column("per_device", "per device", ".2f"),
    Column("gammas", "gamma per edge"),
    Column("budgets", "rows ahead"),
    Column("hit_rates", "hit rate", ".2f"),
    Column("utilisation", "busy, by level", ".2f"),
    Column("fits", "weights fit"),
)
POINT_COLUMNS = (*CASE_COLUMNS[:6], Column("batch"), Column("fan_out", "fan-out"), *CASE_COLUMNS[6:])
REACH_COLUMNS = (
    Column("goal", form=".1f"),
    Column("chain"),
    Column("schedule"),
    Column("devices"),
    Column("curve", "hits"),
    Column("times", "pass times"),
    Column("lower", "alpha 1B→7B", ".2f"),
    Column("needed", "alpha 7B→70B needed", ".3f"),
    Column("at_most", "or less"),
    Column("most", "highest speedup of the line", ".2f"),
    Column("per_device", "claim per device", ".2f"),
)
NEEDS_COLUMNS = (
    Column("family"),
    Column("times", "pass times"),
    Column("lower", "alpha of the lower edge", ".3f"),
    Column("direct", "alpha of the low level drafting directly", ".3f"),
    Column("direct_speedup", "speedup of that pair", ".2f"),
    Column("needed", "alpha of the upper edge from which the triple pays", ".3f"),
    Column("assumed", "alpha taken", ".3f"),
    Column("pays"),
)


def assumptions(world: World) -> list[tuple[str, str]]:
    """Everything that was not measured, in words."""
    target, drafting, together = (f"{1e3 * s:g}" for s in TWO_STREAMS)
    grows = "where arithmetic must bind" if world.knee is None else f"beyond {world.knee:g} tokens"
    return [
        ("speedup", "over plain decoding by the target on one device, same column of pass times; prefill left out"),
        *((f"times: {name}", words) for name, words in COLUMNS.items()),
        ("other shapes", "bytes ÷ bandwidth, plus per layer what the nearest measured shape takes above its own; "
         "Mistral-Large-123B with 8-bit weights, as its 245 GB of bfloat16 fit no single H200"),
        ("width, batch", f"only tokens of a pass count; nearly flat until {FLAT} was measured; it grows in proportion "
         f"{grows}; arithmetic must bind at {PEAK / 1e12:.0f} TFLOPS (data sheet) over {BANDWIDTH / 1e12:g} TB/s; "
         "the length of the text changes nothing"),
        ("acceptance", "one rate per edge whatever the position, the text or what drafts below; columns and their "
         "origins are in the tables"),
        *((f"hits: {name}", words) for name, words in CURVE_ORIGINS.items()),
        ("devices", "1: two streams, drafts and target; 2: the target alone on one; 3: a device per level. AR on one"),
        ("one device", f"a pass demands {world.contention:.2f} of it, its share of the bandwidth if that is more; "
         f"a sum above 1 slows both. {target} ms beside {drafting} ms took {together} ms, hence {CONTENTION:.2f}"),
        ("several devices", f"nothing shared, {1e6 * world.transfer:g} µs from one to another (assumed)"),
        ("overhead", f"{1e6 * world.overhead:g} µs around each pass for sampling, verification and the host"),
        ("memory", f"weights of a pass against {MEMORY / 2**30:.0f} GiB; keys and values left out"),
        ("choice", "draft lengths and rows ahead that no single step betters: exact in turn, simulated overlapped"),
    ]  # fmt: skip


def pictures(rows: Rows, reach: Rows) -> list[tuple[str, Figure, str, Table]]:
    """(name, figure, caption, table) of everything that can be drawn from the rows."""
    cases, grid, hits, batch = (pick(rows, part=p) for p in ("cases", "map", "hits", "batch"))
    made = []
    if grid:
        own = [r for r in reach if r["goal"] != CLAIMS[0].speedup]
        figure = figures.reach(own, CLAIMS[1].speedup, CLAIMS[2].speedup)
        made.append(("reach", figure, "A claim holds above its line. Lines that are missing lie above the map.",
                     Table("Acceptance that 4.1x and 4.7x need", REACH_COLUMNS, own)))  # fmt: skip
        pairs = [r for r in grid if len(r["alphas"]) == 1]
        figure = figures.pair(pairs, CLAIMS[0].speedup)
        caption = "In turn on one device unless it says otherwise; overlapped with compiled pass times."
        made.append(("pair", figure, caption,
                     Table("Speedup of the pair", CASE_COLUMNS, pairs)))  # fmt: skip
    for name, column, family in (("llama2", "high", "LLaMA-2"), ("llama2_implied", "implied", "LLaMA-2"),
                                 ("llama3", "c .03", "Llama-3"), ("mistral", "low", "Mistral")):  # fmt: skip
        own = [
            dict(r) | {"name": r["chain"].replace("→", " → ")}
            for r in pick(cases, family=family, times=MAIN)
            if r["column"] in (column, "assumed") and (r["schedule"] == "pipelined" or r["devices"] == 1)
        ]
        if own:
            title = f"{family}, acceptance {column}"
            caption = "Filled: hits as published; hollow: pessimistic. Compiled pass times."
            made.append((f"cases_{name}", figures.cases(own, title), caption, Table(title, CASE_COLUMNS, own)))
    if hits:
        made.append(("hits", figures.hits(hits), "Compiled, acceptance high, draft lengths as when serial.",
                     Table("Hit rate and rows drafted ahead", POINT_COLUMNS, hits)))  # fmt: skip
    if batch:
        made.append(("batch", figures.batch(batch), "Compiled, acceptance high (1B→70B: assumed), hits as published.",
                     Table("Batch", POINT_COLUMNS, batch)))  # fmt: skip
    return made


def times_table() -> Table:
    """Every pass time of width 1 that was used, per shape and column, in milliseconds."""
    rows = [{"shape": s, "layers": x.layers, "gigabytes": x.bytes / 1e9}
            | {"like": "measured" if x.like == s else f"as {x.like}"}
            | {c: 1e3 * seconds_by_width(s, c)[1] for c in COLUMNS} for s, x in SHAPES.items()]  # fmt: skip
    columns = [Column("shape"), Column("layers"), Column("gigabytes", "GB a pass", ".2f"), Column("like", "overhead")]
    return Table("Pass times, ms for one token", [*columns, *(Column(c, form=".3f") for c in COLUMNS)], rows)


def alphas_table() -> Table:
    """Every column of acceptance with its origin."""
    rows = [{"chain": chain.name, "column": c.name, "alphas": list(c.alphas), "origin": c.origin}
            for chain in CHAINS.values() for c in chain.columns]  # fmt: skip
    return Table(
        "Acceptance",
        (Column("chain"), Column("column"), Column("alphas", "alpha per edge", ".4g"), Column("origin")),
        rows,
    )


def write_all(folder: Path, command: str, data: Mapping[str, Any], world: World) -> None:
    """``folder`` holds ``report.html`` and an SVG file per picture."""
    rows, reach = data["rows"], data["reach"]
    shown = []
    for name, figure, caption, table in pictures(rows, reach):
        figures.save(figure, folder / f"{name}.svg")
        shown.append(Picture(name, svg(figure, name, f"{table.title}. {caption}"), caption, table))
    tables = [
        times_table(),
        alphas_table(),
        Table("All cases", CASE_COLUMNS, pick(rows, part="cases")),
        Table("Where a triple begins to pay, levels in turn", NEEDS_COLUMNS, data["needs"]),
        Table("Ablation", POINT_COLUMNS, pick(rows, part="ablation")),
    ]
    page = WhatIfPage(
        "What a chain does where it cannot be run here",
        "Simulated from pass times measured on one H200 and from published or assumed acceptance. No speedup on this "
        "page was measured.",
        data["findings"],
        [("command", command), ("commit", str(data["git"]["commit"])), ("seeds", str(data["seeds"]))],
        assumptions(world),
        shown,
        [t for t in tables if t.rows],
    )
    write(folder / "report.html", page)

"""A plan on the console and as a page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analysis.plan_html import PlanPage
from analysis.report import Table
from analysis.table import SUMMARY_COLUMNS, Column, format_table

PLAN_COLUMNS = (
    Column("label", "plan"),
    Column("speedup", form=".2f"),
    Column("speedup_per_device", "per device", ".2f"),
    Column("tokens_per_second", "tokens/s", ".1f"),
    Column("tau", form=".2f"),
    Column("passes_per_token", "passes per token, level by level", ".2f"),
    Column("megabytes", "weights, MB", ".0f"),
    Column("bound_text", "limited by"),
    Column("pipelined_speedup", "speedup if pipelined", ".2f"),
    Column("gain_text", "other temperatures, predicted gain"),
    Column("fits"),
)
FLIP_COLUMNS = (
    Column("input"),
    Column("of"),
    Column("change", "change of acceptance", "+.3f"),
    Column("change_lengths_anew", "the same, draft lengths chosen again", "+.3f"),
    Column("factor", "factor on pass time", ".2f"),
)
INSERTION_COLUMNS = (
    Column("chain"),
    Column("low_pair", "pair of the low level", ".2f"),
    Column("middle_pair", "pair of the middle level", ".2f"),
    Column("triple", form=".2f"),
    Column("pays"),
    Column("middle_alpha_needed", "acceptance the middle level needs", ".2f"),
    Column("low_alpha_needed", "acceptance the low level needs", ".2f"),
)
WINDOW_COLUMNS = (
    Column("pair"),
    Column("gamma"),
    Column("threshold", form=".3f"),
    Column("predicted_gain", "predicted / best fixed", ".3f"),
    Column("largest_gain", "oracle / best fixed", ".3f"),
    Column("fixed_gamma", "best fixed gamma"),
)


def tables(plan: Mapping[str, Any], summary: list[dict[str, Any]]) -> list[Table]:
    """Everything the plan says in tables; empty ones are left out."""
    ranked = [
        p
        | {
            "megabytes": None if p["bytes"] is None else p["bytes"] / 1e6,
            "bound_text": f"{p['bound']['level']} ({p['bound']['share']:.0%}, at most {p['bound']['speedup']:.2f}x)",
            "pipelined_speedup": None if p["pipelined"] is None else p["pipelined"]["speedup"],
            "gain_text": gain_text(p["temperatures_tried"]),
        }
        for p in plan["plans"]
    ]
    flips = list(plan["sensitivity"])
    between = f"{flips[0]['first']} and {flips[0]['second']}" if flips else ""
    inserted = [x | {"chain": f"{x['low']}→{x['middle']}→{x['target']}"} for x in plan["insertions"]]
    windows = [{"pair": pair} | dict(own) for pair, own in (plan["adaptive"] or {}).items()]
    found = [
        Table("Plans, fastest first", PLAN_COLUMNS, ranked, "Predicted, serial schedule where nothing else is said."),
        Table(
            f"What would change the order of {between}",
            FLIP_COLUMNS,
            flips,
            "Each alone, under the serial schedule; no value where no change within range does it.",
        ),
        Table("Condition of insertion, closed form", INSERTION_COLUMNS, inserted, "Speedups over the target alone."),
        Table("Adaptive window", WINDOW_COLUMNS, windows, "Calibrated on the tuning prompts."),
        Table("Measured", SUMMARY_COLUMNS, summary, "Paired and alternating, on the measure prompts."),
    ]
    return [table for table in found if table.rows]


def gain_text(tried: Mapping[str, Any] | None) -> str | None:
    """The fastest other temperatures of a plan's levels, and their gain with its interval."""
    if tried is None:
        return None
    own = ", ".join("none" if t is None else f"{t:g}" for t in tried["temperatures"][:-1])
    ends = "" if tried["low"] is None else f" [{tried['low'] - 1:+.1%}, {tried['high'] - 1:+.1%}]"
    return f"{own}: {tried['gain'] - 1:+.1%}{ends}"


def text(plan: Mapping[str, Any], summary: list[dict[str, Any]]) -> str:
    """The plan for a console."""
    parts = [f"{t.title}\n{format_table(t.rows, t.columns)}" for t in tables(plan, summary)]
    return "\n\n".join([*parts, plan["recommendation"]])


def page(title: str, lead: str, plan: Mapping[str, Any], summary: list[dict[str, Any]]) -> PlanPage:
    """The plan for ``analysis.plan_html``."""
    facts = [("batch", str(plan["batch"])), ("temperature", f"{plan['temperature']:g}"), ("command", plan["command"])]
    return PlanPage(title, lead, plan["recommendation"], facts, tables(plan, summary))

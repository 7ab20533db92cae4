"""Rows of a setting's methods: how fast, compared with what, and where the time went."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from analysis.settings import BASELINE, Method, Setting
from analysis.table import Column, method_rows
from ssd.bench.acceptance import edge_counts
from ssd.bench.intervals import edge_estimates
from ssd.bench.metrics import (
    pass_shares,
    passes_per_token,
    speedup,
    time_to_first_token,
    token_latency,
    tokens_per_second,
)
from ssd.bench.statistics import Estimate

SPEED_COLUMNS = (
    Column("method"),
    Column("temperature", "T", "g"),
    Column("tokens_per_second", "tokens/s", ".1f"),
    Column("speedup", "speedup", ".2f", ("speedup_low", "speedup_high")),
    Column("edge", "edge"),
    Column("alpha", "\N{GREEK SMALL LETTER ALPHA}", ".2f"),
    Column("tau", "τ", ".2f"),
    Column("outside_passes", "outside passes", ".1%"),
    Column("exact_match", "equal to AR"),
)
LATENCY_COLUMNS = (
    Column("method"),
    Column("speedup_e2e", "speedup, prefill included", ".2f", ("speedup_e2e_low", "speedup_e2e_high")),
    Column("first_p50", "first token, s: p50", ".3f"),
    Column("first_p90", "p90", ".3f"),
    Column("first_p99", "p99", ".3f"),
    Column("next_p50", "between tokens, ms: p50", ".1f"),
    Column("next_p90", "p90", ".1f"),
    Column("next_p99", "p99", ".1f"),
)
TIME_COLUMNS = (
    Column("method"),
    Column("level", "where"),
    Column("passes_per_token", "passes per token", ".3f"),
    Column("share", "share of time", ".1%"),
    Column("milliseconds", "ms per token", ".2f"),
)
EDGE_COLUMNS = (
    Column("method"),
    Column("edge"),
    Column("rounds"),
    Column("drafted"),
    Column("tested"),
    Column("accepted"),
    Column("emitted"),
    Column("alpha", "\N{GREEK SMALL LETTER ALPHA}, counted", ".3f", ("alpha_low", "alpha_high")),
    Column(
        "alpha_overlap", "\N{GREEK SMALL LETTER ALPHA}, overlap", ".3f", ("alpha_overlap_low", "alpha_overlap_high")
    ),
    Column(
        "draft_acceptance_rate",
        "accepted ÷ drafted",
        ".3f",
        ("draft_acceptance_rate_low", "draft_acceptance_rate_high"),
    ),
    Column("tau", "τ", ".2f", ("tau_low", "tau_high")),
)


def speed_rows(setting: Setting, baseline: str = BASELINE) -> list[dict[str, Any]]:
    """One row per method, for ``SPEED_COLUMNS`` and ``LATENCY_COLUMNS``.

    What ``analysis.table.method_rows`` says, and ``family``, ``edge`` (names, L0's first), the end-to-end speedup,
    and quantiles of latency. α is missing on edges under block verification, where no single token is tested.
    """
    counted = {row["method"]: row for row in method_rows(setting.records, baseline)}
    base = setting.method(baseline)
    rows = []
    for method in setting.methods:
        row = counted[method.name]
        e2e = None if base is None else speedup(method.records, base.records, kind="e2e")
        first, following = time_to_first_token(method.records), token_latency(method.records)
        rows.append(
            {
                **row,
                "family": method.family,
                "edge": [method.edge_name(k) for k in method.edges],
                "alpha": [
                    None if k in method.untested else alpha for k, alpha in zip(method.edges, row["alpha"], strict=True)
                ],
                **estimate("speedup_e2e", e2e),
                **{f"first_{q}": getattr(first, q) for q in ("p50", "p90", "p99")},
                **{f"next_{q}": _scaled(getattr(following, q), 1000) for q in ("p50", "p90", "p99")},
            }
        )
    return rows


def time_rows(setting: Setting) -> list[dict[str, Any]]:
    """One row per method and level, and one for the time outside all passes, for ``TIME_COLUMNS``.

    The milliseconds of a method's rows add up to its decode time per token.
    """
    rows = []
    for method in setting.methods:
        shares, passes = pass_shares(method.records), passes_per_token(method.records)
        rate = tokens_per_second(method.records)
        for k, level in enumerate((*method.levels, "rest")):
            name = level if level == "rest" else f"L{k}"
            share = shares.get(name)
            if name not in shares:
                continue
            spent = None if share is None or not rate else 1000 * share / rate
            rows.append(
                {
                    "method": method.name,
                    "family": method.family,
                    "level": "outside passes" if level == "rest" else level,
                    "role": "rest" if level == "rest" else "target" if k == len(method.levels) - 1 else "draft",
                    "passes_per_token": passes.get(name),
                    "share": share,
                    "milliseconds": spent,
                }
            )
    return rows


def edge_rows(setting: Setting, **bootstrap: Any) -> list[dict[str, Any]]:
    """One row per method and edge, for ``EDGE_COLUMNS``; every metric with its interval over prompts."""
    rows = []
    for method in setting.methods:
        for edge in method.edges:
            counts = edge_counts(method.records, edge)
            row: dict[str, Any] = {"method": method.name, "edge": method.edge_name(edge)}
            row |= {name: getattr(counts, name) for name in ("rounds", "drafted", "tested", "accepted", "emitted")}
            for name, value in edge_estimates(method.records, edge, **bootstrap).items():
                row |= estimate(name, None if name == "alpha" and edge in method.untested else value)
            rows.append(row)
    return rows


def estimate(name: str, value: Estimate | None) -> dict[str, float | None]:
    """The part of a row that holds a value and the ends of its interval."""
    low, high = (None, None) if value is None else (value.low, value.high)
    return {name: None if value is None else value.value, f"{name}_low": low, f"{name}_high": high}


def gain(setting: Setting, ours: Method, other: Method) -> Estimate:
    """Speedup of one method over another of the same setting, paired by prompt."""
    return speedup(ours.records, other.records)


def best(rows: Sequence[dict[str, Any]], *families: str) -> dict[str, Any] | None:
    """The row of the largest speedup (of the highest rate where there is none) among some families."""
    chosen = [row for row in rows if row["family"] in families]
    for key in ("speedup", "tokens_per_second"):
        known = [row for row in chosen if row[key] is not None]
        if known:
            return max(known, key=lambda row: float(row[key]))
    return None


def _scaled(value: float | None, factor: float) -> float | None:
    """The value in another unit."""
    return None if value is None else value * factor

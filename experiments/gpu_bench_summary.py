"""Rows of ``summary.json`` from the records: what was measured, its goals, and the best that could be reached."""

from __future__ import annotations

from typing import Any

from experiments.gpu_bench_cases import (
    GOAL_HOST_SHARE,
    GOAL_OVER_FLOOR,
    GOAL_OVER_PREDICTED,
    GOAL_SECONDS,
    GOAL_SPEEDUP,
)
from experiments.gpu_bench_passes import COPY
from experiments.gpu_bench_passes import STAGE as PASSES
from experiments.gpu_bench_records import Records
from experiments.gpu_bench_rounds import BATCHES
from experiments.gpu_bench_rounds import STAGE as ROUNDS
from experiments.gpu_bench_streams import STAGE as STREAMS
from ssd.bench.summary import Row

ONE_ROW = 1
CHAIN, PAIRS = "1B->7B->70B/implied", ("7B->70B/implied", "1B->70B/only")


def rows(records: Records, with_goals: bool) -> list[Row]:
    """All rows; goals belong to the device and the shapes they were set for."""
    found = [*pass_rows(records), *round_rows(records), *stream_rows(records), *batch_rows(records)]
    if with_goals:
        return found
    return [Row(r.name, r.value, r.unit, r.low, r.high, r.n) for r in found]


def pass_rows(records: Records) -> list[Row]:
    """The copy ceiling and the passes of one row."""
    own = records.of(PASSES)
    found = []
    if COPY in own:
        found.append(Row("copy", own[COPY]["bytes_per_second"], "bytes/s", n=len(own[COPY]["seconds"])))
    for case, record in own.items():
        if case == COPY or record["batch"] != ONE_ROW:
            continue
        level, single = record["level"], record["width"] == 1
        over = GOAL_OVER_FLOOR.get(level) if single else None
        least = GOAL_SECONDS.get(level) if single else None
        n, floor = len(record["seconds"]), record["floor_seconds"]
        low, high = (end(record["seconds"]) for end in (min, max))
        bound = record["floor_seconds"] if least is not None else None
        found.append(Row(f"pass/{case}", record["median_seconds"], "s", low, high, n, least, sense="max", bound=bound))
        best = None if over is None else 1.0
        found.append(
            Row(
                f"pass/{case}/over_floor", record["over_floor"], "x", low / floor, high / floor, n, over,
                sense="max", bound=best,
            )
        )  # fmt: skip
    return found


def round_rows(records: Records) -> list[Row]:
    """Speedups of batch 1, and what the goals compare."""
    own = {case.removesuffix("/B1"): record for case, record in records.of(ROUNDS).items()}
    found = []
    for case, record in own.items():
        goal = GOAL_SPEEDUP.get(case)
        bound = None if goal is None else record["predicted_speedup"]
        found.append(speed_row(f"speedup/{case}", record, goal=goal, bound=bound))
        found.append(Row(f"speedup/{case}/at_expected_tokens", record["speedup_at_expected_tokens"], "x"))
    if CHAIN in own and all(pair in own for pair in PAIRS):
        gained, hoped = (own[CHAIN][x] / max(own[p][x] for p in PAIRS) for x in ("speedup", "predicted_speedup"))
        found.append(Row(f"speedup/{CHAIN}/over_best_pair", gained, "x", goal=1.0, bound=hoped))
    if own:
        # Tokens per round are coins and have their own interval; the time of a round is what the model predicts.
        least = min(record["rounds_over_predicted"] for record in own.values())
        found.append(Row("rounds/over_predicted", least, "x", n=len(own), goal=GOAL_OVER_PREDICTED, bound=1.0))
        speed = min(record["over_predicted"] for record in own.values())
        found.append(Row("speedup/over_predicted", speed, "x", n=len(own), goal=GOAL_OVER_PREDICTED, bound=1.0))
        shares = [record["host_share"] for record in own.values() if record["host_share"] is not None]
        most = max(shares, default=None)
        found.append(
            Row("rounds/host_share", most, "share", n=len(shares), goal=GOAL_HOST_SHARE, sense="max", bound=0.0)
        )
    return found


def speed_row(name: str, record: dict[str, Any], **goals: Any) -> Row:
    """A speedup with its interval over chunks."""
    return Row(name, record["speedup"], "x", record["low"], record["high"], len(record["chunks"]), **goals)


def stream_rows(records: Records) -> list[Row]:
    """Net ratio of the pipelined schedule, with the hit rate it rests on."""
    found = []
    for case, record in records.of(STREAMS).items():
        found.append(Row(f"streams/{case}/hidden", record["ahead_hidden_share"], "share"))
        found.append(Row(f"streams/{case}/break_even_hit_rate", record["break_even_hit_rate"], "share"))
        for column, told in record["columns"].items():
            found.append(Row(f"streams/{case}/{column}/hit_rate", told["hit_rate"], "share"))
            found.append(Row(f"streams/{case}/{column}/net", told["net"], "x", bound=told["net_if_all_hit"]))
    return found


def batch_rows(records: Records) -> list[Row]:
    """Speedups by batch, and per chain the largest batch at which it still gained."""
    own = records.of(BATCHES)
    found = [speed_row(f"batches/{case}", record) for case, record in own.items()]
    gained: dict[str, list[int]] = {}
    for record in own.values():
        batches = gained.setdefault(f"{record['chain']}/{record['column']}", [])
        if record["low"] is not None and record["low"] > 1:
            batches.append(record["batch"])
    found += [Row(f"batches/{name}/largest_with_gain", max(b, default=0), "rows") for name, b in gained.items()]
    return found

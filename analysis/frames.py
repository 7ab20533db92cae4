"""Records as pandas frames, for notebooks and reports: one row per record, or one row per round.

An absent value is NaN (or None in a column of text) and stays a value: ``grouped`` keeps groups whose key
is absent, and ``totals`` of a group with an absent number is absent.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from ssd.bench.acceptance import positions
from ssd.bench.metrics import batches
from ssd.bench.records import Run, group_by

Record = Mapping[str, Any]
WHO = ("run_id", "method", "batch_id", "prompt_id", "task", "sample")
SAMPLING = ("temperature", "top_k", "top_p", "min_p")
ASKED = ("max_new_tokens", "prompt_tokens")
COUNTED = ("output_tokens", "first_pass_tokens", "decode_tokens", "stop_reason", "text", "rounds", "batch_rows")
SPENT = ("counts_seconds", "prefill_seconds", "decode_seconds", "rest_seconds", "total_seconds")
ROUND = ("edge", "block_start", "start", "drafted", "tested", "accepted", "emitted", "end")
RECORD_COLUMNS = (*WHO, *SAMPLING, *ASKED, *COUNTED, *SPENT)
ROUND_COLUMNS = (*WHO, "temperature", "prompt_tokens", "output_tokens", "round", *ROUND, "output_position", "overlap")


def record_frame(records: Iterable[Record]) -> pd.DataFrame:
    """One row per record, in order.

    Columns: who (``WHO``), the sampling settings, ``max_new_tokens``, ``prompt_tokens``, ``output_tokens``,
    ``first_pass_tokens``, ``decode_tokens`` (the difference), ``stop_reason``, ``text``, ``rounds`` (their number),
    ``batch_rows``, ``counts_seconds``, ``prefill_seconds``, ``decode_seconds``, ``rest_seconds``, ``total_seconds``
    and per level ``L0_passes``, ``L0_pass_tokens``, ``L0_seconds``. Levels a method lacks are NaN.

    Seconds and passes belong to the batch and stand on each of its rows; sum them over rows where
    ``counts_seconds`` is true, which is the first row of each batch (see ``batch_frame``).

    Raises:
        ValueError: if a request occurs twice or rows of a batch disagree about its seconds.
    """
    own = list(records)
    sizes: dict[int, int] = {}
    for group in group_by(own, "method").values():
        for batch in batches(group):
            sizes |= {id(row): len(batch) if row is batch[0] else -len(batch) for row in batch}
    rows = [_record_row(record, sizes[id(record)]) for record in own]
    levels = sorted({name for row in rows for name in row} - set(RECORD_COLUMNS))
    return pd.DataFrame(rows, columns=[*RECORD_COLUMNS, *levels])


def batch_frame(records: Iterable[Record]) -> pd.DataFrame:
    """One row per batch: seconds and passes once, tokens added up; the frame to sum seconds over.

    Columns: ``run_id``, ``method``, ``batch_id``, the sampling settings, ``batch_rows``, ``output_tokens``,
    ``first_pass_tokens``, ``decode_tokens`` and those of seconds and passes of ``record_frame``.
    """
    frame = record_frame(records)
    keys = ["run_id", "method", "batch_id"]
    counts = ["output_tokens", "first_pass_tokens", "decode_tokens"]
    tokens = totals(frame, keys, counts)
    spent = [c for c in frame.columns if c.endswith(("_seconds", "_passes", "_pass_tokens"))]
    spent = [c for c in spent if c not in ("counts_seconds", *counts)]
    first = frame.loc[frame["counts_seconds"], [*keys, *SAMPLING, "batch_rows", *spent]]
    return first.merge(tokens, on=keys, how="left", validate="one_to_one").reset_index(drop=True)


def round_frame(records: Iterable[Record]) -> pd.DataFrame:
    """One row per round, in order of execution within its record.

    Columns: who, ``temperature``, ``prompt_tokens``, ``output_tokens``, ``round`` (its number in the record),
    the fields of a round, ``output_position`` (of its first token, 0 for the first new one) and ``overlap``
    (sum over its tested tokens, under block verification its drafted ones; NaN where the method does not tell).
    """
    rows = [
        {
            **{name: record[name] for name in WHO},
            "temperature": _setting(record, "temperature"),
            "prompt_tokens": record["prompt_tokens"],
            "output_tokens": len(record["output_ids"]),
            "round": number,
            **{name: entry[name] for name in ROUND},
            "output_position": entry["start"] - record["prompt_tokens"],
            "overlap": _overlap(entry),
        }
        for record in records
        for number, entry in enumerate(record["rounds"])
    ]
    return pd.DataFrame(rows, columns=list(ROUND_COLUMNS))


def with_settings(frame: pd.DataFrame, runs: Iterable[Run], settings: Mapping[str, str]) -> pd.DataFrame:
    """The frame with one more column per entry of ``settings``, read from each run's configuration.

    Args:
        frame: with a column ``run_id``.
        runs: those the frame was made of.
        settings: dotted key of ``run.json``'s ``config`` by column name, for instance
            ``{"draft_temperature": "chain.levels.0.temperature"}``; a key that a run lacks gives None there.

    Raises:
        ValueError: for a run that is not among ``runs``, or a column that exists already.
    """
    configs = {run.run["run_id"]: run.run.get("config") for run in runs}
    strangers = sorted(set(frame["run_id"]) - set(configs))
    if strangers:
        raise ValueError(f"settings: no run {strangers[0]!r} among the {len(configs)} given")
    taken = [name for name in settings if name in frame.columns]
    if taken:
        raise ValueError(f"settings: the frame has a column {taken[0]!r} already")
    return frame.assign(
        **{name: [_look_up(configs[run], key) for run in frame["run_id"]] for name, key in settings.items()}
    )


def grouped(frame: pd.DataFrame, keys: Sequence[str]) -> Any:
    """``frame.groupby`` in order of appearance, with a group for every absent key (pandas drops those by default)."""
    return frame.groupby(list(keys), dropna=False, sort=False, observed=True)


def totals(frame: pd.DataFrame, keys: Sequence[str], columns: Sequence[str]) -> pd.DataFrame:
    """Sums of ``columns`` per group, one row each, keys as columns; a group with an absent number has no sum."""
    return grouped(frame, keys)[list(columns)].agg(lambda values: values.sum(skipna=False)).reset_index()


def ratio_of_totals(frame: pd.DataFrame, keys: Sequence[str], top: str, bottom: str, name: str) -> pd.DataFrame:
    """Per group the sum of ``top`` / the sum of ``bottom`` as column ``name``; NaN where that is 0 or absent."""
    sums = totals(frame, keys, [top, bottom])
    below = sums[bottom].astype("float64")
    return sums[list(keys)].assign(**{name: sums[top].astype("float64") / below.where(below != 0)})


def _record_row(record: Record, batch: int) -> dict[str, Any]:
    """One row; ``batch`` is the number of rows of its batch, negative for all but the first."""
    seconds, tokens = record["seconds"], len(record["output_ids"])
    total, prefill = _number(seconds["total"]), _number(seconds["prefill"])
    row: dict[str, Any] = {name: record[name] for name in (*WHO, *ASKED, "first_pass_tokens", "stop_reason", "text")}
    row |= {name: _setting(record, name) for name in SAMPLING}
    row |= {
        "output_tokens": tokens,
        "decode_tokens": tokens - record["first_pass_tokens"],
        "rounds": len(record["rounds"]),
        "batch_rows": abs(batch),
        "counts_seconds": batch > 0,
        "prefill_seconds": prefill,
        "decode_seconds": total - prefill,
        "rest_seconds": _number(seconds["rest"]),
        "total_seconds": total,
    }
    for level, passes in record["passes"].items():
        row |= {f"{level}_passes": passes["count"], f"{level}_pass_tokens": passes["tokens"]}
    return row | {f"{level}_seconds": _number(spent) for level, spent in seconds["passes"].items()}


def _setting(record: Record, name: str) -> float:
    """A sampling setting."""
    return _number((record["sampling"] or {}).get(name))


def _overlap(entry: Mapping[str, Any]) -> float:
    """Sum of a round's overlaps; NaN where its draft tokens come without."""
    return math.fsum(entry["overlap"]) if len(entry["overlap"]) == positions(entry) else math.nan


def _number(value: float | None) -> float:
    """The value; None, which would make a column of objects, as NaN."""
    return math.nan if value is None else value


def _look_up(config: Any, key: str) -> Any:
    """Value at a dotted key, list indices included; None where a part of it is absent."""
    value = config
    for part in key.split("."):
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, list) and part.lstrip("-").isdigit() and -len(value) <= int(part) < len(value):
            value = value[int(part)]
        else:
            return None
    return value

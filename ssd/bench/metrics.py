"""Speed, latency and agreement, from records alone. Totals before ratios; no data gives None.

The decode clock starts when the first target pass ends: decode seconds are total - prefill, and the
tokens that pass emitted enter no decode rate. Seconds and passes belong to the batch and are counted
once per (run, method, batch). Functions take the records of one method.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ssd.bench.acceptance import Record, ratio
from ssd.bench.record_line import check_real
from ssd.bench.statistics import Array, Estimate, paired_bootstrap, ratio_of_rates
from ssd.bench.turns import conversation_of

CLOCKS = ("decode", "e2e")


class Clock(NamedTuple):
    """Seconds and tokens of one batch on one of ``CLOCKS``."""

    seconds: float
    tokens: int


def batches(records: Iterable[Record]) -> list[list[Record]]:
    """Records grouped by batch, in order of appearance.

    Raises:
        ValueError: if there is more than one method, if a request occurs twice, or if rows of one
            batch state different seconds or passes.
    """
    groups: dict[tuple[Any, ...], list[Record]] = {}
    seen: set[tuple[Any, ...]] = set()
    for record in records:
        groups.setdefault((record["run_id"], record["method"], record["batch_id"]), []).append(record)
        if _key(record) in seen:
            raise ValueError(
                f"run, prompt, sample {_key(record)} occurs twice for method {record['method']!r}; "
                "settings or repeats are mixed, select one first"
            )
        seen.add(_key(record))
    methods = sorted({method for _, method, _ in groups})
    if len(methods) > 1:
        raise ValueError(f"records of several methods are mixed: {', '.join(methods)}; select one first")
    for key, rows in groups.items():
        if any(row[name] != rows[0][name] for row in rows for name in ("seconds", "passes")):
            raise ValueError(f"run, method, batch {key}: its records state different seconds or passes")
    return list(groups.values())


def clock(batch: Sequence[Record], kind: str = "decode") -> Clock | None:
    """Seconds and tokens of a batch; None if its seconds are not known.

    Args:
        batch: the records of one batch.
        kind: ``decode``, or ``e2e`` for all seconds and all tokens.
    """
    if kind not in CLOCKS:
        raise ValueError(f"clock: {kind!r} is not one of {', '.join(CLOCKS)}")
    seconds, prefill = batch[0]["seconds"]["total"], batch[0]["seconds"]["prefill"]
    tokens = sum(len(row["output_ids"]) for row in batch)
    if seconds is None or (kind == "decode" and prefill is None):
        return None
    if kind == "e2e":
        return Clock(seconds, tokens)
    return Clock(seconds - prefill, tokens - sum(row["first_pass_tokens"] for row in batch))


def tokens_per_second(records: Iterable[Record], kind: str = "decode") -> float | None:
    """Total tokens / total seconds on the given clock."""
    clocks = [clock(batch, kind) for batch in batches(records)]
    known = [c for c in clocks if c is not None]
    if len(known) < len(clocks):
        return None
    return ratio(sum(c.tokens for c in known), sum(c.seconds for c in known))


def speedup(
    records: Sequence[Record],
    baseline: Sequence[Record],
    kind: str = "decode",
    n: int = 2000,
    seed: int = 0,
    level: float = 0.95,
) -> Estimate:
    """(baseline seconds / baseline tokens) / (our seconds / our tokens), totals over all prompts.

    Above 1 means that ``records`` are faster. The interval resamples prompts with all their turns and samples;
    prompts that shared a batch in either method are resampled together, as their seconds cannot be
    told apart, and ``n`` of the result counts those units.

    Args:
        records: one method's records.
        baseline: another's, of the same runs, prompts and samples.
        kind: ``decode`` gives ``speedup``, ``e2e`` gives ``speedup_e2e``.
        n: number of bootstrap resamples.
        seed: of the bootstrap.
        level: coverage of the interval.

    Raises:
        ValueError: if the two do not cover the same (run, prompt, sample).
    """
    check_paired(records, baseline)
    theirs, ours = batches(baseline), batches(records)
    unit_of = _units([*theirs, *ours])
    table: Array = np.zeros((len(set(unit_of.values())), 4))
    for column, side in ((0, theirs), (2, ours)):
        for batch in side:
            measured = clock(batch, kind)
            if measured is None:
                return Estimate(None, None, None, len(table))
            table[unit_of[batch[0]["prompt_id"]], column : column + 2] += measured
    return paired_bootstrap(ratio_of_rates, table, n=n, seed=seed, level=level)


def check_paired(records: Iterable[Record], baseline: Iterable[Record]) -> None:
    """Raise ValueError naming what only one of the two sides covers."""
    ours, theirs = {_key(r) for r in records}, {_key(r) for r in baseline}
    if ours != theirs:
        raise ValueError(
            "methods are not paired by (run, prompt, sample): "
            f"only the method has {_some(ours - theirs)}, only the baseline has {_some(theirs - ours)}"
        )


def passes_per_token(records: Iterable[Record]) -> dict[str, float | None]:
    """Passes of each level's model / output tokens, prefill included; a pass serves a whole batch."""
    groups = batches(records)
    tokens = sum(len(row["output_ids"]) for batch in groups for row in batch)
    levels = sorted({level for batch in groups for level in batch[0]["passes"]})
    counts = {k: [batch[0]["passes"].get(k, {}).get("count", 0) for batch in groups] for k in levels}
    return {level: ratio(sum(counts[level]), tokens) for level in levels}


def pass_shares(records: Iterable[Record]) -> dict[str, float | None]:
    """Share of decode seconds inside each level's passes, and under ``rest`` outside all of them.

    Totals over batches; None throughout if a batch does not state them.
    """
    groups = batches(records)
    levels = sorted({level for batch in groups for level in batch[0]["seconds"]["passes"]})
    parts: dict[str, float] = dict.fromkeys([*levels, "rest"], 0.0)
    decode = 0.0
    for batch in groups:
        measured, seconds = clock(batch), batch[0]["seconds"]
        if measured is None or seconds["rest"] is None or set(seconds["passes"]) != set(levels):
            return dict.fromkeys(parts)
        decode += measured.seconds
        parts["rest"] += seconds["rest"]
        for level in levels:
            parts[level] += seconds["passes"][level]
    return {name: ratio(part, decode) for name, part in parts.items()}


class Divergence(NamedTuple):
    """The first position at which an output differs from the baseline's; None past a shorter end."""

    run_id: str
    prompt_id: str
    sample: int
    position: int
    token: int | None
    baseline_token: int | None


@dataclass(frozen=True)
class ExactMatch:
    """How many outputs equal the baseline's, id by id, and where the others leave it."""

    n: int
    equal: int
    divergences: list[Divergence]

    @property
    def share(self) -> float | None:
        """Equal / n."""
        return ratio(self.equal, self.n)


def exact_match(records: Sequence[Record], baseline: Sequence[Record]) -> ExactMatch:
    """Comparison by (run, prompt, sample); two empty outputs are equal.

    Raises:
        ValueError: if the two do not cover the same requests.
    """
    check_paired(records, baseline)
    batches(records), batches(baseline)  # refuses mixed methods and repeated requests
    check_real([*records, *baseline], "exact match")
    theirs = {_key(record): record["output_ids"] for record in baseline}
    differing = []
    for record in records:
        ours, other = record["output_ids"], theirs[_key(record)]
        if ours != other:
            shared = min(len(ours), len(other))
            at = next((i for i in range(shared) if ours[i] != other[i]), shared)
            pair = (ours[at] if at < len(ours) else None, other[at] if at < len(other) else None)
            differing.append(Divergence(*_key(record), at, *pair))
    return ExactMatch(len(records), len(records) - len(differing), differing)


@dataclass(frozen=True)
class Quantiles:
    """Quantiles in seconds of ``n`` observations; all None if ``missing`` records have no arrivals."""

    n: int
    missing: int
    p50: float | None
    p90: float | None
    p99: float | None


def time_to_first_token(records: Iterable[Record]) -> Quantiles:
    """Seconds from the call to the first token known, one observation per record with output."""
    return _quantiles([times and times[:1] for times in map(_token_times, records)])


def token_latency(records: Iterable[Record]) -> Quantiles:
    """Seconds between one token and the next, all tokens of all records pooled.

    Tokens become known in blocks: the first of a block waits since the block before, the others
    come with it and wait 0. So p50 of a speculative method may be 0 while p99 is a whole round.
    The first token of a record is not among them (see ``time_to_first_token``).
    """
    return _quantiles([times and np.diff(times).tolist() for times in map(_token_times, records)])


def distinct_ngrams(records: Iterable[Record], size: int = 4) -> float | None:
    """Distinct n-grams / all n-grams, counted within each output and added up; low means looping."""
    distinct = total = 0
    for record in records:
        ids = record["output_ids"]
        grams = [tuple(ids[i : i + size]) for i in range(len(ids) - size + 1)]
        distinct += len(set(grams))
        total += len(grams)
    return ratio(distinct, total)


def _key(record: Record) -> tuple[str, str, int]:
    """What identifies a request across methods."""
    return record["run_id"], record["prompt_id"], record["sample"]


def _some(keys: set[tuple[str, str, int]]) -> str:
    """A few of many keys, for a message."""
    shown = ", ".join(map(str, sorted(keys)[:3]))
    return f"{len(keys)}" + (f" ({shown}{', ...' if len(keys) > 3 else ''})" if keys else "")


def _units(groups: Iterable[Sequence[Record]]) -> dict[str, int]:
    """Number of the resampling unit of each prompt: turns of a conversation and prompts of a batch share one."""
    parent: dict[str, str] = {}

    def root(prompt: str) -> str:
        while parent.setdefault(prompt, prompt) != prompt:
            prompt = parent[prompt]
        return prompt

    shared = list(groups)
    for batch in shared:
        for row in batch:
            parent[root(row["prompt_id"])] = root(batch[0]["prompt_id"])
    for turn, first in conversation_of(row["prompt_id"] for batch in shared for row in batch).items():
        parent[root(turn)] = root(first)
    numbers: dict[str, int] = {}
    return {prompt: numbers.setdefault(root(prompt), len(numbers)) for prompt in list(parent)}


def _token_times(record: Record) -> list[float] | None:
    """Arrival of each output token in seconds since the call; None where the record does not say."""
    times: list[float] = []
    for seconds, known in record["arrivals"]:
        times += [seconds] * (min(known, len(record["output_ids"])) - len(times))
    return times if len(times) == len(record["output_ids"]) else None


def _quantiles(observations: Iterable[list[float] | None]) -> Quantiles:
    """Pooled quantiles; leaving out the records that lack data would flatter, so then there are none."""
    groups = list(observations)
    missing = sum(group is None for group in groups)
    pooled = [value for group in groups if group is not None for value in group]
    if missing or not pooled:
        return Quantiles(len(pooled), missing, None, None, None)
    p50, p90, p99 = (float(q) for q in np.quantile(pooled, [0.5, 0.9, 0.99]))
    return Quantiles(len(pooled), missing, p50, p90, p99)

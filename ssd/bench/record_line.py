"""What one line of ``records.jsonl`` holds, and the checks that it agrees with itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from ssd.bench.json_files import plain
from ssd.core.requests import Generation, Sampling

R = TypeVar("R", bound=Mapping[str, Any])
RECORD_FIELDS = (
    "run_id",
    "batch_id",
    "method",
    "prompt_id",
    "task",
    "sample",
    "sampling",
    "max_new_tokens",
    "prompt_tokens",
    "prompt_ids",
    "output_ids",
    "text",
    "stop_reason",
    "first_pass_tokens",
    "rounds",
    "origins",
    "arrivals",
    "passes",
    "seconds",
    "ahead",
    "synthetic",
)
ENDS = ("recovered", "bonus", "plain", "stopped")


def record_line(
    run_id: str,
    batch_id: str | int,
    method: str,
    prompt_id: str,
    task: str,
    generation: Generation,
    prompt_tokens: int,
    text: str,
    sampling: Sampling,
    *,
    max_new_tokens: int,
    sample: int = 0,
    prompt_ids: Sequence[int] | None = None,
) -> dict[str, Any]:
    """One request's outcome as the JSON object of one line, with exactly ``RECORD_FIELDS``.

    ``passes`` and ``seconds.passes`` are keyed by level (``L0``, ``L1``, ...). They and the other
    seconds belong to the batch: every line of a ``batch_id`` repeats them. ``prompt_ids`` may be null.

    Raises:
        ValueError: if the counts of the rounds contradict each other or the output.
    """
    spent = generation.seconds
    record: dict[str, Any] = plain(
        {
            "run_id": run_id,
            "batch_id": batch_id,
            "method": method,
            "prompt_id": prompt_id,
            "task": task,
            "sample": sample,
            "sampling": sampling,
            "max_new_tokens": max_new_tokens,
            "prompt_tokens": prompt_tokens,
            "prompt_ids": prompt_ids,
            "output_ids": generation.ids,
            "text": text,
            "stop_reason": generation.stop_reason,
            "first_pass_tokens": generation.first_pass_tokens,
            "rounds": generation.rounds,
            "origins": generation.origins,
            "arrivals": generation.arrivals,
            "passes": {f"L{level}": passes for level, passes in enumerate(generation.passes)},
            "seconds": {
                "prefill": spent.prefill,
                "passes": {f"L{level}": seconds for level, seconds in enumerate(spent.passes)},
                "rest": spent.rest,
                "total": spent.total,
            },
            "ahead": generation.ahead,
            "synthetic": generation.synthetic,
        },
        f"record of prompt {prompt_id!r}",
    )
    check_record(record)
    return record


def check_record(record: Mapping[str, Any]) -> None:
    """Raise ValueError naming the prompt, field and value where a record contradicts itself."""
    owner = f"record of prompt {record.get('prompt_id')!r}, method {record.get('method')!r}"
    absent = [name for name in RECORD_FIELDS if name not in record]
    surplus = [name for name in record if name not in RECORD_FIELDS]
    if absent or surplus:
        raise ValueError(f"{owner}: missing fields {absent}, unknown fields {surplus}")
    for i, entry in enumerate(record["rounds"]):
        if not fits_together(entry):
            raise ValueError(f"{owner}: rounds[{i}] has counts that do not fit together: {dict(entry)}")
    last = max((entry["edge"] for entry in record["rounds"]), default=None)
    emitted = sum(entry["emitted"] for entry in record["rounds"] if entry["edge"] == last)
    tokens = len(record["output_ids"])
    if last is not None and emitted != tokens:
        raise ValueError(f"{owner}: rounds of edge {last} emitted {emitted} tokens, output_ids has {tokens}")
    if not 0 <= record["first_pass_tokens"] <= tokens:
        raise ValueError(f"{owner}: first_pass_tokens {record['first_pass_tokens']} of {tokens} tokens")


def check_real(records: Iterable[Mapping[str, Any]], what: str) -> None:
    """Raise ValueError naming ``what`` and the prompt of a record whose drafts were accepted at imposed rates."""
    for record in records:
        if record.get("synthetic"):
            raise ValueError(
                f"{what}: the record of prompt {record.get('prompt_id')!r}, method {record.get('method')!r} is "
                "synthetic: its drafts were accepted at imposed rates, so its tokens say nothing about any model"
            )


def fits_together(entry: Mapping[str, Any]) -> bool:
    """Whether a round's counts can be true at once; ``tested`` is null under block verification."""
    drafted, tested, accepted = entry["drafted"], entry["tested"], entry["accepted"]
    stopped = entry["end"] == "stopped"
    known = tested if tested is not None else entry["emitted"] if stopped else drafted
    most = accepted + 1 if tested is not None else drafted
    return (
        entry["end"] in ENDS
        and 0 <= accepted <= (drafted if tested is None else tested) <= min(drafted, most)
        and entry["emitted"] == accepted + (not stopped)
        and len(entry["overlap"]) in (0, known)
    )


def group_by(records: Iterable[R], *keys: str) -> dict[tuple[Any, ...], list[R]]:
    """Records by the values of ``keys`` in order of appearance; None is a value like any other.

    A dot reaches inside: ``sampling.temperature``.
    """
    groups: dict[tuple[Any, ...], list[R]] = {}
    for record in records:
        groups.setdefault(tuple(_look_up(record, key) for key in keys), []).append(record)
    return groups


def _look_up(record: Mapping[str, Any], key: str) -> Any:
    """Value at a dotted key, None where a part of it is absent."""
    value: Any = record
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value

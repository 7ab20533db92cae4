"""Stage 1: the copy ceiling, and what a pass of each level takes against the time to read its bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import torch

from experiments.gpu_bench_cases import LEVELS, PASSES
from experiments.gpu_bench_machine import Machine, Work
from experiments.gpu_bench_records import Records
from ssd.plan.pass_times import PassTimes

STAGE = "passes"
COPY = "copy"


def run(machine: Machine, records: Records) -> None:
    """The ceiling and every pass time that is missing stand in the records."""
    copy_ceiling(machine, records)
    time_passes(machine, records, PASSES, 1)


def copy_ceiling(machine: Machine, records: Records) -> float:
    """Bytes per second that a copy on the device reads and writes together; measured once."""
    if (STAGE, COPY) not in records.lines:
        source = torch.ones(machine.sizes.copy_bytes, dtype=torch.uint8, device=machine.device)
        target = torch.empty_like(source)
        seconds = machine.seconds(lambda: target.copy_(source))
        moved = 2 * source.numel()
        records.add(STAGE, COPY, bytes=moved, seconds=seconds, bytes_per_second=moved / min(seconds))
        del source, target
        machine.forget()
    return float(records.lines[STAGE, COPY]["bytes_per_second"])


def time_passes(machine: Machine, records: Records, wanted: Sequence[tuple[str, int]], batch: int) -> None:
    """Pass times of (level, width) at a batch size, in the middle of a context."""
    ceiling = copy_ceiling(machine, records)
    for level, width in wanted:
        case = f"{level}/T{width}/B{batch}"
        if not records.wants(STAGE, case):
            continue
        own = machine.bytes_of(level)
        floor = own.streamed / ceiling
        seconds = machine.seconds(single_pass(machine, level, width, batch))
        records.add(
            STAGE, case, level=level, width=width, batch=batch, context=machine.sizes.prompt, slots=machine.sizes.slots,
            median_seconds=median(seconds), over_floor=median(seconds) / floor, floor_seconds=floor,
            streamed_bytes=own.streamed, stored_bytes=own.stored, seconds=seconds,
        )  # fmt: skip
        machine.forget()


def single_pass(machine: Machine, level: str, width: int, batch: int, role: str = "chain") -> Work:
    """A pass over ``width`` tokens in each of ``batch`` rows behind the context."""
    model, sizes = machine.level(level, role), machine.sizes
    model.allocate(batch, sizes.slots)
    tokens = torch.zeros(batch, width, dtype=torch.int64, device=machine.device)
    start = torch.full((batch,), sizes.prompt, dtype=torch.int64, device=machine.device)
    return machine.recorded(lambda: model.score_static(tokens, start, sizes.slots))


def pass_times(records: Mapping[str, dict[str, Any]]) -> dict[str, PassTimes]:
    """Levels with the pass times that stand in the records of this stage, by name."""
    seconds: dict[str, dict[tuple[int, int], float]] = {}
    for record in records.values():
        if "width" in record:
            own = seconds.setdefault(record["level"], {})
            own[record["width"], record["batch"]] = record["median_seconds"]
    return {name: PassTimes(name, seconds[name], extrapolate=True) for name in LEVELS if name in seconds}

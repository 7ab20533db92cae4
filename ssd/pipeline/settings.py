"""How a pipelined schedule is laid out: who runs which levels where, and how far it works ahead. No torch."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass

KINDS = ("process", "thread")
FORCES = ("hits", "misses")


@dataclass(frozen=True)
class PipelineSettings:
    """Workers of a pipelined schedule.

    Attributes:
        workers: levels of each worker, from the lowest level up, the target's last; within a worker levels take
            turns. Empty: all drafts on one, the target on another.
        kind: ``process`` (levels on a CPU; each worker has cores and an interpreter of its own) or ``thread``
            (levels on CUDA devices; each worker has a stream of its own).
        cores: per worker, the CPU cores it is pinned to; empty: those this process may use, shared out evenly.
            Processes only.
        budget: rows drafted ahead for each row that is verified.
        fan_out: most guesses of the next token for one number of accepted tokens.
        force: ``hits`` or ``misses`` for every prediction, to test both paths; ``None``: as it comes.
        delays: per worker, seconds it waits before every pass, to test slow workers; empty: none.
    """

    workers: tuple[tuple[int, ...], ...] = ()
    kind: str = "process"
    cores: tuple[tuple[int, ...], ...] = ()
    budget: int = 4
    fan_out: int = 2
    force: str | None = None
    delays: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        for name in ("workers", "cores"):
            object.__setattr__(self, name, tuple(tuple(group) for group in getattr(self, name)))
        object.__setattr__(self, "delays", tuple(self.delays))
        if self.kind not in KINDS:
            raise ValueError(f"pipeline.kind: {self.kind!r} is not one of {', '.join(KINDS)}")
        if self.force not in (None, *FORCES):
            raise ValueError(f"pipeline.force: {self.force!r} is not one of {', '.join(FORCES)}")
        for name in ("budget", "fan_out"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ValueError(f"pipeline.{name}: expected an integer >= 1, got {value!r}")
        if any(not 0 <= delay < math.inf for delay in self.delays):
            raise ValueError(f"pipeline.delays: expected seconds >= 0, got {list(self.delays)!r}")
        if self.cores and self.kind == "thread":
            raise ValueError(f"pipeline.cores: {self.cores!r} has no meaning for workers of kind 'thread'")

    def groups(self, levels: int) -> tuple[range, ...]:
        """Levels of each worker of a chain of ``levels`` levels.

        Raises:
            ValueError: if the workers do not share out these levels in order, or there is nothing to overlap.
        """
        if levels < 2:
            raise ValueError("schedule: 'pipelined' needs a draft that works while the target verifies, and has none")
        groups = self.workers or (tuple(range(levels - 1)), (levels - 1,))
        if [level for group in groups for level in group] != list(range(levels)) or not all(groups):
            raise ValueError(
                f"pipeline.workers: {[list(g) for g in groups]!r} do not share out levels 0 to {levels - 1} in order"
            )
        if len(groups) < 2:
            raise ValueError(f"pipeline.workers: one worker for all {levels} levels leaves nothing to overlap")
        for name in ("cores", "delays"):
            given = getattr(self, name)
            if given and len(given) != len(groups):
                raise ValueError(f"pipeline.{name}: {len(groups)} workers but {len(given)} entries")
        return tuple(range(group[0], group[-1] + 1) for group in groups)

    def cores_of(self, workers: int, available: Sequence[int] | None = None) -> tuple[tuple[int, ...], ...]:
        """Cores of each of ``workers`` processes.

        Args:
            available: default those this process may run on.

        Raises:
            ValueError: if a core is not there or given twice, there are fewer cores than workers, or the system pins
                no process to cores.
        """
        if available is None and not hasattr(os, "sched_getaffinity"):
            raise ValueError("pipeline.kind: 'process' has a core for every worker, and this system does not pin any")
        have = sorted(os.sched_getaffinity(0) if available is None else available)
        if self.cores:
            given = [core for own in self.cores for core in own]
            strange = sorted(set(given) - set(have))
            if strange or not all(self.cores):
                raise ValueError(f"pipeline.cores: {[list(c) for c in self.cores]!r} are not among cores {have}")
            if len(set(given)) < len(given):
                raise ValueError(f"pipeline.cores: a core stands twice in {[list(c) for c in self.cores]!r}")
            return self.cores
        if len(have) < workers:
            raise ValueError(
                f"pipeline.workers: {workers} processes but cores {have}; two processes on one core slow each other "
                f"many times over"
            )
        each, more = divmod(len(have), workers)  # the target, last, is first to get what is left over
        ends = [each * (i + 1) + max(0, i + 1 - (workers - more)) for i in range(workers)]
        return tuple(tuple(have[begin:end]) for begin, end in zip([0, *ends], ends, strict=False))

"""What a simulation is given: pass times, acceptance, edges and the machine."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ssd.plan.acceptance import Acceptance
from ssd.plan.edge_plan import EdgePlan
from ssd.plan.events import Worker
from ssd.plan.lookahead import Ahead
from ssd.plan.pass_times import Profile


@dataclass(frozen=True)
class Machine:
    """Where levels run.

    Attributes:
        workers: per level; levels that take turns on one worker name the same.
        demand: per level, share of the memory's bandwidth one of its passes uses when alone, in (0, 1].
            1 (the default): two passes at once take as long as one after the other.
        transfer: seconds until what one device knows is known to another.
    """

    workers: tuple[Worker, ...]
    demand: tuple[float, ...] = ()
    transfer: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "workers", tuple(self.workers))
        object.__setattr__(self, "demand", tuple(self.demand) or (1.0,) * len(self.workers))
        if len(self.demand) != len(self.workers):
            raise ValueError(f"machine.demand: {len(self.workers)} levels but {len(self.demand)} demands")
        for level, demand in enumerate(self.demand):
            if not 0 < demand <= 1:
                raise ValueError(f"machine.demand, level {level}: {demand!r} is outside (0, 1]")
        if not 0 <= self.transfer < math.inf:
            raise ValueError(f"machine.transfer: expected seconds >= 0, got {self.transfer!r}")
        by_name: dict[str, Worker] = {}
        for worker in self.workers:
            if by_name.setdefault(worker.name, worker) != worker:
                raise ValueError(f"machine.workers: two different workers are called {worker.name!r}")

    @property
    def devices(self) -> int:
        """How many devices the levels occupy."""
        return len({worker.device for worker in self.workers})

    @staticmethod
    def of(profile: Profile, transfer: float = 0.0) -> Machine:
        """The devices a profile names; levels of one device take turns."""
        return Machine(tuple(Worker(level.device) for level in profile.levels), transfer=transfer)

    @staticmethod
    def each(levels: int, transfer: float = 0.0) -> Machine:
        """A device for every level."""
        return Machine(tuple(Worker(f"device {k}") for k in range(levels)), transfer=transfer)


@dataclass(frozen=True)
class Setting:
    """A chain to be simulated.

    Attributes:
        profile: the levels with their pass times, which are those of a pass that has the machine to itself.
        edges: one fewer than levels.
        acceptance: per edge, how often its draft tokens pass.
        machine: where the levels run.
        schedule: ``serial`` (levels take turns) or ``pipelined`` (edges with ``ahead`` work ahead).
        ahead: per edge, how its drafting level works ahead when ``pipelined``; ``None``: not at all.
    """

    profile: Profile
    edges: tuple[EdgePlan, ...]
    acceptance: tuple[Acceptance, ...]
    machine: Machine
    schedule: str = "serial"
    ahead: tuple[Ahead | None, ...] = ()

    def __post_init__(self) -> None:
        for name in ("edges", "acceptance"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        object.__setattr__(self, "ahead", tuple(self.ahead) or (None,) * len(self.edges))
        levels = len(self.profile.levels)
        for name in ("edges", "acceptance", "ahead"):
            if len(getattr(self, name)) != levels - 1:
                raise ValueError(f"{name}: {levels} levels need {levels - 1}, got {len(getattr(self, name))}")
        if len(self.machine.workers) != levels:
            raise ValueError(f"machine.workers: {levels} levels but {len(self.machine.workers)} workers")
        for k, (edge, model) in enumerate(zip(self.edges, self.acceptance, strict=True)):
            if edge.verification != model.verification:
                raise ValueError(
                    f"acceptance[{k}].verification: {model.verification!r} was measured, the edge verifies by "
                    f"{edge.verification!r}"
                )
        if self.schedule not in ("serial", "pipelined"):
            raise ValueError(f"schedule: {self.schedule!r} is neither 'serial' nor 'pipelined'")
        if self.schedule == "pipelined":
            self._check_ahead()

    def _check_ahead(self) -> None:
        if not any(self.ahead):
            raise ValueError(f"ahead: 'pipelined' needs an edge that works ahead, got {self.ahead!r}")
        for k, ahead in enumerate(self.ahead):
            for level in range(k + 1) if ahead else ():
                worker = self.machine.workers[level]
                if worker == self.machine.workers[k + 1]:
                    raise ValueError(
                        f"ahead[{k}]: {self.profile.names[level]} cannot draft while {self.profile.names[k + 1]} "
                        f"verifies, both run on {worker.name!r}"
                    )

    def works_ahead(self, edge: int) -> Ahead | None:
        """How the drafting level of ``edge`` works ahead under this schedule."""
        return self.ahead[edge] if self.schedule == "pipelined" else None

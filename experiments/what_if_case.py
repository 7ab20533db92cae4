"""One chain on given devices under one schedule: its setting, and what the simulation says of it.

Speedup is the exact one of the serial schedule (``ssd.plan.prediction``), times what the schedule gains in the
simulation on the very same rounds. Draws are keyed, so both schedules of a seed see the same rounds, and most of
the chance in either cancels in their ratio.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import mean, stdev

from ssd.plan.acceptance import Constant
from ssd.plan.chain_recursion import Memo
from ssd.plan.edge_plan import EdgePlan
from ssd.plan.events import Worker
from ssd.plan.h200 import CONTENTION, FLAT, MEMORY, SHAPES, floor_seconds, pass_times, roofline_knee, seconds_by_width
from ssd.plan.lookahead import Ahead, PowerMiss
from ssd.plan.pass_times import Profile
from ssd.plan.prediction import predict
from ssd.plan.setting import Machine, Setting
from ssd.plan.simulate import Simulation, simulate

# 97.5% quantiles of Student's t by degrees of freedom; more degrees than listed use the last.
T_QUANTILES = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
CURVES = {
    "published": PowerMiss(recovered=0.75, bonus=0.75, exponent=0.83),
    "pessimistic": PowerMiss(recovered=0.2, bonus=0.5, exponent=0.5),
}
ALWAYS = "always"  # no curve: whatever happens was prepared for, which no prediction beats
CURVE_ORIGINS = {
    "published": "90% of the next tokens are among 3 guesses (arXiv 2603.03251: up to 90% of bonus tokens; 3 is the "
    "default fan-out of its code), the first guess is right as often as a draft token passes (.75), misses fall as a "
    "power of the guesses, and a token after a rejection is as easy to guess as a bonus",
    "pessimistic": "assumed: the first guess is right half the time after everything was accepted and one time in five "
    "after a rejection, misses fall with the square root of the guesses",
    ALWAYS: "a bound: every outcome was prepared for",
}


@dataclass(frozen=True)
class World:
    """What is assumed of machine and runtime.

    Attributes:
        knee: tokens of a pass from which its time grows in proportion; ``None``: where arithmetic must bind.
        transfer: seconds until what one device knows is known to another.
        contention: demand of a pass that shares its device with another; 0: its share of the bandwidth alone.
        overhead: seconds around each pass.
    """

    knee: float | None = FLAT
    transfer: float = 20e-6
    contention: float = CONTENTION
    overhead: float = 0.0

    def __post_init__(self) -> None:
        if self.knee is not None and not self.knee >= 1:
            raise ValueError(f"world.knee: expected tokens >= 1, got {self.knee!r}")
        for name in ("transfer", "overhead"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"world.{name}: expected seconds >= 0, got {getattr(self, name)!r}")
        if not 0 <= self.contention <= 1:
            raise ValueError(f"world.contention: {self.contention!r} is outside [0, 1]")


@dataclass(frozen=True)
class Case:
    """What is given.

    Attributes:
        shapes: of the levels.
        alphas: per edge.
        times: column of ``ssd.plan.h200``.
        schedule: ``serial`` or ``pipelined``.
        devices: 1: drafts and target on two streams of it; 2: the target has one to itself; 3: a device per level.
        curve: of ``CURVES``, or ``ALWAYS``; empty when serial.
        batch: rows.
    """

    shapes: tuple[str, ...]
    alphas: tuple[float, ...]
    times: str
    schedule: str = "serial"
    devices: int = 1
    curve: str = ""
    batch: int = 1
    world: World = World()

    def __post_init__(self) -> None:
        levels = len(self.shapes)
        if isinstance(self.devices, bool) or self.devices not in range(1, levels + 1):
            raise ValueError(f"devices: {self.devices!r}, but {'→'.join(self.shapes)} occupies 1 to {levels}")
        if self.schedule not in ("serial", "pipelined"):
            raise ValueError(f"schedule: {self.schedule!r} is neither 'serial' nor 'pipelined'")
        if (self.schedule == "pipelined") != (self.curve in (*CURVES, ALWAYS)):
            raise ValueError(f"curve: {self.curve!r} with schedule {self.schedule!r}; pipelined takes one of "
                             f"{', '.join((*CURVES, ALWAYS))}, serial none")  # fmt: skip


@dataclass(frozen=True)
class Choice:
    """What can be chosen.

    Attributes:
        gammas: draft length per edge.
        budgets: per edge, rows drafted ahead; 0: it does not work ahead.
        fan_out: most guesses for one number accepted; ``None``: the budget.
    """

    gammas: tuple[int, ...]
    budgets: tuple[int, ...]
    fan_out: int | None = None


@dataclass(frozen=True)
class Outcome:
    """What came of it: means over seeds, 95% interval of the speedup.

    Attributes:
        utilisation: of each level's device or stream, by level.
        hit_rates: per edge, ``None`` where nothing was made ahead.
        seeds: runs behind it; 0 where the number is exact and has no interval.
    """

    speedup: float
    low: float
    high: float
    utilisation: tuple[float, ...]
    hit_rates: tuple[float | None, ...]
    tau: float
    seeds: int


def profile_of(case: Case) -> Profile:
    """Levels with their pass times."""
    knee = case.world.knee
    levels = (pass_times(s, case.times, roofline_knee(s) if knee is None else knee, case.world.overhead)
              for s in case.shapes)  # fmt: skip
    return Profile(tuple(levels))


def machine_of(case: Case) -> Machine:
    """Where levels run. Levels of one worker take turns; two streams of one device slow each other down."""
    *drafts, target = range(len(case.shapes))
    if case.devices == 1:
        streams = Worker("draft stream", "H200 0"), Worker("target stream", "H200 0")
        workers = [streams[0]] * len(drafts) + [streams[1]]
        demand = [max(case.world.contention, floor_seconds(s) / seconds_by_width(s, case.times)[1])
                  for s in case.shapes]  # fmt: skip
        return Machine(tuple(workers), tuple(min(1.0, d) for d in demand))
    spare = case.devices - 1
    workers = [Worker(f"H200 {max(0, k - (len(drafts) - spare))}") for k in drafts]
    return Machine((*workers, Worker(f"H200 {target}")), transfer=case.world.transfer)


def fits(case: Case) -> bool:
    """Whether the weights of the levels of each device fit into its memory."""
    held: dict[str, float] = {}
    for worker, shape in zip(machine_of(case).workers, case.shapes, strict=True):
        held[worker.device] = held.get(worker.device, 0.0) + SHAPES[shape].bytes
    return max(held.values()) <= MEMORY


def setting_of(case: Case, choice: Choice) -> Setting:
    """The setting for the simulator."""
    ahead: tuple[Ahead | None, ...] = ()
    if case.schedule == "pipelined":
        curve, force = (CURVES["published"], "hit") if case.curve == ALWAYS else (CURVES[case.curve], None)
        ahead = tuple(Ahead(curve, b, choice.fan_out, force=force) if b else None for b in choice.budgets)
    edges = tuple(EdgePlan(g) for g in choice.gammas)
    acceptance = tuple(map(Constant, case.alphas))
    return Setting(profile_of(case), edges, acceptance, machine_of(case), case.schedule, ahead)


def serial_speedup(case: Case, gammas: Sequence[int], memo: Memo | None = None) -> float:
    """The exact speedup when levels take turns, what one device tells another left out."""
    edges = [EdgePlan(g) for g in gammas]
    return predict(profile_of(case), edges, [Constant(a) for a in case.alphas], case.batch, memo).speedup


def gain(case: Case, choice: Choice, tokens: int, seed: int) -> tuple[float, Simulation]:
    """Seconds of the serial schedule without transfers ÷ ours, on the same rounds, and our run."""
    ours = simulate(setting_of(case, choice), tokens, case.batch, seed)
    alone = replace(case, schedule="serial", curve="", devices=1)
    return serial_seconds(alone, choice.gammas, tokens, seed) / ours.seconds, ours


@lru_cache(maxsize=4096)
def serial_seconds(case: Case, gammas: tuple[int, ...], tokens: int, seed: int) -> float:
    """Simulated seconds when all levels take turns on one device."""
    setting = setting_of(case, Choice(gammas, (0,) * len(gammas)))
    return simulate(setting, tokens, case.batch, seed).seconds


def outcome(case: Case, choice: Choice, tokens: int, seeds: Sequence[int]) -> Outcome:
    """What a choice gives, over the draws of ``seeds`` (at least two)."""
    exact = serial_speedup(case, choice.gammas)
    runs = [gain(case, choice, tokens, seed) for seed in seeds]
    speedups = [exact * ratio for ratio, _ in runs]
    half = T_QUANTILES[min(len(seeds) - 1, len(T_QUANTILES)) - 1] * stdev(speedups) / math.sqrt(len(seeds))
    center = mean(speedups)
    sims = [run for _, run in runs]
    names = [worker.name for worker in sims[0].machine.workers]
    rates = [[r for run in sims if (r := run.hit_rate(edge)) is not None] for edge in range(len(case.alphas))]
    return Outcome(
        center,
        center - half,
        center + half,
        tuple(mean(run.utilisation()[name] for run in sims) for name in names),
        tuple(mean(r) if r else None for r in rates),
        mean(run.tau(len(case.alphas) - 1) for run in sims),
        len(seeds),
    )

"""Settings and slower ways to the same numbers, for the tests of the simulator."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from ssd.plan.acceptance import Acceptance, Constant
from ssd.plan.edge_plan import EdgePlan
from ssd.plan.events import Worker
from ssd.plan.lookahead import Ahead, PowerMiss
from ssd.plan.pass_times import PassTimes, Profile
from ssd.plan.setting import Machine, Setting
from ssd.plan.simulate import Simulation

CURVE = PowerMiss(recovered=0.6, bonus=0.7, exponent=0.5)
NEVER = PowerMiss(recovered=0.0, bonus=0.0, exponent=0.0)


def flat(*seconds: float) -> Profile:
    """Levels whose passes take the same time whatever their shape."""
    return Profile(tuple(PassTimes.flat(f"L{k}", s) for k, s in enumerate(seconds)))


def growing(*seconds: float, per_token: float = 0.03) -> Profile:
    """Levels whose passes take longer with every token and row."""
    return Profile(
        tuple(
            PassTimes(f"L{k}", lambda width, batch, s=s: s * (1 + per_token * (width - 1) + per_token * (batch - 1)))
            for k, s in enumerate(seconds)
        )
    )


def serial(profile: Profile, gammas: Sequence[int], alphas: Sequence[float | Acceptance]) -> Setting:
    """All levels in turn on one device."""
    return Setting(
        profile,
        tuple(EdgePlan(g) for g in gammas),
        tuple(Constant(a) if isinstance(a, (int, float)) else a for a in alphas),
        Machine((Worker("device 0"),) * len(profile.levels)),
    )


def chain_of_three() -> Setting:
    """Levels 5 and 10 times as fast as the one above."""
    return serial(flat(0.02, 0.1, 1.0), (3, 5), (0.75, 0.85))


def pipelined(setting: Setting, *ahead: Ahead | None, machine: Machine | None = None) -> Setting:
    """The same chain with a device for every level, unless told otherwise."""
    machine = machine or Machine.each(len(setting.profile.levels))
    return replace(setting, machine=machine, schedule="pipelined", ahead=ahead)


def plain_monte_carlo(
    seconds: Sequence[float], gammas: Sequence[int], alphas: Sequence[float], rounds: int, seed: int
) -> float:
    """Seconds per token of a serial chain with windows ``at_least`` and flat pass times, target round by round."""
    source = random.Random(seed)

    def block(k: int) -> tuple[int, float]:
        """Tokens of a block of level k and what it takes."""
        tokens, spent = 0, 0.0
        while tokens < gammas[k]:
            emitted, cost = one_round(k)
            tokens, spent = tokens + emitted, spent + cost
        return tokens, spent

    def one_round(k: int) -> tuple[int, float]:
        if k == 0:
            return 1, seconds[0]
        drafted, spent = block(k - 1)
        accepted = 0
        while accepted < drafted and source.random() < alphas[k - 1]:
            accepted += 1
        return accepted + 1, spent + seconds[k]

    results = [one_round(len(gammas)) for _ in range(rounds)]
    return sum(cost for _, cost in results) / sum(emitted for emitted, _ in results)


def per_round(result: Simulation) -> list[int]:
    """Tokens of each target round of the first row."""
    top = len(result.levels) - 2
    return [r.emitted for r in result.rounds[0] if r.edge == top]

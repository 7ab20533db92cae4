"""Rows of the tables: one per simulated case, all with the same fields."""

from __future__ import annotations

from typing import Any

from experiments.what_if_case import Case, Choice, Outcome, fits, outcome, profile_of, setting_of
from experiments.what_if_search import best_pipelined, best_serial
from ssd.plan.acceptance import Constant
from ssd.plan.edge_plan import EdgePlan
from ssd.plan.prediction import predict


def row(part: str, case: Case, choice: Choice, found: Outcome, **more: Any) -> dict[str, Any]:
    """A row; ``more`` are fields of the part's own."""
    return {
        "part": part,
        "chain": "→".join(case.shapes),
        "alphas": list(case.alphas),
        "times": case.times,
        "schedule": case.schedule,
        "devices": case.devices,
        "curve": case.curve or None,
        "batch": case.batch,
        "knee": case.world.knee,
        "gammas": list(choice.gammas),
        "budgets": list(choice.budgets) if case.schedule == "pipelined" else None,
        "fan_out": choice.fan_out if case.schedule == "pipelined" else None,
        "speedup": found.speedup,
        "low": found.low,
        "high": found.high,
        "per_device": found.speedup / case.devices,
        "utilisation": list(found.utilisation),
        "hit_rates": list(found.hit_rates),
        "tau": found.tau,
        "fits": fits(case),
        "seeds": found.seeds,
    } | more


def exact_serial(case: Case, choice: Choice) -> Outcome:
    """Levels in turn on one device: expectations are known exactly, so there is no interval.

    The utilisation is each level's share of the time.
    """
    edges = [EdgePlan(g) for g in choice.gammas]
    p = predict(profile_of(case), edges, [Constant(a) for a in case.alphas], case.batch)
    shares = tuple(s / p.seconds_per_token for s in p.seconds)
    return Outcome(p.speedup, p.speedup, p.speedup, shares, (None,) * len(case.alphas), p.tau, 0)


def simulated(case: Case, choice: Choice, tokens: int, seeds: int) -> Outcome:
    """What a choice gives: exact where all levels take turns on one device, else simulated."""
    setting_of(case, choice)  # refuses what makes no sense before the longer work
    if case.schedule == "serial" and case.devices == 1:
        return exact_serial(case, choice)
    return outcome(case, choice, tokens, range(seeds))


def best(case: Case, search_tokens: int, start: Choice | None = None) -> Choice:
    """The best choice of a case; ``start``: where a pipelined search begins."""
    return best_serial(case) if case.schedule == "serial" else best_pipelined(case, search_tokens, start)

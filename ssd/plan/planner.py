"""Every sub-chain at its best settings, ranked, with what would change the order: the content of ``plan.json``."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from ssd.plan.candidates import LARGEST_GAMMA, Plan, best_gammas, label, sub_chains
from ssd.plan.chain_recursion import Memo
from ssd.plan.inputs import Pair, PlanInputs, pair_name
from ssd.plan.insertion import insertion
from ssd.plan.overlap import schedule_bounds
from ssd.plan.recommendation import Ranking, recommend
from ssd.plan.schedules import best_pipelined
from ssd.plan.sensitivity import Comparison, flip_by_alpha, flip_by_latency
from ssd.plan.temperature_grid import Chosen

Choices = Mapping[tuple[str, ...], Chosen]  # by sub-chain; those without a choice are left out


@dataclass(frozen=True)
class Search:
    """What is searched.

    Attributes:
        batch: rows decoded together.
        windows: rules to try on the edges above the lowest.
        largest: longest draft tried per edge.
        memory_limit: bytes that the weights of a plan may take; ``None``: any.
        budgets: rows drafted ahead per verified row that the pipelined schedule may have.
    """

    batch: int = 1
    windows: tuple[str, ...] = ("at_least", "exactly")
    largest: int = LARGEST_GAMMA
    memory_limit: int | None = None
    budgets: tuple[int, ...] = (1, 2, 4, 8)

    def __post_init__(self) -> None:
        for name in ("batch", "largest"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: expected at least 1, got {getattr(self, name)!r}")

    def windows_of(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """The rules to try for a chain; where only level 0 drafts they are all the same."""
        return self.windows if len(names) > 2 else ("at_least",)

    def fits(self, plan: Plan) -> bool:
        """Whether the weights fit.

        Raises:
            ValueError: if there is a limit and the bytes of a level are unknown.
        """
        if self.memory_limit is None:
            return True
        if plan.prediction.bytes is None:
            raise ValueError(f"memory_limit: {self.memory_limit!r}, but the bytes of a level of {plan} are unknown")
        return plan.prediction.bytes <= self.memory_limit


def ranking(inputs: PlanInputs, search: Search, choices: Choices | None = None) -> Ranking:
    """Every sub-chain whose acceptance is known, fastest first, those that do not fit last.

    A chain of which a level never drafts anything, at any draft lengths and under any window searched, is left out: it
    is another, shorter one. A chain counts with the faster of its schedules, and at the temperatures in ``choices``
    where it stands there.
    """
    plans, unknown, idle = [], {}, []
    memo: Memo = {}
    for names in sub_chains(inputs.profile.names):
        missing = [pair_name(p) for p in itertools.pairwise(names) if p not in inputs.pairwise]
        if missing:
            unknown[names] = missing
            continue
        profile = inputs.profile.select(names)
        if profile.levels[0].look_up and profile.levels[0].coverage <= 0:
            idle.append(names)
            continue
        chosen = choices.get(names) if choices else None
        vector = chosen.vector if chosen is not None and chosen.gain != 1.0 else None
        acceptance = inputs.acceptance(names, vector)
        plan = best_gammas(profile, acceptance, search.batch, search.windows_of(names), search.largest, memo)
        if plan.idles:
            idle.append(names)
            continue
        ahead = best_pipelined(
            profile, plan.edges, acceptance, inputs.curves, search.budgets, search.batch, search.largest
        )
        plans.append(replace(plan, temperatures=vector, pipelined=ahead))
    plans.sort(key=lambda p: (not search.fits(p), -p.speedup, len(p.names)))
    if not search.fits(plans[0]):
        least = min(p.prediction.bytes or 0 for p in plans)
        raise ValueError(f"memory_limit: {search.memory_limit!r} is too little, the smallest plan needs {least} bytes")
    fitting = [p for p in plans if search.fits(p)]
    return Ranking(tuple(fitting), tuple(p for p in plans if not search.fits(p)), unknown, tuple(idle))


def make_plan(inputs: PlanInputs, search: Search, choices: Choices | None = None) -> tuple[Ranking, dict[str, Any]]:
    """The ranking, and what ``plan.json`` says of it (docs/plan.md), times and versions aside."""
    found, choices = ranking(inputs, search, choices), choices or {}
    comparison = Comparison(inputs.profile, search.batch, largest=search.largest)
    top = found.plans[0]
    data: dict[str, Any] = {
        "recommendation": recommend(found, comparison, choices.get(top.names)),
        "batch": search.batch,
        "memory_limit": search.memory_limit,
        "plans": [entry(p, inputs, p in found.plans, choices.get(p.names)) for p in (*found.plans, *found.too_large)],
        "unknown": [{"levels": list(names), "missing": missing} for names, missing in found.unknown.items()],
        "idle": [list(names) for names in found.idle],
        "acceptance": {
            pair_name(p): {"alpha": inputs.alphas[p], "first": model.at(0, "plain"), "origin": inputs.origins[p]}
            for p, model in inputs.pairwise.items()
        },
        "insertions": insertions(inputs, search),
        "sensitivity": sensitivity(comparison, top, found.plans[1]) if len(found.plans) > 1 else [],
        "second_columns": second_columns(inputs, search, choices, top),
    }
    return found, data


def entry(plan: Plan, inputs: PlanInputs, fits: bool, chosen: Chosen | None) -> dict[str, Any]:
    """One plan as it stands in ``plan.json``."""
    p = plan.prediction
    own = dict(zip(inputs.profile.names, inputs.temperatures, strict=True))
    temperatures = [*(plan.temperatures or [own[name] for name in plan.names])[:-1], own[plan.names[-1]]]
    device = {level.name: level.device for level in inputs.profile.levels}
    overlapped = schedule_bounds(p.seconds, [device[name] for name in plan.names]).least
    return {
        "label": label(plan),
        "levels": list(plan.names),
        "depth": len(plan.edges),
        "gammas": list(plan.gammas),
        "edges": [{"gamma": e.gamma, "window": e.window, "verification": e.verification} for e in plan.edges],
        "temperatures": temperatures,
        "temperatures_gain": 1.0 if chosen is None else chosen.gain,
        "temperatures_tried": tried(chosen),
        "schedule": plan.schedule,
        "pipelined": None if plan.pipelined is None else asdict(plan.pipelined),
        "overlapped": {"seconds_per_token": overlapped, "speedup": p.speedup * p.seconds_per_token / overlapped},
        "speedup": p.speedup,
        "speedup_per_device": p.speedup_per_device,
        "devices": p.devices,
        "tokens_per_second": 1 / p.seconds_per_token,
        "tau": p.tau,
        "taus": list(p.taus),
        "alphas": list(p.alphas),
        "passes_per_token": list(p.passes_per_token),
        "seconds_per_token": list(p.seconds),
        "bytes": p.bytes,
        "fits": fits,
        "bound": {"level": p.bound.level, "share": p.bound.share, "speedup": p.bound.speedup},
    }


def tried(chosen: Chosen | None) -> dict[str, Any] | None:
    """The fastest temperatures other than a chain's own, and what they are predicted to gain."""
    if chosen is None or chosen.tried is None:
        return None
    ends = {"low": chosen.low, "high": chosen.high}
    return {"temperatures": list(chosen.tried), "gain": chosen.tried_gain} | ends


def insertions(inputs: PlanInputs, search: Search) -> list[dict[str, Any]]:
    """The closed-form condition of insertion for every low, middle and target level whose pairs are known.

    It idealises (one rate per pair, a pass at one token's time, no overshoot): the reason behind a ranking,
    not the ranking (``ssd.plan.insertion``).
    """
    *drafts, target = inputs.profile.levels
    rows = []
    for low, middle in itertools.combinations(drafts, 2):
        pairs = [(low.name, middle.name), (middle.name, target.name), (low.name, target.name)]
        if any(p not in inputs.pairwise for p in pairs):
            continue
        c0, c1 = (x.at(1, search.batch) / target.at(1, search.batch) for x in (low, middle))
        low_mid, mid_top, low_top = (inputs.alphas[p] for p in pairs)
        if low.look_up:  # what it proposes at all is what can be accepted, at no cost worth counting
            low_mid, low_top = low_mid * low.coverage, low_top * low.coverage
        found = insertion(c0, c1, low_mid, mid_top, low_top, search.largest)
        rows.append(
            {
                "low": low.name,
                "middle": middle.name,
                "target": target.name,
                "cost_ratios": [c0, c1],
                "alphas": dict(zip(map(pair_name, pairs), (low_mid, mid_top, low_top), strict=True)),
                "low_pair": found.low_pair,
                "middle_pair": found.mid_pair,
                "triple": found.triple,
                "pays": found.pays,
                "middle_alpha_needed": found.mid_alpha_needed,
                "low_alpha_needed": found.low_alpha_needed,
            }
        )
    return rows


def sensitivity(comparison: Comparison, first: Plan, second: Plan) -> list[dict[str, Any]]:
    """What changes the order of two plans, each input alone: acceptance of a pair, pass time of a level.

    Of acceptance also with draft lengths chosen again at every rate. It is the order of their serial predictions, which
    ``schedule`` of every row says: the pipelined ones are simulated, and a search for a change would find their noise.
    """
    anew = replace(comparison, reoptimise=True)
    pairs: list[Pair] = list(dict.fromkeys([*itertools.pairwise(first.names), *itertools.pairwise(second.names)]))
    rows: list[dict[str, Any]] = []
    for pair in pairs:
        change = flip_by_alpha(comparison, first, second, pair)
        again = flip_by_alpha(anew, first, second, pair)
        rows.append({"input": "alpha", "of": pair_name(pair), "change": change, "change_lengths_anew": again})
    for name in dict.fromkeys([*first.names, *second.names]):
        rows.append({"input": "latency", "of": name, "factor": flip_by_latency(comparison, first, second, name)})
    between = {"first": label(first), "second": label(second), "schedule": "serial"}
    return [between | row for row in rows]


def second_columns(inputs: PlanInputs, search: Search, choices: Choices, top: Plan) -> list[dict[str, Any]]:
    """For each published value in doubt: the best plan with its other value, and whether the verdict stands."""
    rows = []
    for pair, model in inputs.second.items():
        other = replace(inputs, pairwise={**inputs.pairwise, pair: model}, second={})
        best = ranking(other, search, choices).plans[0]
        rows.append({"pair": pair_name(pair), "best": label(best), "stands": best.names == top.names})
    return rows

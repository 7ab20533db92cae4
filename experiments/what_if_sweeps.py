"""Hit rate over guesses, the end of the gain over the batch, and sweeps of one's own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from experiments.what_if_case import CURVES, Case, Choice
from experiments.what_if_chains import CHAINS, TRIPLE
from experiments.what_if_config import WhatIfSpec
from experiments.what_if_rows import best, row, simulated
from experiments.what_if_search import best_serial

HIT_BUDGETS = (1, 2, 4, 8, 16, 32)
FAN_OUTS = (1, 2, 4, None)
BATCHES = (1, 2, 4, 8, 16)
PLAIN = ("high", "compiled")  # columns of acceptance and of pass times behind hits and batch
BATCH_CHAINS = (TRIPLE, "1B→70B")


@dataclass(frozen=True)
class PointTask:
    """One combination.

    Attributes:
        choice: ``None``: the best is looked for.
        more: fields of the row's own.
    """

    part: str
    case: Case
    choice: Choice | None
    tokens: int
    seeds: int
    search_tokens: int
    more: tuple[tuple[str, Any], ...] = ()


def point_rows(task: PointTask) -> list[dict[str, Any]]:
    """The row of a combination."""
    choice = task.choice or best(task.case, task.search_tokens)
    return [row(task.part, task.case, choice, simulated(task.case, choice, task.tokens, task.seeds), **dict(task.more))]


def hit_tasks(spec: WhatIfSpec) -> Iterator[PointTask]:
    """Budget and fan-out of the triple on two devices, at the draft lengths that are best when serial."""
    column = CHAINS[TRIPLE].column(PLAIN[0])
    serial = Case(CHAINS[TRIPLE].shapes, column.alphas, PLAIN[1], world=spec.world)
    gammas = best_serial(serial).gammas
    for curve in CURVES:
        case = replace(serial, schedule="pipelined", devices=2, curve=curve)
        for budget, fan_out in itertools.product(reversed(HIT_BUDGETS), FAN_OUTS):
            yield PointTask("hits", case, Choice(gammas, (0, budget), fan_out), spec.tokens, spec.seeds, 0)


def batch_tasks(spec: WhatIfSpec) -> Iterator[PointTask]:
    """Serial on one device, pipelined on two, with pass times that grow from the knee or where arithmetic must bind."""
    for batch, name, knee in itertools.product(reversed(BATCHES), BATCH_CHAINS, (spec.world.knee, None)):
        chain = CHAINS[name]
        column = chain.columns[0] if len(chain.columns) == 1 else chain.column(PLAIN[0])
        world = replace(spec.world, knee=knee)
        serial = Case(chain.shapes, column.alphas, PLAIN[1], batch=batch, world=world)
        tokens, search = max(60, spec.tokens // batch), max(40, spec.search_tokens // batch)
        more = (("column", column.name),)
        yield PointTask("batch", serial, None, tokens, spec.seeds, search, more)
        pipelined = replace(serial, schedule="pipelined", devices=2, curve="published")
        yield PointTask("batch", pipelined, None, tokens, 4, search, more)


def ablation_tasks(spec: WhatIfSpec) -> Iterator[PointTask]:
    """Every combination of the swept keys; what a serial schedule does not have is swept once for it.

    Raises:
        ValueError: for a combination that makes no sense.
    """
    sweep = spec.sweep
    for chain, column, times, batch, schedule, devices in itertools.product(
        *(sweep[key] for key in ("chain", "column", "times", "batch", "schedule", "devices"))
    ):
        alphas, edges = chain.column(column).alphas, len(chain.shapes) - 1
        case = Case(chain.shapes, alphas, times, devices=devices, batch=batch, world=spec.world)
        for gammas in itertools.product(*sweep["gamma"]):
            common = ("ablation", spec.tokens, spec.seeds, (("column", column),))
            if schedule == "serial":
                yield _point(case, Choice(gammas, (0,) * edges), *common)
                continue
            for curve, budget, fan_out in itertools.product(*(sweep[key] for key in ("curve", "budget", "fan_out"))):
                lower = 0 if devices <= edges else max(1, budget // 4)
                choice = Choice(gammas, (*(lower,) * (edges - 1), budget), fan_out)
                yield _point(replace(case, schedule="pipelined", curve=curve), choice, *common)


def _point(
    case: Case, choice: Choice, part: str, tokens: int, seeds: int, more: tuple[tuple[str, Any], ...]
) -> PointTask:
    return PointTask(part, case, choice, tokens, seeds, 0, more)

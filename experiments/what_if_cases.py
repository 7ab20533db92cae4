"""The cases and the map: every chain at its best settings, and which acceptance the claims need."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from experiments.what_if_case import ALWAYS, CURVES, Case, World
from experiments.what_if_chains import CHAINS, PAIR_27, ChainCase
from experiments.what_if_config import MapSpec, WhatIfSpec
from experiments.what_if_rows import best, exact_serial, row, simulated
from experiments.what_if_search import best_serial
from ssd.plan.h200 import COLUMNS

# Columns of pass times per family: only LLaMA-2's shapes were measured, the others derive from those.
TIMES = {"LLaMA-2": tuple(COLUMNS), "Llama-3": ("graph", "compiled"), "Mistral": ("graph", "compiled")}
MAP_SEEDS = 4
PAIR_ALPHAS = (0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)


@dataclass(frozen=True)
class CaseTask:
    """One chain at one column of acceptance and one of pass times, under every schedule."""

    chain: str
    column: str
    times: str
    world: World
    tokens: int
    seeds: int
    search_tokens: int


@dataclass(frozen=True)
class MapTask:
    """One line of the map: one rate of the lower edge (``None``: a pair), all of the upper."""

    shapes: tuple[str, ...]
    lower: float | None
    upper: tuple[float, ...]
    times: str
    devices: int  # 0: levels in turn
    curve: str
    world: World
    tokens: int
    search_tokens: int


def case_tasks(spec: WhatIfSpec) -> Iterator[CaseTask]:
    """All cases, those that take longest first."""
    for chain in sorted(CHAINS.values(), key=lambda c: -len(c.shapes)):
        for column in chain.columns:
            for times in TIMES[chain.family]:
                yield CaseTask(chain.name, column.name, times, spec.world, spec.tokens, spec.seeds, spec.search_tokens)


def case_rows(task: CaseTask) -> list[dict[str, Any]]:
    """Serial on one device, and on two where one cannot hold the weights; pipelined on every number of devices."""
    chain = CHAINS[task.chain]
    column = chain.column(task.column)
    more = {"family": chain.family, "column": column.name, "origin": column.origin}
    base = Case(chain.shapes, column.alphas, task.times, world=task.world)
    serial = best_serial(base)
    rows = [row("cases", base, serial, exact_serial(base, serial), **more)]
    spread = replace(base, devices=2)
    if not rows[0]["fits"]:
        rows.append(row("cases", spread, serial, simulated(spread, serial, task.tokens, task.seeds), **more))
    for curve in CURVES:
        choice = None
        for devices in range(1, len(chain.shapes) + 1):
            case = replace(base, schedule="pipelined", devices=devices, curve=curve)
            choice = best(case, task.search_tokens, choice)
            rows.append(row("cases", case, choice, simulated(case, choice, task.tokens, task.seeds), **more))
    return rows


def map_tasks(spec: WhatIfSpec) -> Iterator[MapTask]:
    """The pair's line and the chain's map: exact for every column when serial, simulated for the chosen ones."""
    grid: MapSpec = spec.map
    pair = CHAINS[PAIR_27]
    for lower in reversed(grid.lower):
        for times in grid.times:
            for devices in range(len(grid.chain.shapes), 0, -1):
                for curve in (*CURVES, ALWAYS):
                    if devices > 1 or curve != ALWAYS:
                        yield _map_task(spec, grid.chain, lower, times, devices, curve)
        for times in COLUMNS:
            yield _map_task(spec, grid.chain, lower, times, 0, "")
    for times in COLUMNS:
        yield replace(_map_task(spec, pair, None, times, 0, ""), upper=PAIR_ALPHAS)
        for devices in (1, 2) if times in grid.times else ():
            for curve in CURVES:
                yield replace(_map_task(spec, pair, None, times, devices, curve), upper=PAIR_ALPHAS)


def _map_task(spec: WhatIfSpec, chain: ChainCase, lower: float | None, times: str, devices: int, curve: str) -> MapTask:
    return MapTask(
        chain.shapes, lower, spec.map.upper, times, devices, curve, spec.world, spec.tokens, spec.search_tokens
    )


def map_rows(task: MapTask) -> list[dict[str, Any]]:
    """The best speedup at every rate of the upper edge; each search begins where the one before ended."""
    rows, choice = [], None
    for upper in task.upper:
        alphas = (upper,) if task.lower is None else (task.lower, upper)
        case = Case(task.shapes, alphas, task.times, world=task.world)
        if task.devices:
            case = replace(case, schedule="pipelined", devices=task.devices, curve=task.curve)
            choice = best(case, task.search_tokens, choice)
            found = simulated(case, choice, task.tokens, MAP_SEEDS)
        else:
            choice = best_serial(case, None if choice is None else choice.gammas)
            found = exact_serial(case, choice)
        rows.append(row("map", case, choice, found))
    return rows

"""All simulations of the what-ifs, on several processes; equal settings give equal rows."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from tqdm import tqdm

from experiments.what_if_cases import CaseTask, MapTask, case_rows, case_tasks, map_rows, map_tasks
from experiments.what_if_config import WhatIfSpec
from experiments.what_if_sweeps import PointTask, ablation_tasks, batch_tasks, hit_tasks, point_rows

Task = CaseTask | MapTask | PointTask
MAKERS: dict[str, Callable[[WhatIfSpec], Iterator[Task]]] = {
    "cases": case_tasks,
    "map": map_tasks,
    "hits": hit_tasks,
    "batch": batch_tasks,
    "ablation": ablation_tasks,
}


def tasks_of(spec: WhatIfSpec) -> list[Task]:
    """What there is to do, part by part.

    Raises:
        ValueError: for a combination of the ablation that makes no sense; nothing has run then.
    """
    return [task for part in spec.parts for task in MAKERS[part](spec)]


def rows_of(task: Task) -> list[dict[str, Any]]:
    """The rows of one task."""
    if isinstance(task, CaseTask):
        return case_rows(task)
    return map_rows(task) if isinstance(task, MapTask) else point_rows(task)


def run(spec: WhatIfSpec) -> list[dict[str, Any]]:
    """Rows of every task, in the order of the tasks whatever was done first."""
    tasks = tasks_of(spec)
    bar = tqdm(total=len(tasks), unit="task", leave=False, disable=None, dynamic_ncols=True)
    rows: list[dict[str, Any]] = []
    for found in _each(tasks, spec.workers):
        rows += found
        bar.update()
    bar.close()
    return rows


def _each(tasks: list[Task], workers: int) -> Iterator[list[dict[str, Any]]]:
    if workers == 1 or len(tasks) == 1:
        yield from map(rows_of, tasks)
        return
    # Forking a process that has threads (BLAS has) can leave the child with a lock nobody frees.
    with ProcessPoolExecutor(min(workers, len(tasks)), multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(rows_of, tasks)

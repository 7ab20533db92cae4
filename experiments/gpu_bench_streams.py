"""Stage 3: two streams on one device, the target verifying beside a draft for its most likely outcomes.

A hit has the next draft ready when the verification ends; a miss drafts then. Both schedules emit the same tokens, so
net = seconds of a serial round / expected seconds of a pipelined one.
"""

from __future__ import annotations

from statistics import median
from typing import Any

import torch

from experiments.gpu_bench_cases import COLUMNS, COVER, TARGET, WIDTHS
from experiments.gpu_bench_machine import Machine, Work
from experiments.gpu_bench_passes import single_pass
from experiments.gpu_bench_records import Records
from ssd.plan.overlap import outcome_law

STAGE = "streams"
DRAFT = "7B"
GAMMAS = (3, 5)
BRANCHES = (1, 4)


def run(machine: Machine, records: Records) -> None:
    """Every draft length with every number of outcomes drafted for."""
    for gamma in GAMMAS:
        for branches in BRANCHES:
            case = f"{DRAFT}->{TARGET}/gamma{gamma}/branches{branches}"
            if records.wants(STAGE, case):
                records.add(STAGE, case, synthetic=True, **measure(machine, gamma, branches))
                machine.forget()


def measure(machine: Machine, gamma: int, branches: int) -> dict[str, Any]:
    """Seconds alone, one after the other and side by side, and what follows per column of acceptance."""
    width = next(w for w in WIDTHS if w >= gamma + 1)
    verify = single_pass(machine, TARGET, width, 1)
    draft, ahead = (drafting(machine, gamma, rows, role) for rows, role in ((1, "chain"), (branches, "ahead")))
    together = machine.beside(verify, ahead)

    def serial() -> None:
        verify()
        draft()

    works = {"verify": verify, "draft": draft, "ahead": ahead, "serial": serial, "together": together}
    spent = {name: machine.seconds(work) for name, work in works.items()}
    middle = {name: median(seconds) for name, seconds in spent.items()}
    hidden = 1 - (middle["together"] - middle["verify"]) / middle["ahead"]
    # A pipelined round with hit rate h takes together + (1 - h) draft.
    even = (middle["together"] + middle["draft"] - middle["serial"]) / middle["draft"]
    columns = {name: outcomes(middle, alpha, gamma, branches) for name, (alpha, _) in COLUMNS.items()}
    return {
        "gamma": gamma, "branches": branches, "verify_width": width, "cover": COVER,
        "ahead_hidden_share": hidden, "break_even_hit_rate": even,
        **{f"{name}_seconds": value for name, value in middle.items()},
        "columns": columns, "seconds": spent,
    }  # fmt: skip


def outcomes(middle: dict[str, float], alpha: float, gamma: int, branches: int) -> dict[str, float]:
    """Hit rate and net ratio at one acceptance, with one guess for each of the likeliest numbers accepted."""
    likeliest = sorted(outcome_law(alpha, gamma), reverse=True)[:branches]
    hit = COVER * sum(likeliest)
    net = middle["serial"] / (middle["together"] + (1 - hit) * middle["draft"])
    bound = middle["serial"] / middle["together"]
    return {"alpha": alpha, "hit_rate": hit, "net": net, "net_if_all_hit": bound}


def drafting(machine: Machine, gamma: int, rows: int, role: str) -> Work:
    """``gamma`` steps of the drafting level in ``rows`` rows, each feeding the token before."""
    model, sizes = machine.level(DRAFT, role), machine.sizes
    model.allocate(rows, sizes.slots)
    first = torch.zeros(rows, 1, dtype=torch.int64, device=machine.device)
    start = torch.full((rows,), sizes.prompt, dtype=torch.int64, device=machine.device)

    def steps() -> None:
        tokens = first
        for step in range(gamma):
            tokens = model.score_static(tokens, start + step, sizes.slots).argmax(-1)

    return machine.recorded(steps)

"""Planted faults against rungs, on chains of tiny models: which rung catches which fault.

The chains are chosen so that every fault can show: random models with peaked rows, ragged batches, three
levels, draft temperatures of their own, filters and penalties, both verifications.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ssd.certify.bookkeeping import check_bookkeeping
from ssd.certify.enumeration import check_enumeration
from ssd.certify.identity import check_identity
from ssd.certify.ladder import RUNGS, Step, climb_one
from ssd.certify.law import check_law
from ssd.certify.pairwise import Value
from ssd.certify.planted import PLANTED, Planted
from ssd.certify.planted_ahead import PLANTED_AHEAD
from ssd.certify.result import Check, Climb, Rung
from ssd.certify.row_scorer import RowScorer
from ssd.certify.tiny_models import chain_of, near, tiny_llama
from ssd.certify.twin_equality import check_twin
from ssd.core.chain import Chain, Edge, Level
from ssd.core.model import CachedModel
from ssd.core.requests import Override, Sampling

PROMPTS = ((1, 5, 9, 5, 9, 5, 9), (7, 4, 1), (3, 8, 2, 6))
LOOSE, CLOSE = (0.08, 0.05), (0.04, 0.02)  # noise of L0's weights and of L1's, as ``near`` takes it


BLOCKS_AHEAD: dict[str, Value] = {
    **{"depth": 2, "rows": 3, "temperature": "positive", "schedule": "pipelined hits", "workers": "each alone"},
    **{"window 0": "at_least", "gamma 0": 2, "window 1": "confidence", "gamma 1": 4, "end": "length"},
    **{f"{name} {k}": value for k in (0, 1) for name, value in (("outputs", "same"), ("context", "long"))},
    **{"own 0": "inherits", "own 1": "inherits", "filters": "none", "processors": "none"},
}
"""Chains whose lowest worker drafts ahead for blocks that may just have ended, and where it would show."""


@dataclass(frozen=True)
class Trial:
    """A rung, small enough to be climbed under every fault.

    Attributes:
        rung: its number on the ladder.
        climbs: its checks in parts, the cheap first; once a part has failed the others are left.
        in_twin: whether it looks at the twin alone, so that a fault is planted there.
    """

    rung: int
    climbs: tuple[Climb, ...]
    in_twin: bool = False


def trials() -> tuple[Trial, ...]:
    """The rungs that need no real chain, at the size of the matrix."""
    return (
        Trial(0, (lambda: check_bookkeeping(llamas(*LOOSE), PROMPTS, tokens=10, rows=16),)),
        Trial(1, (lambda: check_enumeration(["one draft level", "temperatures and filters per level"]),), True),
        Trial(2, (lambda: check_twin(24),)),
        Trial(3, (lambda: check_identity(llamas(*CLOSE), PROMPTS, tokens=14, batch=8),)),
        Trial(4, (_law_of_llamas, _law_of_tables)),
    )


def trials_ahead() -> tuple[Trial, ...]:
    """The rung that holds drafts made ahead against the twin's, in growing parts."""
    return (
        Trial(
            2,
            (
                lambda: check_twin(24, models=("tables",), schedule="pipelined"),
                lambda: check_twin(24, models=("tables",), schedule="pipelined", pinned=BLOCKS_AHEAD),
            ),
        ),
    )


def matrix_ahead(after: Callable[[Mapping[str, Any]], None] = lambda row: None) -> list[dict[str, Any]]:
    """``matrix`` of the faults of drafting ahead."""
    return matrix(PLANTED_AHEAD, trials_ahead(), after)


def matrix(
    faults: Iterable[Planted] = PLANTED,
    rungs: Sequence[Trial] | None = None,
    after: Callable[[Mapping[str, Any]], None] = lambda row: None,
) -> list[dict[str, Any]]:
    """One row per fault: ``fault``, ``patches``, ``caught`` and ``by``, plain data.

    ``caught`` says of each rung whether it failed; ``None`` where the fault could not be planted for it or
    the rung could not tell. ``by`` is the first check that failed. A rung that raises has caught the fault,
    and the check names the exception.

    Args:
        faults: what to plant, one at a time.
        rungs: ``trials()`` by default.
        after: called with each row as soon as it is known.

    Raises:
        RuntimeError: a rung does not pass without a fault, so that its failures would say nothing.
        ValueError: a fault names a function that does not exist.
    """
    chosen = trials() if rungs is None else rungs
    wrong = control(chosen)
    if wrong:
        raise RuntimeError(f"without a planted fault {'; '.join(wrong)}")
    rows = []
    for fault in faults:
        rows.append(row_of(fault, chosen))
        after(rows[-1])
    return rows


def control(rungs: Sequence[Trial]) -> list[str]:
    """What does not pass when nothing is planted, in words; empty as it should be."""
    wrong = []
    for trial in rungs:
        for climb in trial.climbs:
            found = _climbed(trial, climb, nullcontext())
            wrong += [f"rung {trial.rung} fails at {_words(check)}: {check.detail}" for check in _failed(found)]
            if found.skipped is not None:
                wrong.append(f"rung {trial.rung} cannot tell: {found.skipped}")
    return wrong


def row_of(fault: Planted, rungs: Sequence[Trial]) -> dict[str, Any]:
    """The row of one fault."""
    caught: dict[int, bool | None] = {}
    by: str | None = None
    for trial in rungs:
        if trial.in_twin and fault.twin is None:
            caught[trial.rung] = None
            continue
        caught[trial.rung], first = _try(fault, trial)
        by = by or first
    return {"fault": fault.name, "what": fault.what, "patches": fault.target, "caught": caught, "by": by}


def _try(fault: Planted, trial: Trial) -> tuple[bool | None, str | None]:
    """Whether a rung catches a fault, and the first check that does."""
    verdict: bool | None = None
    for climb in trial.climbs:
        found = _climbed(trial, climb, fault.active_in_twin() if trial.in_twin else fault.active())
        failed = _failed(found)
        if failed:
            return True, _words(failed[0])
        verdict = verdict if found.skipped is not None else False
    return verdict, None


def _climbed(trial: Trial, climb: Climb, planted: AbstractContextManager[None]) -> Rung:
    with planted:
        return climb_one(Step(trial.rung, RUNGS[trial.rung].title, climb))


def _failed(rung: Rung) -> list[Check]:
    return [check for check in rung.checks if not check.passed]


def _words(check: Check) -> str:
    """Its name; of a rung that raised, also what."""
    return f"{check.name}: {check.detail}" if check.name == "ran to its end" else check.name


# --- chains -----------------------------------------------------------------------------------


@cache
def llamas(low: float, middle: float) -> Chain:
    """Three levels of random Llamas in float64, drafts that fit the target better the smaller their noise.

    L1's blocks also end at a correction; both drafts have temperatures of their own.
    """
    target = tiny_llama(0)
    drafts = [
        Level(CachedModel(near(target, low, 2)), Override(temperature=1.3)),
        Level(CachedModel(near(target, middle, 1)), Override(temperature=0.8)),
    ]
    return chain_of([*drafts, target], [Edge(3, "until_correction"), Edge(4)])


@cache
def tables() -> Chain:
    """Three levels of tables over four ids with long blocks: many draws in little time, many uniforms a round."""
    target = _scores(5)
    drafts = [0.3 * target + 0.7 * _scores(6), 0.5 * target + 0.5 * _scores(7)]
    levels = [Level(RowScorer(scores.softmax(-1).tolist())) for scores in (*drafts, target)]
    return Chain(tuple(levels), (Edge(3), Edge(6)))


def _scores(seed: int, vocab: int = 4) -> Tensor:
    """Random logits [V, V] after each last token."""
    generator = torch.Generator().manual_seed(seed)
    return 1.5 * torch.randn(vocab, vocab, generator=generator, dtype=torch.float64)


def _law_of_llamas() -> list[Check]:
    return check_law(llamas(*LOOSE), [(1, 5, 9), (7, 4)], length=3, batch=256, repeats=2)


def _law_of_tables() -> list[Check]:
    settings = (Sampling(1.0), Sampling(0.8))
    return check_law(tables(), [(1,), (2,)], length=8, batch=2048, repeats=2, settings=settings)

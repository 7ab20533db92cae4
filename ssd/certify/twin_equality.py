"""Rung 2: the decoder does what the algorithm says, token for token and round for round.

In float64 the decoder and its twin draw with the same keys from the same laws, so every token and every count
must agree: with caches, batches and block passes on one side, one full pass per prefix on the other.
"""

from __future__ import annotations

import math
import random
import traceback
from collections.abc import Mapping, Sequence

from ssd.certify.cases import MODELS, Case, chain_of_case, schedule_of_case
from ssd.certify.consistency import contradictions
from ssd.certify.pairwise import Value, case_of, factors, random_configuration, sample
from ssd.certify.result import Check
from ssd.certify.schedules import with_target
from ssd.certify.twin_rounds import Told, tell
from ssd.core.generate import generate
from ssd.core.requests import Generation, Round

CLOSE = 1e-9  # of an overlap, a sum of up to 72 float64 terms
REFUSAL = "forbid every token"
"""What both sides say of a request that cannot be served."""


def check_case(case: Case) -> str | None:
    """How decoder and twin differ on a case, in one sentence; ``None`` if they do not.

    Where the twin finds that a request cannot be served (its processors forbid every token), the decoder must
    say the same. Anything else that the decoder raises is a difference.
    """
    chain = chain_of_case(case)
    told: list[Told] | ValueError
    try:
        told = [tell(chain, request, i) for i, request in enumerate(case.requests)]
    except ValueError as error:
        told = error
    try:
        with schedule_of_case(case) as schedule:
            got, together = generate(chain, case.requests, schedule), with_target(chain, schedule)
    except Exception as error:
        if isinstance(told, ValueError) and isinstance(error, ValueError) and REFUSAL in str(error):
            return None
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"the decoder raised {type(error).__name__}: {error} ({last.name}, line {last.lineno})"
    if isinstance(told, ValueError):
        return f"the decoder went on where the twin refused: {told}"
    for i, (g, t) in enumerate(zip(got, told, strict=True)):
        found = row_difference(g, t)
        if found is None:
            found = next(iter(contradictions(chain, case.requests[i], g, together)), None)
        if found is not None:
            return f"row {i}: {found}"
    return None


def row_difference(g: Generation, told: Told) -> str | None:
    """How a generation differs from what the twin told, tokens first; ``None`` if it does not."""
    if g.ids != told.ids:
        at = next((i for i, (a, b) in enumerate(zip(g.ids, told.ids, strict=False)) if a != b), None)
        where = f"lengths {len(g.ids)} and {len(told.ids)}" if at is None else f"first at token {at}"
        return f"tokens {g.ids} of the decoder are not the twin's {told.ids}: {where}"
    if g.stop_reason != told.stop_reason:
        return f"stop reason {g.stop_reason!r} of the decoder is not the twin's {told.stop_reason!r}"
    if len(g.rounds) != len(told.rounds):
        return f"{len(g.rounds)} rounds of the decoder are not the twin's {len(told.rounds)}"
    for mine, theirs in zip(g.rounds, told.rounds, strict=True):
        if not same_round(mine, theirs):
            return f"{mine} of the decoder is not the twin's {theirs}"
    return None


def same_round(one: Round, other: Round) -> bool:
    """Whether two rounds have the same counts, and the same overlaps up to rounding."""
    counts = [(r.edge, r.block_start, r.start, r.drafted, r.tested, r.accepted, r.emitted, r.end) for r in (one, other)]
    sums = zip(one.overlap, other.overlap, strict=False)
    return (
        counts[0] == counts[1]
        and len(one.overlap) == len(other.overlap)
        and all(math.isclose(a, b, rel_tol=0, abs_tol=CLOSE) for a, b in sums)
    )


def check_twin(
    n: int = 300,
    seed: int = 0,
    models: Sequence[str] = MODELS,
    schedule: str = "serial",
    pinned: Mapping[str, Value] | None = None,
) -> list[Check]:
    """One check per kind of model: on each of its cases decoder and twin are equal.

    Args:
        n: cases in all; from about 170 on they cover every pair of values of two factors of ``ssd.certify.pairwise``.
        seed: of the choice of cases.
        models: which of ``MODELS``; they take turns.
        schedule: ``serial``, or ``pipelined`` for cases under every schedule of ``ssd.certify.cases``.
        pinned: factors and the values all cases have; the others are drawn then, and cover nothing in particular.

    Raises:
        ValueError: fewer cases than models.
    """
    if n < len(models):
        raise ValueError(f"check_twin.n: {n} cases for {len(models)} kinds of model")
    pipelined, source = schedule == "pipelined", random.Random(seed)
    if pinned is None:
        configurations = sample(n, seed, pipelined)[:n]
    else:
        configurations = [random_configuration(source, pinned, factors(pipelined)) for _ in range(n)]
    cases = [case_of(c, i + seed, models[i % len(models)]) for i, c in enumerate(configurations)]
    return [_check(model, [case for case in cases if case.model == model]) for model in models]


def _check(model: str, cases: Sequence[Case]) -> Check:
    found = [(case, difference) for case in cases if (difference := check_case(case)) is not None]
    rows = sum(len(case.requests) for case in cases)
    detail = f"{len(cases)} chains, {rows} rows of requests: {len(found)} differ"
    if found:
        case, difference = found[0]
        detail += f", first: {difference}; {case}"
    return Check(f"decoder = twin on {model}", not found, 0.0, len(cases), detail, float(len(found)))

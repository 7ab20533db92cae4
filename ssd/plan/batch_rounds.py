"""How much longer a batch lasts than one of its rows: rows of equal length do not end in the same round."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ssd.plan.acceptance import Acceptance
from ssd.plan.chain_recursion import Array, ChainRecursion
from ssd.plan.edge_plan import EdgePlan


def emitted_by_text(
    edges: Sequence[EdgePlan], acceptance: Sequence[Acceptance], coverage: float, shifts: Sequence[Sequence[float]]
) -> list[Array]:
    """[texts][e] chance that a round of the target emits e tokens, for every kind of text.

    Args:
        edges, acceptance, coverage: as in ``ChainRecursion``.
        shifts: per edge, what each text adds to its rates; an empty one adds nothing, all others are as long.
    """
    sizes = {len(own) for own in shifts if own}
    if len(sizes) > 1 or len(shifts) != len(edges):
        raise ValueError(f"shifts: {len(edges)} edges need one list each, of one length or empty, got {shifts!r}")
    laws = []
    for text in range(max(sizes, default=1)):
        models = [m.shifted(own[text]) if own else m for m, own in zip(acceptance, shifts, strict=True)]
        chain = ChainRecursion(edges, models, coverage)
        laws.append(chain.target_round(chain.top).outcome.sum(axis=(0, 2)))
    return laws


def unfinished(emitted: Array, tokens: int) -> Array:
    """[tokens + 1] chance that r rounds have not yet made ``tokens`` tokens; ``emitted`` [e] is the law of a round.

    Source: renewal process, the sum of r independent rounds.
    """
    if emitted[0] > 0 or tokens < 1:
        raise ValueError(f"rounds: every round emits a token and tokens are >= 1, got {emitted!r} and {tokens!r}")
    short, out = np.zeros(tokens), []
    short[0] = 1.0
    for _ in range(tokens + 1):
        out.append(float(short.sum()))
        short = np.convolve(short, emitted)[:tokens]
    return np.array(out)


def slowest_row(laws: Sequence[Array], tokens: int, batch: int) -> float:
    """E[most rounds of ``batch`` rows] ÷ E[rounds of a row] until each has ``tokens`` tokens; the first is left out.

    Every row draws its text, so its law, from ``laws`` with equal chance, and rows are independent; the decode
    clock starts after the first round, which holds the prompt. 1 for AR.

    Source: derived here; E[max of B] = sum over r of 1 - P(a row is done after r rounds)^B.
    """
    row = np.mean([unfinished(law, tokens) for law in laws], axis=0)[1:]
    alone = float(row.sum())
    if alone <= 0:
        raise ValueError(f"rounds: {tokens} tokens are always there after the first round")
    return float((1 - (1 - row) ** batch).sum()) / alone

"""Counted acceptance of an edge alone, in a chain, and by what became of a token one level below. No torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ssd.bench.acceptance import Record, rounds_of, tested_tokens
from ssd.bench.fates import FATES, acceptance_by_fate
from ssd.bench.records import group_by
from ssd.bench.statistics import Array, Estimate, paired_bootstrap, ratio_of_totals

DRAWS = 20000  # relabellings of the permutation test
FALSE_ALARMS = 0.001  # share of chains without any dependence that the control may call dependent, per comparison

Counts = Mapping[str, tuple[float, float]]  # by prompt: accepted, tested


def counted(records: Sequence[Record], edge: int, first_only: bool = False) -> Counts:
    """Accepted and tested draft tokens of an edge by prompt; ``first_only`` counts each round's first alone.

    Raises:
        ValueError: if the records are of several methods, or a round verified its draft as a whole.
    """
    found = {}
    for (prompt,), own in group_by(records, "prompt_id").items():
        accepted = tested = 0
        for _, entry in rounds_of(own, edge):
            if entry["tested"] is None:
                raise ValueError(f"edge {edge}: under block verification no single token is tested")
            passed = [ok for ok, _ in tested_tokens(entry)][: 1 if first_only else None]
            accepted, tested = accepted + sum(passed), tested + len(passed)
        found[str(prompt)] = (float(accepted), float(tested))
    return found


def expected(records: Sequence[Record], edge: int, first_only: bool = False) -> Counts:
    """The same with each token's overlap, its chance to pass, for whether it passed: without the noise of the draws.

    Raises:
        ValueError: as ``counted``, or if a tested token comes without its overlap.
    """
    found = {}
    for (prompt,), own in group_by(records, "prompt_id").items():
        chances: list[float | None] = []
        for _, entry in rounds_of(own, edge):
            if entry["tested"] is None:
                raise ValueError(f"edge {edge}: under block verification no single token is tested")
            chances += [chance for _, chance in tested_tokens(entry)][: 1 if first_only else None]
        known = [chance for chance in chances if chance is not None]
        if len(known) < len(chances):
            raise ValueError(f"edge {edge}: prompt {prompt!r} has tested tokens without an overlap")
        found[str(prompt)] = (float(sum(known)), float(len(known)))
    return found


def counted_by_fate(records: Sequence[Record], edge: int) -> dict[str, Counts]:
    """``counted`` for the tokens of each fate one level below; fates that no token has are left out."""
    by_prompt = {str(p): acceptance_by_fate(own, edge) for (p,), own in group_by(records, "prompt_id").items()}
    found = {
        fate: {p: (float(own[fate].accepted), float(own[fate].tested)) for p, own in by_prompt.items()}
        for fate in FATES
    }
    return {fate: counts for fate, counts in found.items() if any(tested for _, tested in counts.values())}


def alpha(counts: Counts) -> Estimate:
    """Accepted ÷ tested with its interval over prompts."""
    return paired_bootstrap(ratio_of_totals, list(counts.values()))


def difference(ours: Counts, theirs: Counts) -> Estimate:
    """Alpha of ours minus alpha of theirs, the same prompts drawn for both."""
    table = [(*ours[p], *theirs[p]) for p in _shared(ours, theirs)]
    return paired_bootstrap(lambda t: ratio_of_totals(t[..., :2]) - ratio_of_totals(t[..., 2:]), table)


def can_reject(prompts: int) -> bool:
    """Whether the test of ``same_law`` can find a dependence: of 2^prompts ways to swap, two are the most extreme."""
    return 2.0 ** (1 - prompts) <= FALSE_ALARMS


class Comparison(NamedTuple):
    """Whether two chains accept alike.

    Attributes:
        difference: alpha of one minus alpha of the other.
        p: chance of a difference as large if the two have one law.
        prompts: compared.
    """

    difference: float
    p: float
    prompts: int


def same_law(ours: Counts, theirs: Counts, draws: int = DRAWS, seed: int = 0) -> Comparison:
    """Permutation test that both counts of a prompt come from one law.

    If they do, and the two runs have seeds of their own so that they are independent, swapping them within any
    prompts changes nothing. So p is at most x with chance x: rejecting where it is at most ``FALSE_ALARMS`` is
    wrong that often, whatever the counts' distribution.

    Raises:
        ValueError: if the prompts differ, or a run has no tested token.
    """
    names = _shared(ours, theirs)
    table = np.array([(ours[p], theirs[p]) for p in names])  # [P, 2 runs, 2]
    if not (table[..., 1].sum(0) > 0).all():
        raise ValueError(f"prompts: of {len(names)} none has a tested token in one of the two runs; nothing to compare")
    swap = np.random.default_rng(seed).integers(0, 2, size=(draws, len(names))).astype(bool)
    seen = _gap(table.sum(0)[None])
    first = np.where(swap[..., None], table[:, 1], table[:, 0]).sum(1)  # [draws, 2]
    totals = np.stack([first, table.sum((0, 1)) - first], axis=1)
    as_large = ~(np.abs(_gap(totals)) < abs(float(seen[0])) - 1e-12)  # a side left without tokens counts as large
    return Comparison(float(seen[0]), (1 + int(as_large.sum())) / (1 + draws), len(names))


def _gap(totals: Array) -> Array:
    """[..., 2 runs, 2] accepted and tested -> difference of the ratios."""
    rates = ratio_of_totals(totals)
    gap: Array = rates[..., 0] - rates[..., 1]
    return gap


def _shared(ours: Counts, theirs: Counts) -> list[str]:
    if set(ours) != set(theirs):
        raise ValueError(f"prompts: {sorted(set(ours) ^ set(theirs))[:3]} are in one of the two runs only")
    return list(ours)


def records_of(records: Sequence[Mapping[str, Any]], method: str) -> list[Mapping[str, Any]]:
    """The records of one method; ValueError if there are none."""
    own = [r for r in records if r["method"] == method]
    if not own:
        raise ValueError(f"records: none of method {method!r}")
    return own

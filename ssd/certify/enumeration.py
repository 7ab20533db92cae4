"""Rung 1: the algorithm has exactly its target's law, by enumeration of whole sequences.

The twin's random choices are branched one by one with their probabilities, so nothing is left to chance.
"""

from __future__ import annotations

from collections.abc import Iterable

from ssd.certify.ahead import check_ahead
from ssd.certify.enumerated_settings import FAMILIES
from ssd.certify.exact_laws import TOLERANCE, chain_law, difference, target_law
from ssd.certify.result import Check
from ssd.core.reference import Twin


def check_enumeration(
    families: Iterable[str] = tuple(FAMILIES), twin: type[Twin] = Twin, schedule: str = "serial"
) -> list[Check]:
    """One check per family of settings: the law of every sequence is the target's to ``TOLERANCE``.

    About seven seconds of one core for all of them; a check ends at the first chain that is off.

    Args:
        families: keys of ``FAMILIES``.
        twin: whose law is enumerated; replaced by a faulty one in negative controls.
        schedule: ``serial``, or ``pipelined`` to enumerate with drafts made ahead as well.

    Raises:
        ValueError: naming the family that does not exist.
    """
    chosen = list(families)
    for name in chosen:
        if name not in FAMILIES:
            raise ValueError(f"families: {name!r} is not one of {', '.join(FAMILIES)}")
    checks = [_family(name, twin) for name in chosen]
    return [*checks, *check_ahead()] if schedule == "pipelined" else checks


def _family(name: str, twin: type[Twin]) -> Check:
    """The check of a family, which ends at the first chain that is off."""
    worst, sequences, chains, off = 0.0, 0, 0, None
    for s in FAMILIES[name]():
        got, want = chain_law(s.levels, s.edges, s.tokens, twin), target_law(s.levels[-1], s.vocab, s.tokens)
        error = difference(got, want)
        worst, sequences, chains = max(worst, error), sequences + len(want), chains + 1
        if not error <= TOLERANCE:
            worst, off = error, s
            break
    detail = (
        f"{sequences} sequences of {chains} chains: probabilities differ from the target's by at most "
        f"{worst:.1e} (tolerance {TOLERANCE:.0e})"
    )
    if off is not None:
        detail += f"; the last of them is off: {off}"
    return Check(name, off is None, 0.0, sequences, detail, worst)

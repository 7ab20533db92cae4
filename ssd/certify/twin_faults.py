"""Faulty stand-ins for single functions of the twin, for rungs that look at nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ssd.core.reference import Row, Test, Twin

Real = Callable[..., Any]
Block = tuple[list[int], list[Row]]
Outcome = tuple[list[int], list[Row], bool]


def residual_not_subtracted(real: Real) -> Real:
    """Stands in for ``residual``."""
    return lambda weight, target, draft: target


def residual_not_subtracted_by_block(real: Real) -> Real:
    """Stands in for ``Twin.verify_by_block``."""

    def verify(tokens: list[int], drafts: list[Row], laws: list[Row], accept: Test) -> tuple[int, Row]:
        kept, _ = real(tokens, drafts, laws, accept)
        return kept, laws[kept]

    return verify


def bonus_row_at_a_rejection(real: Real) -> Real:
    """Stands in for ``Twin.verify_by_token``."""

    def verify(tokens: list[int], drafts: list[Row], laws: list[Row], accept: Test) -> tuple[int, Row]:
        kept, _ = real(tokens, drafts, laws, accept)
        return kept, laws[-1]

    return verify


def off_by_one_row(real: Real) -> Real:
    """Stands in for ``Twin.verify_by_token``."""

    def verify(tokens: list[int], drafts: list[Row], laws: list[Row], accept: Test) -> tuple[int, Row]:
        return real(tokens, drafts, [*laws[1:], laws[-1]], accept)

    return verify


def draft_rows_of_the_wrong_temperature(real: Real) -> Real:
    """Stands in for ``Twin.propose``; the normalised root of a law is that law at twice the temperature."""

    def propose(self: Twin, k: int, text: list[int], limit: int, key: int) -> Block:
        block, laws = real(self, k, text, limit, key)
        flat = [[p**0.5 for p in law] for law in laws]
        return block, [[p / sum(law) for p in law] for law in flat]

    return propose


def drafters_rows_handed_up(real: Real) -> Real:
    """Stands in for ``Twin.propose``; a look-up has no rows to hand up."""

    def propose(self: Twin, k: int, text: list[int], limit: int, key: int) -> Block:
        block, laws = real(self, k, text, limit, key)
        if k > 0 and self.levels[k - 1].law is not None:
            laws = [self.law(k - 1, text + block[:i]) for i in range(len(block))]
        return block, laws

    return propose


def unlikely_token_dropped(real: Real) -> Real:
    """Stands in for ``Twin.propose``; a level's only token stays."""

    def propose(self: Twin, k: int, text: list[int], limit: int, key: int) -> Block:
        block, laws = real(self, k, text, limit, key)
        return (block[:-1], laws[:-1]) if len(block) > 1 and laws[-1][block[-1]] < 0.5 else (block, laws)

    return propose


def greedy_draft_with_soft_rows(real: Real) -> Real:
    """Stands in for ``Twin.round``."""

    def round_(self: Twin, k: int, text: list[int], room: int, key: int) -> Outcome:
        if k > 0 or not self.edges:
            return real(self, k, text, room, key)
        law = self.law(0, text)
        return [law.index(max(law))], [law], True

    return round_


def token_dropped_at_a_correction(real: Real) -> Real:
    """Stands in for ``Twin.round``, for draft levels; a round that kept nothing keeps its correction."""

    def round_(self: Twin, k: int, text: list[int], room: int, key: int) -> Outcome:
        tokens, laws, full = real(self, k, text, room, key)
        if k < len(self.edges) and not full and len(tokens) > 1:
            return tokens[:-1], laws[:-1], full
        return tokens, laws, full

    return round_

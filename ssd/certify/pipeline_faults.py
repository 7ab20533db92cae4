"""Faulty stand-ins for functions of the pipelined schedule; ``ssd.certify.planted_ahead`` says where each goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from ssd.pipeline.branches import Branch, Made
from ssd.pipeline.drafter import Drafter
from ssd.pipeline.messages import Ask, Reply

Real = Callable[..., Any]


def branch_by_number_alone(real: Real) -> Real:
    """Stands in for ``Drafter._branch``."""

    def branch(self: Drafter, ask: Ask, row: int) -> Branch | None:
        outcome = self._outcome(ask, row)
        if outcome is None or self.settings.force == "misses":
            return None
        own = self._verified[row].branches
        return next((b for b in own if (b.guess.accepted, b.limit) == (outcome[0], ask.limit[row])), None)

    return branch


def branch_by_text_alone(real: Real) -> Real:
    """Stands in for ``Drafter._branch``; neither limit nor key nor the place within the block is compared."""

    def branch(self: Drafter, ask: Ask, row: int) -> Branch | None:
        before = self._verified.get(row)
        if before is None or ask.limit[row] < 1 or self.settings.force == "misses":
            return None
        parents = [before.parent] * len(ask.parent)
        outcome = self._outcome(replace(ask, parent=parents, block=None), row)
        return next((b for b in before.branches if b.guess[:2] == outcome), None)

    return branch


def branch_with_another_key(real: Real) -> Real:
    """Stands in for ``Drafter.draft_ahead``; branches say they have the key that is asked for."""

    def draft_ahead(self: Drafter) -> None:
        branches = [b for v in self._verified.values() for b in v.branches if b.made is None]
        for b in branches:
            b.parent ^= 1
        try:
            real(self)
        finally:
            for b in branches:
                b.parent ^= 1

    return draft_ahead


def branch_with_the_former_limit(real: Real) -> Real:
    """Stands in for ``Drafter.draft_ahead``; branches say they have the limit that is asked for."""

    def draft_ahead(self: Drafter) -> None:
        branches = [b for v in self._verified.values() for b in v.branches if b.made is None]
        for b in branches:
            b.limit += len(b.text)
        try:
            real(self)
        finally:
            for b in branches:
                b.limit -= len(b.text)

    return draft_ahead


def slots_of_a_refused_draft(real: Real) -> Real:
    """Stands in for ``Drafter._set_text``."""

    def set_text(self: Drafter, row: int, text: Tensor) -> None:
        before = [int(valid[row]) for valid in self.decoder.valid]
        real(self, row, text)
        for k in self.decoder.group:
            self.decoder.valid[k][row] = before[k]

    return set_text


def slots_not_copied(real: Real) -> Real:
    """Stands in for ``Drafter._copy``."""

    def copy(self: Drafter, source: int, into: int, length: int) -> None:
        self._set_text(into, self.decoder.text[source, :length].clone())
        for k in self.decoder.group:
            self.decoder.valid[k][into] = min(int(self.decoder.valid[k][source]), length)

    return copy


def unlikely_branch_dropped(real: Real) -> Real:
    """Stands in for ``Drafter._adopt``; what a branch begins with decides whether it is handed up."""

    def adopt(self: Drafter, row: int, branch: Branch) -> Made:
        made: Made = real(self, row, branch)
        if made.tokens and made.best[0] and made.tokens[0] != made.best[0][0]:
            return Made([], None, [], made.rounds, made.start)
        return made

    return adopt


def laws_of_another_row(real: Real) -> Real:
    """Stands in for ``branches.reply``."""

    def reply(made: Sequence[Made], ready: list[bool | None]) -> Reply:
        found: Reply = real(made, ready)
        return found if found.probs is None else replace(found, probs=found.probs.roll(1, dims=0))

    return reply


def settings_of_another_row(real: Real) -> Real:
    """Stands in for ``Worker._begin``; rows for branches are those of the batch in reverse."""

    def begin(self: Any, message: Any) -> None:
        real(self, message)
        decoder = self.drafter.decoder
        batch = len(message.requests)
        rows = [*decoder.requests[:batch], *reversed(decoder.requests[batch:])]
        decoder.requests = rows
        decoder._whole = (rows, *decoder._whole[1:])

    return begin

"""Faulty stand-ins for single functions of the decoder, each made from the real one.

They are written down in ``ssd.certify.planted``, which says what each gets wrong and where it goes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ssd.core import randomness as rng
from ssd.core.decode import Decoder, span
from ssd.core.model import CachedModel
from ssd.core.processors import Processors
from ssd.core.requests import Round
from ssd.core.rounds import RoundLog
from ssd.core.sampling import Law, LevelSampling
from ssd.core.verification import Draft, Emitted, take, translate
from ssd.core.windows import Block

Real = Callable[..., Any]


def residual_not_subtracted(real: Real) -> Real:
    """Stands in for ``owed`` of either verification, whose last argument is the number of tokens kept."""

    def owed(draft: Draft, probs: Tensor, *rest: Any) -> Tensor:
        accepted = rest[-1]
        return probs[torch.arange(len(accepted), device=accepted.device), accepted].double()

    return owed


def bonus_row_at_a_rejection(real: Real) -> Real:
    """Stands in for ``verification.owed``."""

    def owed(draft: Draft, probs: Tensor, ids: Any, own: Tensor, accepted: Tensor) -> Tensor:
        return real(draft, probs, ids, own, draft.count)

    return owed


def draft_rows_of_the_wrong_temperature(real: Real) -> Real:
    """Stands in for ``decode.assemble``; the normalised root of a law is that law at twice the temperature."""

    def assemble(laws: list[tuple[Tensor, Tensor]], width: int) -> Tensor | None:
        probs = real(laws, width)
        if probs is None:
            return None
        flat = probs.sqrt()
        # Rows beyond a block's end may be empty.
        return flat / flat.sum(-1, keepdim=True).clamp(min=torch.finfo(flat.dtype).tiny)

    return assemble


def drafters_rows_handed_up(real: Real) -> Real:
    """Stands in for ``Decoder._emit``; left alone where the two levels have different output ids."""

    def emit(self: Decoder, k: int, start: Tensor, key: Tensor, draft: Draft | None, rows: Law) -> Emitted:
        emitted: Emitted = real(self, k, start, key, draft, rows)
        if k == self.top or draft is None or draft.probs is None or rows.probs is None:
            return emitted
        width = draft.tokens.shape[1]
        if draft.probs.shape[-1] != rows.probs.shape[-1]:
            return emitted
        drafted = torch.arange(width, device=start.device) < draft.count[:, None]
        mixed = torch.where(drafted[..., None], draft.probs, rows.probs[:, :width])
        probs = torch.cat([mixed, rows.probs[:, width:]], dim=1)
        return replace(emitted, law=replace(emitted.law, probs=probs))

    return emit


def greedy_draft_with_soft_rows(real: Real) -> Real:
    """Stands in for ``Decoder._emit``."""

    def emit(self: Decoder, k: int, start: Tensor, key: Tensor, draft: Draft | None, rows: Law) -> Emitted:
        emitted: Emitted = real(self, k, start, key, draft, rows)
        if k > 0 or k == self.top or rows.probs is None:
            return emitted
        return replace(emitted, tokens=translate(rows.probs[:, :1].argmax(-1), self.to_target[k]))

    return emit


def off_by_one_row(real: Real) -> Real:
    """Stands in for ``Decoder._score``."""

    def score(self: Decoder, k: int, start: Tensor, draft: Draft | None, *rest: Any) -> Law:
        rows: Law = real(self, k, start, draft, *rest)
        width = 0 if draft is None else draft.tokens.shape[1]
        zero = torch.zeros_like(start)
        return rows.at((span(zero, width + 1) + 1).clamp(max=width))

    return score


def acceptance_test_not_strict(real: Real) -> Real:
    """Stands in for ``verification.take``: with 0 replaced by the least positive number, u = 0 passes."""

    def at(probs: Tensor, index: Tensor) -> Tensor:
        return real(probs, index).clamp(min=torch.finfo(probs.dtype).tiny)

    return at


def token_dropped_at_a_correction(real: Real) -> Real:
    """Stands in for ``decode.advance``; a round that kept nothing keeps its correction, so drafting ends."""

    def advance(block: Block, emitted: Emitted, going: Tensor) -> None:
        dropped = ~emitted.full & (emitted.accepted > 0) & (emitted.count > 0)
        real(block, replace(emitted, count=emitted.count - dropped.long()), going)

    return advance


def unlikely_token_dropped(real: Real) -> Real:
    """Stands in for ``Decoder.propose``; a level's only token stays."""

    def propose(self: Decoder, k: int, *rest: Any) -> Draft:
        draft: Draft = real(self, k, *rest)
        if draft.probs is None or not int(draft.count.max()):
            return draft
        last = (draft.count - 1).clamp(min=0)[:, None]
        own = draft.tokens if k == self.top else translate(draft.tokens, self.ids[k].draft_of_target)
        unlikely = take(draft.probs, own).gather(1, last).squeeze(1) < 0.5
        return replace(draft, count=draft.count - (unlikely & (draft.count > 1)).long())

    return propose


def bonus_forgotten_in_the_cache(real: Real) -> Real:
    """Stands in for ``Decoder.round``."""

    def round_(self: Decoder, k: int, start: Tensor, *rest: Any) -> Emitted:
        emitted: Emitted = real(self, k, start, *rest)
        bonus = emitted.full & (emitted.accepted > 0) & (emitted.count > 0)
        for j in range(k):
            self.valid[j] = torch.where(bonus, start + emitted.count, self.valid[j])
        return emitted

    return round_


def stale_slot_visible(real: Real) -> Real:
    """Stands in for ``CachedModel._mask``; attention is handed one slot more than the pass reaches."""

    def mask(self: CachedModel, positions: Tensor) -> Any:
        slots = self.cache.slots
        slots.reach = min(slots.reach + 1, slots.size)
        masks = real(self, positions)
        beyond = (positions[:, -1] + 1).clamp(max=slots.reach - 1)
        for each in masks.values() if isinstance(masks, dict) else (masks,):
            rows = torch.arange(len(each), device=each.device)
            each[rows, :, :, beyond[: len(each)]] = 0
        return masks

    return mask


def neighbours_length(real: Real) -> Real:
    """Stands in for ``CachedModel._visible``."""

    def visible(self: CachedModel, positions: Tensor, reach: int, window: int | None) -> Tensor:
        return real(self, positions.roll(1, dims=0), reach, window)

    return visible


def settings_of_the_first_row(real: Real) -> Real:
    """Stands in for ``Decoder._settings``."""

    def settings(self: Decoder, k: int) -> LevelSampling:
        whole = self.requests
        self.requests = [replace(r, sampling=whole[0].sampling) for r in whole]
        try:
            return real(self, k)
        finally:
            self.requests = whole

    return settings


def top_p_ignored_in_verification(real: Real) -> Real:
    """Stands in for ``Decoder._settings``."""

    def settings(self: Decoder, k: int) -> LevelSampling:
        whole = self.requests
        if k == self.top:
            self.requests = [replace(r, sampling=replace(r.sampling, top_p=1.0)) for r in whole]
        try:
            return real(self, k)
        finally:
            self.requests = whole

    return settings


def history_of_the_blocks_start(real: Real) -> Real:
    """Stands in for ``Processors.apply``, handing it one column at a time as if each followed ``low`` tokens."""

    def apply(
        self: Processors, logits: Tensor, text: Tensor, first: Tensor, low: Tensor, high: Tensor, *rest: Any
    ) -> Tensor:
        columns = []
        for t in range(logits.shape[1]):
            wanted = (low <= first + t) & (first + t <= high)
            columns.append(real(self, logits[:, t : t + 1], text, low, low, torch.where(wanted, low, low - 1), *rest))
        return torch.cat(columns, dim=1)

    return apply


def position_only_keys(real: Real) -> Real:
    """Stands in for ``randomness.round_key``."""

    def round_key(key: Tensor, start: Tensor) -> Tensor:
        return key

    return round_key


def one_uniform_for_test_and_draw(real: Real) -> Real:
    """Stands in for ``randomness.uniform``."""

    def uniform(key: Tensor, level: int, purpose: int, position: Tensor) -> Tensor:
        return real(key, level, rng.DRAW, position)

    return uniform


def requests_share_randomness(real: Real) -> Real:
    """Stands in for ``randomness.root``."""

    def root(seeds: list[tuple[int, int, int]], device: torch.device) -> Tensor:
        return real([(seed, 0, 0) for seed, _, _ in seeds], device)

    return root


def end_tested_at_the_last_token(real: Real) -> Real:
    """Stands in for ``generate._Row._stop``."""

    def stop(self: Any, before: int) -> None:
        real(self, max(before, len(self.ids) - 1))

    return stop


def bonus_counted_as_accepted(real: Real) -> Real:
    """Stands in for ``RoundLog.rounds``."""

    def rounds(self: RoundLog, batch: int) -> list[list[Round]]:
        found: Sequence[Sequence[Round]] = real(self, batch)
        return [[replace(r, accepted=r.accepted + (r.end == "bonus")) for r in row] for row in found]

    return rounds

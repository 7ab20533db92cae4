"""Decoding whose drafts are accepted at given rates: real compute on every level, decisions that no model made.

A model with random weights takes as long as a trained one of its shape and agrees with nobody. Here every pass, law,
test, residual and draw is computed as in a real run; only how many draft tokens are kept is decided by a coin per
token, from the same keyed uniforms the real test would use. What comes out is marked synthetic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from ssd.core import block_verification
from ssd.core.chain import Chain
from ssd.core.clock import PassClock
from ssd.core.decode import AcceptU, Decoder, DrawU, span
from ssd.core.generate import generate
from ssd.core.requests import Generation, Request
from ssd.core.sampling import Law, draw
from ssd.core.verification import Draft, Emitted, Ids, leading, outcome, overlaps, owed, share_at, take, translate

FATES = ("draft", "recovered", "bonus", "plain")
_DRAFT, _RECOVERED, _BONUS, _PLAIN = range(4)
WIDTH = 64  # positions of a rate table that is made before it is needed


class Rates(Protocol):
    """How often the draft tokens of one edge pass; the acceptance models of ``ssd.plan`` are such."""

    def at(self, position: int, fate: str) -> float:
        """Chance that draft token ``position`` (from 0) passes, all before it having passed.

        ``fate`` is what became of it one level below, one of ``FATES``; ``plain`` for a token of level 0.
        """


@dataclass(frozen=True)
class EdgeRates:
    """Rates by fate, each a list over draft positions whose last entry holds for all later ones."""

    draft: tuple[float, ...]
    recovered: tuple[float, ...]
    bonus: tuple[float, ...]
    plain: tuple[float, ...]

    def __post_init__(self) -> None:
        for fate in FATES:
            rates = tuple(getattr(self, fate))
            object.__setattr__(self, fate, rates)
            if not rates:
                raise ValueError(f"imposed.{fate}: at least one rate is needed")
            for i, rate in enumerate(rates):
                check_rate(f"imposed.{fate}[{i}]", rate)

    @staticmethod
    def of(value: float | Sequence[float] | Mapping[str, float | Sequence[float]]) -> EdgeRates:
        """From one rate, a list by position, or either of them by fate.

        Raises:
            ValueError: naming the fate or position that is missing, unknown or no probability.
        """
        by_fate = value if isinstance(value, Mapping) else dict.fromkeys(FATES, value)
        for fate in [*FATES, *by_fate]:
            if fate not in FATES or fate not in by_fate:
                raise ValueError(f"imposed: {fate!r} is unknown or missing; the fates are {', '.join(FATES)}")
        return EdgeRates(**{f: tuple(x) if isinstance(x, Sequence) else (x,) for f, x in by_fate.items()})

    def at(self, position: int, fate: str) -> float:
        """The rate of a draft position and a fate."""
        rates: tuple[float, ...] = getattr(self, fate)
        return rates[min(position, len(rates) - 1)]


def check_rate(name: str, rate: object) -> None:
    """Raise ValueError unless ``rate`` is a probability."""
    if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not 0 <= rate <= 1:
        raise ValueError(f"{name}: expected a probability in [0, 1], got {rate!r}")


class Imposition:
    """The coins of one batch, and the fate of every token at every level.

    Attributes:
        fates: [levels, B, N] index into ``FATES`` of what became of the token at each position when the level last
            emitted it.
    """

    def __init__(self, rates: Sequence[Rates], chain: Chain, text: Tensor) -> None:
        if len(rates) != chain.depth:
            raise ValueError(f"imposed: {chain.depth} edges need as many rates, got {len(rates)}")
        self._chain = chain
        self._tables = [table(edge, rate).to(text.device) for edge, rate in enumerate(rates)]
        self.fates = torch.full((chain.depth + 1, *text.shape), _PLAIN, dtype=torch.int64, device=text.device)

    def rates(self, edge: int, start: Tensor, draft: Draft) -> Tensor:
        """[B, W] the rate of each draft token of a round of ``edge`` at ``start`` [B]."""
        width = draft.tokens.shape[1]
        fate = self.fates[edge].gather(1, span(start, width))
        at = torch.arange(width, device=fate.device).clamp(max=WIDTH - 1)
        return self._tables[edge][fate, at]

    def verify(
        self, ids: Ids, k: int, start: Tensor, draft: Draft, law: Law, accept: AcceptU, draw_u: DrawU
    ) -> Emitted:
        """A round of level ``k`` in which each draft token passes with its rate; arguments as for the real rule."""
        width = draft.tokens.shape[1]
        real = torch.arange(width, device=start.device) < draft.count[:, None]
        accepted = leading((accept(width) < self.rates(k - 1, start, draft)) & real)
        by_block = self._chain.edges[k - 1].verification == "block"
        return emit(draft, law, ids, accepted, draw_u, by_block)

    def note(self, k: int, start: Tensor, draft: Draft | None, emitted: Emitted) -> None:
        """Remember what became of the tokens that level ``k`` emits at ``start`` [B]."""
        if not 0 < k < self._chain.depth:
            return  # tokens of level 0 stay plain, nobody verifies the target's
        width = emitted.tokens.shape[1]
        last = torch.where(emitted.full, _BONUS, _RECOVERED) if draft is not None else torch.full_like(start, _PLAIN)
        if draft is not None:
            last = torch.where(draft.count == 0, _PLAIN, last)
        kept = torch.arange(width, device=start.device) < emitted.accepted[:, None]
        self.fates[k].scatter_(1, span(start, width), torch.where(kept, _DRAFT, last[:, None]))


def table(edge: int, rates: Rates) -> Tensor:
    """[fates, ``WIDTH``] float64 of an edge's rates; ValueError names the edge of one that is no probability."""
    rows = [[rates.at(i, fate) for i in range(WIDTH)] for fate in FATES]
    for fate, row in zip(FATES, rows, strict=True):
        for i, rate in enumerate(row):
            check_rate(f"imposed[{edge}], {fate}[{i}]", rate)
    return torch.tensor(rows, dtype=torch.float64)


def emit(draft: Draft, law: Law, ids: Ids, accepted: Tensor, draw_u: DrawU, by_block: bool) -> Emitted:
    """Keep ``accepted`` [B] draft tokens and add one as the real rule would behind them.

    Everything the rule computes is computed, its own decision included, so that a round costs what a real one costs.
    ``overlap`` of the outcome is the models' own.
    """
    width = draft.tokens.shape[1]
    own = translate(draft.tokens, ids.verifier_of_target)
    if law.probs is None:
        match = own == law.argmax[:, :width]
        overlap = match.float() if draft.probs is None else share_at(draft.probs, law.argmax[:, :width], ids)
        return outcome(draft, law, ids, accepted, law.argmax.gather(1, accepted[:, None]).squeeze(1), overlap)
    target = take(law.probs[:, :width], own)
    if draft.probs is None:
        drawn, overlap = torch.ones_like(target), target
    else:
        drawn = take(draft.probs, translate(draft.tokens, ids.draft_of_target))
        overlap = overlaps(draft.probs, law.probs[:, :width], ids.verifier_of_draft)
    if by_block:
        weight = block_verification.weights(target.double() / drawn.double())
        block_verification.pass_probability(
            weight, block_verification.left_over(draft, law, ids, own, weight[:, :width]), draft.count
        )
        left = block_verification.owed(draft, law.probs, ids, own, weight, accepted)
    else:
        left = owed(draft, law.probs, ids, own, accepted)
    return outcome(draft, law, ids, accepted, draw(left, draw_u(accepted)), overlap)


class ImposedDecoder(Decoder):
    """The decoder with another rule of acceptance; its results are marked synthetic."""

    synthetic = True

    def __init__(
        self, chain: Chain, requests: Sequence[Request], clock: PassClock | None = None, *, rates: Sequence[Rates]
    ) -> None:
        super().__init__(chain, requests, clock)
        self.random = True  # greedy rows need coins, too
        self.imposition = Imposition(rates, chain, self.text)

    def _emit(self, k: int, start: Tensor, key: Tensor, draft: Draft | None, rows: Law) -> Emitted:
        emitted = super()._emit(k, start, key, draft, rows)
        self.imposition.note(k, start, draft, emitted)
        return emitted

    def _verify(self, k: int, start: Tensor, draft: Draft, rows: Law, accept_u: AcceptU, draw_u: DrawU) -> Emitted:
        return self.imposition.verify(self.ids[k - 1], k, start, draft, rows, accept_u, draw_u)


def generate_imposed(
    chain: Chain, requests: Iterable[Request], rates: Sequence[Rates], clock: PassClock | None = None
) -> list[Generation]:
    """``ssd.core.generate.generate`` with draft tokens accepted at ``rates``, one per edge from the lowest up.

    Every result says ``synthetic``. The same seed gives the same decisions for any batch size and order.

    Raises:
        ValueError: for rates that do not fit the chain, and as ``generate``.
    """
    return generate(chain, requests, clock=clock, decoder=partial(ImposedDecoder, rates=tuple(rates)))

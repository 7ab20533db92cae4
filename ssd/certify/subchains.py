"""Chains made of the levels of a loaded chain, for the rungs that compare them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ssd.certify.ladder import NotApplicableError
from ssd.core.chain import Chain, Edge, Level, Scorer
from ssd.core.model import CachedModel
from ssd.core.ngram import Ngram
from ssd.core.requests import Override

WIDE = (torch.float32, torch.float64)


def check_wide(chain: Chain, rung: str) -> None:
    """Raise ValueError naming the first level held in fewer than 32 bits, where equality is not to be expected."""
    for k, level in enumerate(chain.levels):
        if not isinstance(level.model, Ngram) and level.model.dtype not in WIDE:
            raise ValueError(f"chain.levels[{k}].dtype: {level.model.dtype}; {rung} is a claim about float32 and wider")


def check_drafts(chain: Chain, rung: str) -> None:
    """Raise NotApplicableError for a chain without a draft."""
    if chain.depth == 0:
        raise NotApplicableError(f"the chain has no draft, so {rung} has nothing to look at")


def alone(chain: Chain) -> Chain:
    """The target without drafts: AR."""
    return Chain(chain.levels[-1:], (), chain.tokenizer, chain.names[-1:])


def pair(chain: Chain) -> Chain:
    """The target with the draft next to it: depth 1."""
    return Chain(chain.levels[-2:], chain.edges[-1:], chain.tokenizer, chain.names[-2:])


def verified(chain: Chain, verification: str) -> Chain:
    """The chain with the same verification at every edge."""
    return replace(chain, edges=tuple(replace(edge, verification=verification) for edge in chain.edges))


def tempered(chain: Chain, overrides: Sequence[Override]) -> Chain:
    """The chain with other settings on its draft levels, in turn from level 0 on; a look-up has none."""
    levels = [
        level if level.is_ngram or k == chain.depth else replace(level, sampling=overrides[k % len(overrides)])
        for k, level in enumerate(chain.levels)
    ]
    return replace(chain, levels=tuple(levels))


def rebuilt(chain: Chain, make: Callable[[Scorer], Scorer]) -> Chain:
    """The chain with each model replaced by what ``make`` makes of it."""
    levels = [x if isinstance(x.model, Ngram) else replace(x, model=make(x.model)) for x in chain.levels]
    return replace(chain, levels=tuple(levels))


def new_cache(model: Scorer) -> Scorer:
    """The same weights with a cache of their own."""
    return CachedModel(model.module, model.name) if isinstance(model, CachedModel) else copy.copy(model)


def self_draft(chain: Chain, k: int, gamma: int, verification: str) -> Chain:
    """Level k as a draft for itself, each with a cache of its own.

    The verifying copy of a level with a draft vocabulary emits over the target's ids, so that it can
    read what it wrote.
    """
    level, model = chain.levels[k], chain.scorer(k)
    target = new_cache(model)
    if level.draft_to_target is not None:
        target = Widened(target, level.draft_to_target, chain.vocab_size)
    levels = (Level(new_cache(model), draft_to_target=level.draft_to_target), Level(target))
    return Chain(levels, (Edge(gamma, verification=verification),))


class Widened:
    """A scorer over a draft vocabulary as one over the target's, whose other ids have no mass."""

    def __init__(self, model: Scorer, ids: Tensor, vocab_size: int) -> None:
        self.model, self.ids, self.vocab_size = model, ids.to(model.device), vocab_size
        self.embeddings, self.max_positions = model.embeddings, model.max_positions
        self.device, self.dtype = model.device, model.dtype
        self.module = getattr(model, "module", None)
        self.owner: object = None

    def allocate(self, batch: int, slots: int) -> None:
        """As the model."""
        self.model.allocate(batch, slots)

    def fill(self, tokens: Tensor, start: Tensor) -> None:
        """As the model."""
        self.model.fill(tokens, start)

    def score(self, tokens: Tensor, start: Tensor, keep: int) -> Tensor:
        """The model's logits [B, keep, V_target], minus infinity where it has no output."""
        own = self.model.score(tokens, start, keep)
        full = own.new_full((*own.shape[:2], self.vocab_size), float("-inf"))
        full[..., self.ids] = own
        return full

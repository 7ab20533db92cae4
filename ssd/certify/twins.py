"""The levels of a chain as functions of the whole prefix, for the twin."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch

from ssd.certify.penalties import processed
from ssd.certify.tiny_models import next_logits
from ssd.core import randomness as rng
from ssd.core.chain import Chain
from ssd.core.model import CachedModel
from ssd.core.ngram import Ngram
from ssd.core.reference import Twin, TwinLevel
from ssd.core.requests import Override, Request, Sampling
from ssd.core.sampling import LevelSampling, law

CPU = torch.device("cpu")
UNLIMITED = 10**9
Logits = Callable[[tuple[int, ...]], Sequence[float]]


def function_level(
    logits: Logits,
    sampling: Sampling,
    ids: Sequence[int] | None = None,
    vocab: int | None = None,
    limit: int = UNLIMITED,
    request: Request | None = None,
    barren: set[tuple[int, ...]] | None = None,
) -> TwinLevel:
    """A twin's level whose logits are a function of the whole prefix.

    Args:
        logits: prefix -> logits over the level's own outputs.
        sampling: settings in force on this level.
        ids: target id of each output; ``None`` when they are the same.
        vocab: size of the target's rows, needed with ``ids``.
        limit: positions the level may be fed.
        request: whose processors apply; ``None``: none do.
        barren: takes up the prefixes after which the processors forbid everything; there the law is
            that without processors.
    """
    settings = LevelSampling([sampling], CPU, confidence=True)

    @cache
    def rows(prefix: tuple[int, ...]) -> tuple[list[float], float]:
        own = list(logits(prefix))
        names = range(len(own)) if ids is None else ids
        full = [-math.inf] * (vocab or len(own))
        for token, score in zip(names, own, strict=True):
            full[token] = score
        final = full if request is None else processed(full, prefix, request)
        known = sorted(names)
        if all(final[token] == -math.inf for token in known):
            if barren is not None:
                barren.add(prefix)
            final = full
        found = law(torch.tensor([[[final[token] for token in known]]], dtype=torch.float64), settings)
        mass = [0.0] * len(full)
        assert found.confidence is not None
        if found.probs is None:
            mass[known[int(found.argmax)]] = 1.0
        else:
            for token, p in zip(known, found.probs[0, 0].tolist(), strict=True):
                mass[token] = p
        return mass, float(found.confidence)

    return TwinLevel(lambda p: rows(tuple(p))[0], lambda p: rows(tuple(p))[1], limit)


def twin_level(chain: Chain, k: int, request: Request, barren: set[tuple[int, ...]] | None = None) -> TwinLevel:
    """Level k of a chain of tiny or table models for one request, computed without a cache."""
    level, top = chain.levels[k], k == chain.depth
    if isinstance(level.model, Ngram):
        return TwinLevel(None, look_up=level.model.look_up)
    model: Any = level.model
    size = chain.output_size(k)
    ids = list(range(size)) if level.draft_to_target is None else level.draft_to_target.tolist()

    def logits(prefix: tuple[int, ...]) -> list[float]:
        if not isinstance(model, CachedModel):
            return list(model.logits(prefix))[:size]
        known = tuple(t if t < model.embeddings else 0 for t in prefix)
        return next_logits(model.module, known)[0, 0, :size].tolist()

    sampling = request.sampling.overridden_by(Override() if top else level.sampling)
    limit = UNLIMITED if model.max_positions is None else model.max_positions
    return function_level(logits, sampling, ids, chain.vocab_size, limit, request, barren if top else None)


def twin_levels(chain: Chain, request: Request, barren: set[tuple[int, ...]] | None = None) -> list[TwinLevel]:
    """All levels of a chain for one request; ``barren`` is the target's, see ``function_level``."""
    return [twin_level(chain, k, request, barren) for k in range(len(chain.levels))]


def twin_root(request: Request, index: int) -> int:
    """Root key of a request that stands at ``index`` in the caller's list."""
    return rng.root_int(request.seed, index if request.request is None else request.request, request.sample)


def twin_ids(chain: Chain, request: Request, index: int = 0) -> list[int]:
    """What the twin generates for a request (no stop rules)."""
    twin = Twin(twin_levels(chain, request), chain.edges)
    return twin.generate(list(request.ids), request.max_new_tokens, twin_root(request, index))

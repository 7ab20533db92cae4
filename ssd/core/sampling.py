"""Logits to the law tokens are drawn from, and the draw.

A batch whose rows are all greedy on a level has point-mass laws; they are kept as their argmax and
never spread over the vocabulary. ``Law`` hides nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ssd.core.requests import Sampling


@dataclass(frozen=True)
class Law:
    """Distributions at consecutive positions.

    Attributes:
        probs: [B, T, V] float32 or float64, rows sum to 1; ``None`` when every row is a point mass.
        top: [B, T] the argmax, when ``probs`` is ``None``.
        confidence: [B, T] maximum of the untempered, unfiltered softmax, when asked for.
        finite: [B, T] False where the logits had a NaN or an infinite maximum; ``None``: not known.
        best: [B, T, n] the n likeliest output ids, when asked for.
    """

    probs: Tensor | None
    top: Tensor | None
    confidence: Tensor | None = None
    finite: Tensor | None = None
    best: Tensor | None = None

    @property
    def argmax(self) -> Tensor:
        """[B, T] the point masses."""
        assert self.top is not None
        return self.top

    def at(self, index: Tensor) -> Law:
        """The rows index [B, N] picks in each row of the batch."""
        b = torch.arange(index.shape[0], device=index.device)[:, None]
        pick = lambda x: None if x is None else x[b, index]  # noqa: E731
        return Law(*map(pick, (self.probs, self.top, self.confidence, self.finite, self.best)))


class LevelSampling:
    """The settings of all rows on one level, as tensors.

    Attributes:
        best: how many of the likeliest outputs a law is to name; 0: none.
    """

    def __init__(self, rows: Sequence[Sampling], device: torch.device, confidence: bool = False) -> None:
        def column(name: str, dtype: torch.dtype) -> Tensor:
            return torch.tensor([getattr(r, name) for r in rows], dtype=dtype, device=device)[:, None, None]

        temperature = column("temperature", torch.float64)
        self.greedy = temperature == 0  # [B, 1, 1]
        self.temperature = torch.where(self.greedy, torch.ones_like(temperature), temperature)
        self.top_k, self.top_p, self.min_p = (
            column("top_k", torch.int64),
            column("top_p", torch.float64),
            column("min_p", torch.float64),
        )
        self.all_greedy = all(r.temperature == 0 for r in rows)
        self.any_greedy = any(r.temperature == 0 for r in rows)
        self.tempered = any(r.temperature not in (0, 1) for r in rows)
        self.any_top_k = any(r.top_k > 0 for r in rows)
        self.any_top_p = any(r.top_p < 1 for r in rows)
        self.any_min_p = any(r.min_p > 0 for r in rows)
        self.confidence = confidence
        self.best = 0


def law(logits: Tensor, settings: LevelSampling) -> Law:
    """Law of logits [B, T, V]; 16-bit logits are taken to float32 first."""
    sure = best = None
    if settings.confidence:
        wide = _wide(logits)
        sure = (wide.amax(-1) - wide.logsumexp(-1)).exp()
    if settings.best:
        best = logits.topk(min(settings.best, logits.shape[-1])).indices
    if settings.all_greedy:
        top = argmax(logits)  # a NaN counts as the largest
        return Law(None, top, sure, logits.gather(-1, top[..., None]).squeeze(-1).isfinite(), best)
    scores = _wide(logits)
    if settings.tempered:
        # Taking the maximum off first keeps the quotient from overflowing at temperatures near 0.
        heat = settings.temperature.to(scores.dtype).clamp(min=torch.finfo(scores.dtype).tiny)
        scores = (scores - scores.amax(-1, keepdim=True)) / heat
    scores = _filtered(scores, settings)
    probs = scores.softmax(-1)
    finite = probs[..., 0].isfinite()  # one bad logit makes every probability of its row a NaN
    if settings.any_greedy:
        one_hot = torch.zeros_like(probs).scatter_(-1, argmax(logits)[..., None], 1.0)
        probs = torch.where(settings.greedy, one_hot, probs)
    return Law(probs, None, sure, finite, best)


def argmax(logits: Tensor) -> Tensor:
    """Ids [B, T] of the largest logits, the lowest id on ties.

    On a CPU numpy's vectorised search takes a twentieth of torch's time for 49,152 bfloat16 entries.
    """
    if logits.device.type == "cpu":
        return torch.from_numpy(_wide(logits).numpy().argmax(-1))
    return logits.argmax(-1)


def _wide(logits: Tensor) -> Tensor:
    return logits if logits.dtype == torch.float64 else logits.float()


def _filtered(scores: Tensor, settings: LevelSampling) -> Tensor:
    """Scores with filtered-out entries at -inf; order and rules as in transformers."""
    minus_inf = float("-inf")
    if settings.any_top_k:
        vocab = scores.shape[-1]
        k = torch.where(settings.top_k > 0, settings.top_k.clamp(max=vocab), torch.full_like(settings.top_k, vocab))
        kth = scores.sort(-1, descending=True).values.gather(-1, (k - 1).expand(*scores.shape[:2], 1))
        scores = scores.masked_fill(scores < kth, minus_inf)
    if settings.any_top_p:
        ascending, order = scores.sort(dim=-1, stable=True)
        drop = ascending.softmax(-1).cumsum(-1) <= (1 - settings.top_p).to(scores.dtype)
        drop[..., -1] = False
        drop &= settings.top_p < 1
        scores = scores.masked_fill(torch.zeros_like(drop).scatter_(-1, order, drop), minus_inf)
    if settings.any_min_p:
        probs = scores.softmax(-1)
        scores = scores.masked_fill(probs < settings.min_p.to(probs.dtype) * probs.amax(-1, keepdim=True), minus_inf)
    return scores


def draw(weights: Tensor, u: Tensor) -> Tensor:
    """Ids [B] drawn from weights [B, V] >= 0 (any positive total) with uniforms u [B].

    Inverse of the cumulative sum in float64: the first id whose cumulative weight exceeds
    u * total, so an id of weight zero is never drawn, u = 0 included.
    """
    cumulative = weights.to(torch.float64).cumsum(-1)
    total = cumulative[:, -1:]
    # u * total can round up to total; the largest number below it still belongs to the last id.
    point = torch.minimum(u[:, None] * total, torch.nextafter(total, torch.zeros_like(total)))
    # A row that sits out may hold what is no number; its draw is not used, but has to be an id.
    return torch.searchsorted(cumulative, point, right=True).squeeze(-1).clamp(max=weights.shape[-1] - 1)

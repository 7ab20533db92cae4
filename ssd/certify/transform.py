"""The randomised probability integral transform: one uniform per token if the token has its law.

With the vocabulary in any order that the prefix fixes, U = P(an earlier token) + V P(this token), V uniform, is
uniform on [0, 1] given the prefix. Uniforms of different positions, prefixes and texts are then independent, so
they pool into one test; the order decides what it sees best. Ordered by target / draft, mass that leaks from the
draft's law gathers at the low end (the likelihood ratio, Neyman and Pearson).
"""

from __future__ import annotations

import torch
from torch import Tensor


def uniforms(law: Tensor, order: Tensor, tokens: Tensor, v: Tensor) -> Tensor:
    """One uniform [...] a token if it has its law.

    Args:
        law: [..., V] float64, the law each token should have.
        order: [..., V] what the vocabulary is sorted by, ascending; equal entries count as one.
        tokens: [...] what was drawn.
        v: [...] uniforms of their own.
    """
    own = order.gather(-1, tokens[..., None])  # [..., 1]
    before = (law * (order < own)).sum(-1)
    here = (law * (order == own)).sum(-1)
    return (before + v * here).clamp(0.0, 1.0)


def by_ratio(law: Tensor, draft: Tensor) -> Tensor:
    """The order [..., V] by target / draft; tokens the draft never proposes come last."""
    return torch.where(draft > 0, law / draft, torch.where(law > 0, torch.inf, -torch.inf))

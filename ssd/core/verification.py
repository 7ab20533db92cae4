"""Which draft tokens the verifying level keeps, and the token it adds.

By token (Leviathan et al. 2023, arXiv 2211.17192, Algorithm 1): accept draft token i with
probability min(1, target / draft); at the first rejection draw from max(0, target - draft),
normalised; when all pass, draw the bonus token from the next row. The acceptance test is strict,
u * draft < target, so a token of target probability zero fails it even at u = 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ssd.core.sampling import Law, draw


@dataclass(frozen=True)
class Draft:
    """A block of tokens and the drafting level's own law at each of them.

    Attributes:
        tokens: [B, W] ids of the target's vocabulary.
        probs: [B, W, V_draft] the law each token was drawn from, over the drafting level's output
            ids; ``None`` when every law is a point mass at its token (greedy rows, n-grams).
        count: [B] how many of the W belong to the row.
        best: [B, W, n] the drafting level's likeliest output ids at each token, when asked for.
    """

    tokens: Tensor
    probs: Tensor | None
    count: Tensor
    best: Tensor | None = None


@dataclass(frozen=True)
class Emitted:
    """Outcome of a round.

    Attributes:
        tokens: [B, W + 1] ids of the target's vocabulary; the first ``count`` are emitted.
        count: [B] emitted tokens.
        accepted: [B] draft tokens kept.
        full: [B] bool, everything that was handed over was accepted.
        law: the verifying level's rows [B, W + 1, ...]; row i is the law at token i.
        overlap: [B, W] sum of min(target, draft) at each draft token; ``None`` without a draft.
    """

    tokens: Tensor
    count: Tensor
    accepted: Tensor
    full: Tensor
    law: Law
    overlap: Tensor | None


@dataclass(frozen=True)
class Ids:
    """How a drafting level's output ids and a verifier's relate to the target's and each other's.

    Attributes:
        draft_of_target: [V_target] output id of the drafting level, -1 where it has none;
            ``None``: the same ids.
        verifier_of_target: the same for the verifying level.
        target_of_verifier: [V_verifier]; ``None``: the same ids.
        verifier_of_draft: [V_draft], -1 where the verifier lacks the id; ``None``: the same ids.
    """

    draft_of_target: Tensor | None = None
    verifier_of_target: Tensor | None = None
    target_of_verifier: Tensor | None = None
    verifier_of_draft: Tensor | None = None


def verify_by_token(
    draft: Draft, law: Law, ids: Ids, accept_u: Callable[[int], Tensor], draw_u: Callable[[Tensor], Tensor]
) -> Emitted:
    """Run the acceptance test and add the recovered or bonus token.

    Args:
        draft: W drafted tokens a row (``count`` of them real).
        law: the verifying level's rows [B, W + 1, ...] over its own output ids.
        accept_u: maps W to uniforms [B, W] for the tests; not called when everything is a point mass.
        draw_u: maps accepted [B] to uniforms [B] for the added token; likewise.
    """
    width = draft.tokens.shape[1]
    real = torch.arange(width, device=draft.tokens.device) < draft.count[:, None]  # [B, W]
    own = translate(draft.tokens, ids.verifier_of_target)  # [B, W], -1 where the verifier lacks it
    if law.probs is None:
        match = own == law.argmax[:, :width]
        overlap = match.to(torch.float32) if draft.probs is None else share_at(draft.probs, law.argmax[:, :width], ids)
        accepted = leading(match & real)
        added = law.argmax.gather(1, accepted[:, None]).squeeze(1)
    else:
        target_prob = take(law.probs[:, :width], own)  # [B, W]
        if draft.probs is None:
            draft_prob = torch.ones_like(target_prob)
            overlap = target_prob
        else:
            draft_prob = take(draft.probs, translate(draft.tokens, ids.draft_of_target))
            overlap = overlaps(draft.probs, law.probs[:, :width], ids.verifier_of_draft)
        passed = accept_u(width) * draft_prob < target_prob
        accepted = leading(passed & real)
        added = draw(owed(draft, law.probs, ids, own, accepted), draw_u(accepted))
    return outcome(draft, law, ids, accepted, added, overlap)


def outcome(draft: Draft, law: Law, ids: Ids, accepted: Tensor, added: Tensor, overlap: Tensor) -> Emitted:
    """``accepted`` [B] draft tokens and behind them ``added`` [B], an output id of the verifier."""
    tokens = torch.cat([draft.tokens, draft.tokens[:, :1]], dim=1)
    tokens = tokens.scatter(1, accepted[:, None], translate(added, ids.target_of_verifier)[:, None])
    return Emitted(tokens, accepted + 1, accepted, accepted == draft.count, law, overlap)


def owed(draft: Draft, probs: Tensor, ids: Ids, own: Tensor, accepted: Tensor) -> Tensor:
    """Weights [B, V] float64 of the added token: the residual, or the bonus row if all passed.

    Where target and draft agree to rounding the residual vanishes; a rejection then has
    probability zero, and the row falls back to the target's own law.
    """
    rows = torch.arange(accepted.shape[0], device=accepted.device)
    target = probs[rows, accepted].double()  # [B, V]
    return left_of(target, target, draft, ids, own, accepted)


def left_of(scaled: Tensor, target: Tensor, draft: Draft, ids: Ids, own: Tensor, accepted: Tensor) -> Tensor:
    """max(0, scaled - draft) [B, V] behind ``accepted`` kept tokens; ``target`` if all were kept or nothing is left."""
    rows = torch.arange(accepted.shape[0], device=accepted.device)
    at = accepted.clamp(max=own.shape[1] - 1)
    if draft.probs is None:
        token = own[rows, at]
        residual = torch.where((token >= 0)[:, None], scaled.scatter(1, token.clamp(min=0)[:, None], 0.0), scaled)
    else:
        residual = (scaled - spread(draft.probs[rows, at].double(), scaled, ids.verifier_of_draft)).clamp(min=0)
    rejected = (accepted < draft.count) & (residual.sum(-1) > 0)
    return torch.where(rejected[:, None], residual, target)


def overlaps(draft_probs: Tensor, target_probs: Tensor, verifier_of_draft: Tensor | None) -> Tensor:
    """Sum over the vocabulary of min(target, draft), [B, W]; rounding takes none above 1."""
    return torch.minimum(draft_probs, shared(target_probs, verifier_of_draft)).sum(-1).clamp(max=1)


def shared(target_probs: Tensor, verifier_of_draft: Tensor | None) -> Tensor:
    """A verifier's laws [..., V] over the draft's output ids, 0 where it lacks one."""
    if verifier_of_draft is None:
        return target_probs
    return target_probs[..., verifier_of_draft.clamp(min=0)].masked_fill(verifier_of_draft < 0, 0)


def share_at(draft_probs: Tensor, verifier_token: Tensor, ids: Ids) -> Tensor:
    """The draft's probability [B, W] of the one token each of the verifier's point masses allows."""
    return take(draft_probs, translate(translate(verifier_token, ids.target_of_verifier), ids.draft_of_target))


def spread(draft_row: Tensor, like: Tensor, verifier_of_draft: Tensor | None) -> Tensor:
    """A draft law [B, V_draft] over the verifier's output ids [B, V]; ids it lacks are left out."""
    if verifier_of_draft is None:
        return draft_row
    kept = draft_row.masked_fill(verifier_of_draft < 0, 0)
    index = verifier_of_draft.clamp(min=0).expand_as(kept)
    return torch.zeros_like(like).scatter_add_(1, index, kept)


def translate(tokens: Tensor, table: Tensor | None) -> Tensor:
    """Another level's ids for the same tokens, -1 where there is none."""
    return tokens if table is None else table[tokens]


def take(probs: Tensor, index: Tensor) -> Tensor:
    """probs[b, w, index[b, w]], and 0 where the index is -1."""
    picked = probs.gather(2, index.clamp(min=0)[..., None]).squeeze(-1)
    return picked.masked_fill(index < 0, 0)


def leading(passed: Tensor) -> Tensor:
    """Number [B] of true entries before the first false one."""
    return passed.long().cumprod(1).sum(1)

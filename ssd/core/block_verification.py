"""Verification of a whole block at once, which accepts more than token by token.

Sun et al. 2024 (arXiv 2403.10444), Algorithm 2. With r_i = target / draft at draft token i, the weight
p_i = min(1, p_{i-1} r_i), p_0 = 1, is how likely the first i tokens are to be kept as far as they go.
The longest prefix whose own test passes is kept; the token added owes what that prefix left over,
max(0, p_i target - draft), normalised. A block is exact as a whole, not position by position.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ssd.core.sampling import Law, draw
from ssd.core.verification import (
    Draft,
    Emitted,
    Ids,
    left_of,
    outcome,
    overlaps,
    shared,
    take,
    translate,
    verify_by_token,
)


def verify_by_block(
    draft: Draft, law: Law, ids: Ids, accept_u: Callable[[int], Tensor], draw_u: Callable[[Tensor], Tensor]
) -> Emitted:
    """Keep the longest passing prefix and add a token; arguments as in ``verify_by_token``.

    Between point masses the two rules are the same, and the other one runs.
    """
    if law.probs is None:
        return verify_by_token(draft, law, ids, accept_u, draw_u)
    width = draft.tokens.shape[1]
    own = translate(draft.tokens, ids.verifier_of_target)  # [B, W]
    target = take(law.probs[:, :width], own).double()
    if draft.probs is None:
        drawn, overlap = torch.ones_like(target), target.to(law.probs.dtype)
    else:
        drawn = take(draft.probs, translate(draft.tokens, ids.draft_of_target)).double()
        overlap = overlaps(draft.probs, law.probs[:, :width], ids.verifier_of_draft)
    weight = weights(target / drawn)  # [B, W + 1]
    keep = pass_probability(weight, left_over(draft, law, ids, own, weight[:, :width]), draft.count)
    places = torch.arange(1, width + 1, device=own.device)
    passed = (accept_u(width) < keep) & (places <= draft.count[:, None])
    accepted = torch.where(passed, places, 0).amax(1)
    added = draw(owed(draft, law.probs, ids, own, weight, accepted), draw_u(accepted))
    return outcome(draft, law, ids, accepted, added, overlap)


def weights(ratio: Tensor) -> Tensor:
    """p_0 .. p_W [B, W + 1] from target / draft at each draft token [B, W]."""
    columns = [torch.ones_like(ratio[:, 0])]
    for i in range(ratio.shape[1]):
        columns.append((columns[-1] * ratio[:, i]).clamp(max=1.0))
    return torch.stack(columns, dim=1)


def left_over(draft: Draft, law: Law, ids: Ids, own: Tensor, weight: Tensor) -> Tensor:
    """Mass [B, W] of max(0, p_i target - draft) at the position after i = 0 .. W - 1 kept tokens."""
    assert law.probs is not None
    width = own.shape[1]
    if draft.probs is None:  # all the draft's mass sits on one token, which then owes nothing
        return weight * (1 - take(law.probs[:, :width], own).double())
    table = ids.verifier_of_draft
    rows = law.probs[:, :width].double()
    known = shared(rows, table)
    both = (weight[..., None] * known - draft.probs.double()).clamp(min=0).sum(-1)
    alone = 0.0 if table is None else weight * (rows.sum(-1) - known.sum(-1)).clamp(min=0)
    return both + alone


def pass_probability(weight: Tensor, left: Tensor, count: Tensor) -> Tensor:
    """Probability [B, W] that the test of the prefix of 1 .. W tokens passes.

    For a prefix shorter than the draft it is s / (s + 1 - p), with s what the next position would leave
    over; for the whole draft it is its weight p.
    """
    prefix = weight[:, 1:]
    following = torch.cat([left[:, 1:], torch.zeros_like(left[:, :1])], dim=1)
    total = following + 1 - prefix
    inner = torch.where(total > 0, following / total, torch.ones_like(total))
    whole = torch.arange(1, prefix.shape[1] + 1, device=count.device) == count[:, None]
    return torch.where(whole, prefix, inner)


def owed(draft: Draft, probs: Tensor, ids: Ids, own: Tensor, weight: Tensor, accepted: Tensor) -> Tensor:
    """Weights [B, V] float64 of the added token after ``accepted`` [B] kept ones."""
    rows = torch.arange(accepted.shape[0], device=accepted.device)
    target = probs[rows, accepted].double()  # [B, V]
    return left_of(weight[rows, accepted][:, None] * target, target, draft, ids, own, accepted)

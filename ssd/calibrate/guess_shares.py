"""How often the next token of a round is among its draft's best guesses, along the target's texts.

Working ahead means guessing the token that a verification will add. After a rejection the guesses are the draft's
most likely tokens but the one that was rejected, and the token is drawn from the residual max(0, verifier - draft);
after a draft that passed whole they are its most likely tokens, and the token is drawn from the verifier. Both
chances follow from the two laws at a position, so that nothing is sampled.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import torch
from torch import Tensor

from ssd.calibrate.contexts import Context
from ssd.calibrate.overlap_grid import CHUNK, laws_device, level_rows, scored_chunks, whole_law
from ssd.core.chain import Chain
from ssd.core.requests import Sampling
from ssd.core.sampling import LevelSampling
from ssd.core.verification import shared

Shares = dict[tuple[int, int], tuple[list[float], list[float]]]
GUESSES = 8  # best guesses that are told apart


@torch.inference_mode()
def guess_shares(
    chain: Chain, contexts: Sequence[Context], sampling: Sampling, guesses: int = GUESSES, chunk: int = CHUNK
) -> Shares:
    """By (draft, verifier): shares of next tokens among the 1, 2, .. ``guesses`` best guesses, recovered and bonus.

    A position counts as a rejection with the chance that a draft token fails there, and as the place of a bonus token
    with the chance that the token before it passed. A share is 0 where no position counts.

    Args:
        chain: of models only; every level at its own settings.
        contexts: texts of the target.
        sampling: of the row.
    """
    settings = [LevelSampling([row], laws_device(chain)) for row in level_rows(chain, sampling)]
    pairs = list(combinations(range(len(chain.levels)), 2))
    recovered, bonus = ({pair: torch.zeros(guesses + 1, dtype=torch.float64) for pair in pairs} for _ in range(2))
    for context in contexts:
        before = dict.fromkeys(pairs, 0.0)  # chance that the token before the chunk passed
        for _, logits in scored_chunks(chain, context, chunk):
            laws = [whole_law(x, own) for x, own in zip(logits, settings, strict=True)]
            for a, b in pairs:
                table = chain.ids_between(a, b)
                verifier = shared(laws[b], None if table is None else table.to(laws[b].device)).double()
                draft = laws[a].double()
                passed = torch.minimum(draft, verifier).sum(-1).clamp(max=1)
                best = logits[a].topk(min(guesses + 1, logits[a].shape[-1]), -1).indices
                follows = torch.cat([passed.new_tensor([before[a, b]]), passed[:-1]])
                recovered[a, b] += _after_rejection(draft, verifier, best, guesses)
                bonus[a, b] += _after_acceptance(verifier, follows, best, guesses)
                before[a, b] = float(passed[-1])
    return {pair: (_share(recovered[pair]), _share(bonus[pair])) for pair in pairs}


def _after_acceptance(verifier: Tensor, follows: Tensor, best: Tensor, guesses: int) -> Tensor:
    """[guesses + 1] chances of 1, 2, .. guesses added up over positions weighted by ``follows`` [T]; then the weights.

    ``verifier`` [T, V] over the draft's outputs; ``best`` [T, n] their ids, the draft's most likely first.
    """
    found = _first(verifier.gather(-1, best).cumsum(-1), guesses)
    return torch.cat([(follows[:, None] * found).sum(0), follows.sum()[None]]).cpu()


def _after_rejection(draft: Tensor, verifier: Tensor, best: Tensor, guesses: int) -> Tensor:
    """The same after a rejection, whose token is no guess: it makes room for one guess more if it was among them.

    A token x is rejected with the chance max(0, draft - verifier) at x, and independently of x the next token is y with
    a chance in proportion to max(0, verifier - draft) at y.
    """
    lost = (draft - verifier).clamp(min=0)
    failed = lost.sum(-1)  # [T] chance of a rejection
    # What the verifier has outside the draft's outputs is also residual: in all it is as much as the draft loses.
    residual = (verifier - draft).clamp(min=0).gather(-1, best) / failed.clamp(min=1e-12)[:, None]
    rejected = lost.gather(-1, best)
    among, hit = _first(rejected.cumsum(-1), guesses), _first(residual.cumsum(-1), guesses)
    one_more = torch.nn.functional.pad(residual, (0, max(0, guesses + 1 - residual.shape[-1])))[:, 1 : guesses + 1]
    found = failed[:, None] * hit + among * one_more
    return torch.cat([found.sum(0), failed.sum()[None]]).cpu()


def _first(rows: Tensor, guesses: int) -> Tensor:
    """[T, guesses] of cumulative sums, the last one repeated where there are fewer."""
    missing = guesses - rows.shape[-1]
    return rows[:, :guesses] if missing <= 0 else torch.cat([rows, rows[:, -1:].expand(-1, missing)], -1)


def _share(sums: Tensor) -> list[float]:
    """Chances divided by the weights, rising and at most 1 also where rounding says otherwise."""
    if sums[-1] <= 0:
        return [0.0] * (len(sums) - 1)
    rising: list[float] = (sums[:-1] / sums[-1]).clamp(0, 1).cummax(0).values.tolist()
    return rising

"""Overlap of two levels' laws along given sequences, scored by the engine's own passes and rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ssd.core.chain import Chain, Scorer
from ssd.core.requests import Sampling
from ssd.core.sampling import Law, LevelSampling, law
from ssd.core.verification import overlaps, translate

CHUNK = 64  # positions a pass; bounds the memory of full-vocabulary rows


@dataclass(frozen=True)
class Overlap:
    """Mean over positions of sum over the vocabulary of min(target, draft).

    Attributes:
        stderr: standard error of the mean over sequences.
        n: positions.
    """

    value: float
    stderr: float
    n: int


@torch.inference_mode()
def teacher_forced(
    chain: Chain,
    sequences: Tensor | Sequence[Tensor],
    pairs: Sequence[tuple[int, int]],
    temperatures: Sequence[float],
    rows: int | None = None,
) -> dict[tuple[int, int, float], Overlap]:
    """Overlaps by (draft level, verifying level, temperature) over positions of ``sequences``, N of T tokens each.

    Row t of a pass predicts token t + 1, so T positions of a sequence give T rows. Pairs are of
    neighbouring levels of ``chain``, or any two levels that emit over the same or the target's ids.

    Args:
        rows: count the last ``rows`` of each sequence, whatever its length, and not those before; ``None``
            counts all of them, of sequences of one length.
    """
    length = len(sequences[0]) if rows is None else rows
    if any(len(s) < length if rows else len(s) != length for s in sequences):
        raise ValueError(f"sequences: of {sorted({len(s) for s in sequences})} tokens, {length} of each wanted")
    settings = {t: LevelSampling([Sampling(t)], torch.device("cpu")) for t in temperatures}
    sums = {(a, b, t): torch.zeros(len(sequences), dtype=torch.float64) for a, b in pairs for t in temperatures}
    levels = [chain.scorer(k) for k in range(len(chain.levels))]
    for n, sequence in enumerate(sequences):
        for level in levels:
            level.allocate(1, len(sequence))
        for start in range(0, len(sequence), CHUNK):
            tokens = sequence[None, start : start + CHUNK]
            skipped = max(0, len(sequence) - length - start)
            logits = [own_logits(chain, k, tokens, start).cpu()[:, skipped:] for k in range(len(levels))]
            if not logits[0].shape[1]:
                continue
            for t, setting in settings.items():
                laws = [law(x, setting) for x in logits]
                for a, b in pairs:
                    sums[a, b, t][n] += float(_sum(chain, laws, a, b).double().sum())
    return {key: _mean(total / length, total.numel() * length) for key, total in sums.items()}


def own_logits(chain: Chain, k: int, tokens: Tensor, start: int) -> Tensor:
    """[1, T, V] logits of level k after each of ``tokens`` [1, T] at ``start`` onwards, on the level's device.

    Over the outputs the target knows, in ascending order of target id.
    """
    level, order = chain.scorer(k), chain.output_order(k)
    start_at = torch.tensor([start], device=level.device)
    logits = level.score(fed_tokens(level, tokens), start_at, tokens.shape[1])
    return logits[..., : chain.output_size(k)] if order is None else logits[..., order.to(logits.device)]


def fed_tokens(level: Scorer, tokens: Tensor) -> Tensor:
    """Tokens as the decoder feeds them to a level: on its device, ids that it cannot embed as 0."""
    return tokens.masked_fill(tokens >= level.embeddings, 0).to(level.device)


def _sum(chain: Chain, laws: Sequence[Law], a: int, b: int) -> Tensor:
    """Overlap of level a's law with level b's at every row."""
    between = chain.ids_between(a, b)
    draft, target = laws[a], laws[b]
    if draft.probs is None or target.probs is None:
        return torch.eq(translate(draft.argmax, between), target.argmax)
    return overlaps(draft.probs, target.probs, between)


def _mean(per_sequence: Tensor, n: int) -> Overlap:
    spread = float(per_sequence.std()) / len(per_sequence) ** 0.5 if len(per_sequence) > 1 else float("nan")
    return Overlap(float(per_sequence.mean()), spread, n)

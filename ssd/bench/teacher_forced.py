"""Overlap of two levels' laws along given sequences, scored by the engine's own passes and rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ssd.core.chain import Chain
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
    chain: Chain, sequences: Tensor, pairs: Sequence[tuple[int, int]], temperatures: Sequence[float]
) -> dict[tuple[int, int, float], Overlap]:
    """Overlaps by (draft level, verifying level, temperature) over all positions of ``sequences`` [N, T].

    Row t of a pass predicts token t + 1, so T positions of a sequence give T rows. Pairs are of
    neighbouring levels of ``chain``, or any two levels that emit over the same or the target's ids.
    """
    settings = {t: LevelSampling([Sampling(t)], torch.device("cpu")) for t in temperatures}
    sums = {(a, b, t): torch.zeros(len(sequences), dtype=torch.float64) for a, b in pairs for t in temperatures}
    levels = [chain.scorer(k) for k in range(len(chain.levels))]
    for n, sequence in enumerate(sequences):
        for level in levels:
            level.allocate(1, len(sequence))
        for start in range(0, len(sequence), CHUNK):
            tokens = sequence[None, start : start + CHUNK]
            logits = [level.score(tokens, torch.tensor([start]), tokens.shape[1]) for level in levels]
            for t, setting in settings.items():
                laws = [law(x, setting) for x in logits]
                for a, b in pairs:
                    sums[a, b, t][n] += float(_sum(chain, laws, a, b).double().sum())
    length = sequences.shape[1]
    return {key: _mean(total / length, total.numel() * length) for key, total in sums.items()}


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

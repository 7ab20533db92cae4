"""Where a greedy output leaves AR's: a rounding tie, or a structural difference (a fault).

Scoring a block and scoring one token use different kernels, so equal mathematics gives logits that
differ by rounding. The largest such difference, epsilon, is measured on AR's own outputs; two
outputs part by a tie iff AR's logits of the two tokens are within 2 epsilon of each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ssd.core.chain import Scorer

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Parting:
    """The first difference between a method's output and AR's.

    Attributes:
        position: index into the output.
        ours, theirs: the two token ids, -1 where an output ended.
        gap: AR's logit of its own token minus that of ours, one token a pass; ``None`` at an end.
        epsilon: largest |logit(block) - logit(one token)| over AR's outputs.
        block_gap: ``gap`` by logits of blocks.
        top_two: largest logit minus the second largest, one token a pass; ``block_top_two``: of blocks.
    """

    prompt_id: str
    method: str
    position: int
    ours: int
    theirs: int
    gap: float | None
    epsilon: float
    block_gap: float | None = None
    top_two: float | None = None
    block_top_two: float | None = None

    @property
    def is_tie(self) -> bool:
        """Whether rounding explains it."""
        return self.gap is not None and abs(self.gap) <= 2 * self.epsilon


class Rescorer:
    """AR's logits on its own outputs, one token a pass and in blocks.

    Args:
        target: the model that made the outputs, in the same dtype.
        width: tokens of a block, the widest verification of the methods compared.
    """

    def __init__(self, target: Scorer, width: int) -> None:
        self.target, self.width = target, width

    @torch.inference_mode()
    def logits(self, prompt: Sequence[int], output: Sequence[int], width: int) -> Tensor:
        """[len(output), V] float32 rows that predict ``output``, fed ``width`` tokens a pass."""
        text = [*prompt, *output[:-1]]
        model, first = self.target, len(prompt) - 1
        model.allocate(1, len(text))
        model.owner = self
        if first:
            model.fill(self._tensor([text[:first]]), self._tensor([0]))
        rows = []
        for start in range(first, len(text), width):
            block = text[start : start + width]
            rows.append(model.score(self._tensor([block]), self._tensor([start]), len(block))[0].float())
        return torch.cat(rows)

    def _tensor(self, values: Any) -> Tensor:
        return torch.tensor(values, device=self.target.device)

    def epsilon(self, prompt: Sequence[int], output: Sequence[int]) -> float:
        """Largest difference between block and one-token logits on one output."""
        return float((self.logits(prompt, output, self.width) - self.logits(prompt, output, 1)).abs().max())


def row_noise(parting: Parting, prompt: Sequence[int], theirs: Sequence[int], rescorer: Rescorer) -> float:
    """Largest change of ``parting.gap`` between passes of one token and blocks of 2 to ``width`` tokens.

    At least what rounding the two logits to the target's dtype can change. Unlike epsilon it is of this row and
    these two tokens alone, so it tells ties that the largest noise of all ids and positions would excuse.

    Args:
        parting: where both outputs have a token.
        prompt: prompt ids.
        theirs: AR's output.
    """
    at = parting.position
    rows = [rescorer.logits(prompt, theirs[: at + 1], width)[at] for width in range(1, rescorer.width + 1)]
    gaps = [_gaps(row, parting.theirs, parting.ours)[0] for row in rows]
    largest = float(rows[0][[parting.theirs, parting.ours]].abs().max())
    return max(torch.finfo(rescorer.target.dtype).eps * largest, *(abs(gap - gaps[0]) for gap in gaps))


def partings(
    records: Iterable[Record],
    baseline: Iterable[Record],
    prompts: Mapping[str, Sequence[int]],
    rescorer: Rescorer,
    epsilon: float | None = None,
) -> list[Parting]:
    """Every first difference between greedy ``records`` and AR's, with its verdict.

    Args:
        baseline: AR's records of the same prompts.
        prompts: prompt ids by ``prompt_id``.
        epsilon: where it has been measured already, as for a baseline other than AR.
    """
    theirs = {(r["prompt_id"], r["sample"]): r["output_ids"] for r in baseline}
    apart = [r for r in records if r["output_ids"] != theirs[r["prompt_id"], r["sample"]]]
    if not apart:
        return []
    if epsilon is None:
        epsilon = max(rescorer.epsilon(prompts[p], ids) for (p, _), ids in theirs.items() if ids)
    return [_parting(r, theirs[r["prompt_id"], r["sample"]], prompts[r["prompt_id"]], rescorer, epsilon) for r in apart]


def _parting(
    record: Record, theirs: Sequence[int], prompt: Sequence[int], rescorer: Rescorer, epsilon: float
) -> Parting:
    ours = record["output_ids"]
    shared = min(len(ours), len(theirs))
    at = next((i for i in range(shared) if ours[i] != theirs[i]), shared)
    a, b = (x[at] if at < len(x) else -1 for x in (ours, theirs))
    told = record["prompt_id"], record["method"], at, a, b
    if at == shared:
        return Parting(*told, None, epsilon)
    step, block = (rescorer.logits(prompt, theirs[: at + 1], width)[at] for width in (1, rescorer.width))
    (gap, top_two), (block_gap, block_top_two) = _gaps(step, b, a), _gaps(block, b, a)
    return Parting(*told, gap, epsilon, block_gap, top_two, block_top_two)


def _gaps(row: Tensor, theirs: int, ours: int) -> tuple[float, float]:
    """Logit of one token minus that of another, and the largest minus the second largest."""
    best = row.topk(2).values
    return float(row[theirs] - row[ours]), float(best[0] - best[1])

"""How long a pass takes: a short paired profile of models over widths, in alternation."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence

import torch

from ssd.core.model import CachedModel

CONTEXT = 128  # tokens before the timed pass


def pass_seconds(
    models: Mapping[str, CachedModel], widths: Sequence[int], repeats: int = 15, context: int = CONTEXT
) -> dict[tuple[str, int], float]:
    """Median seconds of one pass per model and width, batch 1, after ``context`` tokens.

    Models take turns within a repeat, so that a drift of the machine falls on all of them alike; two
    untimed rounds come first. A pass on a CUDA device is synchronised before the clock is read.
    """
    tokens = {
        n: torch.randint(0, m.embeddings, (1, context + max(widths)), generator=_generator()) for n, m in models.items()
    }
    for name, model in models.items():
        model.allocate(1, context + max(widths))
        model.owner = pass_seconds
        model.fill(tokens[name][:, :context].to(model.device), torch.zeros(1, dtype=torch.int64, device=model.device))
    seen: dict[tuple[str, int], list[float]] = {(n, w): [] for n in models for w in widths}
    for turn in range(repeats + 2):
        for (name, width), times in seen.items():
            spent = _one(models[name], tokens[name][:, context : context + width], context)
            if turn >= 2:
                times.append(spent)
    return {key: statistics.median(times) for key, times in seen.items()}


def _one(model: CachedModel, block: torch.Tensor, start: int) -> float:
    block, at = block.to(model.device), torch.tensor([start], device=model.device)
    began = time.perf_counter()
    model.score(block, at, block.shape[1])
    if model.device.type == "cuda":
        torch.cuda.synchronize(model.device)
    return time.perf_counter() - began


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)

"""Seconds of a pass of every level over width and batch: the measured part of a plan's profile."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch

from ssd.core.model import CachedModel
from ssd.core.ngram import Ngram

UNTIMED = 2  # first rounds of every batch size, which warm up


@dataclass(frozen=True)
class PassCell:
    """Timed passes of one level at one width and batch.

    Attributes:
        seconds: median.
        low, high: quartiles.
        n: timed passes.
    """

    width: int
    batch: int
    seconds: float
    low: float
    high: float
    n: int

    @staticmethod
    def of(width: int, batch: int, times: Sequence[float]) -> PassCell:
        """Median and quartiles of ``times``."""
        ordered = sorted(times)
        quarter = len(ordered) // 4
        return PassCell(width, batch, statistics.median(ordered), ordered[quarter], ordered[-1 - quarter], len(ordered))


def pass_grid(
    models: Mapping[str, CachedModel], widths: Sequence[int], batches: Sequence[int], repeats: int, context: int
) -> dict[str, list[PassCell]]:
    """Every model at every width and batch, after ``context`` tokens in each row.

    Within a batch size models and widths take turns, so that a drift of the machine falls on all of them
    alike; two untimed rounds come first. Passes on a CUDA device are synchronised before the clock is read.
    Logits of all tokens of a pass are computed, as in a verification.

    Raises:
        ValueError: if context and widest pass exceed a model's position limit.
    """
    for name, model in models.items():
        if model.max_positions is not None and context + max(widths) > model.max_positions:
            raise ValueError(
                f"profile: {context} tokens and a pass of {max(widths)} exceed the position limit "
                f"{model.max_positions} of {name}"
            )
    found: dict[str, list[PassCell]] = {name: [] for name in models}
    for batch in batches:
        tokens = {name: _fill(model, batch, context, max(widths)) for name, model in models.items()}
        times: dict[tuple[str, int], list[float]] = {(n, w): [] for w in widths for n in models}
        for turn in range(repeats + UNTIMED):
            for (name, width), own in times.items():
                spent = _timed(models[name], tokens[name][:, :width], context)
                if turn >= UNTIMED:
                    own.append(spent)
        for (name, width), own in times.items():
            found[name].append(PassCell.of(width, batch, own))
    return found


def look_up_seconds(ngram: Ngram, texts: Iterable[Sequence[int]], gamma: int) -> float:
    """Median seconds of one look-up at the end of each text."""
    times = []
    for text in texts:
        began = time.perf_counter()
        ngram.look_up(text, gamma)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def _fill(model: CachedModel, batch: int, context: int, widest: int) -> torch.Tensor:
    """Cache ``context`` tokens in every row; [batch, widest] tokens to go on with."""
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, model.embeddings, (batch, context + widest), generator=generator).to(model.device)
    model.allocate(batch, context + widest)
    model.owner = pass_grid
    model.fill(tokens[:, :context], torch.zeros(batch, dtype=torch.int64, device=model.device))
    return tokens[:, context:]


def _timed(model: CachedModel, block: torch.Tensor, start: int) -> float:
    at = torch.full((len(block),), start, dtype=torch.int64, device=model.device)
    _synchronize(model.device)
    began = time.perf_counter()
    model.score(block, at, block.shape[1])
    _synchronize(model.device)
    return time.perf_counter() - began


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)

"""Overlaps at many temperatures from one teacher-forced pass per level, chunk by chunk.

Logits of a chunk of positions live while the chunk is worked on; what is kept is one number per cell,
prompt and bin. Every level reads the target's text. For the edge into the target that is where it drafts; for
lower edges it is an approximation, because their drafts are tested along what the level above has drafted
so far, which the target may go on to reject.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
import torch
from torch import Tensor

from ssd.bench.length_bins import bins_of
from ssd.bench.statistics import Array
from ssd.bench.teacher_forced import fed_tokens, own_logits
from ssd.calibrate.contexts import Context
from ssd.calibrate.overlap_table import Cell, OverlapTable, all_cells
from ssd.core.chain import Chain
from ssd.core.requests import Sampling
from ssd.core.sampling import LevelSampling, law
from ssd.core.verification import shared

CHUNK = 32  # positions whose logits and laws are held at once


@torch.inference_mode()
def overlap_grid(
    chain: Chain,
    contexts: Sequence[Context],
    sampling: Sampling,
    temperatures: Sequence[Sequence[float]],
    bounds: Sequence[int],
    chunk: int = CHUNK,
) -> OverlapTable:
    """Sum over the vocabulary of min(verifier, draft) at every new position, for all cells at once.

    Position t of a continuation is the law of its token t given the text before it. A text longer than a
    level can be fed is cut there, for all levels.

    Args:
        chain: every level is scored; its edges and the temperatures of its levels do not matter, their filters do.
        contexts: texts of the target.
        sampling: of the row; a level's own filters replace the row's on it, its temperature is replaced.
        temperatures: one list per level; 0 is argmax.
        bounds: first output position of each bin.
        chunk: positions a pass.

    Raises:
        ValueError: for a look-up, which has no temperature; for a number of lists that is not that of the
            levels; if no text is left.
    """
    check_levels(chain, temperatures)
    settings = [
        [LevelSampling([replace(row, temperature=t)], laws_device(chain)) for t in own]
        for row, own in zip(level_rows(chain, sampling), temperatures, strict=True)
    ]
    cells = all_cells(temperatures)
    rows = _Rows(contexts, bounds, cells)
    for context in contexts:
        for first, logits in scored_chunks(chain, context, chunk):
            laws = [[whole_law(x, s) for s in own] for x, own in zip(logits, settings, strict=True)]
            bins = rows.bins_at(first, logits[0].shape[0])
            rows.count(context, bins)
            for (a, b), ours, theirs in restricted(chain, laws):
                for s, p in zip(temperatures[a], ours, strict=True):
                    for t, q in zip(temperatures[b], theirs, strict=True):
                        rows.add(Cell(a, b, s, t), context, bins, torch.minimum(p, q).sum(-1))
    return rows.table()


def level_rows(chain: Chain, sampling: Sampling) -> list[Sampling]:
    """Each level's settings for a row with ``sampling``: a draft level's own replace the row's."""
    own = [sampling.overridden_by(level.sampling) for level in chain.levels[:-1]]
    return [*own, sampling]


def check_levels(chain: Chain, temperatures: Sequence[Sequence[float]]) -> None:
    """Raise ValueError unless every level is a model and has a list of temperatures."""
    for k, level in enumerate(chain.levels):
        if level.is_ngram:
            raise ValueError(f"chain.levels[{k}]: a look-up has no temperature to calibrate")
    if len(temperatures) != len(chain.levels) or not all(temperatures):
        raise ValueError(f"temperatures: {len(chain.levels)} levels need a list each, got {list(temperatures)!r}")


class _Rows:
    """Running sums per prompt."""

    def __init__(self, contexts: Sequence[Context], bounds: Sequence[int], cells: Sequence[Cell]) -> None:
        tasks = {c.prompt_id: c.task for c in contexts}
        self.index = {name: i for i, name in enumerate(tasks)}
        self.tasks, self.bounds = tuple(tasks.values()), tuple(bounds)
        shape = len(tasks), len(bins_of(bounds))
        self.counts: Array = np.zeros(shape)
        self.sums: dict[Cell, Array] = {cell: np.zeros(shape) for cell in cells}

    def bins_at(self, first: int, size: int) -> Array:
        """Bin of each of ``size`` output positions from ``first`` on, one-hot [size, bins]."""
        index = np.searchsorted(self.bounds, np.arange(first, first + size), side="right") - 1
        return np.asarray(np.eye(len(self.bounds))[index])

    def count(self, context: Context, bins: Array) -> None:
        """These positions are counted."""
        self.counts[self.index[context.prompt_id]] += bins.sum(0)

    def add(self, cell: Cell, context: Context, bins: Array, overlap: Tensor) -> None:
        """Overlaps [size] enter their bins."""
        self.sums[cell][self.index[context.prompt_id]] += overlap.double().cpu().numpy() @ bins

    def table(self) -> OverlapTable:
        """What was summed; ValueError if nothing was."""
        if not self.counts.sum():
            raise ValueError("contexts: no text has a position that every level can be fed")
        return OverlapTable(tuple(self.index), self.tasks, self.bounds, self.counts, self.sums)


def scored_chunks(chain: Chain, context: Context, size: int) -> Iterator[tuple[int, list[Tensor]]]:
    """(first output position, logits [T, V] of every level) of one text; levels advance together."""
    levels = range(len(chain.levels))
    limits = [n for k in levels if (n := chain.scorer(k).max_positions) is not None]
    fed = min([len(context.ids) - 1, *limits])  # the last token is predicted, never fed
    prompt = len(context.ids) - context.new
    tokens = torch.tensor(context.ids[:fed])[None]
    for k in levels if fed >= prompt else ():
        level = chain.scorer(k)
        level.allocate(1, fed)
        level.owner = context
        if prompt > 1:
            level.fill(fed_tokens(level, tokens[:, : prompt - 1]), torch.tensor([0], device=level.device))
    for start in range(prompt - 1, fed, size):
        block = tokens[:, start : start + size]
        yield start - (prompt - 1), [own_logits(chain, k, block, start)[0].to(laws_device(chain)) for k in levels]


def laws_device(chain: Chain) -> torch.device:
    """Where laws are compared: beside the target, whose rows are the widest."""
    return chain.scorer(chain.depth).device


def whole_law(logits: Tensor, settings: LevelSampling) -> Tensor:
    """[T, V] the engine's own law; a point mass is spread out so that every pair is compared alike."""
    found = law(logits[None], settings)
    if found.probs is not None:
        return found.probs[0]
    kind = torch.float64 if logits.dtype == torch.float64 else torch.float32
    return torch.zeros(logits.shape, dtype=kind, device=logits.device).scatter_(-1, found.argmax[0][:, None], 1.0)


def restricted(
    chain: Chain, laws: Sequence[Sequence[Tensor]]
) -> Iterator[tuple[tuple[int, int], list[Tensor], list[Tensor]]]:
    """Every pair of levels with both levels' laws over the draft's outputs; the verifier's are gathered once."""
    for a, b in combinations(range(len(laws)), 2):
        table = chain.ids_between(a, b)
        if table is None:
            yield (a, b), list(laws[a]), list(laws[b])
            continue
        table = table.to(laws_device(chain))
        yield (a, b), list(laws[a]), [shared(q, table) for q in laws[b]]

"""A short profile of a chain: passes per level and width, cost ratios and overlaps per edge."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from ssd.bench.profile import CONTEXT, pass_seconds
from ssd.bench.teacher_forced import Overlap, teacher_forced
from ssd.core.chain import Chain
from ssd.core.generate import generate
from ssd.core.model import CachedModel
from ssd.core.ngram import Ngram
from ssd.core.requests import Request, Sampling

TEMPERATURES = (0.0, 1.0)
REPEATS = (3, 31)  # least and most timed passes of each kind
UNTIMED = 2  # rounds that ``pass_seconds`` runs first


@dataclass(frozen=True)
class EdgeProfile:
    """What one edge offers.

    Attributes:
        cost_ratio: c, one-token pass of the draft / one-token pass of the verifier; ``None`` for a look-up.
        block_ratio: verifier's pass over gamma + 1 tokens / over one.
        overlap: alpha by temperature, every level at that temperature, along the target's text at it.
    """

    edge: int
    gamma: int
    cost_ratio: float | None
    block_ratio: float
    overlap: Mapping[float, Overlap]


@dataclass(frozen=True)
class ChainProfile:
    """Medians of timed passes at batch 1, and what they say of the edges.

    Attributes:
        seconds: by (level's number, width).
        repeats: timed passes behind each median.
        context: tokens before the timed pass.
    """

    seconds: Mapping[tuple[int, int], float]
    edges: tuple[EdgeProfile, ...]
    repeats: int
    context: int


def profile_chain(chain: Chain, prompts: Sequence[Sequence[int]], tokens: int, seconds: float) -> ChainProfile:
    """Time every level at widths 1, 2 and gamma + 1, and measure overlaps along the target's own text.

    Args:
        prompts: ids of the target; each is continued by the target alone, once at every temperature.
        tokens: of each continuation, end of text ignored.
        seconds: what the timed passes may take, at least three of each kind.
    """
    models = {str(k): x.model for k, x in enumerate(chain.levels) if isinstance(x.model, CachedModel)}
    widths = sorted({1, 2, *(e.gamma + 1 for e in chain.edges)})
    limits = [m.max_positions for m in models.values() if m.max_positions is not None]
    context = max(1, min([CONTEXT, *(limit - widths[-1] for limit in limits)]))
    once = sum(pass_seconds(models, widths, 1, context).values())
    repeats = round(min(max(seconds / max(once, 1e-9) - UNTIMED, REPEATS[0]), REPEATS[1]))
    timed = pass_seconds(models, widths, repeats, context)
    found = {(int(name), width): spent for (name, width), spent in timed.items()}
    overlaps = measure_overlaps(chain, prompts, tokens) if chain.edges else {}
    edges = tuple(
        EdgeProfile(
            edge=k,
            gamma=edge.gamma,
            cost_ratio=found[k, 1] / found[k + 1, 1] if (k, 1) in found else None,
            block_ratio=found[k + 1, edge.gamma + 1] / found[k + 1, 1],
            overlap={t: overlaps[k, t] for t in TEMPERATURES if (k, t) in overlaps},
        )
        for k, edge in enumerate(chain.edges)
    )
    return ChainProfile(found, edges, repeats, context)


def measure_overlaps(chain: Chain, prompts: Sequence[Sequence[int]], tokens: int) -> dict[tuple[int, float], Overlap]:
    """Overlap of every edge by (edge, temperature), along the target's text at that temperature.

    A draft stops at its position limit, and so do the rows that count. For a look-up it is the share of its
    guesses that are the next token, over the positions where it has one; absent if it never has.
    """
    texts = continuations(chain, prompts, tokens)
    skipped = int(chain.levels[0].is_ngram)
    models = Chain(chain.levels[skipped:], chain.edges[skipped:])
    pairs = [(k, k + 1) for k in range(models.depth)]
    found: dict[tuple[int, float], Overlap] = {}
    for t, own in texts.items():
        if pairs:
            fed = [torch.tensor(text[:-1]) for text in own]  # the last token is predicted, never fed
            measured = teacher_forced(models, fed, pairs, [t], rows=tokens)
            found |= {(a + skipped, t): overlap for (a, _, _), overlap in measured.items()}
        if skipped:
            guesses = _guesses(chain.levels[0].model, own, tokens)
            found |= {} if guesses is None else {(0, t): guesses}
    return found


def continuations(chain: Chain, prompts: Sequence[Sequence[int]], tokens: int) -> dict[float, list[list[int]]]:
    """Prompt and ``tokens`` more of the target alone, by temperature; all rows in one batch."""
    alone = Chain(chain.levels[-1:])
    requests = [
        Request(tuple(prompt), Sampling(t), max_new_tokens=tokens, ignore_eos=True)
        for t in TEMPERATURES
        for prompt in prompts
    ]
    done = [[*request.ids, *g.ids] for request, g in zip(requests, generate(alone, requests), strict=True)]
    return {t: done[i * len(prompts) : (i + 1) * len(prompts)] for i, t in enumerate(TEMPERATURES)}


def _guesses(ngram: object, texts: Sequence[Sequence[int]], tokens: int) -> Overlap | None:
    """Share of a look-up's first guesses that are the next token; the error is over texts that have guesses."""
    assert isinstance(ngram, Ngram)
    hits = []
    for text in texts:
        places = range(len(text) - tokens, len(text))
        hits.append([guess == [text[i]] for i in places if (guess := ngram.look_up(text[:i], 1))])
    own = [h for h in hits if h]
    n = sum(map(len, own))
    if not n:
        return None
    shares = [sum(h) / len(h) for h in own]
    stderr = statistics.stdev(shares) / len(shares) ** 0.5 if len(shares) > 1 else math.nan
    return Overlap(sum(map(sum, own)) / n, stderr, n)


def interval(overlap: Overlap) -> tuple[float, float] | None:
    """95% interval over sequences, within [0, 1]; ``None`` for a single one."""
    if math.isnan(overlap.stderr):
        return None
    half = 1.96 * overlap.stderr
    return max(0.0, overlap.value - half), min(1.0, overlap.value + half)


def expected_speedup(alpha: float, gamma: int, cost_ratio: float, block_ratio: float) -> float:
    """Of an edge alone over its verifier alone, if every draft token is accepted with chance ``alpha``.

    Source: Leviathan et al. 2023 (arXiv 2211.17192), theorem 3.8, with the verifier's wide pass at its own cost.
    """
    emitted = gamma + 1.0 if alpha >= 1 else (1 - alpha ** (gamma + 1)) / (1 - alpha)
    return emitted / (gamma * cost_ratio + block_ratio)

"""Laws by whole passes over whole texts, without the decoder's cache, attention or filters.

What the decoder computed piece by piece is held against these rows.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.generation.logits_process import (
    LogitsProcessor,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from ssd.bench.teacher_forced import fed_tokens
from ssd.core.chain import Chain, Scorer
from ssd.core.model import CachedModel
from ssd.core.ngram import Ngram
from ssd.core.requests import Sampling

SLACK = 1e-4
"""A filter's threshold moved by this much lets every token pass that rounding alone could keep out."""
ROUNDING = {torch.float64: 1e-12, torch.float32: 3e-5, torch.float16: 0.02, torch.bfloat16: 0.04}
"""How far rounding may move a logit, as a share of the largest, with room: on SmolLM2-135M passes of one token
differ from whole ones by 1.4e-6 of it in float32 and 0.02 in bfloat16."""


@torch.inference_mode()
def whole_logits(model: Scorer, texts: Tensor, keep: int) -> Tensor:
    """Logits [B, keep, V] of the last ``keep`` tokens of texts [B, T], all fed in one pass from the first on.

    A transformers model is called as its authors meant it, with its own attention and no cache.
    """
    tokens = fed_tokens(model, texts)
    if isinstance(model, CachedModel):
        logits: Tensor = model.module(input_ids=tokens, use_cache=False, logits_to_keep=keep).logits
        return logits
    bare = copy.copy(model)
    bare.allocate(*tokens.shape)
    return bare.score(tokens, torch.zeros(len(tokens), dtype=torch.int64, device=model.device), keep)


def rounding(logits: Tensor, dtype: torch.dtype) -> float:
    """How far rounding may move these logits of a model held in ``dtype``."""
    return ROUNDING[dtype] * float(logits[logits.isfinite()].abs().max())


class WholePass:
    """A level that keeps nothing: every row is computed from the first token of the decoder's text on.

    What it is fed is ignored but for where it ends, so a token that was never fed or was overwritten
    does not change a row.

    Attributes:
        gaps: largest minus second largest logit of every row asked for, by (row of the batch, position
            the row predicts).
        noise: how far rounding may move a logit of the rows asked for.
    """

    def __init__(self, model: Scorer) -> None:
        self.model = model
        self.vocab_size, self.embeddings, self.max_positions = model.vocab_size, model.embeddings, model.max_positions
        self.device, self.dtype = model.device, model.dtype
        self.owner: Any = None
        self.gaps: dict[tuple[int, int], float] = {}
        self.noise = 0.0

    def allocate(self, batch: int, slots: int) -> None:
        """Forget the gaps."""
        self.gaps.clear()

    def fill(self, tokens: Tensor, start: Tensor) -> None:
        """Nothing to keep."""

    def score(self, tokens: Tensor, start: Tensor, keep: int) -> Tensor:
        """Logits [B, keep, V] of the ``keep`` positions that end with the last token fed."""
        ends = start + tokens.shape[1]  # [B]
        longest, first = int(ends.max()), int(ends.min()) - keep
        logits = whole_logits(self.model, self.owner.text[:, :longest], longest - first)
        index = (ends - keep - first)[:, None] + torch.arange(keep, device=ends.device)  # [B, keep]
        logits = logits[torch.arange(len(ends), device=ends.device)[:, None], index]
        self.noise = max(self.noise, rounding(logits, self.dtype))
        best = logits.topk(2, dim=-1).values
        for i, row in enumerate((best[..., 0] - best[..., 1]).tolist()):
            self.gaps |= {(i, int(ends[i]) - keep + 1 + j): gap for j, gap in enumerate(row)}
        return logits


def drawn_law(logits: Tensor, sampling: Sampling, slack: float = 0.0) -> Tensor:
    """Probabilities [..., V] float64 by transformers' own warpers: temperature, top-k, top-p, min-p.

    Args:
        logits: [..., V].
        sampling: temperature 0 is all mass on the argmax.
        slack: how much more generous top-p and min-p are taken, to see what rounding could let pass.
    """
    scores = logits.reshape(-1, logits.shape[-1])
    scores = scores if scores.dtype == torch.float64 else scores.float()
    if sampling.temperature == 0:
        probs = torch.zeros_like(scores).scatter_(-1, scores.argmax(-1, keepdim=True), 1.0)
        return probs.double().reshape(logits.shape)
    warpers: list[LogitsProcessor] = []
    if sampling.temperature != 1:
        warpers.append(TemperatureLogitsWarper(float(sampling.temperature)))
    if sampling.top_k:
        warpers.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1:
        warpers.append(TopPLogitsWarper(min(1.0, sampling.top_p + slack)))
    if sampling.min_p > 0:
        warpers.append(MinPLogitsWarper(sampling.min_p * (1 - slack)))
    for warper in warpers:
        scores = warper(None, scores)
    return scores.double().softmax(-1).reshape(logits.shape)


def level_law(chain: Chain, k: int, texts: Tensor, keep: int, sampling: Sequence[Sampling]) -> Tensor:
    """The law [B, keep, V] float64 over the target's ids that level k draws from after each of the last tokens.

    Args:
        texts: [B, T] token ids.
        keep: rows wanted of each text; the last predicts what follows the whole of it.
        sampling: the settings of each row, before the level's own replace them.
    """
    level = chain.levels[k]
    if isinstance(level.model, Ngram):
        return _look_up_law(level.model, texts, keep, chain.vocab_size)
    logits = whole_logits(level.model, texts, keep).to(texts.device)[..., : chain.output_size(k)]
    own = [s if k == chain.depth else s.overridden_by(level.sampling) for s in sampling]
    ids = level.draft_to_target
    full = logits.new_full((*logits.shape[:2], chain.vocab_size), float("-inf"))
    full[..., slice(logits.shape[-1]) if ids is None else ids.to(texts.device)] = logits
    law = full.double()
    for settings in set(own):
        rows = torch.tensor([s == settings for s in own], device=texts.device)
        law[rows] = drawn_law(full[rows], settings)
    return law


def _look_up_law(ngram: Ngram, texts: Tensor, keep: int, vocab: int) -> Tensor:
    """All mass on what the look-up proposes; zero where it proposes nothing."""
    probs = torch.zeros(len(texts), keep, vocab, dtype=torch.float64)
    for i, text in enumerate(texts.tolist()):
        for j in range(keep):
            found = ngram.look_up(text[: len(text) - keep + 1 + j], 1)
            if found:
                probs[i, j, found[0]] = 1.0
    return probs

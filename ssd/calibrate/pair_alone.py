"""Two neighbouring levels as a chain of their own, the upper one as its target."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ssd.bench.chain_check import edge
from ssd.bench.loading import Loader
from ssd.bench.spec import ChainSpec
from ssd.core.chain import Chain, Level, Scorer


class WholeVocabulary:
    """A draft level as a target: rows over all ids of the chain's target, -inf where it has no output.

    Its law is that of the level inside; everything but the rows is the inner scorer's.

    Args:
        inner: of the level.
        ids: [V] target id of each of its outputs; further outputs are cut off, as in the chain.
        vocab_size: length of a row.
    """

    def __init__(self, inner: Scorer, ids: Tensor, vocab_size: int) -> None:
        self._inner, self._ids = inner, ids
        self.vocab_size = vocab_size

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def score(self, tokens: Tensor, start: Tensor, keep: int) -> Tensor:
        """As the inner scorer's, [B, keep, V]."""
        narrow = self._inner.score(tokens, start, keep)[..., : len(self._ids)]
        rows = narrow.new_full((*narrow.shape[:-1], self.vocab_size), float("-inf"))
        return rows.scatter_(-1, self._ids.to(narrow.device).expand_as(narrow), narrow)


def pair_alone(spec: ChainSpec, k: int, loader: Loader) -> Chain:
    """Levels k and k + 1 of ``spec`` with the edge between them.

    Raises:
        ValueError: if there is no such edge.
    """
    if not 0 <= k < len(spec.edges):
        raise ValueError(f"edge {k}: a chain of {len(spec.levels)} levels has edges 0 to {len(spec.edges) - 1}")
    whole = loader.chain(spec)
    draft, upper = whole.levels[k], whole.levels[k + 1]
    if k + 1 < whole.depth:
        ids = upper.draft_to_target
        if ids is None:
            ids = torch.arange(whole.output_size(k + 1))
        upper = Level(WholeVocabulary(whole.scorer(k + 1), ids, whole.vocab_size))
    return Chain((draft, upper), (edge(spec.edges[k]),), whole.tokenizer, whole.names[k : k + 2])

"""A chain: ordered levels, one edge between each pair, and the checks that make it sound."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from ssd.core.ngram import Ngram
from ssd.core.processors import check_tokens
from ssd.core.requests import Override, Request
from ssd.core.verification import Ids

WINDOWS = ("at_least", "exactly", "rounds", "until_correction", "confidence")
VERIFICATIONS = ("token", "block")


class Scorer(Protocol):
    """A model as the decoder sees it; ``ssd.core.model.CachedModel`` is the transformers one.

    Attributes:
        vocab_size: length of a row of logits.
        embeddings: ids below this may be fed.
        max_positions: positions 0 .. max_positions - 1 may be fed; ``None`` when unlimited.
        owner: the generation whose keys and values it holds, set by the decoder.
    """

    vocab_size: int
    embeddings: int
    max_positions: int | None
    device: torch.device
    dtype: torch.dtype
    owner: object

    def allocate(self, batch: int, slots: int) -> None:
        """Forget everything and make room for ``slots`` tokens in each of ``batch`` rows."""

    def fill(self, tokens: Tensor, start: Tensor) -> None:
        """Write keys and values of tokens [B, T] at positions start [B] onwards; no logits."""

    def score(self, tokens: Tensor, start: Tensor, keep: int) -> Tensor:
        """``fill`` and return logits [B, keep, V] of the last ``keep`` tokens; B may be less than allocated."""


@dataclass(frozen=True)
class Edge:
    """How the drafting level of an edge ends its block.

    Attributes:
        gamma: draft tokens asked for per round of the verifying level, at least 1.
        window: the rule that ends a block, one of ``WINDOWS`` (see ``ssd.core.windows``).
        window_value: threshold of ``confidence``, in [0, 1]; ``None`` for every other window.
        verification: ``token`` (Leviathan et al., arXiv 2211.17192) or ``block`` (Sun et al., arXiv
            2403.10444), which accepts at least as many tokens in expectation; both are exact.
    """

    gamma: int
    window: str = "at_least"
    window_value: float | None = None
    verification: str = "token"

    def __post_init__(self) -> None:
        if isinstance(self.gamma, bool) or not isinstance(self.gamma, int) or self.gamma < 1:
            raise ValueError(f"edge.gamma: expected an integer >= 1, got {self.gamma!r}")
        if self.window not in WINDOWS:
            raise ValueError(f"edge.window: {self.window!r} is not one of {', '.join(WINDOWS)}")
        if self.verification not in VERIFICATIONS:
            raise ValueError(f"edge.verification: {self.verification!r} is not one of {', '.join(VERIFICATIONS)}")
        if (self.window == "confidence") != (self.window_value is not None):
            raise ValueError(f"edge.window_value: {self.window_value!r} does not fit window {self.window!r}")
        if self.window_value is not None and not 0 <= self.window_value <= 1:
            raise ValueError(f"edge.window_value: {self.window_value!r} is outside [0, 1]")


@dataclass(frozen=True)
class Level:
    """One member of a chain: a scorer, or an n-gram look-up that may only stand at level 0.

    Attributes:
        model: what proposes or scores.
        sampling: settings that replace the row's on this level.
        draft_to_target: [V] target id of each output id of this level, for a level that emits
            over a draft vocabulary; ``None`` when its output ids are the target's.
    """

    model: Scorer | Ngram
    sampling: Override = field(default_factory=Override)
    draft_to_target: Tensor | None = None

    @property
    def is_ngram(self) -> bool:
        """Whether this level looks up instead of computing."""
        return isinstance(self.model, Ngram)


@dataclass(frozen=True)
class Chain:
    """Levels from the smallest draft to the target, and ``len(levels) - 1`` edges.

    Attributes:
        tokenizer: anything with ``decode(ids) -> str``; needed for stop strings and streamed text.
        names: one per level, used in errors and records; ``L0`` .. by default.
    """

    levels: tuple[Level, ...]
    edges: tuple[Edge, ...] = ()
    tokenizer: Any = None
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", tuple(self.levels))
        object.__setattr__(self, "edges", tuple(self.edges))
        if not self.levels:
            raise ValueError("chain.levels: at least the target is needed")
        if len(self.edges) != len(self.levels) - 1:
            raise ValueError(
                f"chain.edges: {len(self.levels)} levels need {len(self.levels) - 1} edges, got {len(self.edges)}"
            )
        object.__setattr__(self, "names", tuple(self.names) or tuple(f"L{k}" for k in range(len(self.levels))))
        if len(self.names) != len(self.levels):
            raise ValueError(f"chain.names: {len(self.levels)} levels but names {self.names!r}")
        for k, level in enumerate(self.levels):
            if any(level.model is other.model for other in self.levels[:k]):
                raise ValueError(f"chain.levels[{k}].model: used twice; each level needs a cache of its own")
            self._check_level(k, level)

    def _check_level(self, k: int, level: Level) -> None:
        last = k == len(self.levels) - 1
        if level.is_ngram and (k > 0 or last):
            raise ValueError(f"chain.levels[{k}].model: an n-gram look-up can only draft, at level 0")
        if last and level.sampling != Override():
            raise ValueError(f"chain.levels[{k}].sampling: the target always uses the row's settings")
        if last and level.draft_to_target is not None:
            raise ValueError(f"chain.levels[{k}].draft_to_target: the target emits its own ids")
        if level.draft_to_target is not None:
            check_map(
                f"chain.levels[{k}].draft_to_target", level.draft_to_target, self.scorer(k).vocab_size, self.vocab_size
            )

    def scorer(self, k: int) -> Scorer:
        """The model of a level that is no look-up."""
        model = self.levels[k].model
        assert not isinstance(model, Ngram)
        return model

    @property
    def depth(self) -> int:
        """Number of draft levels."""
        return len(self.levels) - 1

    @property
    def vocab_size(self) -> int:
        """The target's vocabulary; ids at and above it are never proposed."""
        return self.scorer(self.depth).vocab_size

    @property
    def devices(self) -> list[torch.device]:
        """Device of each level (the CPU for an n-gram look-up)."""
        return [torch.device("cpu") if isinstance(x.model, Ngram) else x.model.device for x in self.levels]

    def output_size(self, k: int) -> int:
        """Output ids level k uses: ids the target lacks are cut off, whatever their logits."""
        return min(self.scorer(k).vocab_size, self.vocab_size)

    def output_order(self, k: int) -> Tensor | None:
        """[V] order that sorts level k's outputs by target id; ``None`` when they are sorted.

        Sorted outputs give ties to the lowest target id and make a draw the same in any vocabulary.
        """
        ids = self.levels[k].draft_to_target
        if ids is None or bool((ids[1:] > ids[:-1]).all()):
            return None
        return ids.argsort()

    def output_ids(self, k: int) -> Tensor | None:
        """[V] ascending target ids level k can emit, or ``None`` when they are all the target's."""
        level = self.levels[k]
        if level.draft_to_target is not None:
            return level.draft_to_target.cpu().long().sort().values
        size = self.vocab_size if level.is_ngram else self.output_size(k)
        return None if size == self.vocab_size else torch.arange(size)

    def edge_ids(self, k: int, device: torch.device) -> Ids:
        """Tables between level k, level k + 1 and the target."""
        draft, verifier = self.output_ids(k), self.output_ids(k + 1)
        tables = (
            invert(draft, self.vocab_size),
            invert(verifier, self.vocab_size),
            verifier,
            self.ids_between(k, k + 1),
        )
        return Ids(*(None if t is None else t.to(device) for t in tables))

    def ids_between(self, a: int, b: int) -> Tensor | None:
        """[V_a] output id of level b for each output id of level a, -1 where b lacks it; ``None``: the same."""
        ours, theirs = self.output_ids(a), self.output_ids(b)
        if ours is theirs or (ours is not None and theirs is not None and torch.equal(ours, theirs)):
            return None
        targets = torch.arange(self.vocab_size) if ours is None else ours
        table = invert(theirs, self.vocab_size)
        return targets if table is None else table[targets]

    def check_request(self, index: int, request: Request) -> None:
        """Raise ValueError for a request this chain cannot carry to its end."""
        target = self.scorer(self.depth)
        bad = [i for i in request.ids if not 0 <= i < target.embeddings]
        if bad:
            raise ValueError(f"requests[{index}].ids: token {bad[0]} is outside the target's {target.embeddings} ids")
        limit, total = target.max_positions, len(request.ids) + request.max_new_tokens
        if limit is not None and total > limit + 1:
            raise ValueError(
                f"requests[{index}].max_new_tokens: {len(request.ids)} prompt + {request.max_new_tokens} new tokens "
                f"do not fit the target's position limit {limit}"
            )
        check_tokens(f"requests[{index}].sampling", request.sampling, self.vocab_size)
        if request.stop and self.tokenizer is None:
            raise ValueError(f"requests[{index}].stop: stop strings need a chain with a tokenizer")


def invert(ids: Tensor | None, size: int) -> Tensor | None:
    """[size] position of each target id in ``ids``, -1 where it is missing."""
    if ids is None:
        return None
    table = torch.full((size,), -1, dtype=torch.int64)
    table[ids] = torch.arange(len(ids))
    return table


def check_map(name: str, ids: Tensor, outputs: int, vocab_size: int) -> None:
    """Raise ValueError unless ``ids`` sends each output id to a target id of its own."""
    if ids.dim() != 1 or len(ids) != outputs:
        raise ValueError(f"{name}: {tuple(ids.shape)} entries for {outputs} output ids")
    if ids.min() < 0 or ids.max() >= vocab_size:
        raise ValueError(f"{name}: ids {int(ids.min())}..{int(ids.max())} outside the target's {vocab_size}")
    if len(ids.unique()) != len(ids):
        raise ValueError(f"{name}: two output ids name the same target id")

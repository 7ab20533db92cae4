"""One case for the decoder and its twin: a chain of tiny models and a batch of requests, as plain data."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch

from ssd.certify.schedules import REGIMES, WORKERS, Pipelined
from ssd.certify.table_models import Logits, TableScorer, blended, hashed
from ssd.certify.tiny_models import VOCAB, near, tiny_gpt2, tiny_llama, with_draft_vocabulary, with_positions
from ssd.core.chain import Chain, Edge, Level
from ssd.core.model import CachedModel
from ssd.core.ngram import Ngram
from ssd.core.requests import Override, Request

MODELS = ("llama", "gpt2", "tables")
SCHEDULES = ("serial", *(f"pipelined {regime}" for regime in REGIMES))
OUTPUTS = ("same", "unsorted map", "smaller", "larger", "ngram")  # a draft's output ids; the last looks up instead
TABLE_VOCAB = 6
_MAP = random.Random(0).sample(range(VOCAB), 40)
_TABLE_MAP = (4, 0, 5, 2)
_SIZES = {"same": VOCAB, "unsorted map": VOCAB, "smaller": 48, "larger": 72}
_TABLE_SIZES = {"same": TABLE_VOCAB, "unsorted map": len(_TABLE_MAP), "smaller": 4, "larger": 8}


@dataclass(frozen=True)
class DraftLevel:
    """A level below the target.

    Attributes:
        edge: between it and the level above.
        outputs: the ids it emits, one of ``OUTPUTS``; ``ngram`` at level 0 only.
        own: settings that replace the row's.
        positions: it may be fed; ``None``: as many as there are.
    """

    edge: Edge
    outputs: str = "same"
    own: Override = field(default_factory=Override)
    positions: int | None = None

    def __post_init__(self) -> None:
        if self.outputs not in OUTPUTS:
            raise ValueError(f"draft.outputs: {self.outputs!r} is not one of {', '.join(OUTPUTS)}")


@dataclass(frozen=True)
class Case:
    """A chain of tiny float64 models and the requests of one batch.

    Attributes:
        model: what the levels are made of, one of ``MODELS``.
        drafts: level 0 first; empty for the target alone.
        requests: the rows, in order.
        weights: which random target, and which drafts near it.
        tight: whether the target's positions end where the longest row needs its last one.
        schedule: the decoder's, ``serial`` or ``pipelined`` and one of ``ssd.certify.schedules.REGIMES``.
        workers: of a pipelined schedule, one of ``ssd.certify.schedules.WORKERS``.
    """

    model: str
    drafts: tuple[DraftLevel, ...]
    requests: tuple[Request, ...]
    weights: int = 0
    tight: bool = False
    schedule: str = "serial"
    workers: str = "target alone"

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            raise ValueError(f"case.model: {self.model!r} is not one of {', '.join(MODELS)}")
        if not self.requests:
            raise ValueError("case.requests: at least one is needed")
        if self.schedule not in SCHEDULES:
            raise ValueError(f"case.schedule: {self.schedule!r} is not one of {', '.join(SCHEDULES)}")
        if self.workers not in WORKERS:
            raise ValueError(f"case.workers: {self.workers!r} is not one of {', '.join(WORKERS)}")

    @property
    def vocab(self) -> int:
        """The target's ids."""
        return vocabulary(self.model)


class Words:
    """A tokenizer whose text of ids is their numbers, one word each."""

    def decode(self, ids: Sequence[int]) -> str:
        """The numbers, with a blank after each."""
        return "".join(f"{i} " for i in ids)


def whole_history(ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    """A logits processor whose effect depends on every token before the position, and on where each stands."""
    weighted = int((ids[0] * torch.arange(1, ids.shape[1] + 1)).sum())
    return scores + torch.sin(torch.arange(scores.shape[1], dtype=scores.dtype) * 1.7 + weighted)


@contextmanager
def schedule_of_case(case: Case) -> Iterator[str | Pipelined]:
    """The schedule of a case; its workers are gone afterwards."""
    if case.schedule == "serial":
        yield case.schedule
        return
    schedule = Pipelined(case.schedule.removeprefix("pipelined "), workers=case.workers)
    try:
        yield schedule
    finally:
        schedule.close()


def vocabulary(model: str) -> int:
    """Ids of a target of one of ``MODELS``."""
    return TABLE_VOCAB if model == "tables" else VOCAB


def chain_of_case(case: Case) -> Chain:
    """The chain of a case, its caches its own; the weights are shared and must be left as they are."""
    levels = [_level(case, k, draft) for k, draft in enumerate(case.drafts)]
    longest = max(len(r.ids) + r.max_new_tokens for r in case.requests)
    last = max(1, longest - 1) if case.tight else None  # the last token is never fed
    levels.append(Level(_scorer(case, None, "same", last)))
    return Chain(tuple(levels), tuple(draft.edge for draft in case.drafts), Words())


def _level(case: Case, k: int, draft: DraftLevel) -> Level:
    if draft.outputs == "ngram":
        return Level(Ngram())
    ids = None
    if draft.outputs == "unsorted map":
        ids = torch.tensor(_TABLE_MAP if case.model == "tables" else _MAP)
    return Level(_scorer(case, k, draft.outputs, draft.positions), draft.own, ids)


def _scorer(case: Case, k: int | None, outputs: str, positions: int | None) -> Any:
    if case.model == "tables":
        return TableScorer(_table(case.weights, k, outputs), _TABLE_SIZES[outputs], positions)
    module = _module(case.model, case.weights, k, outputs)
    if positions is not None and case.model == "gpt2":
        module = _shortened(case.model, case.weights, k, outputs, positions)
    scorer = CachedModel(module)
    scorer.max_positions = positions if positions is not None else scorer.max_positions
    return scorer


@cache
def _module(model: str, weights: int, k: int | None, outputs: str) -> Any:
    """Draft level k's model, or the target's for k None; drafts are noisy copies of the target, upper ones less so."""
    build = tiny_gpt2 if model == "gpt2" else tiny_llama
    layers = 1 + weights % 2
    if k is None:
        return build(100 * weights, layers=layers)
    target = _module(model, weights, None, "same")
    noise = (0.1 if model == "gpt2" else 0.06) - 0.015 * k
    draft = near(target, noise, 100 * weights + 10 + k, build, layers=layers, vocab=_SIZES[outputs])
    return with_draft_vocabulary(draft, _MAP) if outputs == "unsorted map" else draft


@cache
def _shortened(model: str, weights: int, k: int | None, outputs: str, positions: int) -> Any:
    return with_positions(_module(model, weights, k, outputs), positions)


@cache
def _table(weights: int, k: int | None, outputs: str) -> Logits:
    """The same as tables."""
    target = hashed(f"target {weights}", max(_TABLE_SIZES.values()), 2.0)
    if k is None:
        return lambda prefix: target(prefix)[:TABLE_VOCAB]
    wide = blended(target, hashed(f"draft {weights} {k}", max(_TABLE_SIZES.values()), 2.0), 0.6 + 0.1 * k)
    if outputs == "unsorted map":
        return lambda prefix: tuple(wide(prefix)[i] for i in _TABLE_MAP)
    return lambda prefix: wide(prefix)[: _TABLE_SIZES[outputs]]

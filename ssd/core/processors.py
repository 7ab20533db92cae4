"""Logits processors: penalties, forbidden and favoured tokens, on every level and with each position's own history.

A level's law after a prefix is the law of its processed logits, so the target's processors shape the
output and a draft's only its acceptance. Order: logit bias, repetition penalty, frequency and presence
penalties, forbidden words, minimum length, the request's own processors; temperature and filters follow
(as in transformers, which lacks frequency and presence penalties).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from ssd.core.requests import Request, Sampling

MINUS_INF = float("-inf")
MOST_OBJECTS = 100  # looked into for memory; a processor that holds a model is known by its results


class Processors:
    """The processors of all rows of a batch.

    Attributes:
        active: whether any row has one.
        barren: (row, number of tokens before it) of each position at which the last target pass found
            every token forbidden. Such a position is left unprocessed: a draft that will be rejected
            may lead there, and the output never.
    """

    def __init__(self, requests: Sequence[Request], vocab_size: int, device: torch.device) -> None:
        self.requests, self.vocab_size = requests, vocab_size
        self.rows = [i for i, r in enumerate(requests) if has_processors(r)]
        self.active = bool(self.rows)
        self.barren: list[tuple[int, int]] = []
        checked: set[int] = set()
        for i in self.rows:
            for j, processor in enumerate(requests[i].processors):
                if id(processor) not in checked:
                    name = f"requests[{i}].processors[{j}]"
                    check_stateless(name, processor, requests[i].ids, vocab_size, device)
                checked.add(id(processor))

    def apply(
        self,
        logits: Tensor,
        text: Tensor,
        first: Tensor,
        low: Tensor,
        high: Tensor,
        outputs: Tensor | None,
        target: bool,
    ) -> Tensor:
        """Processed logits [B, T, V], in float32 or wider.

        Args:
            logits: [B, T, V]; column t of row b follows the first ``first[b] + t`` tokens of ``text[b]``.
            low, high: [B]; only columns that follow ``low[b]`` to ``high[b]`` tokens are wanted, the
                others, whose history may be no text at all, are left as they are.
            outputs: [V] target id of each column; ``None``: the same ids.
            target: whether this is the target, whose barren positions are noted; on a draft, left
                unprocessed, they only cost acceptance.
        """
        logits = (logits if logits.dtype == torch.float64 else logits.float()).clone()
        if target:
            self.barren = []
        begin, start, end = first.tolist(), low.tolist(), high.tolist()
        for b in self.rows:
            for length in range(max(start[b], begin[b]), min(end[b] + 1, begin[b] + logits.shape[1])):
                raw = logits[b, length - begin[b]]
                scores = raw.clone() if outputs is None else spread(raw, outputs, self.vocab_size)
                scores = process(scores, text[b, :length], self.requests[b])
                scores = scores if outputs is None else scores[outputs]
                if bool((scores > MINUS_INF).any()):
                    logits[b, length - begin[b]] = scores
                elif target:
                    self.barren.append((b, length))
        return logits


def has_processors(request: Request) -> bool:
    """Whether a request changes logits before temperature and filters."""
    s = request.sampling
    return bool(
        request.processors or s.bad_words_ids or s.logit_bias or s.repetition_penalty != 1
        or s.frequency_penalty or s.presence_penalty or s.min_new_tokens
    )  # fmt: skip


def process(scores: Tensor, history: Tensor, request: Request) -> Tensor:
    """Scores [V] of the token that follows ``history`` [n], prompt included, after a request's processors."""
    s, new = request.sampling, history[len(request.ids) :]
    for token, bias in s.logit_bias:
        scores[token] += bias
    if s.repetition_penalty != 1:
        seen = emittable(history.unique(), scores)
        at = scores[seen]
        scores[seen] = torch.where(at < 0, at * s.repetition_penalty, at / s.repetition_penalty)
    if (s.frequency_penalty or s.presence_penalty) and len(new):
        seen, count = new.unique(return_counts=True)
        scores[seen] -= s.frequency_penalty * count.to(scores.dtype) + s.presence_penalty
    forbidden = [word[-1] for word in s.bad_words_ids if ends_with(history, word[:-1])]
    if len(new) < s.min_new_tokens:
        forbidden += [token for token in request.eos_ids if token < len(scores)]
    if forbidden:
        scores[forbidden] = MINUS_INF
    for processor in request.processors:
        scores = processor(history[None].clone(), scores[None])[0]  # a copy: some edit what they are given
    return scores


def emittable(tokens: Tensor, scores: Tensor) -> Tensor:
    """The tokens that have a score: a prompt may hold ids that are embedded and never emitted."""
    return tokens[tokens < len(scores)]


def ends_with(history: Tensor, tokens: Sequence[int]) -> bool:
    """Whether the last tokens of ``history`` [n] are these; always for none."""
    return not tokens or history[-len(tokens) :].tolist() == list(tokens)


def spread(scores: Tensor, outputs: Tensor, size: int) -> Tensor:
    """Scores [V] of some target ids as scores over all ``size``, the others minus infinity."""
    return scores.new_full((size,), MINUS_INF).scatter(0, outputs, scores)


def check_tokens(name: str, sampling: Sampling, size: int) -> None:
    """Raise ValueError for a forbidden word or a bias of a token that the target does not have."""
    words = [token for word in sampling.bad_words_ids for token in word]
    for field, tokens in (("bad_words_ids", words), ("logit_bias", [token for token, _ in sampling.logit_bias])):
        outside = [token for token in tokens if token >= size]
        if outside:
            raise ValueError(f"{name}.{field}: token {outside[0]} is outside the target's {size} ids")


def check_stateless(
    name: str, processor: Callable[[Tensor, Tensor], Tensor], prompt: Sequence[int], size: int, device: torch.device
) -> None:
    """Raise ValueError unless a processor is a function of the tokens before a position and its scores.

    Speculation asks for positions out of order and more than once, so a processor that remembers
    its calls would see another history than the text has. It is called on the prompt, on a longer
    text and on the prompt again: results and attributes must not have changed. All on ``device``, where it
    will be used, because some of the library's place their tensors at the first call.
    """
    kind = type(processor).__name__
    if not callable(processor):
        raise ValueError(f"{name}: {processor!r} is not callable as processor(input_ids, scores)")
    ids = torch.tensor([list(prompt)], device=device)
    longer = torch.cat([ids, ids[:, -1:]], dim=1)
    scores = torch.linspace(-4.0, 4.0, size, device=device)[None]
    try:
        once = processor(ids, scores.clone())
        before = _attributes(processor)
        processor(longer, scores.clone())
        again = processor(ids, scores.clone())
    except Exception as error:
        raise ValueError(f"{name}: {kind} cannot be called on one row of token ids and scores: {error}") from error
    if not isinstance(once, Tensor) or once.shape != scores.shape:
        shape = tuple(once.shape) if isinstance(once, Tensor) else once
        raise ValueError(f"{name}: {kind} returned {shape!r} for scores of shape {tuple(scores.shape)}")
    if ids.tolist() != [list(prompt)]:
        raise ValueError(f"{name}: {kind} edits the token ids it is given")
    if bool((once.isnan() | (once == math.inf)).any()):
        raise ValueError(f"{name}: {kind} returned NaN or infinity for finite scores; only minus infinity forbids")
    if not torch.equal(once, again) or not _same(before, _attributes(processor)):
        raise ValueError(f"{name}: {kind} keeps state between calls; drafts need a function of the text alone")


def _attributes(processor: Any) -> dict[str, Any]:
    """Its numbers, texts, lists and tensors, copied; those of objects it holds and of its closure too."""
    kept: dict[str, Any] = {}
    pending: list[tuple[str, Any]] = [("", processor)]
    seen: set[int] = set()
    while pending:
        path, owner = pending.pop()
        if id(owner) in seen or len(seen) > MOST_OBJECTS:
            continue
        seen.add(id(owner))
        held = {**getattr(owner, "__dict__", {})}
        for i, cell in enumerate(getattr(owner, "__closure__", None) or ()):
            with suppress(ValueError):  # a cell nothing was put into yet
                held[f"<{i}>"] = cell.cell_contents
        for name, value in held.items():
            if isinstance(value, (type, ModuleType)):
                continue
            if isinstance(value, Tensor):
                kept[f"{path}.{name}"] = value.clone()
            elif value is None or isinstance(value, (bool, int, float, str, tuple, list, dict, set)):
                kept[f"{path}.{name}"] = repr(value)
            else:
                pending.append((f"{path}.{name}", value))
    return kept


def _same(before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Whether two snapshots agree."""
    return before.keys() == after.keys() and all(
        torch.equal(value, after[name]) if isinstance(value, Tensor) else value == after[name]
        for name, value in before.items()
    )

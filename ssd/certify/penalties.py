"""Logits processors in plain Python, one prefix at a time: what the engine's must agree with."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import torch

from ssd.core.requests import Request


def processed(scores: Sequence[float], history: Sequence[int], request: Request) -> list[float]:
    """Scores over the target's ids of the token after ``history``, prompt included, once processed.

    Order: bias, repetition, frequency and presence, forbidden words, least length, the request's own.
    """
    s, new = request.sampling, history[len(request.ids) :]
    out = list(scores)
    for token, bias in s.logit_bias:
        out[token] += bias
    for token in {t for t in history if t < len(out)}:  # a prompt may hold ids that are never emitted
        out[token] = out[token] * s.repetition_penalty if out[token] < 0 else out[token] / s.repetition_penalty
    for token, count in Counter(new).items():
        out[token] -= s.frequency_penalty * count + s.presence_penalty
    for *before, last in s.bad_words_ids:
        if not before or list(history[-len(before) :]) == before:
            out[last] = -math.inf
    if len(new) < s.min_new_tokens:
        for token in {t for t in request.eos_ids if t < len(out)}:
            out[token] = -math.inf
    for processor in request.processors:
        out = processor(torch.tensor([list(history)]), torch.tensor([out], dtype=torch.float64))[0].tolist()
    return out

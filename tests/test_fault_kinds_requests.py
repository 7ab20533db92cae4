"""Neighbours of reported faults in what a request may hold, and in what a model may answer."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ssd.certify.tiny_models import P, chain_of, tiny_llama
from ssd.core.chain import Edge, Level
from ssd.core.generate import generate
from ssd.core.model import CachedModel
from ssd.core.requests import Request, Sampling

MODULES = [tiny_llama(2, layers=1), tiny_llama(1), tiny_llama(0)]


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        *itertools.product(("seed", "sample", "max_new_tokens"), (-1, 1.5, "1", None, True, np.float64(2), 2**64)),
        *itertools.product(("request",), (-1, 1.5, "a", 2**64)),
        *itertools.product(("ids", "eos_ids"), (3, None, "12", (1.5,), (True,), (-1,), [[1]], ("a",))),
        *itertools.product(("stop",), ("ab", None, (3,), ("",))),
        *itertools.product(("sampling",), (None, "greedy")),
    ],
)
def test_b14_b38_what_is_no_number_id_or_text_is_refused_by_name(field: str, wrong: Any) -> None:
    with pytest.raises(ValueError, match=f"request.{field}"):
        Request(**{"ids": P, field: wrong})


def test_b14_numbers_of_numpy_and_torch_are_numbers() -> None:
    chain = chain_of(MODULES[1:], [Edge(3)])
    (plain,) = generate(chain, [Request(P, seed=3, sample=2, max_new_tokens=6)])
    for ids in (np.array(P), torch.tensor(P), iter(P)):
        request = Request(ids, seed=np.int64(3), sample=np.int32(2), max_new_tokens=np.int64(6))  # type: ignore[arg-type]
        assert generate(chain, [request])[0].ids == plain.ids
    ends = [Request(P, seed=s, request=r, max_new_tokens=6) for s in (0, 2**64 - 1) for r in (0, 2**64 - 1)]
    assert len({g.ids for g in generate(chain, ends)}) == 4


class Broken(CachedModel):
    """One logit is not a number any more after some text, as where 16 bits overflow."""

    value = float("nan")

    def score(self, tokens: Tensor, start: Tensor, keep: int) -> Tensor:
        logits = super().score(tokens, start, keep)
        logits[..., 5] = torch.where(start[:, None] > 12, self.value, logits[..., 5])
        return logits


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_b10_logits_that_are_no_numbers_are_reported_by_level(temperature: float, level: int, value: float) -> None:
    models = [Broken(m) if k == level else CachedModel(m) for k, m in enumerate(MODULES)]
    for model in models:
        model.value = value
    chain = chain_of([Level(m) for m in models], [Edge(2), Edge(3)])
    with pytest.raises((ValueError, ArithmeticError), match=rf"L{level}.*not finite.*requests\[1\]"):
        generate(chain, [Request(P[:1], max_new_tokens=4), Request(P, Sampling(temperature), max_new_tokens=20)])

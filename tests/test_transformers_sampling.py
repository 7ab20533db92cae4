"""Seeds and laws of the transformers baselines at temperatures above 0."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers.generation.utils as generation_utils
from tiny_baselines import DRAFT, NAMES, TARGET, method, run
from torch import Tensor

from ssd.certify.tiny_models import P
from ssd.core.requests import Request, Sampling
from ssd.core.sampling import LevelSampling, law


def probabilities(logits: Tensor, sampling: Sampling) -> Tensor:
    drawn = law(logits, LevelSampling([sampling], torch.device("cpu"))).probs
    assert drawn is not None
    return drawn


@pytest.mark.parametrize("name", NAMES)
def test_seed_decides_and_global_state_is_untouched(name: str) -> None:
    chosen = method(name)
    request = Request(P, Sampling(1.0, top_p=0.95), seed=7, max_new_tokens=20)
    before = torch.random.get_rng_state()
    first = run(chosen, request)
    torch.rand(3)
    second = run(chosen, request)
    torch.random.set_rng_state(before)
    expected = torch.rand(1)
    torch.random.set_rng_state(before)
    three = chosen.generate([request, request, Request(P, Sampling(1.0, top_p=0.95), 7, 0, 0, 20)])
    assert torch.equal(torch.rand(1), expected)
    assert first.ids == second.ids == three[0].ids == three[2].ids
    assert three[1].ids != first.ids  # request 1
    others = [
        Request(P, Sampling(1.0, top_p=0.95), 8, 0, 0, 20),
        Request(P, request.sampling, 7, 0, 1, 20),
    ]
    assert all(g.ids != first.ids for g in chosen.generate(others))


@pytest.mark.parametrize(
    "sampling",
    [Sampling(0.7), Sampling(1.4, top_k=9), Sampling(0.8, top_p=0.9), Sampling(1.0, 20, 0.95, 0.05)],
)
def test_ratio_test_uses_the_law_the_draft_is_drawn_from(sampling: Sampling, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, raw = [], []
    inner = generation_utils._speculative_sampling

    def spy(ids: Any, logits: Any, length: int, target_logits: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append((logits.softmax(-1), target_logits.softmax(-1), ids))
        return inner(ids, logits, length, target_logits, *args, **kwargs)

    monkeypatch.setattr(generation_utils, "_speculative_sampling", spy)
    handle = DRAFT.lm_head.register_forward_hook(lambda _m, _a, rows: raw.append(rows[:, -1].clone()))
    try:
        run(method("assisted"), Request(P, sampling, max_new_tokens=24))
    finally:
        handle.remove()
    assert torch.cat([q for q, _, _ in seen], 1).allclose(probabilities(torch.stack(raw, 1), sampling), atol=1e-6)
    for _, p, ids in seen:
        with torch.no_grad():
            logits = TARGET(ids).logits[:, -p.shape[1] :]
        assert p.allclose(probabilities(logits, sampling), atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_second_token_follows_the_target_s_law(name: str) -> None:
    """False-alarm rate: about 3 outcomes beyond 4.5 standard errors, 2e-5 per method."""
    sampling, count = Sampling(1.5, top_k=3), 300
    requests = [Request(P, sampling, seed=11, max_new_tokens=2) for _ in range(count)]
    pairs = [g.ids for g in method(name, gamma=2).generate(requests)]
    with torch.no_grad():
        first = probabilities(TARGET(torch.tensor([P])).logits[:, -1:], sampling)[0, 0]
        second = torch.zeros(64)
        for token in first.nonzero().flatten().tolist():
            logits = TARGET(torch.tensor([[*P, token]])).logits[:, -1:]
            second += first[token] * probabilities(logits, sampling)[0, 0]
    for column, expected in ((0, first), (1, second)):
        counts = torch.bincount(torch.tensor([pair[column] for pair in pairs]), minlength=64)
        assert counts[expected == 0].sum() == 0
        error = (expected * (1 - expected) / count).sqrt()
        assert ((counts / count - expected).abs() <= 4.5 * error + 1e-6).all()

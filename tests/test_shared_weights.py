"""Models that share weights: full-vocabulary rows, attention, and the engine beside a baseline."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tiny_baselines import EXPECTED, GREEDY, greedy, method, run, tiny
from transformers import AttentionInterface

from ssd.bench.shared_weights import full_vocabulary
from ssd.certify.tiny_models import P, chain_of, with_draft_vocabulary
from ssd.core.chain import Edge, Level
from ssd.core.generate import generate
from ssd.core.model import CachedModel
from ssd.core.requests import Request, Sampling


def narrow_draft(ids: list[int]) -> tuple[Any, torch.Tensor]:
    return with_draft_vocabulary(tiny(2, layers=1), ids), torch.tensor(ids)


def test_full_vocabulary_spreads_rows_and_leaves_the_model_alone() -> None:
    ids = sorted(set(range(0, 64, 2)) | set(EXPECTED))
    draft, to_target = narrow_draft(ids)
    prompt = torch.tensor([P])
    with torch.no_grad():
        before = draft(prompt).logits
        wide = full_vocabulary(draft, to_target, 64)
        rows = wide(prompt).logits
        assert torch.equal(draft(prompt).logits, before)
    assert before.shape == (1, 7, len(ids))
    assert rows.shape == (1, 7, 64)
    assert torch.equal(rows[..., to_target], before)
    outside = torch.ones(64, dtype=torch.bool)
    outside[to_target] = False
    assert torch.isneginf(rows[..., outside]).all()
    assert {p.data_ptr() for p in wide.parameters()} == {p.data_ptr() for p in draft.parameters()}
    for sampling in (GREEDY, Sampling(0.8, top_k=50, top_p=0.9)):
        generation = run(method("assisted", draft=wide), Request(P, sampling, max_new_tokens=30))
        assert generation.ids == EXPECTED or sampling is not GREEDY
        assert len(generation.ids) == 30


def test_full_vocabulary_reports_the_target_s_size() -> None:
    draft = tiny(2, layers=1)
    small, to_target = narrow_draft(list(range(40)))
    small.config.vocab_size = 40
    wide = full_vocabulary(small, to_target, 64)
    assert (wide.config.vocab_size, small.config.vocab_size) == (64, 40)
    assert run(method("assisted", draft=wide), greedy(20)).ids == EXPECTED[:20]
    for ids, size, field in (
        (torch.arange(63), 64, "draft_to_target"),
        (torch.arange(64).int(), 64, "draft_to_target"),
        (torch.zeros(64, dtype=torch.int64), 64, "draft_to_target"),
        (torch.arange(64), 63, "draft_to_target"),
        (torch.arange(64), 65, "embeddings"),
    ):
        with pytest.raises(ValueError, match=f"draft.{field}"):
            full_vocabulary(draft, ids, size)


def test_attention_is_the_library_s_during_a_call_and_ours_after_it() -> None:
    def poisoned(*_: Any, **__: Any) -> Any:
        raise AssertionError("the engine's attention ran in a baseline")

    AttentionInterface.register("poisoned", poisoned)
    target, draft = tiny(0), tiny(2, layers=1)
    wide = full_vocabulary(draft, torch.arange(64), 64)
    for model in (target, draft):
        model.config._attn_implementation = "poisoned"
    assert run(method("assisted", target, wide), greedy(10)).ids == EXPECTED[:10]
    assert target.config._attn_implementation == draft.config._attn_implementation == "poisoned"
    with pytest.raises(AssertionError, match="the engine's attention"):
        target(torch.tensor([P]))


def test_engine_and_baseline_take_turns_on_the_same_models() -> None:
    ids = sorted(set(range(0, 64, 2)) | set(EXPECTED))
    target = tiny(0)
    draft, to_target = narrow_draft(ids)
    low = Level(CachedModel(draft), draft_to_target=to_target)
    ours = chain_of([low, Level(CachedModel(target))], [Edge(3)])
    theirs = method("assisted", target, full_vocabulary(draft, to_target, 64))
    request = greedy(30)
    for _ in range(2):
        (own,) = generate(ours, [request])
        foreign = run(theirs, request)
        assert own.ids == foreign.ids == EXPECTED
        # The same draft of the same length meets the same target, so every count agrees.
        counts = [(r.start, r.drafted, r.tested, r.accepted, r.emitted, r.end) for r in foreign.rounds]
        assert counts == [(r.start, r.drafted, r.tested, r.accepted, r.emitted, r.end) for r in own.rounds]

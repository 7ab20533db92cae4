"""The short profile of a chain: cost ratios, overlaps along the target's own text, and what they promise."""

from __future__ import annotations

import math

import pytest
import torch

from ssd.bench import chain_profile
from ssd.bench.chain_profile import continuations, expected_speedup, interval, measure_overlaps, profile_chain
from ssd.bench.teacher_forced import Overlap, teacher_forced
from ssd.certify.tiny_models import P, chain_of, near, tiny_llama, with_draft_vocabulary
from ssd.core.chain import Edge, Level
from ssd.core.model import CachedModel
from ssd.core.ngram import Ngram

PROMPTS = [list(P), [3, 4, 5]]


def test_ratios_are_of_the_timed_passes(monkeypatch):
    chain = chain_of([tiny_llama(2, layers=1), tiny_llama(1), tiny_llama(0)], [Edge(2), Edge(4)])

    def timed(models, widths, repeats, context):
        assert (set(models), widths, context) == ({"0", "1", "2"}, [1, 2, 3, 5], 123)  # 128 positions
        return {(name, w): (int(name) + 1) * (10 + w) for name in models for w in widths}

    monkeypatch.setattr(chain_profile, "pass_seconds", timed)
    profile = profile_chain(chain, PROMPTS, 4, 0.0)
    lower, upper = profile.edges
    assert profile.repeats == 3
    assert lower.cost_ratio == pytest.approx(11 / 22)
    assert upper.cost_ratio == pytest.approx(22 / 33)
    assert lower.block_ratio == pytest.approx(26 / 22)
    assert upper.block_ratio == pytest.approx(45 / 33)


def test_a_draft_with_the_targets_weights_overlaps_wholly():
    target = tiny_llama(0)
    chain = chain_of([near(target, 0.0, 1), target], [Edge(3)])
    found = measure_overlaps(chain, PROMPTS, 6)
    assert {key: o.value for key, o in found.items()} == {(0, 0.0): 1.0, (0, 1.0): pytest.approx(1.0)}
    assert {o.n for o in found.values()} == {12}
    assert interval(found[0, 0.0]) == (1.0, 1.0)


def test_overlaps_are_along_the_targets_own_text_and_not_along_the_prompt():
    draft, target = tiny_llama(1, layers=1), tiny_llama(0)
    chain = chain_of([draft, target], [Edge(3)])
    texts = continuations(chain, PROMPTS, 8)
    assert [t[: len(p)] for t, p in zip(texts[1.0], PROMPTS, strict=True)] == PROMPTS
    assert texts[0.0] != texts[1.0]
    with torch.inference_mode():
        sums = []
        for text in texts[1.0]:
            p, q = (m(torch.tensor([text])).logits[0, -9:-1].softmax(-1) for m in (target, draft))
            sums.append(torch.minimum(p, q).sum(-1).mean())
    wanted = torch.stack(sums)
    found = measure_overlaps(chain, PROMPTS, 8)[0, 1.0]
    assert found.value == pytest.approx(float(wanted.mean()))
    assert found.stderr == pytest.approx(float(wanted.std()) / math.sqrt(2))
    assert found.n == 16


def test_a_look_up_is_judged_by_its_guesses(monkeypatch):
    chain = chain_of([Ngram(), tiny_llama(1, layers=1), tiny_llama(0)], [Edge(2), Edge(3)])
    texts = {0.0: [[1, 2, 1, 2, 1, 3], [7, 8, 9, 9, 9, 9]], 1.0: [[1, 2, 3, 4, 5, 6]]}
    monkeypatch.setattr(chain_profile, "continuations", lambda *a: texts)
    found = measure_overlaps(chain, PROMPTS, 3)
    # After 1 2 1: 2, right. After 1 2 1 2: 1, right. After 1 2 1 2 1: 2, wrong. After 7 8 9: none. Then 9 and 9.
    guesses = found[0, 0.0]
    assert (guesses.value, guesses.n) == (4 / 5, 5)
    assert (0, 1.0) not in found
    assert found[1, 1.0].n == 3


@pytest.mark.parametrize(("draft", "target"), [(72, 64), (64, 72)])
def test_overlap_of_padded_vocabularies_is_over_the_ids_that_both_have(draft, target):
    small, big = tiny_llama(1, vocab=draft), tiny_llama(0, vocab=target)
    with torch.no_grad():
        small.lm_head.weight[64:] *= 100
    text = torch.tensor([[1, 5, 9, target - 1, 7, 2]])
    found = teacher_forced(chain_of([small, big], [Edge(2)]), text, [(0, 1)], [1.0])
    with torch.inference_mode():
        p = big(text).logits[0].softmax(-1)
        q = small(text.masked_fill(text >= draft, 0)).logits[0, :, :target].softmax(-1)
    both = min(draft, target)
    assert found[0, 1, 1.0].value == pytest.approx(float(torch.minimum(p[:, :both], q[:, :both]).sum(-1).mean()))


def test_overlap_of_a_draft_vocabulary_in_any_order():
    ids, text = [40, 3, 17, 60, 8], torch.tensor([[1, 5, 9, 5, 7, 2]])
    draft, target = with_draft_vocabulary(tiny_llama(1), ids), tiny_llama(0)
    level = Level(CachedModel(draft), draft_to_target=torch.tensor(ids))
    found = teacher_forced(chain_of([level, target], [Edge(2)]), text, [(0, 1)], [1.0, 0.0])
    with torch.inference_mode():
        p, q = target(text).logits[0].softmax(-1), draft(text).logits[0].softmax(-1)
        agree = torch.tensor(ids)[q.argmax(-1)] == p.argmax(-1)
    assert found[0, 1, 1.0].value == pytest.approx(float(torch.minimum(p[:, ids], q).sum(-1).mean()))
    assert found[0, 1, 0.0].value == pytest.approx(float(agree.double().mean()))


def test_sequences_of_other_lengths_are_refused():
    chain = chain_of([tiny_llama(1), tiny_llama(0)], [Edge(2)])
    texts = [torch.tensor([1, 2, 3]), torch.tensor([1, 2])]
    for rows in (None, 3):
        with pytest.raises(ValueError, match=r"sequences: of \[2, 3\] tokens, 3 of each wanted"):
            teacher_forced(chain, texts, [(0, 1)], [1.0], rows=rows)


def test_the_expected_speedup_is_tokens_over_passes():
    assert expected_speedup(0.0, 3, 0.1, 1.0) == pytest.approx(1 / 1.3)
    assert expected_speedup(1.0, 3, 0.1, 1.0) == pytest.approx(4 / 1.3)
    assert expected_speedup(0.5, 2, 0.25, 1.25) == pytest.approx((1 + 0.5 + 0.25) / 1.75)


def test_an_interval_lies_within_0_and_1_and_needs_two_sequences():
    assert interval(Overlap(0.9, 0.1, 10)) == (pytest.approx(0.704), 1.0)
    assert interval(Overlap(0.1, 0.1, 10)) == (0.0, pytest.approx(0.296))
    assert interval(Overlap(0.9, math.nan, 10)) is None

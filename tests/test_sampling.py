"""Logits to laws: the filters of transformers, one setting per row; and draws that never miss."""

from __future__ import annotations

import random
from itertools import product

import pytest
import torch
from transformers import MinPLogitsWarper, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from ssd.core.randomness import DRAW, uniform_int
from ssd.core.reference import Keyed
from ssd.core.requests import Override, Sampling
from ssd.core.sampling import LevelSampling, draw, law

CPU = torch.device("cpu")
VOCAB = 50
BELOW_ONE = 1 - 2.0**-53  # the largest uniform


def logits(batch, width=3, vocab=VOCAB, dtype=torch.float64, seed=0):
    """Random rows without ties."""
    generator = torch.Generator().manual_seed(seed)
    return 3 * torch.randn(batch, width, vocab, generator=generator, dtype=torch.float64).to(dtype)


def by_transformers(scores, s):
    """Law of scores [T, V] under settings ``s``, by the warpers in the order transformers runs them."""
    if s.temperature == 0:
        return torch.nn.functional.one_hot(scores.argmax(-1), scores.shape[-1]).to(scores.dtype)
    warpers = [
        TemperatureLogitsWarper(float(s.temperature)) if s.temperature != 1 else None,
        TopKLogitsWarper(s.top_k) if s.top_k else None,
        TopPLogitsWarper(s.top_p) if s.top_p < 1 else None,
        MinPLogitsWarper(s.min_p) if s.min_p else None,
    ]
    for warper in filter(None, warpers):
        scores = warper(None, scores)
    return scores.softmax(-1)


SETTINGS = [
    Sampling(*values) for values in product((0.0, 0.5, 1.0, 1.7), (0, 1, 7, 500), (1.0, 0.9, 0.3), (0.0, 0.05, 0.5))
]


def assert_equal_laws(got, want):
    """The same entries survive, with the same probabilities."""
    assert torch.equal(got > 0, want > 0)
    torch.testing.assert_close(got, want, rtol=1e-12 if got.dtype == torch.float64 else 1e-5, atol=1e-15)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_every_combination_of_filters_equals_transformers(dtype):
    for i, s in enumerate(SETTINGS):
        rows = logits(1, dtype=dtype, seed=i)
        found = law(rows, LevelSampling([s], CPU))
        want = by_transformers(rows[0], s)
        if s.temperature == 0:
            assert found.probs is None
            assert found.top.tolist() == [want.argmax(-1).tolist()]
        else:
            assert_equal_laws(found.probs[0], want)


@pytest.mark.parametrize("seed", range(5))
def test_each_row_of_a_batch_has_its_own_settings(seed):
    mix = random.Random(seed).sample(SETTINGS, 12)
    assert {s.temperature == 0 for s in mix} == {True, False}
    rows = logits(12, seed=seed)
    found = law(rows, LevelSampling(mix, CPU)).probs
    for own, row, s in zip(found, rows, mix, strict=True):
        assert_equal_laws(own, by_transformers(row, s))
    swapped = law(rows.flip(0), LevelSampling(mix[::-1], CPU)).probs
    assert torch.equal(swapped.flip(0), found)


def test_the_comparison_sees_settings_of_another_row():
    mix = [Sampling(0.5), Sampling(top_k=3)]
    found = law(logits(2), LevelSampling([mix[0]] * 2, CPU)).probs
    with pytest.raises(AssertionError):
        assert_equal_laws(found[1], by_transformers(logits(2)[1], mix[1]))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("vocab", [3, 64, 49_152])
def test_a_greedy_row_takes_the_lowest_id_on_ties(vocab, dtype):
    at = sorted({vocab - 1, vocab // 2, vocab // 3})
    rows = torch.zeros(2, 2, vocab, dtype=dtype)
    rows[..., at] = 4.0
    assert law(rows, LevelSampling([Sampling(0.0)] * 2, CPU)).top.tolist() == [[at[0]] * 2] * 2
    mixed = law(rows, LevelSampling([Sampling(0.0), Sampling()], CPU)).probs
    assert mixed[0].argmax(-1).tolist() == [at[0]] * 2
    assert mixed[0].sum(-1).tolist() == [1.0, 1.0]
    assert (mixed[0] > 0).sum().item() == 2


def test_ties_at_the_edge_of_a_filter_keep_what_transformers_keeps():
    rows = torch.tensor([[[1.0, 2.0, 2.0, 0.0]]], dtype=torch.float64)
    for s in (Sampling(top_k=1), Sampling(min_p=1.0)):
        assert_equal_laws(law(rows, LevelSampling([s], CPU)).probs[0], by_transformers(rows[0], s))


def test_a_filter_always_leaves_something():
    tiny = Sampling(top_p=1e-300)  # 1 - top_p is 1: every entry is up for removal
    for s in (tiny, Sampling(top_p=1e-9), Sampling(top_k=1), Sampling(min_p=1.0), Sampling(1e-3, 1, 1e-300, 1.0)):
        probs = law(logits(4), LevelSampling([s] * 4, CPU)).probs
        assert torch.equal((probs > 0).sum(-1), torch.ones(4, 3, dtype=torch.int64))
        assert torch.equal(probs.argmax(-1), logits(4).argmax(-1))


def test_sixteen_bit_logits_go_to_float32_first():
    rows = logits(2, dtype=torch.bfloat16)
    for s in (Sampling(), Sampling(0.7, 10, 0.9, 0.01)):
        settings = LevelSampling([s] * 2, CPU, confidence=True)
        found, wide = law(rows, settings), law(rows.float(), settings)
        assert found.probs.dtype == torch.float32
        assert torch.equal(found.probs, wide.probs)
        assert torch.equal(found.confidence, wide.confidence)


@pytest.mark.parametrize("s", [Sampling(), Sampling(0.0), Sampling(0.3), Sampling(2.0, 3, 0.5, 0.2)])
def test_confidence_is_the_untempered_unfiltered_maximum(s):
    rows = logits(2)
    found = law(rows, LevelSampling([s, s], CPU, confidence=True)).confidence
    torch.testing.assert_close(found, rows.softmax(-1).amax(-1), rtol=1e-12, atol=0)
    assert law(rows, LevelSampling([s, s], CPU)).confidence is None


def test_at_picks_positions_row_by_row():
    rows = logits(2, width=4)
    index = torch.tensor([[0, 1], [2, 3]])
    whole = law(rows, LevelSampling([Sampling(), Sampling(0.5)], CPU, confidence=True))
    picked = whole.at(index)
    assert torch.equal(picked.probs, torch.stack([whole.probs[0, :2], whole.probs[1, 2:]]))
    assert torch.equal(picked.confidence, torch.stack([whole.confidence[0, :2], whole.confidence[1, 2:]]))
    greedy = law(rows, LevelSampling([Sampling(0.0)] * 2, CPU)).at(index)
    assert greedy.top.tolist() == [rows[0, :2].argmax(-1).tolist(), rows[1, 2:].argmax(-1).tolist()]


def test_overrides():
    row = Sampling(0.8, 10, 0.9, 0.1)
    assert row.overridden_by(Override()) == row
    assert row.overridden_by(Override(temperature=0.0, top_k=0)) == Sampling(0.0, 0, 0.9, 0.1)
    assert Sampling(0.0).overridden_by(Override(temperature=1.5, top_k=3)) == Sampling(0.0)


# --- draws ------------------------------------------------------------------------------------

WEIGHTS = [
    [1.0],
    [0.0, 1.0, 0.0],
    [0.0, 0.0, 0.3, 0.0, 0.7, 0.0, 0.0],
    [0.5, 0.0, 0.5],
    [1e-300, 0.0, 1e-300, 0.0],
    [0.0, 5e-324, 0.0],
    [1.0, 1e-20, 0.0],
    [0.1] * 10 + [0.0] * 3,
    [0.0, 3.0, 5.0, 0.0, 1e300, 0.0],
]
BEYOND_FLOAT32 = (1e-300, 5e-324, 1e300)


@pytest.mark.parametrize(
    ("weights", "dtype"),
    [(w, torch.float64) for w in WEIGHTS] + [(w, torch.float32) for w in WEIGHTS if not {*w} & {*BEYOND_FLOAT32}],
)
def test_a_draw_never_has_weight_zero(weights, dtype):
    row = torch.tensor([weights], dtype=dtype)
    for u in (0.0, 2.0**-53, 0.25, 0.5, 0.75, 1 - 2.0**-52, BELOW_ONE):
        picked = int(draw(row, torch.tensor([u], dtype=torch.float64)))
        assert row[0, picked] > 0


def test_random_draws_never_have_weight_zero():
    """20,000 rows, most entries zero, at both ends of the unit interval and inside."""
    generator = torch.Generator().manual_seed(3)
    rows = torch.rand(20_000, 40, generator=generator, dtype=torch.float64) ** 8
    rows *= torch.rand(20_000, 40, generator=generator) < 0.1
    rows = rows[rows.sum(-1) > 0]
    for u in (torch.zeros(len(rows)), torch.full((len(rows),), BELOW_ONE, dtype=torch.float64),
              torch.rand(len(rows), generator=generator, dtype=torch.float64)):  # fmt: skip
        assert bool((rows.gather(1, draw(rows, u.double())[:, None]) > 0).all())


def test_draw_is_the_inverse_of_the_cumulative_sum():
    row = torch.tensor([2.0, 0.0, 1.0, 1.0])
    u = torch.tensor([0.0, 0.499, 0.5, 0.749, 0.75, 0.999], dtype=torch.float64)
    assert draw(row.expand(6, 4), u).tolist() == [0, 0, 2, 2, 3, 3]


def test_draw_equals_the_twins():
    source = random.Random(2)
    rows = [[source.random() * (source.random() < 0.5) + 1e-6 * (i == 3) for i in range(9)] for _ in range(500)]
    keys = [source.getrandbits(64) for _ in rows]
    want = [Keyed().draw(w, k, 1, 5) for w, k in zip(rows, keys, strict=True)]
    u = torch.tensor([uniform_int(k, 1, DRAW, 5) for k in keys], dtype=torch.float64)
    assert draw(torch.tensor(rows, dtype=torch.float64), u).tolist() == want

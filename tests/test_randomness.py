"""Keyed uniforms: tensors and Python integers agree, draws are uniform, no two uses share a key."""

from __future__ import annotations

import random
from itertools import product

import pytest
import torch

from ssd.core import randomness as rng

CPU = torch.device("cpu")
EDGES = [0, 1, 2, 3, 2**31, 2**53, 2**63 - 1, 2**63, 2**64 - 1]


def as_signed(values):
    """Unsigned 64-bit integers as the int64 tensor with the same bits."""
    return torch.tensor([v - 2**64 if v >= 2**63 else v for v in values], dtype=torch.int64)


def some_keys(n=200):
    source = random.Random(5)
    return EDGES + [source.getrandbits(64) for _ in range(n)]


def unsigned(tensor):
    return [v % 2**64 for v in tensor.tolist()]


def p_value(uniforms, bins):
    """Chi-square p-value of equal counts in ``bins`` equal cells."""
    counts = (uniforms * bins).long().bincount(minlength=bins).double()
    expected = uniforms.numel() / bins
    statistic = ((counts - expected) ** 2 / expected).sum()
    return float(torch.special.gammaincc(torch.tensor((bins - 1) / 2, dtype=torch.float64), statistic / 2))


def test_mix_equals_its_integer_twin_and_the_published_generator():
    keys = some_keys()
    assert unsigned(rng.mix(as_signed(keys))) == [rng.mix_int(k) for k in keys]
    # First output of splitmix64 from state 0 and from state 1234567, published test vectors.
    assert rng.fold_int(0, 0) == 0xE220A8397B1DCDAF
    assert rng.fold_int(1234567, 0) == 6457827717110365317


def test_fold_equals_its_integer_twin():
    keys = some_keys()
    for word in (0, 1, 2, 5, 4096, 10**6):
        want = [rng.fold_int(k, word) for k in keys]
        assert unsigned(rng.fold(as_signed(keys), word)) == want
        assert unsigned(rng.fold(as_signed(keys), torch.full((len(keys),), word))) == want


def test_fold_broadcasts():
    keys, words = as_signed(some_keys(3)), torch.arange(4)
    assert rng.fold(keys[:, None], words).tolist() == [[int(rng.fold(k, w)) for w in words] for k in keys]


def test_root_and_round_key_equal_their_integer_twins():
    identities = [(0, 0, 0), (7, 3, 1), (2**40, 10**6, 99), (2**64 - 1, 0, 0), (2**70, 5, 2)]
    roots = rng.root(identities, CPU)
    assert unsigned(roots) == [rng.root_int(*i) for i in identities]
    starts = torch.tensor([0, 1, 17, 4096, 131071])
    want = [rng.round_key_int(k, int(s)) for k, s in zip(unsigned(roots), starts, strict=True)]
    assert unsigned(rng.round_key(roots, starts)) == want


def test_uniform_equals_its_integer_twin_bit_for_bit():
    keys, position = some_keys(), torch.tensor([0, 1, 63, 4095])
    for level, purpose in product(range(4), (rng.ACCEPT, rng.DRAW)):
        got = rng.uniform(as_signed(keys)[:, None], level, purpose, position)
        assert got.dtype == torch.float64
        assert got.tolist() == [[rng.uniform_int(k, level, purpose, int(p)) for p in position] for k in keys]


def test_uniforms_stay_in_the_half_open_interval_and_use_53_bits():
    u = rng.uniform(as_signed(some_keys(20_000))[:, None], 1, rng.ACCEPT, torch.arange(8))
    assert float(u.min()) >= 0
    assert float(u.max()) < 1
    scaled = u * 2.0**53
    assert bool((scaled == scaled.floor()).all())
    assert bool((scaled.long() % 2 == 1).any())  # the lowest of the 53 bits is in use
    # The largest hash gives the largest uniform, and it is below 1.
    assert float(torch.tensor(2**53 - 1, dtype=torch.float64) * 2.0**-53) < 1


STREAMS = {
    "positions of one round": lambda n: rng.uniform(rng.root([(3, 0, 0)], CPU), 0, rng.DRAW, torch.arange(n)),
    "starts of one row": lambda n: rng.uniform(
        rng.round_key(rng.root([(3, 0, 0)], CPU), torch.arange(n)), 1, rng.ACCEPT, torch.arange(n)
    ),
    "seeds": lambda n: rng.uniform(rng.root([(s, 0, 0) for s in range(n)], CPU), 0, rng.DRAW, torch.tensor(9)),
    "requests": lambda n: rng.uniform(rng.root([(0, r, 0) for r in range(n)], CPU), 0, rng.DRAW, torch.tensor(9)),
    "samples": lambda n: rng.uniform(rng.root([(0, 0, s) for s in range(n)], CPU), 0, rng.DRAW, torch.tensor(9)),
}


@pytest.mark.parametrize("name", STREAMS)
def test_every_stream_is_uniform_also_in_pairs_of_neighbours(name):
    """Two chi-squares a stream, each with a false-alarm rate of 1e-6 (and a fixed seed)."""
    u = STREAMS[name](1 << 16)
    assert p_value(u, 256) > 1e-6
    pairs = (torch.floor(u[0::2] * 16) * 16 + torch.floor(u[1::2] * 16)) / 256 + 1 / 1024
    assert p_value(pairs, 256) > 1e-6


@pytest.mark.parametrize(
    "biased",
    [
        lambda u: u * 0.98,
        lambda u: u**1.05,
        lambda u: (u * 256).floor() / 256 * 0.999,
    ],
    ids=["short of one", "skewed", "coarse"],
)
def test_the_uniformity_check_sees_a_planted_bias(biased):
    u = biased(STREAMS["positions of one round"](1 << 16))
    assert min(p_value(u, 256), p_value(u, 255)) < 1e-6


def test_accept_and_draw_of_one_place_are_uncorrelated():
    """|z| < 5 has a false-alarm rate of 6e-7."""
    keys, n = rng.root([(s, 0, 0) for s in range(1 << 15)], CPU), 1 << 15
    at = torch.tensor(4)
    levels = [rng.uniform(keys, k, p, at) for k in range(3) for p in (rng.ACCEPT, rng.DRAW)]
    for i, a in enumerate(levels):
        for b in levels[:i]:
            assert abs(float(((a - 0.5) * (b - 0.5)).mean()) * 12 * n**0.5) < 5


def test_keys_of_different_places_are_distinct():
    roots = {rng.root_int(*i): i for i in product(range(12), repeat=3)}
    assert len(roots) == 12**3
    rounds = {rng.round_key_int(k, start) for k in list(roots)[:300] for start in range(60)}
    assert len(rounds) == 300 * 60
    uniforms = {
        rng.uniform_int(k, level, purpose, position)
        for k in list(rounds)[:200]
        for level, purpose, position in product(range(4), (rng.ACCEPT, rng.DRAW), range(30))
    }
    assert len(uniforms) == 200 * 4 * 2 * 30


def test_nested_rounds_have_keys_of_their_own():
    """A round of level 1 and the round of level 2 it drafts for start at the same position."""
    seen = set()
    for root in (rng.root_int(s, 0, 0) for s in range(20)):
        for a, b, c in product(range(12), repeat=3):
            if a <= b <= c:
                outer = rng.round_key_int(root, a)
                inner = rng.round_key_int(outer, b)
                seen |= {outer, inner, rng.round_key_int(inner, c)}
    triples = sum(a <= b <= c for a, b, c in product(range(12), repeat=3))
    pairs = sum(a <= b for a, b in product(range(12), repeat=2))
    assert len(seen) == 20 * (12 + pairs + triples)

"""Compiled functions give what their plain ones give, on tiny shapes: layers up to rounding, hashes exactly."""

from __future__ import annotations

import shutil

import pytest
import torch

from ssd.bench.random_weights import RandomWeights, random_module
from ssd.core import randomness as rng
from ssd.core.model import CachedModel
from ssd.runtime.choose import with_runtime
from ssd.runtime.compiled import compiled_hashes
from ssd.runtime.lean import LeanModel

VOCAB = 64
NO_COMPILER = not any(map(shutil.which, ("g++", "clang++", "c++")))


@pytest.mark.skipif(NO_COMPILER, reason="inductor needs a C++ compiler and finds none")
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch.*")
def test_compiled_hashes_are_the_plain_ones_to_the_bit() -> None:
    """Products wrap modulo 2**64 and shifts are logical, whoever computes them; another level is another number."""
    hashes = compiled_hashes()
    start = torch.tensor([7, 600])
    key = rng.root([(3, 0, 0), (3, 1, 5)], torch.device("cpu"))
    own = hashes.round_key(key, start)
    assert torch.equal(own, rng.round_key(key, start))
    places = start[:, None] + torch.arange(3)
    for level in (0, 2):
        number = torch.tensor(level)
        assert torch.equal(hashes.uniform(own, number, rng.DRAW, start), rng.uniform(own, level, rng.DRAW, start))
        coins = hashes.uniform(own[:, None], number, rng.ACCEPT, places)
        assert torch.equal(coins, rng.uniform(own[:, None], level, rng.ACCEPT, places))
        assert not torch.equal(coins, rng.uniform(own[:, None], level + 1, rng.ACCEPT, places))


@pytest.mark.skipif(NO_COMPILER, reason="inductor needs a C++ compiler and finds none")
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch.*")
def test_compiled_scores_what_eager_scores() -> None:
    """Two versions of one tiny layer function are compiled: two rows, 1 token and 3."""
    eager = CachedModel(random_module(RandomWeights("qwen3", window=6)))
    compiled = with_runtime(eager, "compiled")
    assert isinstance(compiled, LeanModel)
    text = torch.randint(0, VOCAB, (2, 20), generator=torch.Generator().manual_seed(1))
    for model in (eager, compiled):
        model.allocate(2, 40)
    for at, width in (((0, 2), 3), ((3, 4), 1), ((1, 4), 3), ((4, 7), 1)):
        start = torch.tensor(at)
        right, got = (model.score(text[:, :width], start, keep=width) for model in (eager, compiled))
        torch.testing.assert_close(got, right, atol=1e-4, rtol=0)
        assert torch.equal(got.argmax(-1), right.argmax(-1))

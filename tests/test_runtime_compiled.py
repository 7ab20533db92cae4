"""The compiled layer function scores what ``eager`` scores, on a tiny shape."""

from __future__ import annotations

import shutil

import pytest
import torch

from ssd.bench.random_weights import RandomWeights, random_module
from ssd.core.model import CachedModel
from ssd.runtime.choose import with_runtime
from ssd.runtime.lean import LeanModel

VOCAB = 64


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch.*")
def test_compiled_scores_what_eager_scores() -> None:
    """Two versions of one tiny layer function are compiled: two rows, 1 token and 3."""
    if not any(map(shutil.which, ("g++", "clang++", "c++"))):
        pytest.skip("inductor needs a C++ compiler and finds none")
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

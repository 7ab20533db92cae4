"""When a block ends: truth tables, and the twin's rules say the same."""

from __future__ import annotations

import random

import pytest
import torch

from ssd.core.chain import WINDOWS, Edge
from ssd.core.reference import Twin
from ssd.core.windows import Block, done, longest

CPU = torch.device("cpu")


def block(*rows):
    """A block from rows (count, rounds, last_max, last_full)."""
    count, rounds, last_max, last_full = zip(*rows, strict=True)
    return Block(torch.tensor(count), torch.tensor(rounds), torch.tensor(last_max), torch.tensor(last_full))


@pytest.mark.parametrize("window", WINDOWS)
def test_no_block_is_done_before_it_began(window):
    value = 1.0 if window == "confidence" else None
    for gamma in range(1, 7):
        assert done(window, gamma, value, Block.empty(2, CPU)).tolist() == [False, False]


# Rows: (count, rounds, last_max, last_full); gamma 4, threshold .5.
STATES = [(3, 3, 0.9, True), (4, 2, 0.9, True), (7, 1, 0.9, True), (3, 4, 0.9, True), (2, 1, 0.9, False),
          (5, 2, 0.9, False), (2, 1, 0.3, True), (2, 1, 0.5, True), (2, 1, 0.3, False), (4, 4, 0.1, False)]  # fmt: skip
TRUTH = {
    "at_least":         [0, 1, 1, 0, 0, 1, 0, 0, 0, 1],
    "exactly":          [0, 1, 1, 0, 0, 1, 0, 0, 0, 1],
    "rounds":           [0, 0, 0, 1, 0, 0, 0, 0, 0, 1],
    "until_correction": [0, 1, 1, 0, 1, 1, 0, 0, 1, 1],
    "confidence":       [0, 1, 1, 0, 0, 1, 1, 0, 1, 1],
}  # fmt: skip


@pytest.mark.parametrize("window", WINDOWS)
def test_truth_table(window):
    value = 0.5 if window == "confidence" else None
    assert done(window, 4, value, block(*STATES)).tolist() == [bool(x) for x in TRUTH[window]]


@pytest.mark.parametrize("window", WINDOWS)
def test_only_exactly_shortens_what_may_be_asked_for(window):
    limit = torch.tensor([0, 1, 3, 4, 5, 100])
    want = [0, 1, 3, 4, 4, 4] if window == "exactly" else limit.tolist()
    assert longest(window, 4, limit).tolist() == want


@pytest.mark.parametrize("window", WINDOWS)
def test_the_twin_agrees_on_random_states(window):
    source = random.Random(window)
    for _ in range(200):
        gamma = source.randint(1, 6)
        value = source.choice([0.0, 0.3, 0.5, 1.0]) if window == "confidence" else None
        rows = [
            (source.randint(0, 9), source.randint(0, 7), source.choice([0.0, 0.2, 0.3, 0.5, 0.7, 1.0]),
             source.random() < 0.5)
            for _ in range(8)
        ]  # fmt: skip
        state = block(*rows)
        state.last_max = state.last_max.double()
        want = [Twin.done(Edge(gamma, window, value), *row) for row in rows]
        assert done(window, gamma, value, state).tolist() == want


@pytest.mark.parametrize(("window", "value"), [("confidence", None), ("at_least", 0.5), ("whole", None)])
def test_an_edge_refuses_a_window_that_does_not_fit(window, value):
    with pytest.raises(ValueError, match=r"edge\.window"):
        Edge(3, window, value)

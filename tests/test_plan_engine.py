"""The chain recursion against the decoder itself, on laws that are the same after every prefix.

For such laws acceptance given the fate one level below is a sum over the vocabulary, so a chain of depth 2 is
predicted without any measurement. False alarms: 30 chunks, at most 25 comparisons a case beyond 6 standard
errors (Student's t with 29 degrees of freedom: 1.6e-6 each, two-sided), below 2e-4 for the file; seeds are fixed.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from simulated_chain import deviation

from ssd.core.chain import Chain, Edge, Level
from ssd.core.decode import Decoder
from ssd.core.requests import Request
from ssd.plan.acceptance import ByFate, Constant
from ssd.plan.chain_recursion import ChainRecursion
from ssd.plan.edge_plan import EdgePlan
from ssd.plan.pass_counts import batch_passes, level_work

LAWS = np.array([[0.7, 0.1, 0.1, 0.1], [0.4, 0.4, 0.1, 0.1], [0.45, 0.05, 0.2, 0.3]])
FAR, CHUNKS, ROUNDS = 6.0, 30, 10


class FixedScorer:
    """A model with one law; it notes how wide each of its passes is."""

    def __init__(self, law):
        self.row = torch.tensor(law, dtype=torch.float64).log()
        self.vocab_size = self.embeddings = len(law)
        self.max_positions, self.owner = None, None
        self.device, self.dtype = torch.device("cpu"), torch.float64
        self.widths = []

    def allocate(self, batch, slots):
        pass

    def fill(self, tokens, start):
        self.widths.append(tokens.shape[1])

    def score(self, tokens, start, keep):
        self.fill(tokens, start)
        return self.row.expand(tokens.shape[0], keep, -1)


def acceptance_of(p0, p1, p2):
    """Acceptance of L1's tokens by L2 given what they were below, for laws without memory."""
    passes = np.minimum(1, p2 / p1)
    shared, owed = np.minimum(p0, p1), np.maximum(p1 - p0, 0)
    own = float(p1 @ passes)
    return ByFate(float(shared @ passes / shared.sum()), float(owed @ passes / owed.sum()), own, own)


def decoded(edges, rows):
    """Tokens per row and round [C], and per level passes by width [C, levels, 40], from the decoder."""
    scorers = [FixedScorer(law) for law in LAWS]
    chain = Chain(tuple(Level(s) for s in scorers), tuple(Edge(e.gamma, e.window) for e in edges))
    requests = [Request((0,), seed=11, max_new_tokens=20 * CHUNKS * ROUNDS) for _ in range(rows)]
    decoder = Decoder(chain, requests)
    at, room = torch.ones(rows, dtype=torch.int64), torch.full((rows,), 10**6)
    tokens, passes = np.zeros(CHUNKS), np.zeros((CHUNKS, 3, 40))
    for chunk in range(-1, CHUNKS):  # the first few rounds hold the prompt
        for scorer in scorers:
            scorer.widths.clear()
        before = at.sum().item()
        for _ in range(ROUNDS):
            at = at + decoder.round(decoder.top, at, room, decoder.root, decoder.prompt).count
        if chunk >= 0:
            tokens[chunk] = (at.sum().item() - before) / ROUNDS / rows
            for level, scorer in enumerate(scorers):
                passes[chunk, level] = np.bincount(scorer.widths, minlength=40) / ROUNDS
    return tokens, passes


def deviations(edges, rows, upper):
    tokens, passes = decoded(edges, rows)
    lower = Constant(float(np.minimum(LAWS[0], LAWS[1]).sum()))
    chain = ChainRecursion(edges, [lower, upper])
    out = {"tokens": deviation(tokens, level_work(chain, 2).tokens)}
    for level, expected in enumerate(batch_passes(chain, rows)):
        out[f"L{level}"] = deviation(passes[:, level].sum(axis=1), expected.sum())
        for width, n in enumerate(expected):
            if rows == 1 and n > 0.1:
                out[f"L{level} width {width}"] = deviation(passes[:, level, width], n)
    return out


@pytest.mark.parametrize("window", ["at_least", "exactly", "rounds", "until_correction"])
def test_the_decoder_runs_the_passes_the_recursion_says(window):
    found = deviations([EdgePlan(2), EdgePlan(3, window)], 1, acceptance_of(*LAWS))
    assert max(found.values()) < FAR, found


def test_the_decoder_runs_as_many_passes_in_a_batch():
    found = deviations([EdgePlan(2), EdgePlan(3)], 3, acceptance_of(*LAWS))
    assert max(found.values()) < FAR, found


def test_the_comparison_notices_swapped_fates():
    upper = acceptance_of(*LAWS)
    assert upper.recovered < 0.2 < 0.8 < upper.draft
    swapped = ByFate(upper.recovered, upper.draft, upper.bonus, upper.plain)
    assert max(deviations([EdgePlan(2), EdgePlan(3)], 1, swapped).values()) > 2 * FAR


@pytest.mark.parametrize(("window", "same"), [("exactly", True), ("at_least", False), ("until_correction", False)])
def test_only_a_block_of_fixed_length_lets_fates_be_forgotten(window, same):
    """L1's tokens have L1's law however they came about, but windows that look at rounds end blocks at some fates."""
    upper, mean = acceptance_of(*LAWS), float(np.minimum(LAWS[1], LAWS[2]).sum())
    lower = Constant(float(np.minimum(LAWS[0], LAWS[1]).sum()))
    edges = [EdgePlan(2), EdgePlan(3, window)]
    by_fate, plain = (level_work(ChainRecursion(edges, [lower, a]), 2).tokens for a in (upper, Constant(mean)))
    assert (abs(by_fate - plain) < 1e-12) == same
    assert same or abs(by_fate - plain) > 0.02

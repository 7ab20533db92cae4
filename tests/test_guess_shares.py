"""Shares of next tokens among a draft's best guesses: against outcomes written out one by one, and against dice.

The dice test draws 40,000 rounds and fails beyond 5 standard errors (5.7e-7 each, 4 comparisons); its seed is fixed.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from bigram_chains import bigram_chain, random_logits
from test_calibrate_overlaps import CONTEXTS, VOCAB, whole_table

from ssd.calibrate.contexts import Context
from ssd.calibrate.guess_shares import guess_shares
from ssd.core.chain import Edge
from ssd.core.requests import Sampling

IDS = torch.tensor([9, 2, 0, 5, 7, 1])


def written_out(draft, verifier, ranks, contexts, guesses):
    """Shares by going through every draft token, next token and position; laws [V, VOCAB] over the target's ids."""
    sums, weights = np.zeros((2, guesses)), np.zeros(2)
    for context in contexts:
        passed_before = 0.0
        for i in range(context.new):
            last = context.ids[len(context.ids) - context.new + i - 1]
            q, p, order = draft[last], verifier[last], ranks[last]
            overlap = np.minimum(p, q).sum()
            residual = np.maximum(p - q, 0)
            weights += 1 - overlap, passed_before
            for f in range(1, guesses + 1):
                sums[1, f - 1] += passed_before * p[order[:f]].sum()
                for x in np.flatnonzero(q):
                    rejected = q[x] * max(0.0, 1 - p[x] / q[x])
                    if rejected > 0:
                        chosen = [y for y in order if y != x][:f]
                        sums[0, f - 1] += rejected * residual[chosen].sum() / residual.sum()
            passed_before = overlap
    return sums / weights[:, None]


@pytest.mark.parametrize(("temperature", "ids"), [(1.0, None), (0.7, IDS), (0.0, None), (0.0, IDS)])
@pytest.mark.parametrize("chunk", [1, 3, 64])
def test_shares_are_those_of_all_outcomes(temperature, ids, chunk):
    tables = [random_logits(0, VOCAB, None if ids is None else len(ids)), random_logits(1, VOCAB)]
    chain = bigram_chain(tables, [Edge(2)], [ids, None])
    texts = [Context("c", "math", tuple(i * 5 % VOCAB for i in range(40)), 30), *CONTEXTS]
    draft, verifier = (whole_table(t, i, temperature, 0) for t, i in zip(tables, (ids, None), strict=True))
    own = np.arange(VOCAB) if ids is None else ids.numpy()
    ranks = [own[np.argsort(-row)] for row in tables[0].numpy()]
    wanted = written_out(draft, verifier, ranks, texts, 8)
    (found,) = guess_shares(chain, texts, Sampling(temperature), 8, chunk).values()
    np.testing.assert_allclose(found, wanted, atol=1e-9)
    assert found[0][-1] > found[0][0] or temperature == 0


def test_dice_of_rounds_hit_as_often():
    """Negative control: the shares of tokens the verifier draws unconditionally are not those after a rejection."""
    tables = [random_logits(k, VOCAB, spread=0.7) for k in (3, 4)]
    text = Context("c", "math", (0, 5), 1)
    (found,) = guess_shares(bigram_chain(tables, [Edge(2)]), [text], Sampling(1.0), 4).values()
    q, p = (whole_table(t, None, 1.0, 0)[0] for t in tables)
    order, dice, n = np.argsort(-q), np.random.default_rng(5), 40_000
    x, y = dice.choice(VOCAB, n, p=q), dice.choice(VOCAB, n, p=np.maximum(p - q, 0) / np.maximum(p - q, 0).sum())
    rejected = dice.random(n) * q[x] >= p[x]
    for f in range(1, 5):
        hits = np.array([b in [t for t in order if t != a][:f] for a, b in zip(x[rejected], y[rejected], strict=True)])
        share = found[0][f - 1]
        assert abs(hits.mean() - share) <= 5 * math.sqrt(share * (1 - share) / rejected.sum())
        assert abs(p[order[:f]].sum() - share) > 0.02


def test_a_draft_that_never_fails_has_no_rejections_to_guess_after():
    table = random_logits(0, VOCAB)
    (found,) = guess_shares(bigram_chain([table, table], [Edge(2)]), CONTEXTS, Sampling(0.0), 3).values()
    assert found == ([0.0] * 3, [1.0] * 3)

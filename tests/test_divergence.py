"""First differences with their logit gap, log-probabilities and overlaps of given texts, against whole passes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from ssd.bench.divergence import Parting, Rescorer, partings, row_noise
from ssd.bench.teacher_forced import teacher_forced
from ssd.certify.target_scores import total_log_probability
from ssd.certify.tiny_models import P, chain_of, greedy, next_logits, tiny_llama
from ssd.core.chain import Edge
from ssd.core.model import CachedModel
from tests.scripted_records import record

WIDTH = 4


def compared(module, ours, theirs):
    records = [record("a", ids=ours)], [record("a", "ar", ids=theirs)]
    return partings(*records, {"a": P}, Rescorer(CachedModel(module), WIDTH))


def test_the_gap_is_the_difference_of_the_baselines_logits():
    module = tiny_llama(0)
    theirs = greedy(module, P, 9)
    for at in (0, 5, 8):
        other = (theirs[at] + 1) % 64
        found = compared(module, [*theirs[:at], other, 7], theirs)[0]
        row = next_logits(module, (*P, *theirs[:at]))[0, 0]
        assert (found.prompt_id, found.method, found.position) == ("a", "spec", at)
        assert (found.ours, found.theirs) == (other, theirs[at])
        assert found.gap == pytest.approx(float(row[theirs[at]] - row[other]), rel=1e-5)
        assert found.block_gap == pytest.approx(found.gap, rel=1e-5)  # float64: a block rounds to the same
        best = row.topk(2).values
        assert found.top_two == pytest.approx(float(best[0] - best[1]), rel=1e-5)
        assert found.block_top_two == pytest.approx(found.top_two, rel=1e-5)
        assert not found.is_tie
    assert compared(module, theirs, theirs) == []


def test_equal_logits_are_a_tie_and_other_gaps_are_not():
    """B27: an exact tie is one in every precision; a gap beyond rounding is a fault in every precision."""
    for dtype in (torch.float64, torch.bfloat16):
        module = tiny_llama(0, dtype=dtype)
        first = greedy(module, P, 1)[0]
        twin = (first + 1) % 64
        module.lm_head.weight.data[twin] = module.lm_head.weight.data[first]
        theirs = greedy(module, P, 6)
        ours = [twin if theirs[0] == first else first, *theirs[1:]]
        found = compared(module, ours, theirs)[0]
        assert (found.position, found.gap, found.is_tie) == (0, 0.0, True)
        worst = int(next_logits(module, P)[0, 0].argmin())
        far = compared(module, [worst, *theirs[1:]], theirs)[0]
        assert far.gap > 2 * far.epsilon
        assert not far.is_tie
    bound = [replace(far, gap=gap, epsilon=0.25).is_tie for gap in (0.5, -0.5, 0.51)]
    assert bound == [True, True, False]


def test_gaps_of_blocks_are_those_of_passes_as_wide_as_a_verification():
    module = tiny_llama(0, dtype=torch.bfloat16)
    theirs = greedy(module, P, 9)
    at, other = 7, (theirs[7] + 1) % 64
    found = compared(module, [*theirs[:at], other], theirs)[0]
    model = CachedModel(module)
    rows = []
    for width in (1, WIDTH):
        model.allocate(1, 32)
        model.fill(torch.tensor([P[:-1]]), torch.tensor([0]))
        text = torch.tensor([[P[-1], *theirs[:at]]])
        for start in range(0, at + 1, width):
            block = text[:, start : start + width]
            row = model.score(block, torch.tensor([len(P) - 1 + start]), 1)[0, -1].float()
        rows.append(float(row[theirs[at]] - row[other]))
    assert (found.gap, found.block_gap) == tuple(rows)


def test_the_noise_of_a_row_is_the_largest_change_of_its_gap_over_widths():
    class Scripted(Rescorer):
        """Widths of 1, 2 and 3 tokens with gaps of their own between tokens 1 and 0."""

        def logits(self, prompt, output, width):
            return torch.tensor([[0.0, 9.0, 0.0], [2.0, 2.0 + {1: 0.5, 2: 0.75, 3: -0.125}[width], 0.0]])

    def noise(dtype, width=3):
        target = CachedModel(tiny_llama(0, dtype=dtype))
        return row_noise(Parting("a", "spec", 1, 0, 1, 0.5, 1.0), P, [4, 1, 7], Scripted(target, width))

    assert noise(torch.bfloat16) == 0.625  # the widest prefers the other token: at least the gap
    assert noise(torch.bfloat16, 2) == 0.25
    assert noise(torch.bfloat16, 1) == 2.5 / 128  # no wider block: what rounding 2.5 can change
    assert noise(torch.float64, 1) == pytest.approx(2.5 * 2.0**-52)


def test_an_output_that_ends_early_is_no_tie():
    module = tiny_llama(0)
    theirs = greedy(module, P, 5)
    for ours, pair in ((theirs[:3], (-1, theirs[3])), ([*theirs, 3], (3, -1))):
        found = compared(module, ours, theirs)[0]
        assert (found.position, found.gap, found.is_tie) == (min(len(ours), 5), None, False)
        assert (found.ours, found.theirs) == pair


def test_log_probability_is_that_of_one_whole_pass():
    module = tiny_llama(0)
    prompt, output = (1, 5, 9, 5), (3, 8, 2, 60, 0)
    with torch.inference_mode():
        rows = module(torch.tensor([[*prompt, *output]])).logits[0].log_softmax(-1)
    wanted = sum(float(rows[len(prompt) - 1 + i, token]) for i, token in enumerate(output))
    model = CachedModel(module)
    assert total_log_probability(model, prompt, output) == (pytest.approx(wanted, rel=1e-6), 5)
    assert total_log_probability(model, prompt, ()) == (0.0, 0)
    shifted = total_log_probability(model, prompt, output[::-1])[0]
    assert shifted != pytest.approx(wanted, rel=1e-3)


def test_teacher_forced_overlaps_are_those_of_whole_passes():
    draft, target = tiny_llama(1, layers=1), tiny_llama(0)
    texts = torch.tensor([[1, 5, 9, 5, 9, 5, 9, 2] * 10, list(range(40)) * 2])  # longer than one chunk
    found = teacher_forced(chain_of([draft, target], [Edge(2)]), texts, [(0, 1)], [1.0, 0.5, 0.0])
    with torch.inference_mode():
        logits = [module(texts).logits for module in (draft, target)]
    for temperature in (1.0, 0.5):
        p, q = ((x / temperature).softmax(-1) for x in logits)
        wanted = torch.minimum(p, q).sum(-1)
        overlap = found[0, 1, temperature]
        assert overlap.value == pytest.approx(float(wanted.mean()), abs=1e-6)
        assert overlap.stderr == pytest.approx(float(wanted.mean(1).std()) / 2**0.5, abs=1e-6)
        assert overlap.n == 160
    agree = (logits[0].argmax(-1) == logits[1].argmax(-1)).double()
    assert found[0, 1, 0.0].value == pytest.approx(float(agree.mean()))

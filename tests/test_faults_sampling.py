"""Faults that users of other decoders have reported: which law tokens are drawn from.

B07: a greedy draft verified with its softmax (huggingface/transformers #32867, SafeAILab/EAGLE #183).
B09: verification ignores temperature or top-p (vllm-project/vllm #9834).
B10: an empty residual, u = 0 (jaymody/speculative-sampling #5, vllm-project/vllm #2336).
B12: the first draft token is not verified (ohdearquant/lattice #243).
B13: row 0's settings for all rows (sgl-project/sglang-jax #1293).
B14: seeds that are not honoured (vllm-project/vllm #6038, #9441, #11123).

Reference rows p2 (target), p1, p0 over three ids. Frequencies are those of 20,000 rows; each must
be within .015 of its probability. The standard deviation is at most .0036, so a right sampler
leaves that band with probability below 4e-5 per frequency; the seeds are fixed.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from ssd.certify.row_scorer import RowScorer
from ssd.certify.table_models import fixed, table_level
from ssd.certify.tiny_models import P, chain_of, tiny_llama
from ssd.core import randomness as rng
from ssd.core.chain import Chain, Edge, Level
from ssd.core.generate import generate
from ssd.core.ngram import Ngram
from ssd.core.reference import Chooser, Twin, enumerate_law
from ssd.core.requests import Override, Request, Sampling
from ssd.core.sampling import Law, draw
from ssd.core.verification import Draft, Ids, owed, verify_by_token

P2, P1, P0 = (0.5, 0.3, 0.2), (0.2, 0.2, 0.6), (0.6, 0.3, 0.1)
DRAWS, BATCH = 20_000, 5_000
JUST_BELOW_1 = 1 - 2**-53
GREEDY = Override(temperature=0)


def table_chain(rows: Sequence[Sequence[float]], overrides: Sequence[Override] = (), gamma: int = 1) -> Chain:
    """Levels with one law each, whatever came before."""
    overrides = [*overrides, *[Override()] * (len(rows) - len(overrides))]
    levels = [Level(RowScorer([row] * len(row)), own) for row, own in zip(rows, overrides, strict=True)]
    return Chain(tuple(levels), tuple(Edge(gamma) for _ in rows[1:]))


def frequencies(chain: Chain, sampling: Sampling, new: int) -> torch.Tensor:
    """[new, 3] share of each id at each of the first ``new`` positions."""
    counts = torch.zeros(new, 3, dtype=torch.float64)
    for begin in range(0, DRAWS, BATCH):
        requests = [Request((0,), sampling, request=0, sample=begin + i, max_new_tokens=new) for i in range(BATCH)]
        ids = torch.tensor([g.ids for g in generate(chain, requests)])
        counts += torch.nn.functional.one_hot(ids, 3).sum(0)
    return counts / DRAWS


def assert_law(
    rows: Sequence[Sequence[float]],
    right: Sequence[float],
    sampling: Sampling,
    overrides: Sequence[Override] = (),
    counted: bool = True,
) -> None:
    """The twin's law is exact, the engine is the twin row by row, and (``counted``) its frequencies are right."""
    chain, new = table_chain(rows, overrides), len(rows)  # every level drafts for the first token
    settings = [sampling.overridden_by(level.sampling) for level in chain.levels]
    twins = [table_level(fixed(row), own) for row, own in zip(rows, settings, strict=True)]

    def run(chooser: Chooser) -> list[int]:
        return Twin(twins, chain.edges, chooser).generate([0], 3, 0)

    for ids, mass in enumerate_law(run).items():
        assert math.isclose(mass, math.prod(right[t] for t in ids), abs_tol=1e-12)
    requests = [Request((0,), sampling, request=0, sample=i, max_new_tokens=new) for i in range(300)]
    for request, got in zip(requests, generate(chain, requests), strict=True):
        root = rng.root_int(0, 0, request.sample)
        assert list(got.ids) == Twin(twins, chain.edges).generate([0], new, root)
    if not counted:
        return
    found, exact = frequencies(chain, sampling, new), torch.tensor(right, dtype=torch.float64)
    assert (found - exact).abs().max() < 0.015
    assert not found[:, exact == 0].any()


B07 = {
    "greedy pair": ([P1, P2], [GREEDY]),
    "greedy L0 of three": ([P0, P1, P2], [GREEDY]),
    "greedy L1 of three": ([P0, P1, P2], [Override(), GREEDY]),
    "both greedy": ([P0, P1, P2], [GREEDY, GREEDY]),
    "colder draft": ([P1, P2], [Override(temperature=0.3)]),
    "filtered drafts": ([P0, P1, P2], [Override(top_k=1), Override(top_p=0.5, temperature=1.5)]),
}


@pytest.mark.parametrize("case", sorted(B07))
def test_b07_a_drafts_own_settings_move_no_frequency(case: str) -> None:
    rows, overrides = B07[case]
    assert_law(rows, P2, Sampling(), overrides, counted=case.startswith("greedy L0") or len(rows) == 2)


def overlaps(rows: Sequence[Sequence[float]], overrides: Sequence[Override], edge: int) -> set[float]:
    """Every overlap an edge reports over 20 short rows."""
    requests = [Request((0,), sample=i, max_new_tokens=9) for i in range(20)]
    results = generate(table_chain(rows, overrides), requests)
    return {round(x, 6) for g in results for r in g.rounds if r.edge == edge for x in r.overlap}


def test_b07_overlap_of_a_greedy_draft_is_that_of_a_point_mass() -> None:
    """Greedy p1 is one-hot on id 2, where the target has .2."""
    assert overlaps([P1, P2], [], 0) == {0.6}
    assert overlaps([P1, P2], [GREEDY], 0) == {0.2}
    assert overlaps([P0, P1, P2], [GREEDY], 0) == {0.2}
    assert overlaps([P0, P1, P2], [Override(), GREEDY], 1) == {0.2}


def test_b07_overlap_of_a_greedy_verifier_is_that_of_a_point_mass() -> None:
    """Greedy p1 is one-hot on id 2, where p0, which is sampled, has .1."""
    assert overlaps([P0, P1, P2], [Override(), GREEDY], 0) == {0.1}


def tempered(row: Sequence[float], temperature: float) -> list[float]:
    powers = [p ** (1 / temperature) for p in row]
    return [p / sum(powers) for p in powers]


B09 = {
    "hot": (Sampling(2.0), tempered(P2, 2.0), [0.415, 0.322, 0.263]),
    "cold": (Sampling(0.5), tempered(P2, 0.5), [0.658, 0.237, 0.105]),
    "top_p": (Sampling(1.0, top_p=0.7), [0.625, 0.375, 0.0], [0.625, 0.375, 0.0]),
    "top_k": (Sampling(2.0, top_k=2), [*tempered(P2[:2], 2.0), 0.0], [0.564, 0.436, 0.0]),
    "min_p": (Sampling(1.0, min_p=0.5), [0.625, 0.375, 0.0], [0.625, 0.375, 0.0]),
}
ROWS = {"ar": [P2], "pair": [P1, P2], "triple": [P0, P1, P2]}


@pytest.mark.parametrize("mode", sorted(ROWS))
@pytest.mark.parametrize("case", sorted(B09))
def test_b09_the_rows_settings_hold_in_every_mode(case: str, mode: str) -> None:
    sampling, right, stated = B09[case]
    assert right == pytest.approx(stated, abs=6e-4)
    assert_law(ROWS[mode], right, sampling, counted=case in ("hot", "cold", "top_p"))


def verified(target: Sequence[float], draft: Sequence[float] | None, token: int, accept: float, draws: float) -> Any:
    """(accepted, added token) of one draft token against one target row, with given uniforms."""
    probs = None if draft is None else torch.tensor([[draft]], dtype=torch.float64)
    rows = Law(torch.tensor([[target, target]], dtype=torch.float64), None)
    out = verify_by_token(
        Draft(torch.tensor([[token]]), probs, torch.tensor([1])), rows, Ids(),
        lambda width: torch.full((1, width), accept, dtype=torch.float64),
        lambda accepted: torch.full((1,), draws, dtype=torch.float64),
    )  # fmt: skip
    return int(out.accepted), int(out.tokens[0, out.accepted])


@pytest.mark.parametrize("u", [0.0, 0.25, 0.5, 0.75, JUST_BELOW_1])
def test_b10_no_residual_and_extreme_uniforms(u: float) -> None:
    half = (0.5, 0.5, 0.0)
    for accept in (0.0, 0.3, JUST_BELOW_1):
        assert verified(half, half, 0, accept, u) == (1, int(u >= 0.5))
        assert verified((0.0, 1.0, 0.0), (0.0, 1.0, 0.0), 1, accept, u) == (1, 1)  # both at temperature 0
        assert verified((0.0, 1.0, 0.0), None, 1, accept, u) == (1, 1)
        assert verified(half, (0.0, 0.0, 1.0), 2, accept, u) == (0, int(u >= 0.5))  # probability 0, u = 0 included
        assert verified(half, None, 2, accept, u) == (0, int(u >= 0.5))
    target = torch.tensor([[half, half]], dtype=torch.float64)
    draft = Draft(torch.tensor([[0]]), target[:, :1], torch.tensor([1]))
    weights = owed(draft, target, Ids(), draft.tokens, torch.tensor([0]))  # a rejection that cannot happen
    assert weights.tolist() == [list(half)]


def test_b10_rounding_of_the_residual_puts_no_mass_where_the_target_has_none() -> None:
    """Float32 laws that differ by rounding only, with zeros in different places."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        scores = torch.randn(4000, 12)
        target = scores.masked_fill(torch.rand(4000, 12) < 0.4, -math.inf)
        target[:, 0] = scores[:, 0]
        draft = (target + 1e-7 * torch.randn(4000, 12)).masked_fill(torch.rand(4000, 12) < 0.2, -math.inf)
        draft[:, 0] = scores[:, 0]
        u = torch.cat([torch.zeros(1000), torch.rand(2000), torch.full((1000,), JUST_BELOW_1)]).double()
    target_probs, draft_probs = target.softmax(-1), draft.softmax(-1)
    block = Draft(torch.zeros(4000, 1, dtype=torch.int64), draft_probs[:, None], torch.ones(4000, dtype=torch.int64))
    weights = owed(block, target_probs[:, None], Ids(), block.tokens, torch.zeros_like(block.count))
    assert weights.isfinite().all()
    assert (weights.sum(-1) > 0).all()
    assert (target_probs.gather(1, draw(weights, u)[:, None]) > 0).all()


@pytest.mark.parametrize("weights", [[0, 0, 1.0], [0, 1e-300, 0], [0.1, 0.2, 0], [5e-324, 0, 0], [3.0, 0, 4.0]])
@pytest.mark.parametrize("u", [0.0, 2**-53, 0.5, JUST_BELOW_1])
def test_b10_a_draw_never_falls_on_weight_zero(weights: list[float], u: float) -> None:
    drawn = int(draw(torch.tensor([weights], dtype=torch.float64), torch.tensor([u], dtype=torch.float64)))
    assert weights[drawn] > 0
    if u == 0:
        assert not any(weights[:drawn])


@pytest.mark.parametrize("gamma", [1, 2])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_b12_the_first_draft_token_is_verified_like_any_other(gamma: int, temperature: float) -> None:
    """The target says 2 after 1; the look-up proposes 1."""
    target = RowScorer([[1, 0, 0], [0, 0, 1], [0, 1, 0]])
    chain = Chain((Level(Ngram()), Level(target)), (Edge(gamma),))
    got = generate(chain, [Request((1, 1, 1), Sampling(temperature), max_new_tokens=6)])[0]
    assert got.ids == (2, 1, 2, 1, 2, 1)
    first = got.rounds[0]
    assert (first.drafted, first.tested, first.accepted, first.emitted, first.end) == (1, 1, 0, 1, "recovered")


@pytest.mark.parametrize("mode", sorted(ROWS))
@pytest.mark.parametrize("temperatures", [(0.0, 1.0), (1.0, 0.0)])
def test_b13_each_row_has_its_own_temperature(mode: str, temperatures: tuple[float, float]) -> None:
    chain, new = table_chain(ROWS[mode], gamma=2), 5
    requests = [Request((0,), Sampling(temperatures[i % 2]), sample=i, request=0, max_new_tokens=new)
                for i in range(2 * BATCH)]  # fmt: skip
    ids = torch.tensor([g.ids for g in generate(chain, requests)]).unflatten(0, (BATCH, 2))
    greedy, sampled = temperatures.index(0.0), temperatures.index(1.0)
    assert not ids[:, greedy].any()
    counts = torch.nn.functional.one_hot(ids[:, sampled].flatten(), 3).double().mean(0)
    assert (counts - torch.tensor(P2)).abs().max() < 0.015  # 25,000 independent tokens


def test_b13_swapping_rows_swaps_results() -> None:
    chain = chain_of([tiny_llama(2, 1), tiny_llama(1), tiny_llama(0)], [Edge(2), Edge(3)])
    settings = [Sampling(0), Sampling(1.0), Sampling(0.7, top_k=5), Sampling(1.2, top_p=0.8), Sampling(1.0, min_p=0.1)]
    rows = [Request(P, s, request=7, max_new_tokens=20) for s in settings]
    first = [g.ids for g in generate(chain, rows)]
    assert len(set(first)) == len(first)
    for shift in (1, 3):
        assert [g.ids for g in generate(chain, rows[shift:] + rows[:shift])] == first[shift:] + first[:shift]
    assert [generate(chain, [r])[0].ids for r in rows] == first


SCRIPT = """
from ssd.certify.tiny_models import P, chain_of, tiny_llama
from ssd.core.chain import Edge
from ssd.core.generate import generate
from ssd.core.requests import Request
chain = chain_of([tiny_llama(2, 1), tiny_llama(1), tiny_llama(0)], [Edge(2), Edge(3)])
print([list(g.ids) for g in generate(chain, [Request(P, seed=7, max_new_tokens=24)] * 3)])
"""


def test_b14_a_seed_gives_the_same_tokens_in_any_process() -> None:
    chain = chain_of([tiny_llama(2, 1), tiny_llama(1), tiny_llama(0)], [Edge(2), Edge(3)])

    def run(*seeds: int) -> list[list[int]]:
        return [list(g.ids) for g in generate(chain, [Request(P, seed=s, max_new_tokens=24) for s in seeds])]

    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(1)
        state = torch.default_generator.get_state()
        first = run(7, 7, 7)
        assert torch.equal(torch.default_generator.get_state(), state)  # the global generator is not touched
        torch.default_generator.manual_seed(2)
        assert run(7, 7, 7) == first
    assert len({tuple(ids) for ids in first}) == 3
    assert all(any(ids) for ids in first)
    others = run(8, 7, 9)
    assert others[1] == first[1]
    assert others[0] != first[0]
    assert others[2] != first[2]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    fresh = subprocess.run([sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True, check=True)
    assert fresh.stdout.strip() == str(first)

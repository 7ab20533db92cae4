"""Verification of whole blocks: exact by enumeration, equal to the plain rule where it must be, and never worse."""

from __future__ import annotations

import random
from itertools import product

import pytest
import torch
from test_twin_law import TOLERANCE, VISIBLE, chain, error
from test_verification import always, rows

from ssd.certify.table_models import TableScorer, fixed
from ssd.core import decode
from ssd.core.block_verification import left_over, pass_probability, verify_by_block, weights
from ssd.core.chain import WINDOWS, Chain, Edge, Level
from ssd.core.generate import generate
from ssd.core.reference import Twin, enumerate_law, residual
from ssd.core.requests import Request
from ssd.core.sampling import Law
from ssd.core.verification import Draft, Ids, verify_by_token


def block_edge(window, gamma, verification="block"):
    """An edge that verifies whole blocks."""
    return Edge(gamma, window, 0.6 if window == "confidence" else None, verification)


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("verification", [("block", "block"), ("token", "block"), ("block", "token")])
def test_whole_sequences_have_the_targets_law(window, verification):
    edges = [block_edge(window, 2, verification[0]), block_edge(window, 3, verification[1])]
    # Three ids: of two, a residual has one left whatever its weights, and faults in them do not show.
    assert error(chain(2, 3, f"{window}{verification}"), edges, 3, 4) < TOLERANCE


def test_depth_three_has_the_targets_law():
    edges = [block_edge("at_least", 1), block_edge("until_correction", 2), block_edge("exactly", 2)]
    assert error(chain(3, 2, "deep"), edges, 2, 4) < TOLERANCE


class _Unweighted(Twin):
    """The residual of the token rule under the block rule."""

    @staticmethod
    def verify_by_block(tokens, drafts, laws, accept):
        kept, added = Twin.verify_by_block(tokens, drafts, laws, accept)
        return kept, added if kept == len(tokens) else residual(1.0, laws[kept], drafts[kept])


class _TokenTests(Twin):
    """Each prefix passes with its weight, as if no longer prefix had been tried."""

    @staticmethod
    def verify_by_block(tokens, drafts, laws, accept):
        weight = [1.0]
        for i, token in enumerate(tokens):
            weight.append(min(1.0, weight[-1] * laws[i][token] / drafts[i][token]))
        kept = next((n for n in range(len(tokens), 0, -1) if accept(weight[n], n - 1)), 0)
        whole = kept == len(tokens)
        return kept, laws[-1] if whole else residual(weight[kept], laws[kept], drafts[kept])


@pytest.mark.parametrize("fault", [_Unweighted, _TokenTests])
def test_planted_faults_show_in_the_enumeration(fault):
    edges = [block_edge("at_least", 3)]
    assert error(chain(1, 3, "fault"), edges, 3, 4, fault) > VISIBLE


def accepted_tokens(verification, name):
    """Expected draft tokens accepted in one round of three."""
    levels = chain(1, 3, name)
    law = enumerate_law(
        lambda chooser: Twin(levels, [block_edge("at_least", 3, verification)], chooser).round(1, [1, 0], 4, 0)[0]
    )
    return sum(mass * (len(tokens) - 1) for tokens, mass in law.items())


def test_it_accepts_at_least_as_many_as_the_token_rule():
    """Theorem 2 of the paper; on most tables strictly more."""
    gains = [accepted_tokens("block", f"t{i}") - accepted_tokens("token", f"t{i}") for i in range(6)]
    assert min(gains) > -TOLERANCE
    assert max(gains) > 0.01


def test_a_draft_of_one_token_is_verified_as_by_token():
    for u, v in product((0.0, 0.2, 0.45, 0.8), repeat=2):
        draft = Draft(torch.tensor([[2]]), rows([0.2, 0.2, 0.6]), torch.tensor([1]))
        law = Law(rows([0.5, 0.3, 0.2], [0.1, 0.8, 0.1]), None)
        ours, theirs = (
            verify(draft, law, Ids(), always(u), always(v)) for verify in (verify_by_block, verify_by_token)
        )
        assert torch.equal(ours.tokens, theirs.tokens)
        assert torch.equal(ours.count, theirs.count)


def one_by_one(tokens, drafts, laws, u, v):
    """The twin's rule with given uniforms: accepted, added."""
    kept, owed = Twin.verify_by_block(tokens, drafts, laws, lambda p, i: u[i] < p)
    point, running = v * sum(owed), 0.0
    for i, w in enumerate(owed):
        running += w
        if w > 0 and running > point:
            return kept, i
    raise AssertionError("the weights are all zero")


def random_law(rng, size):
    weights = [rng.random() if rng.random() < 0.7 else 0.0 for _ in range(size - 1)] + [rng.random()]
    return [w / sum(weights) for w in weights]


def test_ragged_rows_equal_the_list_version():
    rng = random.Random(5)
    for _ in range(300):
        width, size, batch = rng.randint(1, 4), 4, 3
        laws = [[random_law(rng, size) for _ in range(width + 1)] for _ in range(batch)]
        drafts = [[random_law(rng, size) for _ in range(width)] for _ in range(batch)]
        tokens = [[rng.choices(range(size), d)[0] for d in row] for row in drafts]
        count = [rng.randint(0, width) for _ in range(batch)]
        u = [[rng.random() for _ in range(width)] for _ in range(batch)]
        v = [rng.random() for _ in range(batch)]
        draft = Draft(torch.tensor(tokens), torch.tensor(drafts, dtype=torch.float64), torch.tensor(count))
        emitted = verify_by_block(
            draft, Law(torch.tensor(laws, dtype=torch.float64), None), Ids(),
            lambda w, u=u: torch.tensor(u, dtype=torch.float64), lambda a, v=v: torch.tensor(v, dtype=torch.float64),
        )  # fmt: skip
        for i, n in enumerate(count):
            kept, added = one_by_one(tokens[i][:n], drafts[i][:n], laws[i][: n + 1], u[i], v[i])
            assert emitted.tokens[i, : kept + 1].tolist() == [*tokens[i][:kept], added]
            assert int(emitted.count[i]) == kept + 1
            assert bool(emitted.full[i]) == (kept == n)


def test_a_draft_token_the_verifier_lacks_is_never_kept():
    """Draft ids 0, 1, 2 are the target's 0, 1, 2; the verifier knows 0 and 2 only."""
    ids = Ids(None, torch.tensor([0, -1, 1]), torch.tensor([0, 2]), torch.tensor([0, -1, 1]))
    draft = Draft(torch.tensor([[1, 0]]), rows([0.2, 0.6, 0.2], [0.5, 0.3, 0.2]), torch.tensor([2]))
    law = Law(rows([0.7, 0.3], [0.5, 0.5], [0.5, 0.5]), None)
    for u, v in product((0.0, 0.5, 1 - 2.0**-53), repeat=2):
        emitted = verify_by_block(draft, law, ids, always(u), always(v))
        assert emitted.accepted.tolist() == [0]
        assert emitted.tokens[0, 0].item() in (0, 2)


def test_tokens_of_target_probability_zero_fail_even_at_u_zero():
    draft = Draft(torch.tensor([[2, 0]]), rows([0.2, 0.2, 0.6], [0.4, 0.3, 0.3]), torch.tensor([2]))
    law = Law(rows([0.6, 0.4, 0.0], [0.5, 0.5, 0.0], [1.0, 0.0, 0.0]), None)
    for v in (0.0, 0.5, 1 - 2.0**-53):
        emitted = verify_by_block(draft, law, Ids(), always(0.0), always(v))
        assert emitted.accepted.tolist() == [0]
        assert emitted.tokens[0, 0].item() != 2


def test_point_masses_are_the_rows_they_stand_for():
    """A draft without rows is the draft with one-hot rows."""
    rng = random.Random(2)
    for _ in range(100):
        tokens = torch.tensor([[rng.randrange(3) for _ in range(3)]])
        law = Law(rows(*(random_law(rng, 3) for _ in range(4))), None)
        one_hot = torch.zeros(1, 3, 3, dtype=torch.float64).scatter_(2, tokens[..., None], 1.0)
        u, v = always(rng.random()), always(rng.random())
        drafts = (Draft(tokens, probs, torch.tensor([3])) for probs in (None, one_hot))
        bare, spelled = (verify_by_block(draft, law, Ids(), u, v) for draft in drafts)
        assert torch.equal(bare.tokens[0, : int(bare.count)], spelled.tokens[0, : int(spelled.count)])
        assert torch.allclose(bare.overlap, spelled.overlap)


def test_weights_and_pass_probabilities_by_hand():
    """Two tokens with ratios 2 and 1/4: weights 1, 1, 1/4; the pair passes with 1/4."""
    weight = weights(torch.tensor([[2.0, 0.25]], dtype=torch.float64))
    assert weight.tolist() == [[1.0, 1.0, 0.25]]
    draft = Draft(torch.tensor([[0, 0]]), rows([0.25, 0.75], [0.8, 0.2]), torch.tensor([2]))
    law = Law(rows([0.5, 0.5], [0.2, 0.8], [0.5, 0.5]), None)
    left = left_over(draft, law, Ids(), draft.tokens, weight[:, :2])
    assert torch.allclose(left, torch.tensor([[0.25, 0.6]], dtype=torch.float64))
    keep = pass_probability(weight, left, draft.count)
    assert torch.allclose(keep, torch.tensor([[1.0, 0.25]], dtype=torch.float64))


def test_the_engine_calls_it_only_where_an_edge_says_so(monkeypatch):
    """The rule is looked up per edge: a fault in it leaves token edges alone."""
    levels = tuple(Level(TableScorer(fixed(p), 3)) for p in ([0.6, 0.3, 0.1], [0.2, 0.2, 0.6], [0.5, 0.3, 0.2]))
    calls = []
    monkeypatch.setattr(decode, "verify_by_block", lambda *a: calls.append(1) or verify_by_block(*a))
    generate(Chain(levels, (Edge(2), Edge(2))), [Request((0,), max_new_tokens=8)])
    assert calls == []
    (out,) = generate(Chain(levels, (Edge(2, verification="block"), Edge(2))), [Request((0,), max_new_tokens=8)])
    assert calls
    assert {r.tested is None for r in out.rounds if r.edge == 0 and r.drafted} == {True}
    assert {r.tested is None for r in out.rounds if r.edge == 1} == {False}
    assert all(len(r.overlap) == r.drafted for r in out.rounds if r.edge == 0)

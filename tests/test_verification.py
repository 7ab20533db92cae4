"""Acceptance tests and recovered tokens, against a loop over lists and against exact probabilities."""

from __future__ import annotations

import random

import pytest
import torch

from ssd.certify.table_models import TableScorer, fixed
from ssd.core import randomness as rng
from ssd.core import verification
from ssd.core.chain import Chain, Edge, Level
from ssd.core.sampling import Law, draw
from ssd.core.verification import Draft, Ids, leading, owed, verify_by_token

CPU = torch.device("cpu")
SAME = Ids()
P2, P1 = [0.5, 0.3, 0.2], [0.2, 0.2, 0.6]  # target and draft rows of the published fault reports
DRAWS = 20_000


def rows(*laws):
    """Laws of one row of a batch as [1, T, V]."""
    return torch.tensor([laws], dtype=torch.float64)


def always(u):
    """A source that gives ``u`` whatever it is asked."""
    return lambda *_: torch.tensor([u], dtype=torch.float64)


def verify_one(tokens, draft_rows, target_rows, accept_u, draw_u, ids=SAME, count=None):
    """``verify_by_token`` on one row."""
    draft = Draft(torch.tensor([tokens]), draft_rows, torch.tensor([len(tokens) if count is None else count]))
    return verify_by_token(draft, Law(target_rows, None), ids, always(accept_u), always(draw_u))


# --- edges of the rule ------------------------------------------------------------------------


@pytest.mark.parametrize("u", [0.0, 0.3, 0.7, 1 - 2.0**-53])
def test_a_zero_residual_falls_back_to_the_target(u):
    """B10: never NaN, never the token of probability zero."""
    half = rows([0.5, 0.5, 0.0])
    weights = owed(Draft(torch.tensor([[0]]), half, torch.tensor([1])), half.expand(1, 2, 3), SAME,
                   torch.tensor([[0]]), torch.tensor([0]))  # fmt: skip
    assert weights.tolist() == [[0.5, 0.5, 0.0]]
    assert int(draw(weights, torch.tensor([u], dtype=torch.float64))) == (u >= 0.5)
    # accept_u = 1 is no uniform; it forces the rejection that has probability zero.
    emitted = verify_one([0], half, rows([0.5, 0.5, 0.0], [0.0, 0.0, 1.0]), 1.0, u)
    assert emitted.accepted.tolist() == [0]
    assert emitted.tokens[0, 0].item() == (u >= 0.5)


def test_slack_of_rounding_creates_no_mass_where_the_target_has_none():
    target = torch.tensor([[0.1, 0.2, 0.7, 0.0]]).softmax(-1) * torch.tensor([1.0, 1.0, 1.0, 0.0])
    target = target / target.sum()
    draft = target * (1 + 1e-7)
    for u in (0.0, 0.5, 1 - 2.0**-53):
        emitted = verify_one([1], draft[None], target.expand(1, 2, 4), 1.0, u)
        assert emitted.tokens[0, 0] != 3


def test_a_uniform_of_zero_does_not_accept_a_token_of_probability_zero():
    """B10."""
    emitted = verify_one([0], rows([1.0, 0.0]), rows([0.0, 1.0], [1.0, 0.0]), 0.0, 0.0)
    assert emitted.accepted.tolist() == [0]
    assert emitted.tokens[0, 0].item() == 1
    point = verify_one([0], None, rows([0.0, 1.0], [1.0, 0.0]), 0.0, 0.0)
    assert point.tokens[0, 0].item() == 1


def test_the_largest_uniform_accepts_where_target_and_draft_agree():
    emitted = verify_one([2, 0], rows(P2, P2), rows(P2, P2, P1), 1 - 2.0**-53, 0.9)
    assert emitted.accepted.tolist() == [2]
    assert emitted.full.tolist() == [True]
    assert emitted.tokens.tolist() == [[2, 0, 2]]  # the bonus comes from the last row
    assert emitted.count.tolist() == [3]


def test_only_the_tokens_of_the_row_count():
    """Width 3, of which the row owns none, one, two: the rest is surplus of longer rows."""
    laws = rows(P2, P2, P2, P2)
    for count in range(3):
        emitted = verify_one([0, 0, 0], None, laws, 0.0, 0.99, count=count)
        assert emitted.accepted.tolist() == [count]
        assert emitted.full.tolist() == [True]
        assert emitted.tokens[0, count].item() == 2


def test_a_token_the_verifier_lacks_is_rejected_and_takes_nothing_from_others():
    """The id -1 must not be read as the last entry, nor its residual taken from id 0."""
    ids = Ids(None, torch.tensor([0, 1, -1]), torch.tensor([0, 1]), torch.tensor([0, 1, -1]))
    for draft_rows in (None, rows([0.0, 0.0, 1.0])):
        emitted = verify_one([2], draft_rows, rows([0.4, 0.6], [1.0, 0.0]), 0.0, 0.39, ids)
        assert emitted.accepted.tolist() == [0]
        assert emitted.tokens[0, 0].item() == 0
        assert emitted.overlap.tolist() == [[0.0]]


def test_overlap_is_the_sum_of_minima():
    assert verify_one([2], rows(P1), rows(P2, P2), 0.5, 0.5).overlap.tolist() == [pytest.approx([0.6])]
    assert verify_one([2], None, rows(P2, P2), 0.5, 0.5).overlap.tolist() == [pytest.approx([0.2])]


@pytest.mark.parametrize("token", [0, 1])
def test_overlap_of_a_sampled_draft_with_a_greedy_verifier(token):
    """The verifier's law is a point mass at 1; min(target, draft) sums to the draft's share of it."""
    draft = Draft(torch.tensor([[token]]), rows([0.7, 0.3]), torch.tensor([1]))
    emitted = verify_by_token(draft, Law(None, torch.tensor([[1, 0]])), SAME, always(0.0), always(0.0))
    assert emitted.accepted.tolist() == [token]
    assert emitted.overlap.tolist() == [pytest.approx([0.3])]


def test_leading():
    passed = torch.tensor([[1, 1, 0, 1], [0, 1, 1, 1], [1, 1, 1, 1]]).bool()
    assert leading(passed).tolist() == [2, 0, 4]
    assert leading(torch.zeros(2, 0, dtype=torch.bool)).tolist() == [0, 0]


# --- against a loop over lists ----------------------------------------------------------------


def by_hand(tokens, drafts, targets, accept_u, draw_u):
    """The rule over full-vocabulary lists: (tokens emitted, everything accepted)."""

    def pick(weights, u):
        total, running = sum(weights), 0.0
        for i, w in enumerate(weights):
            running += w
            if running > u * total:
                return i
        raise AssertionError("unreachable for u < 1")

    for i, token in enumerate(tokens):
        if accept_u[i] >= targets[i][token] / drafts[i][token]:
            residual = [max(0.0, p - q) for p, q in zip(targets[i], drafts[i], strict=True)]
            return [*tokens[:i], pick(residual, draw_u[i])], False
    return [*tokens, pick(targets[len(tokens)], draw_u[len(tokens)])], True


def random_law(source, ids, size, sharp):
    """A law over ``size`` ids that lives on ``ids``, with some more zeros."""
    law = [0.0] * size
    kept = [i for i in ids if source.random() < 0.8] or list(ids)
    weights = [source.random() ** sharp for _ in kept]
    for i, w in zip(kept, weights, strict=True):
        law[i] = w / sum(weights)
    return law


def own(laws, ids):
    """Full-vocabulary laws as a tensor over a level's own ids."""
    return torch.tensor(laws, dtype=torch.float64)[..., list(ids)]


VOCABULARIES = {
    "the same": (None, None),
    "a smaller draft": ([1, 2, 5], None),
    "a smaller verifier": (None, [0, 3, 5, 6]),
    "two that overlap": ([0, 2, 3, 6], [2, 3, 4, 5]),
    "two that are equal": ([1, 4, 6], [1, 4, 6]),
    "unsorted maps": ([6, 0, 3], [5, 3, 6, 1]),
}


def edge_ids(draft, verifier, size):
    """Tables between two levels below a target, made by the chain itself."""
    levels = [
        Level(TableScorer(fixed([1.0]), size if ids is None else len(ids)),
              draft_to_target=None if ids is None else torch.tensor(ids))
        for ids in (draft, verifier, None)
    ]  # fmt: skip
    return Chain(tuple(levels), (Edge(1), Edge(1))).edge_ids(0, CPU)


@pytest.mark.parametrize("point_masses", [False, True], ids=["sampled", "greedy draft"])
@pytest.mark.parametrize("case", VOCABULARIES)
def test_equals_the_loop_for_any_pair_of_vocabularies(case, point_masses):
    source, size, batch, width = random.Random(f"{case}{point_masses}"), 7, 400, 3
    draft_ids, verifier_ids = (sorted(x) if x else list(range(size)) for x in VOCABULARIES[case])
    drafts = [[random_law(source, draft_ids, size, 2) for _ in range(width)] for _ in range(batch)]
    tokens = [[source.choices(range(size), law)[0] for law in row] for row in drafts]
    if point_masses:
        drafts = [[[float(i == t) for i in range(size)] for t in row] for row in tokens]
    targets = [[random_law(source, verifier_ids, size, 2) for _ in range(width + 1)] for _ in range(batch)]
    counts = [source.randint(0, width) for _ in range(batch)]
    accept_u, draw_u = ([[source.random() for _ in range(width + 1)] for _ in range(batch)] for _ in range(2))

    draft = Draft(torch.tensor(tokens), None if point_masses else own(drafts, draft_ids), torch.tensor(counts))
    emitted = verify_by_token(
        draft,
        Law(own(targets, verifier_ids), None),
        edge_ids(*VOCABULARIES[case], size),
        lambda wide: torch.tensor(accept_u, dtype=torch.float64)[:, :wide],
        lambda accepted: torch.tensor(draw_u, dtype=torch.float64).gather(1, accepted[:, None]).squeeze(1),
    )
    ends = set()
    for b, n in enumerate(counts):
        want, full = by_hand(tokens[b][:n], drafts[b][:n], targets[b], accept_u[b], draw_u[b])
        assert emitted.tokens[b, : int(emitted.count[b])].tolist() == want
        assert int(emitted.accepted[b]) == len(want) - 1
        assert bool(emitted.full[b]) == full
        minima = [sum(map(min, p, q)) for p, q in zip(targets[b], drafts[b][:n], strict=False)]
        assert emitted.overlap[b, :n].tolist() == pytest.approx(minima)
        ends.add((n > 0, full, len(want) > 1))
    assert len(ends) >= 4  # nothing drafted, rejected at once, rejected later, all accepted


@pytest.mark.parametrize("case", VOCABULARIES)
def test_a_greedy_verifier_keeps_its_own_argmax_only(case):
    source, size = random.Random(case), 7
    draft_ids, verifier_ids = (sorted(x) if x else list(range(size)) for x in VOCABULARIES[case])
    tokens = [[source.choice(draft_ids) for _ in range(2)] for _ in range(200)]
    tops = [[source.randrange(len(verifier_ids)) for _ in range(3)] for _ in range(200)]
    draft = Draft(torch.tensor(tokens), None, torch.full((200,), 2))
    emitted = verify_by_token(draft, Law(None, torch.tensor(tops)), edge_ids(*VOCABULARIES[case], size), None, None)
    for b in range(200):
        best = [verifier_ids[i] for i in tops[b]]
        n = next((i for i in range(2) if tokens[b][i] != best[i]), 2)
        assert emitted.tokens[b, : n + 1].tolist() == [*tokens[b][:n], best[n]]
        assert emitted.overlap[b].tolist() == [float(t == a) for t, a in zip(tokens[b], best, strict=False)]


# --- frequencies ------------------------------------------------------------------------------
# Chi-square with 2 degrees of freedom: its tail is exp(-x / 2), so this limit has a false-alarm rate
# of 1e-6. Seeds are fixed; the rate is for whoever changes them.
LIMIT = 27.6


def chi_square(tokens, law):
    """Statistic of token counts against a law."""
    counts, expected = tokens.bincount(minlength=3).double(), torch.tensor(law).double() * len(tokens)
    return float(((counts - expected) ** 2 / expected).sum())


def run_table(greedy_draft=False, claim=None, seed=0):
    """20,000 rounds of two draft tokens of P1 for a verifier with law P2, keyed as in the decoder."""
    keys = rng.root([(seed, i, 0) for i in range(DRAWS)], CPU)
    laws = torch.tensor([P1, P1], dtype=torch.float64).expand(DRAWS, 2, 3)
    tokens = torch.stack([draw(laws[:, i], rng.uniform(keys, 0, rng.DRAW, torch.tensor(i))) for i in range(2)], 1)
    if greedy_draft:
        tokens, laws = torch.full_like(tokens, 2), claim
    draft = Draft(tokens, laws, torch.full((DRAWS,), 2))
    target = torch.tensor(P2, dtype=torch.float64).expand(DRAWS, 3, 3)
    accept_u = rng.uniform(keys[:, None], 1, rng.ACCEPT, torch.arange(2))
    return verify_by_token(
        draft, Law(target, None), SAME, lambda _: accept_u, lambda accepted: rng.uniform(keys, 1, rng.DRAW, accepted)
    )


@pytest.mark.parametrize("greedy_draft", [False, True], ids=["sampled", "greedy draft"])
def test_emitted_tokens_have_the_targets_law(greedy_draft):
    """B07: a greedy draft's law is a point mass."""
    emitted = run_table(greedy_draft)
    for i in range(3):
        reached = emitted.tokens[emitted.count > i, i]
        assert len(reached) > 500
        assert chi_square(reached, P2) < LIMIT


@pytest.mark.parametrize(("greedy_draft", "alpha"), [(False, 0.6), (True, 0.2)])
def test_acceptance_is_the_overlap(greedy_draft, alpha):
    """|z| < 5 has a false-alarm rate of 6e-7."""
    emitted = run_table(greedy_draft)
    tested = DRAWS + int((emitted.accepted >= 1).sum())
    z = (int(emitted.accepted.sum()) - alpha * tested) / (tested * alpha * (1 - alpha)) ** 0.5
    assert abs(z) < 5
    assert emitted.overlap[:, 0].tolist() == pytest.approx([alpha] * DRAWS)


def test_the_check_sees_the_raw_softmax_of_a_greedy_draft():
    """B07's tell-tale."""
    claimed = torch.tensor([P1, P1], dtype=torch.float64).expand(DRAWS, 2, 3)
    first = run_table(greedy_draft=True, claim=claimed).tokens[:, 0]
    assert chi_square(first, P2) > LIMIT
    assert (first.bincount() / DRAWS).tolist() == pytest.approx([0.5, 0.167, 0.333], abs=0.015)


def test_the_check_sees_a_residual_that_is_not_subtracted(monkeypatch):
    monkeypatch.setattr(verification, "owed", lambda draft, probs, ids, own, accepted: probs[:, 0])
    assert chi_square(run_table().tokens[:, 0], P2) > LIMIT

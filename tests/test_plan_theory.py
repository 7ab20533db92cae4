"""The chain recursion against a dice game that plays rounds one by one.

False alarms: a case compares means over 40 chunks with their expectations, at most 40 of them, and fails
beyond 5.5 standard errors (Student's t with 39 degrees of freedom: 2.6e-6 each, two-sided). With fewer than 30
cases a new seed would fail the file with probability below 3e-3; seeds are fixed.
"""

from __future__ import annotations

import numpy as np
import pytest
from simulated_chain import Game, chunks, deviation

from ssd.plan.acceptance import ByFate, ByPosition, Constant
from ssd.plan.chain_recursion import ChainRecursion
from ssd.plan.edge_plan import EdgePlan, longest_block
from ssd.plan.pass_counts import batch_passes, budget_work, level_work

FAR = 5.5
CHUNKS, ROUNDS = 40, 80
LOW = Constant(0.7)
FATE = ByFate(draft=0.85, recovered=0.3, bonus=0.6, plain=0.5)
FALLING = ByPosition((0.9, 0.7, 0.4))
E = EdgePlan

CASES = {
    "one edge": ([E(3)], [LOW]),
    "one edge by position": ([E(4)], [FALLING]),
    "at_least overshoots": ([E(3), E(4)], [LOW, FATE]),
    "at_least by position": ([E(3), E(4)], [FALLING, FALLING]),
    "exactly": ([E(3), E(4, "exactly")], [LOW, FATE]),
    "rounds": ([E(2), E(3, "rounds")], [LOW, FATE]),
    "until_correction": ([E(2), E(5, "until_correction")], [Constant(0.85), FATE]),
    "gamma 1 exactly never drafts below": ([E(2), E(1, "exactly")], [LOW, FATE]),
    "three edges": ([E(2), E(3), E(4)], [LOW, FATE, FATE]),
    "three edges, top exactly": ([E(2), E(3), E(4, "exactly")], [LOW, FATE, FALLING]),
    "three edges, middle exactly": ([E(2), E(3, "exactly"), E(4)], [LOW, FALLING, FATE]),
    "three edges, rounds and correction": ([E(2), E(2, "rounds"), E(6, "until_correction")], [LOW, FATE, FATE]),
    "always accepted": ([E(2), E(3)], [Constant(1.0), Constant(1.0)]),
    "never accepted": ([E(2), E(3)], [Constant(0.0), Constant(0.0)]),
}


def deviations(chain, game, batch=1, widths=True):
    """Of tokens, and of every level's passes: in all, and at each width of at least .02 a round."""
    tokens, passes = chunks(game, CHUNKS, ROUNDS // batch)
    out = {"tokens": deviation(tokens, level_work(chain, chain.top).tokens)}
    for level, expected in enumerate(batch_passes(chain, batch)):
        out[f"L{level}"] = deviation(passes[:, level].sum(axis=1), expected.sum())
        for width, n in enumerate(expected):
            if widths and n > 0.02:
                out[f"L{level} width {width}"] = deviation(passes[:, level, width], n)
    return out


@pytest.mark.parametrize("name", CASES)
def test_passes_by_width_and_tokens_are_those_of_the_game(name):
    edges, acceptance = CASES[name]
    found = deviations(ChainRecursion(edges, acceptance), Game(edges, acceptance, seed=3))
    assert max(found.values()) < FAR, found


@pytest.mark.parametrize("batch", [2, 5])
@pytest.mark.parametrize("name", ["at_least overshoots", "exactly", "three edges", "three edges, top exactly"])
def test_a_round_of_a_batch_lasts_as_long_as_its_slowest_row(name, batch):
    edges, acceptance = CASES[name]
    chain = ChainRecursion(edges, acceptance)
    found = deviations(chain, Game(edges, acceptance, rows=batch, seed=4), batch, widths=False)
    assert max(found.values()) < FAR, found
    alone = batch_passes(chain, 1)
    assert all(many.sum() >= one.sum() - 1e-12 for one, many in zip(alone, batch_passes(chain, batch), strict=True))


def test_widths_in_a_batch_are_right_on_average_to_a_token():
    edges, acceptance = CASES["three edges"]
    _, passes = chunks(Game(edges, acceptance, rows=4, seed=5), 10, 40)
    for level, expected in enumerate(batch_passes(ChainRecursion(edges, acceptance), 4)):
        seen = passes[:, level].mean(axis=0)
        mean = seen @ np.arange(len(seen)) / seen.sum()
        assert abs(expected @ np.arange(len(expected)) / expected.sum() - mean) < 0.5


def test_a_look_up_that_finds_nothing_makes_plain_rounds():
    edges, acceptance = [E(3), E(4)], [LOW, FATE]
    found = deviations(ChainRecursion(edges, acceptance, coverage=0.6), Game(edges, acceptance, coverage=0.6, seed=6))
    assert max(v for k, v in found.items() if not k.startswith("L0")) < FAR, found


@pytest.mark.parametrize("name", ["one edge", "at_least overshoots", "three edges, middle exactly"])
def test_outputs_of_a_given_length_end_in_shorter_drafts(name):
    edges, acceptance = CASES[name]
    chain, game, new_tokens, outputs = ChainRecursion(edges, acceptance), Game(edges, acceptance, seed=9), 12, 25
    passes, rounds = np.zeros((CHUNKS, len(edges) + 1, 40)), np.zeros(CHUNKS)
    for c in range(CHUNKS):
        for counter in game.passes:
            counter.clear()
        rounds[c] = game.play_outputs(outputs, new_tokens) / outputs
        for level, counter in enumerate(game.passes):
            for width, n in counter.items():
                passes[c, level, width] = n / outputs
    expected_rounds = (new_tokens - level_work(chain, chain.top).tokens) / budget_work(
        chain, chain.top, new_tokens
    ).tokens
    found = {"rounds": deviation(rounds, expected_rounds)}
    for level in range(chain.top + 1):
        for width, n in enumerate(budget_work(chain, level, new_tokens).widths * expected_rounds):
            if n > 0.05:
                found[f"L{level} width {width}"] = deviation(passes[:, level, width], n)
    assert max(found.values()) < FAR, found


def test_long_outputs_are_outputs_without_end():
    edges, acceptance = CASES["at_least overshoots"]
    chain = ChainRecursion(edges, acceptance)
    for level in range(3):
        endless, long = level_work(chain, level), budget_work(chain, level, 400)
        assert long.tokens < endless.tokens  # the end costs something
        assert long.tokens == pytest.approx(endless.tokens, rel=0.02)
        assert long.widths.sum() == pytest.approx(endless.widths.sum(), rel=0.02)


def test_counted_alpha_is_predicted_per_edge():
    edges, acceptance = CASES["at_least overshoots"]
    chain, ratios = ChainRecursion(edges, acceptance), [[], []]
    game = Game(edges, acceptance, seed=7)
    for _ in range(CHUNKS):
        game.tested = [[0, 0], [0, 0]]
        game.play(ROUNDS)
        for edge, (accepted, tested) in enumerate(game.tested):
            ratios[edge].append(accepted / tested)
    for edge in range(2):
        work = level_work(chain, edge + 1)
        # The mean of ratios of chunks differs from the ratio of means by about 1 in 1000 here, a tenth of an error.
        assert deviation(ratios[edge], work.accepted / work.tested) < FAR


@pytest.mark.parametrize(
    ("wrong_edges", "wrong_acceptance"),
    [
        ([E(3), E(4, "exactly")], [LOW, FATE]),  # overshoot cut off
        ([E(3), E(4)], [LOW, Constant(0.65)]),  # fates forgotten
        ([E(3), E(4, "until_correction")], [LOW, FATE]),
        ([E(4), E(4)], [LOW, FATE]),
    ],
)
def test_the_comparison_notices_another_rule(wrong_edges, wrong_acceptance):
    edges, acceptance = CASES["at_least overshoots"]
    found = deviations(ChainRecursion(wrong_edges, wrong_acceptance), Game(edges, acceptance, seed=8))
    assert max(found.values()) > 2 * FAR


def test_laws_are_laws():
    for edges, acceptance in CASES.values():
        chain = ChainRecursion(edges, acceptance)
        for k in range(chain.top):
            for limit in (None, 0, 1, 3):
                block = chain.block(k, limit, 0).joint
                assert block.min() >= 0
                assert block.sum() == pytest.approx(1.0, abs=1e-12)
                longest = longest_block(edges[: k + 1])
                assert block.shape[0] - 1 <= (longest if limit is None else min(limit, longest))
        for level in range(chain.top + 1):
            assert chain.target_round(level).outcome.sum() == pytest.approx(1.0, abs=1e-12)


def test_upper_acceptance_does_not_depend_on_what_drafts_below_unless_fates_were_measured():
    """Under ``exactly`` the block's length is fixed, so only fates can carry L0's quality upwards."""

    def tau(low, upper):
        return level_work(ChainRecursion([E(3), E(4, "exactly")], [Constant(low), upper]), 2).tokens

    assert tau(0.2, Constant(0.7)) == pytest.approx(tau(0.95, Constant(0.7)), abs=1e-12)
    assert tau(0.2, FATE) < tau(0.95, FATE) - 0.1


def test_shared_blocks_change_nothing():
    memo: dict = {}
    for top in (2, 7):
        for low in (2, 3):
            edges, acceptance = [E(low), E(3), E(top, "exactly")], [LOW, FATE, FATE]
            shared = ChainRecursion(edges, acceptance, memo=memo)
            alone = ChainRecursion(edges, acceptance)
            for level in range(4):
                np.testing.assert_allclose(
                    level_work(shared, level).widths, level_work(alone, level).widths, atol=1e-15
                )


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: E(0), "edge.gamma"),
        (lambda: E(2, "confidence"), "edge.window"),
        (lambda: E(2, "at_least", "lossy"), "edge.verification"),
        (lambda: Constant(1.2), "acceptance.alpha"),
        (lambda: ByPosition(()), "acceptance.alphas"),
        (lambda: ByPosition.from_survival([0.5, 0.6]), r"acceptance.shares\[1\]"),
        (lambda: ByFate(0.5, 0.5, -0.1, 0.5), "acceptance.bonus"),
        (lambda: ChainRecursion([E(2)], []), "acceptance"),
        (lambda: ChainRecursion([E(2, verification="block")], [LOW]), r"acceptance\[0\].verification"),
        (lambda: batch_passes(ChainRecursion([E(2)], [LOW]), 0), "batch"),
    ],
)
def test_bad_input_is_one_clear_error(build, message):
    with pytest.raises(ValueError, match=message):
        build()

"""The simulator: against closed forms, against the decoder itself, and what no schedule may do."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace

import pytest
from simulated_schedules import (
    CURVE,
    chain_of_three,
    flat,
    growing,
    per_round,
    pipelined,
    plain_monte_carlo,
    serial,
)

from ssd.certify.table_models import TableScorer, fixed
from ssd.core.chain import Chain, Edge, Level
from ssd.core.generate import generate
from ssd.core.requests import Request, Sampling
from ssd.plan.acceptance import ByFate, ByPosition
from ssd.plan.edge_plan import EdgePlan
from ssd.plan.lookahead import Ahead
from ssd.plan.pass_times import PassTimes, Profile
from ssd.plan.simulate import Simulation, simulate


def far_from(result: Simulation, expected_tau: float) -> bool:
    """Whether mean tokens per target round are 4 standard errors off: one false alarm in 16,000."""
    tokens = per_round(result)[:-1]
    return abs(statistics.mean(tokens) - expected_tau) > 4 * statistics.stdev(tokens) / math.sqrt(len(tokens))


@pytest.mark.parametrize(("alpha", "gamma", "c"), [(0.8, 4, 0.1), (0.6, 3, 0.2), (0.9, 1, 0.05)])
def test_one_draft_is_leviathans_formula(alpha: float, gamma: int, c: float) -> None:
    result = simulate(serial(flat(c, 1.0), [gamma], [alpha]), 3000)
    assert not far_from(result, (1 - alpha ** (gamma + 1)) / (1 - alpha))
    assert far_from(result, (1 - (alpha - 0.08) ** (gamma + 1)) / (1 - (alpha - 0.08)))
    # Given its tokens per round a serial run costs exactly gamma c + 1 a round; the last drafts are cut short.
    rounds = len(per_round(result))
    assert rounds * (gamma * c + 1) - result.seconds == pytest.approx(0, abs=2 * (gamma * c + 1))
    assert result.speedup == pytest.approx(3000 / result.seconds)
    assert result.tau(0) == pytest.approx(3000 / rounds)


def test_two_drafts_agree_with_a_plain_monte_carlo() -> None:
    """Fifteen independent runs each; the difference of their means in standard errors, one alarm in 16,000."""
    gammas, alphas, seconds = (3, 4), (0.7, 0.8), (0.1, 0.3, 1.0)

    def differ(other: tuple[float, float]) -> bool:
        ours = [simulate(serial(flat(*seconds), gammas, alphas), 400, seed=s) for s in range(15)]
        theirs = [plain_monte_carlo(seconds, gammas, other, 100, s) for s in range(15)]
        mine = [r.seconds / r.tokens for r in ours]
        error = math.sqrt((statistics.variance(mine) + statistics.variance(theirs)) / 15)
        return abs(statistics.mean(mine) - statistics.mean(theirs)) > 4 * error

    assert not differ(alphas)
    assert differ((0.8, 0.7))


def test_acceptance_by_position_and_by_fate() -> None:
    never_second = simulate(serial(flat(0.1, 1.0), [3], [ByPosition((1.0, 0.0))]), 50)
    assert {r.accepted for r in never_second.rounds[0] if r.drafted == 3} == {1}
    # L1 corrects every draft of L0, so its tokens are recovered ones, and only these pass.
    middle = ByFate(draft=0.0, recovered=1.0, bonus=0.0, plain=0.0)
    only_recovered = simulate(serial(flat(0.1, 0.1, 1.0), [2, 3], [0.0, middle]), 40)
    first = [r for r in only_recovered.rounds[0] if r.edge == 1][:-2]  # a short last draft ends in a plain token
    assert [r.accepted for r in first] == [r.drafted for r in first] == [3] * len(first)


class Noted(TableScorer):
    """Notes level and width of every pass."""

    def __init__(self, probs: Sequence[float], level: int, notes: list[tuple[int, int]]) -> None:
        super().__init__(fixed(probs), len(probs))
        self.level, self.notes = level, notes

    def score(self, tokens, start, keep):  # type: ignore[no-untyped-def]
        self.notes.append((self.level, tokens.shape[1]))
        return super().score(tokens, start, keep)


@pytest.mark.parametrize("window", ["at_least", "exactly", "rounds", "until_correction"])
@pytest.mark.parametrize("agree", [(True, True), (True, False), (False, True), (False, False)])
def test_passes_are_those_of_the_decoder(window: str, agree: tuple[bool, bool]) -> None:
    """Where levels always or never agree nothing is random: the same passes, as wide, in the same order."""
    one, two = (0.9, 0.05, 0.05), (0.05, 0.9, 0.05)
    middle = two if not agree[1] else one
    lowest = middle if agree[0] else tuple(reversed(middle)) if middle == one else one
    notes: list[tuple[int, int]] = []
    levels = [Level(Noted(probs, k, notes)) for k, probs in enumerate((lowest, middle, one))]
    chain = Chain(tuple(levels), (Edge(3, window), Edge(4, window)))
    generate(chain, [Request((0,), Sampling(temperature=0.0), max_new_tokens=30)])
    setting = replace(
        serial(flat(0.1, 0.1, 1.0), [3, 4], [float(agree[0]), float(agree[1])]),
        edges=(EdgePlan(3, window), EdgePlan(4, window)),
    )
    assert [(s.level, s.width) for s in simulate(setting, 30).spans] == notes


def test_rows_of_a_batch_ride_along_as_in_the_decoder() -> None:
    """Passes of L0 over two tokens per target pass, mean of runs; 4 standard errors, one alarm in 16,000.

    Laws do not depend on the text here, so the acceptance of a token depends on its fate alone.
    """
    lowest, middle, target = (0.5, 0.2, 0.2, 0.1), (0.35, 0.35, 0.2, 0.1), (0.25, 0.35, 0.15, 0.25)
    overlap = [min(p, q) for p, q in zip(lowest, middle, strict=True)]
    residual = [max(0.0, q - p) for p, q in zip(lowest, middle, strict=True)]
    passing = [min(1.0, p / q) for p, q in zip(target, middle, strict=True)]

    def rate(weights: Sequence[float]) -> float:
        return sum(w * a for w, a in zip(weights, passing, strict=True)) / sum(weights)

    upper = ByFate(rate(overlap), rate(residual), rate(middle), rate(middle))

    def decoded(seed: int) -> float:
        notes: list[tuple[int, int]] = []
        levels = [Level(Noted(probs, k, notes)) for k, probs in enumerate((lowest, middle, target))]
        requests = [Request((0,), Sampling(), seed=seed, max_new_tokens=40) for _ in range(3)]
        generate(Chain(tuple(levels), (Edge(3), Edge(4))), requests)
        return notes.count((0, 2)) / sum(level == 2 for level, _ in notes)

    def simulated(seed: int, batch: int) -> float:
        result = simulate(serial(flat(0.1, 0.1, 1.0), [3, 4], [sum(overlap), upper]), 40, batch, seed)
        shapes = [(s.level, s.width) for s in result.spans]
        return shapes.count((0, 2)) / sum(level == 2 for level, _ in shapes)

    theirs = [decoded(s) for s in range(14)]

    def differ(batch: int) -> bool:
        ours = [simulated(s, batch) for s in range(40)]
        error = math.sqrt(statistics.variance(theirs) / 14 + statistics.variance(ours) / 40)
        return abs(statistics.mean(theirs) - statistics.mean(ours)) > 4 * error

    assert not differ(3)
    assert differ(1)


def test_plain_decoding_is_one_pass_a_token() -> None:
    result = simulate(serial(growing(2.0), [], []), 10, batch=3)
    assert result.seconds == pytest.approx(10 * 2.0 * 1.06)
    assert result.speedup == pytest.approx(1)
    assert [s.what for s in result.spans] == ["verify"] * 10


def test_a_look_up_proposes_at_once_or_not_at_all() -> None:
    def of(coverage: float) -> Simulation:
        look_up = PassTimes("n-gram", lambda width, batch: 0.01, look_up=True, coverage=coverage)
        profile = Profile((look_up, PassTimes.flat("L1", 1.0)))
        return simulate(serial(profile, [4], [1.0]), 50)

    assert of(1.0).seconds == pytest.approx(10 * 1.01)
    assert of(0.0).seconds == pytest.approx(49 * 1.01 + 1)  # the last token leaves no room for a draft


def test_the_same_seed_gives_the_same_run() -> None:
    setting = pipelined(chain_of_three(), Ahead(CURVE, 3), Ahead(CURVE, 8))
    assert simulate(setting, 80, 2, seed=1) == simulate(setting, 80, 2, seed=1)
    assert simulate(setting, 80, 2, seed=1).rounds != simulate(setting, 80, 2, seed=2).rounds
    rows = simulate(setting, 80, 2, seed=1).rounds
    assert rows[0] != rows[1]

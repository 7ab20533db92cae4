"""The schedule ``pipelined`` in the simulator: what happens when, and what it gains at most and at least."""

from __future__ import annotations

import math
import random
import statistics
from dataclasses import replace

import pytest
from simulated_schedules import (
    CURVE,
    NEVER,
    chain_of_three,
    flat,
    growing,
    per_round,
    pipelined,
    serial,
)

from ssd.plan.acceptance import Constant
from ssd.plan.edge_plan import EdgePlan
from ssd.plan.events import Worker
from ssd.plan.lookahead import Ahead, TopShares
from ssd.plan.setting import Machine, Setting
from ssd.plan.simulate import Simulation, simulate


def times(result: Simulation, level: int) -> list[tuple[float, float]]:
    return [(pytest.approx(s.start), pytest.approx(s.end)) for s in result.trace("x").lane(level)]


def test_a_miss_waits_for_the_pass_that_runs_and_drafts_then() -> None:
    setting = pipelined(serial(flat(0.4, 1.0), [2], [0.0]), Ahead(CURVE, 2, force="miss"))
    result = simulate(setting, 40)
    assert times(result, 1)[:2] == [(0.8, 1.8), (2.8, 3.8)]
    assert times(result, 0)[:7] == [(0.4 * i, 0.4 * (i + 1)) for i in range(7)]
    lane = result.trace("x").lane(0)
    assert [s.ahead for s in lane[:7]] == ["", "", "wasted", "wasted", "wasted", "", ""]
    assert [s.batch for s in lane[:7]] == [1, 1, 1, 2, 2, 1, 1]
    assert result.hit_rate(0) == 0


def test_a_hit_goes_on_with_the_row_that_is_right() -> None:
    setting = pipelined(serial(flat(0.5, 1.0), [2], [0.0]), Ahead(CURVE, 2, force="hit"))
    result = simulate(setting, 40)
    assert times(result, 1)[:3] == [(1.0, 2.0), (2.5, 3.5), (4.0, 5.0)]
    lane = result.trace("x").lane(0)
    assert [(s.batch, s.ahead) for s in lane[:5]] == [(1, ""), (1, ""), (1, "used"), (2, "used"), (1, "")]
    assert result.hit_rate(0) == 1
    verifications = result.trace("x").lane(1)
    assert [(s.hits, s.misses) for s in verifications[:3]] == [(1, 0)] * 3


@pytest.mark.parametrize(("c", "period"), [(0.1, 1.0), (0.2, 1.0), (0.4, 2.0)])
def test_with_hits_only_a_round_takes_the_longer_of_the_two(c: float, period: float) -> None:
    """Drafting ahead is gamma + 1 passes, the first to have a row to guess from."""
    setting = pipelined(serial(flat(c, 1.0), [4], [0.8]), Ahead(CURVE, 5, force="hit"))
    result = simulate(setting, 500)
    rounds = len(per_round(result))
    assert result.seconds == pytest.approx(4 * c + rounds * period, abs=2 * period)
    assert result.speedup <= result.tau(0) + 1e-9
    without = pipelined(serial(flat(c, 1.0), [4], [0.8]), Ahead(CURVE, 5, force="hit", predict_pass=False))
    assert simulate(without, 500).seconds == pytest.approx(4 * c + rounds * max(1, 4 * c), abs=2 * period)


def test_a_hit_costs_the_longer_and_a_miss_the_sum() -> None:
    """Where work ahead is over before the verification is, no miss waits for it."""
    setting = pipelined(serial(flat(0.1, 1.0), [4], [0.8]), Ahead(CURVE, 3))
    result = simulate(setting, 500)
    misses = sum(r.ahead == "miss" for r in result.rounds[0])
    assert 0.2 < misses / len(per_round(result)) < 0.8
    assert result.seconds == pytest.approx(4 * 0.1 * (1 + misses) + len(per_round(result)), abs=2 * 4 * 0.1)


def random_setting(source: random.Random) -> Setting:
    depth = source.choice([1, 2, 3])
    profile = growing(*sorted(source.uniform(0.02, 1) for _ in range(depth + 1)), per_token=source.uniform(0, 0.2))
    windows = source.choices(["at_least", "exactly", "rounds", "until_correction"], k=depth)
    return Setting(
        profile,
        tuple(EdgePlan(source.randint(1, 3), window) for window in windows),
        tuple(Constant(source.random()) for _ in range(depth)),
        Machine((Worker("device 0"),) * (depth + 1)),
    )


@pytest.mark.parametrize("seed", range(12))
def test_without_hits_nothing_is_gained_and_the_rounds_are_the_same(seed: int) -> None:
    source = random.Random(seed)
    setting = random_setting(source)
    batch, transfer = source.choice([1, 2]), source.choice([0.0, 0.05])
    machine = Machine.each(len(setting.profile.levels), transfer)
    ours = simulate(replace(setting, machine=machine), 60, batch, seed)

    def with_all(ahead: Ahead) -> Simulation:
        return simulate(pipelined(setting, *[ahead] * len(setting.edges), machine=machine), 60, batch, seed)

    nothing, missed, mixed, hit = map(
        with_all, (Ahead(NEVER, 4), Ahead(CURVE, 4, force="miss"), Ahead(CURVE, 4), Ahead(CURVE, 4, force="hit"))
    )
    assert nothing.seconds == pytest.approx(ours.seconds)
    assert missed.seconds >= ours.seconds - 1e-6
    assert hit.seconds <= missed.seconds + 1e-6
    for other in (nothing, missed, mixed, hit):
        assert [[r[:4] for r in row] for row in other.rounds] == [[r[:4] for r in row] for row in ours.rounds]


def test_the_hit_rate_is_what_the_curve_and_the_guesses_say() -> None:
    """Two outcomes of known chance: 4 standard deviations of a share, one alarm in 16,000."""
    shares = TopShares(recovered=(0.3, 0.5), bonus=(0.6, 0.9))
    result = simulate(pipelined(serial(flat(0.1, 1.0), [1], [0.7]), Ahead(shares, 3)), 1500)
    rates = {True: [], False: []}  # by whether the draft passed
    for r in result.rounds[0]:
        if r.ahead:
            rates[r.accepted == 1].append(r.ahead == "hit")
    # Rows by gain: bonus .7 x .6, bonus .7 x .3, recovered .3 x .3.
    for passed, chance in ((True, 0.9), (False, 0.3)):
        found = rates[passed]
        off = abs(statistics.mean(found) - chance) / math.sqrt(chance * (1 - chance) / len(found))
        assert off < 4


@pytest.mark.parametrize("force", [None, "hit"])
def test_every_round_of_the_output_is_a_pass_that_was_needed_or_used(force: str | None) -> None:
    """Blocks of a fixed number of rounds: no row waits for another, so passes and rounds can be counted."""
    setting = replace(chain_of_three(), edges=(EdgePlan(2, "rounds"), EdgePlan(2, "rounds")))
    result = simulate(pipelined(setting, Ahead(CURVE, 3, force=force), Ahead(CURVE, 6, force=force)), 150)
    for level in (1, 2):
        kept = [s for s in result.spans if s.level == level and s.what == "verify" and s.ahead != "wasted"]
        assert len(kept) == sum(r.edge == level - 1 for r in result.rounds[0])
    late = [s.start for s in result.spans if s.level == 2][-3]  # then some outcomes end the run
    wasted = [s for s in result.spans if s.level == 1 and s.ahead == "wasted" and s.start < late]
    assert bool(wasted) == (force is None)


@pytest.mark.parametrize("upper", ["hit", "miss"])
def test_work_ahead_is_used_only_if_what_it_is_for_is_used(upper: str) -> None:
    """L0 always hits, within L1's work ahead too; kept are its steps in the output's drafts and a row to guess from."""
    setting = replace(chain_of_three(), edges=(EdgePlan(2, "rounds"), EdgePlan(2, "rounds")))
    result = simulate(pipelined(setting, Ahead(CURVE, 3, force="hit"), Ahead(CURVE, 6, force=upper)), 150)
    kept = sum(s.level == 0 and s.ahead != "wasted" for s in result.spans)
    rounds = [r for r in result.rounds[0] if r.edge == 0]
    assert kept == sum(r.drafted + (r.ahead == "hit") for r in rounds)


def test_nothing_is_prepared_where_no_draft_will_be_needed() -> None:
    result = simulate(pipelined(serial(flat(0.1, 1.0), [3], [0.7]), Ahead(CURVE, 4)), 60)
    for r in result.rounds[0]:
        left = 60 - (r.start - 1) - r.emitted
        assert (r.ahead == "") == (left <= 1)


def test_all_three_levels_work_at_once() -> None:
    result = simulate(pipelined(chain_of_three(), Ahead(CURVE, 3), Ahead(CURVE, 8)), 300)
    trace = result.trace("pipelined")
    assert trace.together(1, 2) > 0.2 * result.seconds
    assert trace.together(0, 1) > 0.02 * result.seconds
    alone = simulate(chain_of_three(), 300).trace("serial")
    assert alone.together(0, 1) == alone.together(1, 2) == 0
    assert result.speedup > 1.1 * simulate(chain_of_three(), 300).speedup
    assert result.speedup_per_device == pytest.approx(result.speedup / 3)

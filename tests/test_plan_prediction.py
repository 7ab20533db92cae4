"""Predictions, the search for draft lengths, rankings, sensitivity, and the published figures."""

from __future__ import annotations

import pytest

from ssd.plan.acceptance import ByPosition, Constant
from ssd.plan.bisection import bisect, nearest_crossing
from ssd.plan.candidates import best_gammas, edge_acceptance, sub_chains
from ssd.plan.edge_plan import EdgePlan
from ssd.plan.expected_tokens import best_gamma, standard_speedup
from ssd.plan.inputs import PlanInputs
from ssd.plan.insertion import triple_speedup
from ssd.plan.overlap import schedule_bounds
from ssd.plan.pass_times import PassTimes, Profile
from ssd.plan.planner import Search, ranking
from ssd.plan.prediction import predict
from ssd.plan.published import ACCEPTANCE, COSTS, OF_DRAFTED, PROVENANCE, PublishedAcceptance
from ssd.plan.published_speeds import SPEEDS
from ssd.plan.sensitivity import Comparison, flip_by_alpha, flip_by_latency

flat = PassTimes.flat


def three(c0, c1, overhead=0.0):
    return Profile(tuple(flat(n, c, overhead) for n, c in (("small", c0), ("middle", c1), ("target", 1.0))))


def pairwise(a01, a12, a02):
    return {
        ("small", "middle"): Constant(a01),
        ("middle", "target"): Constant(a12),
        ("small", "target"): Constant(a02),
    }


def ranked(profile, known, largest):
    alphas = {pair: model.alpha for pair, model in known.items()}
    inputs = PlanInputs(profile, known, alphas, dict.fromkeys(known, "imposed"), (None,) * len(profile.levels), {})
    return ranking(inputs, Search(windows=("at_least",), largest=largest)).plans


def test_a_pair_of_flat_levels_is_theorem_3_8():
    profile = Profile((flat("draft", 0.1), flat("target", 1.0)))
    found = predict(profile, [EdgePlan(4)], [Constant(0.8)])
    assert found.speedup == pytest.approx(standard_speedup(0.8, 4, 0.1))
    assert found.passes_per_token == pytest.approx((4 / found.tau, 1 / found.tau))
    assert sum(found.seconds) == pytest.approx(found.seconds_per_token)
    assert found.bound.level == "target"
    assert found.bound.speedup == pytest.approx(found.tau)
    assert found.alphas == pytest.approx((0.8,))
    assert found.taus == pytest.approx((found.tau,))
    best = best_gammas(profile, [Constant(0.8)])
    assert best.gammas == (best_gamma(0.8, 0.1),)


def test_plain_decoding_is_its_own_unit():
    found = predict(Profile((flat("target", 0.5, overhead=0.1),)), [], [])
    assert (found.speedup, found.tau, found.seconds_per_token) == (1.0, 1.0, 0.6)
    assert found.taus == ()


def test_the_best_chain_stays_below_and_near_the_serial_reduction():
    """The reduction ignores overshoot: no fixed lengths exceed it, and the best come within 5%."""
    for a01, a12 in ((0.75, 0.85), (0.6, 0.7)):
        found = best_gammas(three(0.02, 0.1), [Constant(a01), Constant(a12)], windows=("at_least", "exactly"))
        reduced = triple_speedup(0.02, 0.1, a01, a12)
        assert 0.95 * reduced < found.prediction.speedup <= reduced + 1e-9


def test_widths_cost_what_was_measured():
    draft = PassTimes.of_widths("draft", {1: 1.0, 2: 3.0})
    target = PassTimes.of_widths("target", {1: 10.0, 4: 16.0}, overhead=0.5)
    found = predict(Profile((draft, target)), [EdgePlan(2)], [Constant(0.5)])
    # 2 draft passes a round, the first one token wider after a round that accepted both (a quarter of them)
    assert found.seconds[0] * found.tau == pytest.approx(1.0 + (0.75 * 1.0 + 0.25 * 3.0))
    assert found.seconds[1] * found.tau == pytest.approx(14.5)
    assert found.speedup == pytest.approx(10.5 / found.seconds_per_token)


def test_a_batch_shares_passes_and_its_slowest_row_sets_the_rounds():
    profile, edges = three(0.05, 0.2), [EdgePlan(2), EdgePlan(4)]
    alone, four = (predict(profile, edges, [Constant(0.7), Constant(0.8)], batch) for batch in (1, 4))
    assert four.tau == pytest.approx(alone.tau)
    assert four.passes_per_token[1] > alone.passes_per_token[1]
    assert alone.seconds_per_token / 4 < four.seconds_per_token < alone.seconds_per_token
    assert four.speedup < alone.speedup


def test_a_look_up_makes_no_passes_and_may_find_nothing():
    look_up = PassTimes("n-gram", lambda width, batch: 0.001, look_up=True, coverage=0.5)
    found = predict(Profile((look_up, flat("target", 1.0))), [EdgePlan(4)], [Constant(0.8)])
    assert found.tau == pytest.approx(0.5 * 3.3616 + 0.5)
    assert found.passes_per_token[0] == pytest.approx(1 / found.tau)
    assert found.alphas == pytest.approx((0.8,))
    with pytest.raises(ValueError, match="only draft, at level 0"):
        Profile((flat("draft", 0.1), look_up, flat("target", 1.0)))


def test_short_outputs_gain_less_and_plain_decoding_nothing():
    target, edges, acceptance = flat("target", 1.0), [EdgePlan(4)], [Constant(0.8)]
    profile = Profile((flat("draft", 0.1), target))
    speedups = [predict(profile, edges, acceptance, new_tokens=n).speedup for n in (6, 40, 600)]
    assert speedups == sorted(speedups)
    assert speedups[2] == pytest.approx(predict(profile, edges, acceptance).speedup, rel=0.01)
    alone = predict(Profile((target,)), [], [], new_tokens=10)
    assert (alone.speedup, alone.tau) == pytest.approx((1.0, 1.0))
    with pytest.raises(ValueError, match="batch 2"):
        predict(profile, edges, acceptance, batch=2, new_tokens=10)


def test_acceptance_by_block_is_planned_with_rates_measured_by_block():
    edges, shares = [EdgePlan(3, verification="block")], (0.8, 0.7, 0.5)
    profile = Profile((flat("draft", 0.1), flat("target", 1.0)))
    found = predict(profile, edges, [ByPosition.from_survival(shares, "block")])
    assert found.tau == pytest.approx(1 + sum(shares))
    assert best_gammas(profile, [ByPosition.from_survival(shares, "block")]).edges[0].verification == "block"
    with pytest.raises(ValueError, match="'token' was measured, the edge verifies by 'block'"):
        predict(profile, edges, [Constant(0.8)])


def test_sub_chains_end_in_the_target_and_keep_the_order():
    assert sub_chains(["a", "b", "t"]) == [("t",), ("a", "t"), ("b", "t"), ("a", "b", "t")]


@pytest.mark.parametrize(
    ("costs", "alphas", "best"),
    [
        ((0.02, 0.10), (0.75, 0.85, 0.72), ("small", "middle", "target")),
        ((0.02, 0.10), (0.75, 0.77, 0.75), ("small", "target")),
        ((0.09, 0.10), (0.75, 0.85, 0.60), ("middle", "target")),
        ((0.9, 0.95), (0.75, 0.80, 0.60), ("target",)),
    ],
)
def test_profiles_with_opposite_answers_rank_differently(costs, alphas, best):
    found = ranked(three(*costs), pairwise(*alphas), largest=8)
    assert len(found) == 4
    assert found[0].names == best
    seconds = [plan.prediction.seconds_per_token for plan in found]
    assert seconds == sorted(seconds)
    assert next(p for p in found if p.names == ("target",)).prediction.speedup == 1.0


def test_a_deeper_search_finds_a_vector_no_single_change_betters():
    levels = (flat("tiny", 0.004), *three(0.02, 0.1).levels)
    acceptance = [Constant(0.6), Constant(0.75), Constant(0.85)]
    found = best_gammas(Profile(levels), acceptance, largest=6)
    for k in range(3):
        for step in (-1, 1):
            gammas = list(found.gammas)
            gammas[k] += step
            if 1 <= gammas[k] <= 6:
                other = predict(Profile(levels), [EdgePlan(g) for g in gammas], acceptance)
                assert other.seconds_per_token >= found.prediction.seconds_per_token - 1e-12


@pytest.mark.parametrize("reoptimise", [False, True])
def test_an_order_flips_where_sensitivity_says(reoptimise):
    comparison = Comparison(three(0.02, 0.10), reoptimise=reoptimise, largest=4)
    plans = {plan.names: plan for plan in ranked(comparison.profile, pairwise(0.75, 0.85, 0.72), largest=4)}
    first, second = plans["small", "middle", "target"], plans["small", "target"]
    delta = flip_by_alpha(comparison, first, second, ("middle", "target"))
    assert delta is not None
    assert -0.2 < delta < 0
    factor = flip_by_latency(comparison, first, second, "middle")
    assert factor is not None
    assert factor > 1
    for changed, near in (
        (lambda s: comparison.with_alpha(("middle", "target"), delta + s), 0.002),
        (lambda s: comparison.with_latency("middle", factor * (1 - s)), 0.002),
    ):
        assert changed(near).seconds(first) < changed(near).seconds(second)
        assert changed(-near).seconds(first) > changed(-near).seconds(second)
    assert flip_by_alpha(comparison, second, plans["target",], ("small", "middle")) is None
    assert flip_by_latency(comparison, second, plans["target",], "middle") is None


def test_the_nearest_crossing_is_found_on_either_side():
    assert nearest_crossing(lambda x: (x + 0.3) * (x - 0.8), 1.0, 10) == pytest.approx(-0.3, abs=1e-3)
    assert nearest_crossing(lambda x: (x + 0.8) * (x - 0.25), 1.0, 10) == pytest.approx(0.25, abs=1e-3)
    assert nearest_crossing(lambda x: x, 1.0, 10) == 0.0
    assert nearest_crossing(lambda x: x * x + 1, 1.0, 10) is None
    with pytest.raises(ValueError, match="no change of sign"):
        bisect(lambda x: 1.0, 0, 1)


def test_work_between_devices_is_bounded_by_the_prediction():
    found = predict(three(0.02, 0.1), [EdgePlan(2), EdgePlan(4)], [Constant(0.7), Constant(0.8)])
    bounds = schedule_bounds(found.seconds, found.names)
    assert bounds.most == pytest.approx(found.seconds_per_token)
    assert bounds.least == pytest.approx(max(found.seconds))
    assert 1 / bounds.least == pytest.approx(found.bound.speedup)


def test_levels_on_devices_of_their_own_are_counted():
    profile = Profile((flat("draft", 0.1, device="a"), flat("target", 1.0, device="b")))
    found = predict(profile, [EdgePlan(4)], [Constant(0.8)])
    assert found.speedup_per_device == pytest.approx(found.speedup / 2)


def test_published_figures_become_models_unless_they_are_no_acceptance():
    for entry in ACCEPTANCE:
        assert entry.source
        if entry.kind == OF_DRAFTED:
            with pytest.raises(ValueError, match="not an acceptance rate"):
                entry.models()
            continue
        models = entry.models()
        assert len(models) == 1 + (entry.second is not None)
        assert all(0 < m.at(j, "plain") <= 1 for m in models for j in range(6))
    by_pair = {(e.draft, e.data): e for e in ACCEPTANCE}
    doubtful = by_pair["Llama-2-chat-7B", "GSM8K"]
    assert [m.at(0, "plain") for m in doubtful.models()] == [0.81, 0.845]
    survival = by_pair["DSpark head", "HumanEval"].models()[0]
    assert isinstance(survival, ByPosition)
    assert survival.alphas[1] == pytest.approx(0.69 / 0.84)
    with pytest.raises(ValueError, match="needs a doubt"):
        PublishedAcceptance("a", "b", "c", None, (0.5,), "per token", "s", "read", second=(0.6,))


def test_published_costs_and_speeds_say_where_they_are_from():
    for cost in COSTS:
        assert cost.provenance in PROVENANCE
        if cost.seconds:
            assert cost.seconds[0] / cost.seconds[1] == pytest.approx(cost.ratio, rel=0.01)
        assert cost.second is None or cost.doubt
    for speed in SPEEDS:
        assert speed.source
        assert speed.provenance in PROVENANCE
        assert speed.low is None or 1 <= speed.low <= speed.high
        assert speed.exact or speed.doubt


def test_backed_out_rates_reproduce_the_published_speedups():
    """Llama-2-chat 7B→70B: best length at c = .165, to the rounding of the rates."""
    for data, speedup in (("Alpaca", 1.90), ("GSM8K", 2.07), ("HumanEval", 2.01)):
        entry = next(e for e in ACCEPTANCE if e.draft == "Llama-2-chat-7B" and e.data == data)
        alpha = entry.alphas[0]
        assert standard_speedup(alpha, best_gamma(alpha, 0.165), 0.165) == pytest.approx(speedup, rel=0.03)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: predict(three(0.1, 0.2), [EdgePlan(2)], [Constant(0.5)]), "edges: 3 levels need 2"),
        (lambda: PassTimes.of_widths("x", {1: 1.0}).at(2), "level x: width 2"),
        (lambda: PassTimes.of_widths("x", {1: 1.0}).at(1, 4), "level x: no pass was measured for batch 4"),
        (lambda: PassTimes("x", {}), "level x: no pass"),
        (lambda: PassTimes.flat("x", 1.0, overhead=-1), "level x: overhead"),
        (lambda: PassTimes("x", {(1, 1): 1.0}, coverage=0.5), "level x: coverage"),
        (lambda: Profile((flat("x", 1), flat("x", 2))), "names must differ"),
        (lambda: three(0.1, 0.2).select(["large"]), "'large'"),
        (lambda: edge_acceptance(("small", "target"), {}), "small drafting for target"),
    ],
)
def test_bad_input_is_one_clear_error(call, message):
    with pytest.raises(ValueError, match=message):
        call()

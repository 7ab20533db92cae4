"""The pipelined schedule in a plan: which edges may work ahead, what it is predicted to bring, what the plan says.

Simulated figures rest on 2,000 tokens of one seed, fixed; comparisons are between runs with the same draws.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from experiments import plan as command
from experiments.plan_config import chain_of, check_plan, read_config
from ssd.plan.acceptance import Constant
from ssd.plan.candidates import best_gammas
from ssd.plan.edge_plan import EdgePlan
from ssd.plan.inputs import read_inputs
from ssd.plan.lookahead import PowerMiss, TopShares
from ssd.plan.overlap import overlap_speedup_bound
from ssd.plan.pass_times import PassTimes, Profile
from ssd.plan.planner import Search, make_plan
from ssd.plan.schedules import best_pipelined, edges_that_may_work_ahead
from tests.plan_profiles import TRIPLE, profile, rates, write

ALWAYS, NEVER = TopShares((1.0,), (1.0,)), PowerMiss(0.0, 0.0, 0.0)
APART = "devices={L0: a, L1: b, L2: c}"


def levels(*seconds, devices):
    """Levels of flat pass times on these devices."""
    return Profile(
        tuple(PassTimes.flat(f"L{k}", s, device=d) for k, (s, d) in enumerate(zip(seconds, devices, strict=True)))
    )


def pair(curve, alpha=0.8, cost=0.2, largest=6, budgets=(1, 2, 4)):
    """The best pipelined setting of a pair on two devices, and its best serial plan."""
    own = levels(cost, 1.0, devices="ab")
    plan = best_gammas(own, [Constant(alpha)], largest=largest)
    return best_pipelined(own, plan.edges, plan.acceptance, {("L0", "L1"): curve}, budgets, largest=largest), plan


def test_a_draft_that_is_always_ready_reaches_the_bound_of_overlap():
    found, serial = pair(ALWAYS, 0.7, 0.1, largest=8, budgets=(8,))
    # Before it drafts, the draft model scores the last token it drafted: one more of its passes has to be hidden.
    best = max(overlap_speedup_bound(0.7, g, 0.1 * (g + 1) / g) for g in range(1, 9))
    assert serial.prediction.speedup < 0.8 * best
    assert found.speedup == pytest.approx(best, rel=0.03)
    assert found.gammas > serial.gammas  # a hidden draft may be longer
    assert found.hit_rate > 0.99
    assert (found.devices, found.speedup_per_device) == (2, found.speedup / 2)


def test_guesses_that_never_hit_bring_nothing():
    found, serial = pair(NEVER)
    assert found.hit_rate == 0
    assert found.speedup <= serial.prediction.speedup * 1.001
    assert replace(serial, pipelined=found).schedule == "serial"


def test_more_guesses_are_taken_where_rows_are_free():
    likely, _ = pair(PowerMiss(0.3, 0.5, 0.7), budgets=(1, 2, 4, 8))
    one, _ = pair(PowerMiss(0.3, 0.5, 0.7), budgets=(1,))
    assert (likely.budget, one.budget) == (8, 1)
    assert likely.hit_rate > one.hit_rate
    assert likely.speedup > one.speedup


@pytest.mark.parametrize(
    ("devices", "known", "edges"),
    [
        ("abc", [("L0", "L1"), ("L1", "L2")], (0, 1)),
        ("aab", [("L0", "L1"), ("L1", "L2")], (1,)),
        ("aba", [("L0", "L1"), ("L1", "L2")], (0,)),  # L2 shares with L0, which drafts for L1
        ("abb", [("L0", "L1"), ("L1", "L2")], (0,)),
        ("aaa", [("L0", "L1"), ("L1", "L2")], ()),
        ("abc", [("L1", "L2")], (1,)),  # nothing is known about L0's guesses
    ],
)
def test_an_edge_works_ahead_where_its_drafts_run_apart_and_its_guesses_are_known(devices, known, edges):
    own, curves = levels(0.05, 0.2, 1.0, devices=devices), dict.fromkeys(known, ALWAYS)
    assert edges_that_may_work_ahead(own, curves) == edges
    found = best_pipelined(own, [EdgePlan(2), EdgePlan(3)], [Constant(0.7)] * 2, curves, [2], largest=3)
    assert (found is None) == (edges == ())
    assert found is None or set(found.ahead) <= set(edges)


def test_a_look_up_has_nothing_to_do_ahead():
    look_up = PassTimes("n-gram", {(1, 1): 1e-4}, look_up=True, coverage=0.5, device="cpu")
    own = Profile((look_up, PassTimes.flat("L1", 1.0, device="b")))
    assert edges_that_may_work_ahead(own, {("n-gram", "L1"): ALWAYS}) == ()


def test_budgets_that_were_not_timed_are_left_out():
    timed = {(w, b): 0.2 * (1 + 0.1 * b) for w in (1, 8) for b in (1, 4)}
    own = Profile((PassTimes("L0", timed, device="a", extrapolate=True), PassTimes.flat("L1", 1.0, device="b")))
    given = ([EdgePlan(3)], [Constant(0.8)], {("L0", "L1"): PowerMiss(0.3, 0.5, 0.7)})
    assert best_pipelined(own, *given, [1, 2, 4, 8], largest=4).budget <= 4
    assert best_pipelined(own, *given, [8], largest=4) is None
    below = [EdgePlan(2), EdgePlan(2)], [Constant(0.8)] * 2, dict.fromkeys([("L0", "L1"), ("L1", "L2")], ALWAYS)
    three = Profile((own.levels[0], *levels(0.1, 0.3, 1.0, devices="abc").levels[1:]))
    nested = best_pipelined(three, *below, [4], largest=2)  # both edges ahead would be 16 rows of L0
    assert nested.ahead in ((0,), (1,))
    assert own.levels[0].at(1, 2) == pytest.approx(0.2 * 1.2)  # between batch 1 and batch 4
    with pytest.raises(ValueError, match="level L0: no pass was measured for batch 5"):
        own.levels[0].at(1, 5)


def test_the_search_ends_where_no_single_step_is_faster():
    """The slow way: every length and budget of a pair."""
    own, curve = levels(0.3, 1.0, devices="ab"), PowerMiss(0.2, 0.5, 0.5)
    curves, start = {("L0", "L1"): curve}, best_gammas(own, [Constant(0.7)], largest=5)
    found = best_pipelined(own, start.edges, start.acceptance, curves, (1, 2, 4), largest=5)
    every = [
        best_pipelined(own, [EdgePlan(g)], [Constant(0.7)], curves, (b,), largest=g)
        for g in range(1, 5)
        for b in (1, 4)
    ]
    assert found.speedup >= 0.99 * max(x.speedup for x in every)


def planned(tmp_path, data, *arguments):
    path, results = write(tmp_path / "given.json", data), tmp_path / "plan"
    given = [f"profile={path}", f"results_dir={results}", "measured=false", "largest_gamma=2"]
    assert command.main([*given, *arguments]) == 0
    return json.loads((results / "plan.json").read_text())


BATCHED = profile((0.1, 0.3, 1.0), rates(0.8, 0.85, 0.7))
for level in BATCHED["levels"][:-1]:
    level["seconds"] = [x | {"batch": b} for x in level["seconds"] for b in (1, 4)]
GUESSES = {"recovered": [0.3, 0.4, 0.45, 0.5], "bonus": [0.5, 0.6, 0.65, 0.7]}


def test_a_plan_on_several_devices_says_which_schedule_is_faster(tmp_path):
    data = BATCHED | {"next_guesses": dict.fromkeys(BATCHED["acceptance"], GUESSES)}
    plan = planned(tmp_path, data, APART)
    by = {tuple(p["levels"]): p for p in plan["plans"]}
    assert by["L2",]["schedule"] == "serial"
    assert by["L2",]["pipelined"] is None
    top = plan["plans"][0]
    assert top["schedule"] == "pipelined"
    assert set(top["pipelined"]) == {
        "speedup", "speedup_per_device", "devices", "hit_rate", "budget", "gammas", "ahead"
    }  # fmt: skip
    assert top["pipelined"]["speedup"] > top["speedup"]
    assert 0 < top["pipelined"]["hit_rate"] < 1
    assert top["pipelined"]["budget"] <= 4
    faster = [max(p["speedup"], (p["pipelined"] or {"speedup": 0})["speedup"]) for p in plan["plans"]]
    assert faster == sorted(faster, reverse=True)
    assert "That is the pipelined schedule on" in plan["recommendation"]
    assert plan["sensitivity"]
    assert {row["schedule"] for row in plan["sensitivity"]} == {"serial"}
    for p in plan["plans"]:
        if p["pipelined"]:  # what is hidden is never more than all drafting, and the bound counts useful work only
            assert p["pipelined"]["speedup"] <= p["speedup"] * sum(p["seconds_per_token"]) / p["seconds_per_token"][-1]


@pytest.mark.parametrize("argument", [APART, "hit_curve={recovered: 0.9, bonus: 0.9, exponent: 1.0}"])
def test_on_one_device_or_without_a_curve_the_schedule_is_serial(tmp_path, argument):
    plan = planned(tmp_path, TRIPLE, argument)
    assert {p["schedule"] for p in plan["plans"]} == {"serial"}
    assert {p["pipelined"] for p in plan["plans"]} == {None}


def test_a_curve_may_be_imposed():
    inputs = read_inputs(BATCHED, "test").with_devices({"L0": "a", "L1": "a", "L2": "b"})
    given = {"recovered": 0.4, "bonus": 0.6, "exponent": 0.5}
    found, _ = make_plan(inputs.with_hit_curve(given), Search(largest=3))
    assert any(p.pipelined for p in found.plans)
    with pytest.raises(ValueError, match="hit_curve: expected recovered, bonus and exponent"):
        inputs.with_hit_curve({"recovered": 0.4})
    with pytest.raises(ValueError, match=r"hit curve, recovered: 1\.4 is outside"):
        inputs.with_hit_curve(given | {"recovered": 1.4})


def test_drafts_on_a_device_of_their_own_are_timed_at_the_rows_they_would_draft():
    chain = chain_of("tiny_triple", None)
    for devices, batches in (("{}", []), ("{L0: cpu}", []), ("{L0: other}", [4, 6])):
        config = read_config(command.CONFIG, [f"devices={devices}", "budgets=[1, 2, 3]", "batch=2", "batches=[]"])
        assert command.draft_batches(config, chain) == batches
    with pytest.raises(ValueError, match="budgets: expected an integer >= 1, got 0"):
        check_plan(read_config(command.CONFIG, ["budgets=[0]"]))

"""The two ways to choose temperatures of draft levels, and the gain they predict."""

from __future__ import annotations

import numpy as np
import pytest
from bigram_chains import bigram_chain, random_logits
from test_calibrate_overlaps import CONTEXTS, VOCAB

from experiments import calibrate
from experiments.calibrate_grid import at_the_end, best_of_pairs
from experiments.calibrate_rows import MARGIN, best_cell_rows, best_equal, cell_rows, held_out_rows, speed_rows
from ssd.calibrate.choice import edge_alphas, equal, joint, predicted_gain, predicted_speed, refined, top_down
from ssd.calibrate.overlap_grid import overlap_grid
from ssd.calibrate.overlap_table import Cell, OverlapTable
from ssd.core.chain import Chain, Edge
from ssd.core.requests import Sampling
from ssd.plan.edge_plan import EdgePlan
from ssd.plan.pass_times import PassTimes, Profile

GRID = [0.0, 0.3, 0.5, 0.7, 1.0, 1.3, 1.6]


def scaled_chain(*factors: float) -> Chain:
    """Drafts whose logits are the target's times a constant: at that constant times its temperature they agree."""
    target = random_logits(0, VOCAB)
    return bigram_chain([*(f * target for f in factors), target], [Edge(2)] * len(factors))


def flat(*seconds: float) -> Profile:
    return Profile(tuple(PassTimes.flat(f"L{k}", s) for k, s in enumerate(seconds)))


@pytest.mark.parametrize(
    ("factors", "target", "best"), [((1.3, 0.5), 1.0, (1.3, 0.5, 1.0)), ((0.6, 2.0), 0.5, (0.3, 1.0, 0.5))]
)
def test_both_ways_find_the_temperatures_at_which_all_levels_agree(factors, target, best):
    chain = scaled_chain(*factors)
    table = overlap_grid(chain, CONTEXTS, Sampling(), [GRID] * 3, (0,))
    speed = predicted_speed(flat(0.1, 0.3, 1.0), [EdgePlan(2), EdgePlan(3)])
    assert top_down(table, 3, target) == best
    assert joint(table, 3, target, speed) == best
    assert edge_alphas(table, best) == pytest.approx([1.0, 1.0])
    assert max(edge_alphas(table, equal(3, target))) < 0.95  # or nothing had to be found


def two_prompts(first: dict[tuple, float], second: dict[tuple, float]) -> OverlapTable:
    sums = {Cell(*key): np.array([[100 * first[key]], [100 * second[key]]]) for key in first}
    return OverlapTable(("a", "b"), ("math", "code"), (0,), np.array([[100.0], [100.0]]), sums)


def synthetic(values: dict[tuple, float]) -> OverlapTable:
    return two_prompts(values, values)


def one_prompt(values: dict[tuple, float]) -> OverlapTable:
    sums = {Cell(*key): np.array([[100 * v]]) for key, v in values.items()}
    return OverlapTable(("a",), ("math",), (0,), np.array([[100.0]]), sums)


def sharper(loss: float) -> OverlapTable:
    """A sharper L1 accepts .9 instead of .5 from L0 and loses ``loss`` of .8 at the target."""
    values = {(1, 2, 1.0, 1.0): 0.8, (1, 2, 0.5, 1.0): 0.8 - loss}
    values |= {(0, 1, s, t): 0.9 if t == 0.5 else 0.5 for s in (0.5, 1.0) for t in (0.5, 1.0)}
    return synthetic(values)


def test_only_the_joint_choice_gives_up_acceptance_at_the_target_for_more_below_it():
    speed = predicted_speed(flat(0.02, 0.5, 1.0), [EdgePlan(2), EdgePlan(3)])  # L1 is dear, so L0 matters
    assert top_down(sharper(0.02), 3, 1.0) == (1.0, 1.0, 1.0)
    assert joint(sharper(0.02), 3, 1.0, speed) == (0.5, 0.5, 1.0)
    assert joint(sharper(0.6), 3, 1.0, speed) == (1.0, 1.0, 1.0)
    cheap = predicted_speed(flat(0.001, 0.001, 1.0), [EdgePlan(2), EdgePlan(3)])
    assert joint(sharper(0.02), 3, 1.0, cheap) == (1.0, 1.0, 1.0)


def test_nothing_is_changed_for_nothing():
    table = synthetic({(0, 1, s, 1.0): 0.7 for s in (0.5, 1.0, 1.5)})
    speed = predicted_speed(flat(0.1, 1.0), [EdgePlan(2)])
    assert top_down(table, 2, 1.0) == joint(table, 2, 1.0, speed) == (1.0, 1.0)


def test_a_single_prompt_is_no_reason_to_leave_equal_temperatures():
    values = {(0, 1, 1.0, 1.0): 0.6, (0, 1, 0.5, 1.0): 0.7}
    speed = predicted_speed(flat(0.1, 1.0), [EdgePlan(2)])
    for table, chosen in ((one_prompt(values), 1.0), (two_prompts(values, values), 0.5)):
        assert top_down(table, 2, 1.0) == joint(table, 2, 1.0, speed) == (chosen, 1.0)


@pytest.mark.parametrize(("second", "chosen"), [(0.62, 0.5), (0.58, 1.0)])
def test_a_gain_that_only_some_prompts_show_is_no_reason_to_leave_equal_temperatures(second, chosen):
    same, other = (0, 1, 1.0, 1.0), (0, 1, 0.5, 1.0)
    table = two_prompts({same: 0.6, other: 0.7}, {same: 0.6, other: second})
    speed = predicted_speed(flat(0.1, 1.0), [EdgePlan(2)])
    assert table.value(Cell(*other)) > table.value(Cell(*same))
    assert top_down(table, 2, 1.0) == joint(table, 2, 1.0, speed) == (chosen, 1.0)
    gain = predicted_gain(table, (0.5, 1.0), (1.0, 1.0), speed)
    assert gain.value == pytest.approx(speed([(0.7 + second) / 2]) / speed([0.6]))
    assert (gain.low > 1) == (chosen == 0.5)


def test_the_second_pass_knows_equal_temperatures_for_every_verifier():
    vectors = {"equal": (1.0, 1.0, 1.0), "top_down": (0.5, 1.3, 1.0), "joint": (1.0, 1.0, 1.0)}
    found = calibrate.finer([0.5, 1.0, 1.3], vectors, 1)
    assert found == [[0.5, 0.75, 1.0, 1.15, 1.3], [0.5, 0.75, 1.0, 1.15, 1.3], [1.0]]


def test_the_second_pass_goes_around_the_best_cell_of_every_pair():
    """Equal temperatures are kept, and the best cells are two steps from them."""
    grid, same = [0.3, 0.5, 0.7, 1.0], 1.0
    values = {(a, b, s, t): 0.5 for a, b in ((0, 1), (0, 2), (1, 2)) for s in grid for t in grid}
    values |= {(0, 2, 0.3, 1.0): 0.6, (1, 2, 0.5, 1.0): 0.6, (0, 1, 0.5, 0.5): 0.9}
    best = best_of_pairs(synthetic(values), 3, same)
    assert best == [{0.3, 1.0}, {0.5}]  # what L0 has for L1 counts at the row's temperature
    vectors = dict.fromkeys(("equal", "top_down", "joint"), (same,) * 3)
    assert calibrate.finer(grid, vectors, 1) == [[0.7, 0.85, 1.0], [0.7, 0.85, 1.0], [1.0]]
    l1 = [0.3, 0.4, 0.5, 0.6, 0.7, 0.85, 1.0]
    assert calibrate.finer(grid, vectors, 1, best) == [l1, l1, [1.0]]
    best[0] = {1.0}
    best[1] = {1.0}
    assert calibrate.finer(grid, vectors, 1, best) == calibrate.finer(grid, vectors, 1)


def test_a_temperature_at_either_end_of_the_grid_is_remarked():
    names, grid = ["L0", "L1", "L2"], [0.5, 1.0, 1.6]
    vectors = {"equal": (1.0, 1.0, 1.0), "top_down": (0.5, 1.0, 1.0), "joint": (1.0, 1.6, 1.0)}
    assert at_the_end(vectors, grid, names) == [
        "top_down: the temperature of L0, 0.5, is the lowest of the grid",
        "joint: the temperature of L1, 1.6, is the highest of the grid",
    ]
    assert at_the_end({"joint": (0.0, 1.0, 1.0)}, [0.0, *grid], names) == []  # nothing is below 0


def test_vectors_that_are_equal_temperatures_were_not_compared():
    methods = {"equal": "equal", "top_down": "equal", "joint": "joint"}
    seconds = {"prefill": 0.0, "total": 1.0}
    made = {"prompt_id": "p", "sample": 0, "output_ids": [1, 2, 3], "first_pass_tokens": 1, "rounds": [], "passes": {}}
    records = [
        made | {"method": m, "run_id": "r", "batch_id": f"{m}-p", "seconds": seconds} for m in ("ar", "equal", "joint")
    ]
    rows = {r.name: r for r in speed_rows("T1", ["L0"], methods, records)}
    same = rows["T1: speed, top_down / equal, same run"]
    assert (same.value, same.low, same.goal, same.n) == (1.0, None, None, None)
    assert rows["T1: speed, joint / equal"].goal == 1 - MARGIN


def test_a_deep_chain_is_climbed_to_a_vector_that_no_single_change_betters():
    factors = (1.6, 0.5, 1.3)
    table = overlap_grid(scaled_chain(*factors), CONTEXTS, Sampling(), [GRID] * 4, (0,))
    # Under ``exactly`` blocks keep their length, so that more acceptance below can only help.
    edges = [EdgePlan(2), EdgePlan(3, "exactly"), EdgePlan(4, "exactly")]
    speed = predicted_speed(flat(0.05, 0.1, 0.3, 1.0), edges)
    found = joint(table, 4, 1.0, speed)
    assert found == (*factors, 1.0)


def test_draft_lengths_may_be_chosen_along():
    table = sharper(0.3)
    fixed = predicted_speed(flat(0.02, 0.5, 1.0), [EdgePlan(8), EdgePlan(8)])
    free = predicted_speed(flat(0.02, 0.5, 1.0), [EdgePlan(8), EdgePlan(8)], largest_gamma=8)
    for vector in ((1.0, 1.0, 1.0), (0.5, 0.5, 1.0)):
        assert free(edge_alphas(table, vector)) > 1.05 * fixed(edge_alphas(table, vector))
    with pytest.raises(ValueError, match=r"chain\.edges\[0\]\.verification: 'block'"):
        predicted_speed(flat(0.02, 1.0), [EdgePlan(2, verification="block")])


def test_refining_goes_to_either_neighbour():
    assert refined([0.5, 1.0, 2.0], 1.0, 1) == [0.5, 0.75, 1.0, 1.5, 2.0]
    assert refined([0.5, 1.0, 2.0], 0.5, 3) == [0.5, 0.625, 0.75, 0.875, 1.0]
    with pytest.raises(ValueError, match=r"grid: 0\.6 is not one of 0\.5, 1\.0"):
        refined([0.5, 1.0], 0.6, 1)


def test_the_better_equal_setting_for_this_verifier_is_what_a_lower_edge_is_held_to():
    values = {(0, 1, 0.8, 0.5): 0.7, (0, 1, 0.5, 0.5): 0.4, (0, 1, 1.0, 0.5): 0.6}
    assert best_equal(synthetic(values), Cell(0, 1, 0.8, 0.5), 1.0) == Cell(0, 1, 1.0, 0.5)
    assert best_equal(synthetic({**values, (0, 1, 0.5, 0.5): 0.65}), Cell(0, 1, 0.8, 0.5), 1.0) == Cell(0, 1, 0.5, 0.5)


def test_rows_say_how_much_the_best_cell_of_every_pair_would_gain():
    names = ["L0", "L1", "L2"]
    values = {(0, 1, 1.0, 1.0): 0.6, (0, 1, 0.5, 1.0): 0.65, (0, 1, 0.5, 0.5): 0.9, (0, 2, 1.0, 1.0): 0.4}
    first = values | {(1, 2, 1.0, 1.0): 0.5, (1, 2, 0.5, 1.0): 0.45}
    rows = {r.name: r for r in best_cell_rows("T1", names, 1.0, two_prompts(first, first | {(0, 1, 0.5, 1.0): 0.61}))}
    gain = rows["T1: alpha L0→L1, best cell - equal, calibration texts"]
    assert gain.value == pytest.approx(0.03)  # 0.63 at 0.5; 0.9 is at another temperature of the verifier
    assert gain.low is not None
    assert 0 < gain.low < gain.value < gain.high
    assert rows["T1: temperature of L0→L1, best cell"].value == 0.5
    kept = rows["T1: alpha L1→L2, best cell - equal, calibration texts"]
    assert (kept.value, kept.low, kept.high) == (0, 0, 0)
    assert not any("L0→L2" in name for name in rows)  # tried at one temperature


def test_the_rows_say_what_is_predicted_and_what_other_texts_may_lose():
    same, other = (0, 1, 1.0, 1.0), (0, 1, 0.5, 1.0)
    table = two_prompts({same: 0.6, other: 0.7}, {same: 0.6, other: 0.7})
    vectors = {"equal": (1.0, 1.0), "top_down": (1.0, 1.0), "joint": (0.5, 1.0)}
    speed = predicted_speed(flat(0.1, 1.0), [EdgePlan(2)])
    speeds = {name: speed(edge_alphas(table, v)) for name, v in vectors.items()}
    rows = {r.name: r for r in cell_rows("T1", ["L0", "L1"], vectors, speeds, table)}
    # Two drafted tokens a round bring 1 + a + a^2, and cost the same.
    assert rows["T1: predicted speed, joint / equal"].value == pytest.approx((1 + 0.7 + 0.49) / (1 + 0.6 + 0.36))
    assert rows["T1: predicted speed, top_down / equal"].value == 1.0
    slightly, clearly = (two_prompts({same: 0.6, other: 0.6}, {same: 0.6, other: a}) for a in (0.592, 0.588))
    for texts, value, met in ((table, 0.1, True), (slightly, -0.004, True), (clearly, -0.006, False)):
        held_out = {r.name: r for r in held_out_rows("T1", ["L0", "L1"], vectors, texts)}
        row = held_out["T1: alpha L0→L1, joint - equal"]
        assert (row.value, row.goal, row.met) == (pytest.approx(value), -MARGIN, met)
        assert row.low is not None
        assert held_out["T1: alpha L0→L1, top_down - equal"].met  # a loss of nothing is within the margin

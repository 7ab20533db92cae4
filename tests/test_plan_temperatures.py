"""Temperatures of every sub-chain: the measured grid, the choice together with draft lengths, and who runs with it."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

from experiments import plan as command
from experiments.plan_config import chain_of, level_names
from experiments.plan_grid import temperature_grid
from experiments.plan_measure import contest
from ssd.bench.loading import Loader
from ssd.bench.records import read_run
from ssd.bench.target_texts import look_up_rates, rates_along, target_texts
from ssd.calibrate.plan_temperatures import choose_temperatures
from ssd.core.ngram import Ngram
from ssd.core.requests import Sampling
from ssd.plan.candidates import best_gammas
from ssd.plan.inputs import read_inputs
from ssd.plan.planner import Search, make_plan, ranking
from ssd.plan.temperature_grid import read_grid
from tests.plan_profiles import profile, rates, write

SEARCH = Search(largest=4)
DRAFTS = (1.0, 0.5)  # temperatures of a draft level in the synthetic grids


def planted(data, gains, wobble=0.0, texts=6):
    """``data`` at temperature 1, with a grid in which a pair gains at (draft's, verifier's temperature) what is said.

    ``wobble``: the gain of the first text is lower by that, of the second higher, and so on in turns.
    """
    levels = {level["name"]: list(DRAFTS) for level in data["levels"]} | {"L2": [1.0]}
    acceptance = {}
    for name, entry in data["acceptance"].items():
        draft, verifier = name.split("→")
        cells = []
        for s, t in itertools.product(levels[draft], levels[verifier]):
            gain = gains.get(name, {}).get((s, t), 0.0)
            moved = [entry["alpha"] + gain + (wobble * (-1) ** i if gain else 0.0) for i in range(texts)]
            cells.append({"draft": s, "verifier": t, "passed": [48 * x for x in moved], "counted": [48] * texts})
        acceptance[name] = cells
    grid = {"row": 1.0, "levels": levels, "acceptance": acceptance}
    return data | {"temperature": 1.0, "temperature_grid": grid}


PAIR = profile((0.2, 0.5, 1.0), rates(0.72, 0.75, 0.7))
BETTER = {"L0→L2": {(0.5, 1.0): 0.15}}


def test_the_faster_temperatures_come_with_draft_lengths_of_their_own():
    inputs = read_inputs(planted(PAIR, BETTER), "test")
    chosen = choose_temperatures(inputs, SEARCH)
    assert set(chosen) == {("L0", "L2"), ("L1", "L2"), ("L0", "L1", "L2")}
    found = chosen["L0", "L2"]
    assert found.vector == found.tried == (0.5, 1.0)
    own, ours = (
        best_gammas(inputs.profile.select(("L0", "L2")), inputs.acceptance(("L0", "L2"), v), largest=4).prediction
        for v in (None, found.vector)
    )
    assert found.gain == pytest.approx(ours.speedup / own.speedup)
    assert found.low == pytest.approx(found.gain)  # every text gains the same
    plans = {p.names: p for p in ranking(inputs, SEARCH, chosen).plans}
    assert plans["L0", "L2"].gammas > ranking(inputs, SEARCH).plans[0].gammas
    assert plans["L0", "L2"].prediction.speedup == pytest.approx(ours.speedup)
    assert plans["L1", "L2"].temperatures is None  # it had a choice and kept its own


@pytest.mark.parametrize(("wobble", "leaves"), [(0.02, True), (0.3, False)])
def test_own_temperatures_stay_unless_the_texts_exclude_that_nothing_is_gained(wobble, leaves):
    found = choose_temperatures(read_inputs(planted(PAIR, BETTER, wobble), "test"), SEARCH)["L0", "L2"]
    assert (found.vector, found.tried) == ((0.5 if leaves else 1.0, 1.0), (0.5, 1.0))
    assert (found.low > 1) == leaves
    assert found.tried_gain > 1.05  # what is seen is as large in both
    assert found.gain == (found.tried_gain if leaves else 1.0)


def test_a_single_text_is_no_reason_to_leave_the_own_temperatures():
    found = choose_temperatures(read_inputs(planted(PAIR, BETTER, texts=1), "test"), SEARCH)["L0", "L2"]
    assert (found.vector, found.gain, found.tried, found.low) == ((1.0, 1.0), 1.0, (0.5, 1.0), None)
    assert found.tried_gain > 1.05


def test_a_sharper_middle_level_pays_only_where_the_level_below_matters():
    """It accepts .25 more from L0 and loses a little at the target: worth it if its own passes are dear."""
    gains = {"L0→L1": {(0.5, 0.5): 0.25, (1.0, 0.5): 0.25}, "L1→L2": {(0.5, 1.0): -0.06}}
    for middle, vector in ((0.5, 0.5), (0.01, 1.0)):
        data = planted(profile((0.005, middle, 1.0), rates(0.6, 0.85, 0.3)), gains)
        assert choose_temperatures(read_inputs(data, "test"), SEARCH)["L0", "L1", "L2"].vector[1] == vector


def test_deep_chains_end_where_no_change_of_temperatures_or_lengths_is_faster():
    data = profile((0.005, 0.3, 1.0), rates(0.6, 0.85, 0.3))
    level = {"name": "K", "seconds": data["levels"][0]["seconds"], "device": "cpu", "bytes": 1}
    data |= {"levels": [level, *data["levels"]]}
    data["acceptance"] = {"K→L0": {"alpha": 0.8}, **data["acceptance"]}
    gains = {"K→L0": {(0.5, 1.0): 0.1}, "L0→L1": {(1.0, 0.5): 0.2}, "L1→L2": {(0.5, 1.0): -0.01}}
    names = ("K", "L0", "L1", "L2")
    inputs = read_inputs(planted(data, gains), "test")
    search = Search(windows=("at_least",), largest=3)
    found = choose_temperatures(inputs, search)[names]
    assert found.vector == (0.5, 1.0, 0.5, 1.0)
    every = [
        best_gammas(inputs.profile, inputs.acceptance(names, v), largest=3).prediction.seconds_per_token
        for v in inputs.grid.vectors(names)
    ]
    assert every[0] / found.gain == pytest.approx(min(every))


def test_an_imposed_pair_leaves_its_chains_no_choice():
    inputs = read_inputs(planted(PAIR, BETTER), "test").with_acceptance({"L0->L2": 0.6})
    assert set(choose_temperatures(inputs, SEARCH)) == {("L1", "L2"), ("L0", "L1", "L2")}
    assert choose_temperatures(read_inputs(PAIR, "test"), SEARCH) == {}  # a file without the section still plans


def test_the_plan_says_what_it_chose_and_runs_with_it(tmp_path):
    data, results = planted(PAIR, BETTER), tmp_path / "plan"
    path = write(tmp_path / "given.json", data)
    arguments = [f"profile={path}", f"results_dir={results}", "temperature=1.0", "largest_gamma=3", "chain=tiny_triple"]
    assert command.main([*arguments, "measure.limit=1", "measure.max_new_tokens=6"]) == 0
    plan = json.loads((results / "plan.json").read_text())
    top = plan["plans"][0]
    assert (top["levels"], top["temperatures"]) == (["L0", "L2"], [0.5, None])
    assert top["temperatures_gain"] == top["temperatures_tried"]["gain"] > 1
    assert {tuple(p["temperatures"]) for p in plan["plans"]} > {(None,), (0.5, None), (None, None)}
    assert "temperatures of their own (L0 at 0.5), which adds" in plan["recommendation"]

    run = read_run(results / "measure")
    methods = run.run["config"]["methods"]
    used = [run.run["config"]["chain"]["levels"][k]["temperature"] for k in methods[top["label"]]["levels"]]
    assert used == [0.5, None]
    assert top["label"] in {r["method"] for r in run.records}

    inputs = read_inputs(data, "test")
    found, _ = make_plan(inputs, Search(largest=3), choose_temperatures(inputs, Search(largest=3)))
    chain = chain_of("tiny_triple", None)
    window = {"gamma": 4, "threshold": 0.2, "fixed_gamma": top["gammas"][0], "largest_gain": 1.2}
    who = contest(found, {"L0→L2": window}, level_names(chain, True), chain)
    run = [who.chain.levels[k] for k in who.methods[who.top].levels]
    assert [level.source for level in run] == [chain.levels[0].source, chain.levels[2].source]
    assert [level.temperature for level in run] == [0.5, None]
    assert [who.chain.levels[k].temperature for k in who.methods[who.fixed].levels] == [None, None]
    assert who.fixed != who.top


# --- the grid as it is measured ---------------------------------------------------------------------------------------

PROMPTS = [list(b"the cat sat on the mat. the cat"), list(b"one two three one two"), list(b"abc abc abc")]


@pytest.fixture(scope="module")
def measured():
    loader = Loader()
    spec = chain_of("tiny_triple", [None, 0.9, None])
    chain = loader.chain(spec)
    texts = target_texts(chain, PROMPTS, Sampling(1.0), 12, 2, ignore_eos=True)
    names = level_names(spec, True)
    return loader, chain, texts, temperature_grid(chain, names, Ngram(), texts, Sampling(1.0), [0.5, 1.0, 1.2])


def test_only_levels_that_inherit_are_tried_at_other_temperatures(measured):
    *_, grid = measured
    assert dict(grid.levels) == {"n-gram": (None,), "L0": (1.0, 0.5, 1.2), "L1": (0.9,), "L2": (1.0,)}
    assert set(grid.rates) == set(itertools.combinations(["n-gram", "L0", "L1", "L2"], 2))


def test_cells_are_what_a_chain_at_these_temperatures_measures(measured):
    """The slow way: the temperatures are set on the chain, whose rates are then taken along the same texts."""
    loader, _, texts, grid = measured
    chain = loader.chain(chain_of("tiny_triple", [0.5, 0.9, None]))
    slow = rates_along(chain, texts, Sampling(1.0))
    for (a, b), vector in (((0, 1), (0.5, 0.9)), ((0, 2), (0.5, 1.0)), ((1, 2), (0.9, 1.0))):
        wanted = [[x.rates.sum(), len(x.rates)] for x in slow[a, b]]
        np.testing.assert_allclose(grid.rows((f"L{a}", f"L{b}"), vector), wanted, rtol=1e-5)
    seen = look_up_rates(chain, Ngram(), texts, Sampling(1.0))
    for k, t in ((0, 0.5), (1, 0.9), (2, 1.0)):
        np.testing.assert_allclose(grid.rows(("n-gram", f"L{k}"), (None, t)), seen.by_text[k], rtol=1e-5)
    assert grid.alpha(("L0", "L1"), (0.5, 0.9)) != pytest.approx(grid.alpha(("L0", "L1"), (1.0, 0.9)), abs=1e-3)


def test_the_section_of_a_file_reads_back(measured):
    *_, grid = measured
    names = tuple(grid.levels)
    again = read_grid(json.loads(json.dumps(grid.as_dict())), names)
    assert again.levels == grid.levels
    for pair, cells in grid.rates.items():
        assert set(again.rates[pair]) == set(cells)
        for key, rows in cells.items():
            np.testing.assert_array_equal(again.rates[pair][key], rows)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda g: g["levels"].pop("L1"), "temperature_grid.levels: expected temperatures of L0, L1, L2"),
        (lambda g: g["acceptance"]["L0→L2"].pop(), "temperature_grid.acceptance.L0→L2: nothing at 0.5 and 1.0"),
        (lambda g: g["acceptance"].update({"L0→L9": []}), "temperature_grid.acceptance.L0→L9: no pair of L0, L1, L2"),
        (lambda g: g["acceptance"]["L0→L2"][0].update(passed=[99] * 6), "594 of 288 passed"),
    ],
)
def test_a_wrong_section_is_named(change, words):
    data = planted(PAIR, {})
    change(data["temperature_grid"])
    with pytest.raises(ValueError) as caught:
        read_inputs(data, "test")
    assert words in str(caught.value)


@pytest.mark.parametrize("value", ["[0]", "0.5", "[hot]"])
def test_wrong_factors_are_named(value):
    with pytest.raises(ValueError, match="temperature_factors: expected a list of finite numbers > 0"):
        command.check_plan(command.read_config(command.CONFIG, [f"temperature_factors={value}"]))

"""``experiments.plan``: three profiles with opposite answers, what is written when, and what is refused."""

from __future__ import annotations

import itertools
import json

import pytest

from experiments import plan as command
from experiments.plan_config import chain_of, check_plan, level_names, read_config
from experiments.plan_measure import contest
from experiments.plan_record import write_measurements, write_predictions
from ssd.bench.summary import read_summary
from ssd.calibrate.saved import Temperatures, write_temperatures
from ssd.plan.inputs import read_inputs
from ssd.plan.planner import Search, make_plan, ranking
from ssd.plan.sensitivity import Comparison
from tests.plan_profiles import ALONE, PAIR, TRIPLE, profile, rates, write

TINY = ["tune.limit=1", "tune.max_new_tokens=12", "measure.limit=1", "measure.max_new_tokens=8", "largest_gamma=2"]


def planned(tmp_path, data, *arguments):
    """``plan.json`` of a synthetic profile."""
    path = write(tmp_path / "given.json", data)
    results = tmp_path / "results" / "plan"
    given = [f"profile={path}", f"results_dir={results}", "measured=false", "largest_gamma=3"]
    assert command.main([*given, *arguments]) == 0
    return json.loads((results / "plan.json").read_text())


@pytest.mark.parametrize(
    ("data", "levels", "words"),
    [
        (ALONE, ["L2"], ["Use L2 alone.", "No draft pays", "so that one pays from acceptance 0.60 on; it has 0.30"]),
        (
            PAIR,
            ["L0", "L2"],
            ["Use L0→L2", "The middle level (L1) does not pay because L0→L1→L2", "would reverse that"],
        ),
        (TRIPLE, ["L0", "L1", "L2"], ["Use L0→L1→L2", "L1 as the middle level pays because the best plan without it"]),
    ],
)
def test_opposite_profiles_have_opposite_answers(tmp_path, capsys, data, levels, words):
    found = planned(tmp_path, data)
    assert found["plans"][0]["levels"] == levels
    for word in words:
        assert word in found["recommendation"]
    assert found["recommendation"] in capsys.readouterr().out
    assert [p["speedup"] for p in found["plans"]] == sorted((p["speedup"] for p in found["plans"]), reverse=True)
    assert len(found["plans"]) == 4
    assert {p["schedule"] for p in found["plans"]} == {"serial"}
    page = (tmp_path / "results" / "plan" / "report.html").read_text(encoding="utf-8")
    assert "Recommendation" in page
    assert "<script" not in page


@pytest.mark.parametrize("data", [ALONE, PAIR, TRIPLE])
def test_what_is_said_to_flip_the_order_does(data):
    inputs, search = read_inputs(data, "test"), Search(largest=4)
    found, plan = make_plan(inputs, search)
    first, second = found.plans[:2]
    comparison = Comparison(inputs.profile)
    flips = 0
    for row in plan["sensitivity"]:
        change = row.get("change", row.get("factor"))
        if change is None:
            continue
        flips += 1
        pair = tuple(row["of"].split("→"))
        for side in (0.98, 1.02):
            changed = (
                comparison.with_alpha(pair, change * side)
                if row["input"] == "alpha"
                else comparison.with_latency(row["of"], change**side)
            )
            gap = changed.seconds(second) - changed.seconds(first)
            assert (gap > 0) == (side < 1)
    assert flips > 0


def test_no_plan_leaves_a_level_idle():
    """Under ``exactly`` one token is a plain step: that is the chain without the lower level, not a triple."""
    inputs = read_inputs(PAIR, "test")
    for plan in ranking(inputs, Search(largest=3)).plans:
        assert min(plan.prediction.passes_per_token) > 0.01
    with_it = [p for p in ranking(inputs, Search(windows=("exactly",), largest=3)).plans if len(p.names) == 3]
    assert with_it[0].gammas[1] > 1


def test_a_memory_limit_takes_plans_out_and_says_so(tmp_path):
    found = planned(tmp_path, TRIPLE, "memory_limit=115")
    assert found["plans"][0]["levels"] == ["L0", "L2"]
    assert [p["fits"] for p in found["plans"]] == [True, True, False, False]
    assert "its weights exceed the memory limit" in found["recommendation"]
    with pytest.raises(ValueError, match="memory_limit: 50 is too little, the smallest plan needs 100 bytes"):
        planned(tmp_path, TRIPLE, "memory_limit=50")


def test_devices_count_for_the_speedup_per_device(tmp_path):
    found = planned(tmp_path, TRIPLE, "devices={L0: a, L1: a}")
    by = {len(p["levels"]): p for p in found["plans"]}
    assert by[3]["speedup_per_device"] == pytest.approx(by[3]["speedup"] / 2)
    assert by[1]["speedup_per_device"] == 1


def test_imposed_and_published_acceptance(tmp_path):
    found = planned(tmp_path, PAIR, "acceptance={L0->L2: 0.01, L1->L2: [0.02, 0.01]}")
    assert found["plans"][0]["levels"] == ["L2"]
    assert found["acceptance"]["L1→L2"] == {"alpha": 0.02, "first": 0.02, "origin": "imposed"}
    name = "published: Vicuna-68M->Vicuna-7B on Spec-Bench"
    found = planned(tmp_path, PAIR, f"acceptance={{L0->L2: '{name}'}}")
    assert found["acceptance"]["L0→L2"]["first"] == 0.57
    assert found["second_columns"] == [{"pair": "L0→L2", "best": found["plans"][0]["label"], "stands": True}]


def test_an_unknown_pair_leaves_its_chains_out(tmp_path):
    found = planned(tmp_path, profile((0.05, 0.5, 1.0), {"L0→L2": 0.7, "L0→L1": 0.7}))
    assert [p["levels"] for p in found["plans"]] == [["L0", "L2"], ["L2"]]
    assert {tuple(u["levels"]) for u in found["unknown"]} == {("L1", "L2"), ("L0", "L1", "L2")}
    assert "Not planned, because an acceptance is unknown" in found["recommendation"]


def test_the_insertion_condition_is_that_of_the_closed_form(tmp_path):
    (row,) = planned(tmp_path, TRIPLE)["insertions"]
    assert row["pays"]
    assert row["triple"] > max(row["low_pair"], row["middle_pair"])
    assert row["middle_alpha_needed"] < 0.9


def test_the_whole_path_on_a_tiny_chain(tmp_path):
    results = tmp_path / "plan"
    assert (
        command.main(["chain=tiny_triple", f"results_dir={results}", "profiling.repeats=1", "temperature=1.0", *TINY])
        == 0
    )
    plan, profiled = (json.loads((results / f"{n}.json").read_text()) for n in ("plan", "profile"))
    names = ["n-gram", "L0", "L1", "L2"]
    assert [level["name"] for level in profiled["levels"]] == names
    assert set(profiled["acceptance"]) == {f"{a}→{b}" for a, b in itertools.combinations(names, 2)}
    assert len(plan["plans"]) == 8
    assert set(plan["adaptive"]) == {"L0→L2", "L1→L2"}
    predicted, measured = (json.loads((results / f"{n}.json").read_text()) for n in ("predictions", "measured"))
    assert measured["predictions_sha256"] == predicted["sha256"] == plan["predictions_sha256"]
    assert measured["predictions_written"] <= measured["written"]
    rows = read_summary(results / "summary.json").rows
    assert 0 < plan["seconds"]["plan"] < plan["seconds"]["all"]
    (wall,) = [row for row in rows if row.name == "wall seconds of plan"]
    assert (wall.value, wall.goal, wall.sense) == (plan["seconds"]["plan"], 300, "max")
    assert any(row.name.startswith("speedup: adaptive (") and row.bound is not None for row in rows)
    assert any(row.name.startswith("speedup: top (") and "runner-up" in row.name for row in rows)
    # The profile that was measured plans the same when it is read.
    again = planned(tmp_path, profiled, "chain=tiny_triple", "temperature=1.0", "largest_gamma=2")
    assert again["plans"] == plan["plans"]


def test_predictions_are_on_disk_before_anything_is_measured(tmp_path, monkeypatch):
    path, results = write(tmp_path / "given.json", PAIR), tmp_path / "plan"

    def no_run(*arguments, **names):
        assert json.loads((results / "predictions.json").read_text())["content"]["plans"]
        raise RuntimeError("measuring")

    monkeypatch.setattr(command, "run_methods", no_run)
    with pytest.raises(RuntimeError, match="measuring"):
        command.main(["chain=tiny_triple", f"profile={path}", f"results_dir={results}", "largest_gamma=2"])
    assert not (results / "measured.json").exists()


def test_changed_predictions_are_not_measured_against(tmp_path):
    path = tmp_path / "predictions.json"
    digest = write_predictions(path, "command", {"speedup": 1.5})
    write_measurements(tmp_path / "measured.json", path, digest, {"rows": []})
    assert json.loads((tmp_path / "measured.json").read_text())["predictions_sha256"] == digest
    path.write_text(path.read_text().replace("1.5", "1.6"), encoding="utf-8")
    with pytest.raises(ValueError, match="no longer has the hash it was written with"):
        write_measurements(tmp_path / "measured.json", path, digest, {"rows": []})


def test_predictions_written_anew_are_not_measured_against(tmp_path):
    path = tmp_path / "predictions.json"
    digest = write_predictions(path, "command", {"speedup": 1.5})
    write_predictions(path, "command", {"speedup": 1.6})
    with pytest.raises(ValueError, match="no longer has the hash it was written with"):
        write_measurements(tmp_path / "measured.json", path, digest, {"rows": []})


def test_what_is_above_anything_published_is_said(tmp_path):
    words = "That is above anything published for exact output and not in doubt, at most 4.43x"
    assert words in planned(tmp_path, profile((0.001, 0.01, 1.0), rates(0.9, 0.95, 0.95)))["recommendation"]
    assert words not in planned(tmp_path, PAIR)["recommendation"]


def test_overlap_is_bounded_by_the_busiest_device(tmp_path):
    for devices, gains in (("{}", False), ("{L0: a, L1: a, L2: b}", True)):
        for plan in planned(tmp_path, TRIPLE, f"devices={devices}")["plans"]:
            bound, spent = plan["overlapped"], plan["seconds_per_token"]
            busiest = max(sum(spent[:-1]), spent[-1]) if gains else sum(spent)
            assert bound["seconds_per_token"] == pytest.approx(busiest)
            assert bound["speedup"] == pytest.approx(plan["speedup"] * sum(spent) / busiest)


def test_what_is_measured():
    found, _ = make_plan(read_inputs(ALONE, "test"), Search(largest=3))
    names = level_names(chain_of("tiny_triple", None), True)
    window = {"gamma": 8, "threshold": 0.25, "fixed_gamma": 3, "largest_gain": 1.2}
    who = contest(found, {"L0→L2": window, "L1→L2": window}, names, chain_of("tiny_triple", None))
    assert who.top == "ar"
    assert next(iter(who.methods)) == "ar"
    assert who.methods[who.adaptive].edges[0].window_value == 0.25
    assert who.methods[who.fixed].edges[0].gamma == 3
    assert who.methods[who.second].levels[-1] == -1


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("chain", "'chain': expected key=value"),
        ("gama=3", "gama: unknown key; known are chain"),
        ("batch=0", "batch: expected an integer >= 1, got 0"),
        ("windows=[confidence]", "windows: expected a list of at_least"),
        ("profiling.widths=[2, 4]", "profiling.widths: expected ascending integers from 1 on"),
        ("tune.split=measure", "tune: dataset bundled, split measure: this data is for 'evaluate'"),
        ("temperature=warm", "temperature: expected a number, got 'warm'"),
        ("temperature=-1", "temperature: "),
        ("memory_limit=0", "memory_limit: expected an integer >= 1"),
        ("acceptance=0.5", "acceptance: expected a mapping, got 0.5"),
        ("chain=", "chain: expected str, got None"),
    ],
)
def test_a_wrong_argument_is_named(argument, words):
    with pytest.raises(ValueError) as caught:
        check_plan(read_config(command.CONFIG, [argument]))
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"L2->L0": 0.5}, "acceptance.L2->L0: expected DRAFT->VERIFIER of L0, L1, L2, lower level first"),
        ({"L0->L2": 1.5}, "acceptance.L0->L2: acceptance.alpha: expected a probability"),
        ({"L0->L2": "high"}, "acceptance.L0->L2: expected a rate, a list of rates, or 'published"),
        ({"L0->L2": "published: A->B on C"}, "names 0 published entries"),
        ({"L0->L2": "published: Qwen2.5-0.5B->Qwen2.5-1.5B on HumanEval"}, "is not an acceptance rate per token"),
    ],
)
def test_a_wrong_acceptance_is_named(values, words):
    with pytest.raises(ValueError) as caught:
        read_inputs(PAIR, "test").with_acceptance(values)
    assert words in str(caught.value)


def test_a_profile_of_another_schema_or_temperature_is_refused(tmp_path):
    with pytest.raises(ValueError, match="test: schema 2, expected 1"):
        read_inputs(PAIR | {"schema": 2}, "test")
    with pytest.raises(ValueError, match="test: KeyError: 'seconds'"):
        read_inputs(PAIR | {"levels": [{"name": "L0"}]}, "test")
    with pytest.raises(ValueError, match=r"temperature: 1.0, but .* is of 0.0"):
        planned(tmp_path, PAIR, "temperature=1.0")


def test_temperatures_may_stand_in_a_calibrated_file(tmp_path):
    path, sources = tmp_path / "calibrated_tiny.yaml", [x.source for x in chain_of("tiny_triple", None).levels]
    write_temperatures(path, Temperatures((0.7, 0.8, None), tuple(sources), 1.0), ["test"])
    assert [x.temperature for x in chain_of("tiny_triple", path.as_posix()).levels] == [0.7, 0.8, None]
    write_temperatures(path, Temperatures((0.7, 0.8, None), ("other",) * 3, 1.0), ["test"])
    with pytest.raises(ValueError, match=r"temperatures\.sources: made for"):
        chain_of("tiny_triple", path.as_posix())
    with pytest.raises(ValueError, match="cannot be read"):
        chain_of("tiny_triple", (tmp_path / "none.yaml").as_posix())


def test_temperatures_of_levels_are_set_and_checked():
    chain = chain_of("tiny_triple", [0.7, None, None])
    assert [level.temperature for level in chain.levels] == [0.7, None, None]
    with pytest.raises(ValueError, match="temperatures: 3 levels need a list of as many"):
        chain_of("tiny_triple", [0.7])

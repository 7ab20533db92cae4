"""What is given to ``experiments.plan`` fits together, and what is left behind does not contradict it."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from experiments import plan as command
from experiments import plan_validate
from experiments.plan_config import check_plan, read_config
from experiments.plan_groups import parse_groups
from experiments.plan_record import write_predictions
from experiments.plan_stale import remove_measurements
from ssd.bench.loading import Loader
from ssd.bench.spec import read_chain
from ssd.calibrate.plan_temperatures import choose_temperatures
from ssd.plan.inputs import read_inputs
from ssd.plan.planner import Search, make_plan, ranking
from ssd.plan.schedules import Pipelined
from ssd.plan.sensitivity import Comparison
from tests.plan_profiles import ALONE, PAIR, TRIPLE, profile, rates, write
from tests.test_plan_temperatures import BETTER, planted

SOURCES = [level.source for level in read_chain("tiny_triple").levels]


def stated(data, temperatures=(None, None, None), sources=SOURCES):
    """``data`` that says which levels it is of."""
    levels = [
        x | {"source": s, "temperature": t} for x, s, t in zip(data["levels"], sources, temperatures, strict=True)
    ]
    return data | {"levels": levels}


def run(tmp_path, data, *arguments):
    """``plan.json`` of a profile of tiny_triple."""
    results = tmp_path / "plan"
    given = ["chain=tiny_triple", f"profile={write(tmp_path / 'given.json', data)}", f"results_dir={results}"]
    assert command.main([*given, "largest_gamma=2", *arguments]) == 0
    return json.loads((results / "plan.json").read_text())


WARM = stated(PAIR, (0.5, None, None)) | {"temperature": 1.0}


@pytest.mark.parametrize("measured", ["measured=false", "measured=true"])
@pytest.mark.parametrize(
    ("data", "arguments", "words"),
    [
        (PAIR, ["temperatures=[0.3, 0.3, null]"], r"temperatures: L0 is at 0\.3 in tiny_triple, but .* has it at 0\.0"),
        (WARM, ["temperature=1.0"], r"temperatures: L0 is at 1\.0 in tiny_triple, but .* has it at 0\.5"),
        (stated(PAIR), ["chain=smollm2"], r"profile: .* is of another chain: L0 is 'random:"),
        (PAIR, ["chain=nochain"], "nochain"),
        (PAIR, ["profiling.repeats=3"], r"profiling\.repeats has no effect, because profile="),
        (PAIR, ["tune.limit=2"], r"tune\.limit has no effect"),
        (PAIR, ["temperature_factors=[0.5]"], "temperature_factors has no effect"),
    ],
)
def test_a_profile_of_something_else_is_refused(tmp_path, monkeypatch, data, arguments, words, measured):
    monkeypatch.setattr(Loader, "chain", lambda *_: pytest.fail("weights were read"))
    with pytest.raises(ValueError, match=words):
        run(tmp_path, data, *arguments, measured)
    assert not (tmp_path / "plan" / "predictions.json").exists()


def test_a_look_up_that_is_not_wanted_and_a_key_without_effect_are_refused(tmp_path):
    seconds = [{"width": 1, "batch": 1, "seconds": 0.001}]
    look_up = {"name": "n-gram", "source": "ngram", "look_up": True, "coverage": 0.3, "seconds": seconds}
    data = PAIR | {"levels": [look_up, *PAIR["levels"]]}
    with pytest.raises(ValueError, match=r"ngram: False, but .* has the level 'n-gram'"):
        run(tmp_path, data, "ngram=false", "measured=false")
    with pytest.raises(ValueError, match=r"measure\.limit has no effect, because measured=false"):
        run(tmp_path, PAIR, "measure.limit=2", "measured=false")
    with pytest.raises(ValueError, match="level 'L3' is none of chain tiny_triple; plan with measured=false"):
        run(tmp_path, PAIR | {"levels": [*PAIR["levels"], PAIR["levels"][-1] | {"name": "L3"}]})


def test_a_profile_at_the_temperatures_asked_for_is_read(tmp_path):
    own = ["temperature=1.0", "measured=false"]
    assert run(tmp_path, WARM, *own, "temperatures=[0.5, null, null]")["temperature"] == 1.0
    row = stated(PAIR, (1.0, None, None)) | {"temperature": 1.0}  # the row's, said twice
    assert run(tmp_path, row, *own)["plans"]


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("devices={L9: a}", "devices: no level is called 'L9'"),
        ("acceptance={L2->L0: 0.5}", r"acceptance\.L2->L0: expected DRAFT->VERIFIER"),
        ("acceptance={L0->L2: 1.5}", r"acceptance\.L0->L2: "),
        ("hit_curve={recovered: 0.5}", "hit_curve: expected recovered, bonus and exponent"),
        ("hit_curve={recovered: 2.0, bonus: 0.5, exponent: 1}", "recovered"),
    ],
)
def test_a_wrong_level_is_named_before_weights_are_read(tmp_path, monkeypatch, argument, words):
    monkeypatch.setattr(Loader, "chain", lambda *_: pytest.fail("weights were read"))
    with pytest.raises(ValueError, match=words):
        command.main(["chain=tiny_triple", f"results_dir={tmp_path}", argument])


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_factor_that_is_no_number_is_refused(value):
    text = ".nan" if math.isnan(value) else ".inf"
    with pytest.raises(ValueError, match="temperature_factors: expected a list of finite numbers > 0"):
        check_plan(read_config(command.CONFIG, [f"temperature_factors=[{text}]"]))


def test_a_busy_profile_is_announced(tmp_path, capsys):
    run(tmp_path, PAIR | {"busy": True, "busy_elsewhere": 0.31}, "measured=false")
    assert "warning: " in (said := capsys.readouterr().out)
    assert "31% of the machine was busy with something else" in said
    run(tmp_path, PAIR | {"busy": False, "busy_elsewhere": 0.01}, "measured=false")
    assert "of the machine" not in capsys.readouterr().out


def test_a_profile_plans_for_the_batch_sizes_that_it_timed(tmp_path):
    results, small = tmp_path / "measured", ["profiling={widths: [1, 4], repeats: 1}", "tune.limit=1"]
    common = ["chain=tiny_triple", "measured=false", "largest_gamma=2"]
    assert command.main([*common, *small, "tune.max_new_tokens=6", f"results_dir={results}"]) == 0
    data = json.loads((results / "profile.json").read_text())
    for level in data["levels"]:
        assert {1, 4} <= {x["batch"] for x in level["seconds"]}
    for batch, windows in ((1, True), (4, False)):  # thresholds hold for the costs they were found at
        found = run(tmp_path, data, "measured=false", f"batch={batch}")
        assert (found["batch"], found["adaptive"] is not None) == (batch, windows)
    with pytest.raises(ValueError, match="no pass was measured for batch 9"):
        run(tmp_path, data, "measured=false", "batch=9")
    with pytest.raises(ValueError, match="batches: expected an integer >= 1, got 0"):
        check_plan(read_config(command.CONFIG, ["batches=[0]"]))


# --- what is left behind ----------------------------------------------------------------------------------------------


def test_new_predictions_do_not_stand_beside_old_measurements(tmp_path):
    results = tmp_path / "plan"
    (results / "measure").mkdir(parents=True)
    old = ["measured.json", "summary.json", "measure/run.json", "measure/records.jsonl.gz"]
    for name in old:
        (results / name).write_text("{}")
    (results / "kept.txt").write_text("of somebody else")
    run(tmp_path, PAIR, "measured=false")
    assert not any((results / name).exists() for name in [*old, "measure"])
    assert {p.name for p in results.iterdir()} == {"plan.json", "predictions.json", "report.html", "kept.txt"}
    remove_measurements(results)
    assert not (results / "report.html").exists()


def test_no_summary_is_written_of_predictions_that_changed(tmp_path, monkeypatch):
    """The check of the hash may refuse; then nothing that was measured may stand as a result."""
    actual = command.run_methods

    def rewritten(*arguments, **names):
        write_predictions(tmp_path / "plan" / "predictions.json", "another command", {"speedup": 9})
        return actual(*arguments, **names)

    monkeypatch.setattr(command, "run_methods", rewritten)
    with pytest.raises(ValueError, match="no longer has the hash"):
        run(tmp_path, PAIR, "measure.limit=1", "measure.max_new_tokens=4")
    assert not (tmp_path / "plan" / "summary.json").exists()


# --- what is said -----------------------------------------------------------------------------------------------------


def test_the_recommendation_has_windows_and_temperatures():
    """Under ``exactly`` only, the best chain of three levels; its rival is at temperatures of its own."""
    inputs = read_inputs(TRIPLE, "test")
    _, plan = make_plan(inputs, Search(windows=("exactly",), largest=4))
    gammas = plan["plans"][0]["gammas"]
    assert f"Use L0→L1→L2 with gamma {gammas[0]}, {gammas[1]} exactly: predicted" in plan["recommendation"]
    data = planted(profile((0.2, 0.5, 1.0), rates(0.72, 0.75, 0.7)), BETTER)
    inputs = read_inputs(data, "test")
    _, plan = make_plan(inputs, Search(largest=3), choose_temperatures(inputs, Search(largest=3)))
    assert plan["plans"][0]["levels"] == ["L0", "L2"]
    assert " at temperatures 0.5: predicted" in plan["recommendation"]


def test_chains_with_an_idle_level_are_no_plans_and_are_said_to_be_none():
    found, plan = make_plan(read_inputs(PAIR, "test"), Search(windows=("exactly",), largest=1))
    assert found.idle == (("L0", "L1", "L2"),)
    assert [p["levels"] for p in plan["plans"]] == [["L0", "L2"], ["L1", "L2"], ["L2"]]
    assert plan["idle"] == [["L0", "L1", "L2"]]
    assert "one of its levels would never draft anything: L0→L1→L2." in plan["recommendation"]
    assert "1.00 times as long" not in plan["recommendation"]
    assert ranking(read_inputs(PAIR, "test"), Search(largest=1)).idle == ()


def test_a_look_up_that_never_proposes_is_no_plan():
    seconds = [{"width": 1, "batch": 1, "seconds": 0.001}]
    for coverage, dropped in ((0.0, 4), (0.3, 0)):
        look_up = {"name": "n-gram", "look_up": True, "coverage": coverage, "seconds": seconds}
        data = PAIR | {"levels": [look_up, *PAIR["levels"]]}
        data["acceptance"] = PAIR["acceptance"] | {f"n-gram→L{k}": {"alpha": 0.5} for k in range(3)}
        _, plan = make_plan(read_inputs(data, "test"), Search(largest=2))
        assert len(plan["idle"]) == dropped
        assert " 0% less" not in plan["recommendation"]


def test_a_length_at_the_limit_is_remarked():
    words = "A draft length stands at the limit, 2: longer ones were not tried."
    data = PAIR | {"levels": [PAIR["levels"][0], PAIR["levels"][2]], "acceptance": {"L0→L2": {"alpha": 0.7}}}
    inputs = read_inputs(data, "test")
    assert words in make_plan(inputs, Search(largest=2))[1]["recommendation"]
    found, plan = make_plan(inputs, Search(largest=20))
    assert max(found.plans[0].gammas) < 20
    assert "stands at the limit" not in plan["recommendation"]


def test_noise_of_two_timed_passes_is_no_negative_cost():
    data = json.loads(json.dumps(ALONE))
    for x in data["levels"][-1]["seconds"]:
        x["seconds"] -= 0.06 * (x["width"] > 1)
    said = make_plan(read_inputs(data, "test"), Search(largest=2))[1]["recommendation"]
    assert "and 0.00 more to check it" in said


def test_what_flips_a_pipelined_plan_is_said_of_the_serial_predictions(monkeypatch):
    """The same rows as without overlap: each still flips the serial order where it says."""
    inputs = read_inputs(PAIR, "test")
    serial = make_plan(inputs, Search(largest=3))[1]["sensitivity"]
    assert {row["schedule"] for row in serial} == {"serial"}
    found = ranking(inputs, Search(largest=3))
    top, second = found.plans[:2]
    ahead = Pipelined(2 * top.speedup, top.speedup, 2, 0.9, 2, top.gammas, (0,))
    monkeypatch.setattr(
        "ssd.plan.planner.best_pipelined", lambda profile, *_: ahead if profile.names == top.names else None
    )
    _, plan = make_plan(inputs, Search(largest=3))
    assert plan["plans"][0]["schedule"] == "pipelined"
    assert plan["sensitivity"] == serial
    assert "; under the serial schedule, an acceptance of" in plan["recommendation"]
    assert Comparison(inputs.profile).seconds(top) < Comparison(inputs.profile).seconds(second)
    monkeypatch.setattr(
        "ssd.plan.planner.best_pipelined",
        lambda profile, *_: replace(ahead, gammas=second.gammas) if profile.names == second.names else None,
    )
    _, plan = make_plan(inputs, Search(largest=3))
    assert tuple(plan["plans"][0]["levels"]) == second.names
    assert "; under the serial schedule the order is the other one" in plan["recommendation"]


def test_too_few_configurations_to_fit_on_are_refused_at_once(tmp_path, monkeypatch):
    group = {"temperature": 0.0, "batch": 1, "methods": [{"levels": [0, 2], "gammas": [g]} for g in (1, 2)]}
    with pytest.raises(ValueError, match="groups: 2 configurations to fit on, AR of each group included; at least 3"):
        parse_groups([group])
    third = {"levels": [0, 2], "gammas": [3]}
    assert parse_groups([group | {"methods": [*group["methods"], third]}])
    monkeypatch.setattr(Loader, "chain", lambda *_: pytest.fail("weights were read"))
    with pytest.raises(ValueError, match="groups: 2 configurations"):
        plan_validate.main([f"groups={json.dumps([group])}", f"results_dir={tmp_path}"])

"""What-ifs: against closed forms, slower ways to the same numbers, and what must be refused."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import mean, stdev

import pytest

from experiments import what_if
from experiments.what_if_case import (
    ALWAYS,
    Case,
    Choice,
    World,
    fits,
    gain,
    machine_of,
    outcome,
    profile_of,
    serial_speedup,
    setting_of,
)
from experiments.what_if_chains import CHAINS, find_chain
from experiments.what_if_config import read_config
from experiments.what_if_guess import guessed_speedup, hit_chance
from experiments.what_if_needs import crossing, reach_rows
from experiments.what_if_run import tasks_of
from experiments.what_if_search import best_pipelined, best_serial, climb
from ssd.plan.acceptance import Constant
from ssd.plan.candidates import best_gammas
from ssd.plan.simulate import simulate

FREE = World(transfer=0.0)
PAIR = Case(("7B", "70B"), (0.8,), "floor", world=FREE)
TRIPLE = Case(("1B", "7B", "70B"), (0.7, 0.8), "compiled", world=FREE)


def test_where_every_outcome_was_prepared_for_a_round_takes_the_longer_of_the_two() -> None:
    """At the floor all passes are flat, so the pair on two devices is tau / max(1, (gamma + 1) c) of AR.

    Work ahead is gamma steps and a row to guess from. Four standard errors: one false alarm in 16,000.
    """
    c = profile_of(PAIR).levels[0].at(1) / profile_of(PAIR).levels[1].at(1)
    case = replace(PAIR, schedule="pipelined", devices=2, curve=ALWAYS)
    for gamma in (4, 12):
        tau = (1 - 0.8 ** (gamma + 1)) / 0.2
        expected = tau / max(1.0, (gamma + 1) * c)
        ratios = [
            serial_speedup(case, (gamma,)) * gain(case, Choice((gamma,), (gamma + 1,)), 600, s)[0] for s in range(6)
        ]
        error = stdev(ratios) / math.sqrt(6) + 0.005 * expected  # the first draft has nothing to hide behind
        assert abs(mean(ratios) - expected) < 4 * error
        assert abs(mean(ratios) - 1.1 * expected) > 4 * error


def test_levels_in_turn_gain_nothing_but_pay_for_transfers() -> None:
    choice = Choice((3, 5), (0, 0))
    assert gain(TRIPLE, choice, 100, 0)[0] == 1.0
    apart = replace(TRIPLE, devices=2, world=World(transfer=0.01))
    ratio, run = gain(apart, choice, 100, 0)
    drafts = sum(
        r.drafted > 0 for r in run.rounds[0] if r.edge == 1
    )  # drafts share a device, so one way each per draft
    free = simulate(setting_of(TRIPLE, choice), 100).seconds
    assert 1 / ratio == pytest.approx(1 + 2 * 0.01 * drafts / free)


def test_the_ratio_of_schedules_gives_the_speedup_of_the_simulation_with_less_chance_in_it() -> None:
    """Same mean as the plain simulated speedup, within four standard errors; the negative control is 15% off."""
    case = replace(TRIPLE, schedule="pipelined", devices=2, curve="published")
    choice, seeds = Choice((2, 6), (0, 8)), range(8)
    exact = serial_speedup(case, choice.gammas)
    plain = [simulate(setting_of(case, choice), 400, seed=s).speedup for s in seeds]
    ours = [exact * gain(case, choice, 400, s)[0] for s in seeds]
    error = stdev(plain) / math.sqrt(len(plain))
    assert abs(mean(plain) - mean(ours)) < 4 * error
    assert abs(mean(plain) - 1.15 * mean(ours)) > 4 * error
    assert stdev(ours) < stdev(plain)
    found = outcome(case, choice, 400, seeds)
    assert found.speedup == pytest.approx(mean(ours))
    assert found.low < found.speedup < found.high
    assert found.hit_rates[0] is None


def test_a_contended_device_hides_nothing_where_passes_take_all_of_it() -> None:
    full = World(transfer=0.0, contention=1.0)
    case = replace(TRIPLE, schedule="pipelined", devices=1, curve=ALWAYS, world=full)
    assert gain(case, Choice((2, 5), (0, 8)), 200, 0)[0] <= 1 + 1e-9
    alone = replace(case, world=World(transfer=0.0, contention=0.0))  # bandwidth alone: there is some left
    assert gain(alone, Choice((2, 5), (0, 8)), 200, 0)[0] > 1.05


def test_levels_go_where_the_number_of_devices_says() -> None:
    def places(devices: int) -> list[str]:
        return [w.device for w in machine_of(replace(TRIPLE, devices=devices)).workers]

    assert [len(set(places(d))) for d in (1, 2, 3)] == [1, 2, 3]
    assert places(2)[0] == places(2)[1] != places(2)[2]
    assert max(machine_of(replace(TRIPLE, times="floor")).demand) == 1.0
    assert not fits(TRIPLE)
    assert fits(replace(TRIPLE, devices=2))
    assert fits(Case(("1B", "70B"), (0.7,), "compiled"))


def test_climbing_finds_what_trying_everything_finds() -> None:
    def score(place: tuple[int, ...]) -> float:
        x, y = place[0] - 4, place[1] - 6
        return -(x * x + y * y + x * y / 2)

    ladders = [range(8), range(0, 16, 2)]
    assert climb(score, ladders, (7, 14)) == max(product(*ladders), key=score) == (4, 6)
    plan = best_gammas(profile_of(TRIPLE), [Constant(a) for a in TRIPLE.alphas], largest=8)
    found = best_serial(TRIPLE)
    assert serial_speedup(TRIPLE, found.gammas) >= plan.prediction.speedup * 0.995
    assert serial_speedup(TRIPLE, plan.gammas) == pytest.approx(plan.prediction.speedup)


def test_the_search_of_an_overlapped_schedule_is_no_worse_than_where_it_began() -> None:
    case = replace(TRIPLE, schedule="pipelined", devices=3, curve="published")
    start = Choice((1, 1), (0, 1))
    found = best_pipelined(case, 60, start)
    assert gain(case, found, 300, 7)[0] * serial_speedup(case, found.gammas) > 1.2 * (
        gain(case, start, 300, 7)[0] * serial_speedup(case, start.gammas)
    )
    two = best_pipelined(replace(case, devices=2), 60, Choice((2, 5), (2, 8)))
    assert two.budgets[0] == 0  # levels of one device take turns


@pytest.mark.parametrize(("devices", "budgets"), [(1, (0, 8)), (2, (0, 8)), (3, (2, 8))])
def test_a_guess_in_closed_form_and_the_simulation_are_near_each_other(devices: int, budgets: tuple[int, ...]) -> None:
    case = replace(TRIPLE, schedule="pipelined", devices=devices, curve="published")
    for gammas in ((2, 4), (1, 7)):
        choice = Choice(gammas, budgets)
        found = serial_speedup(case, gammas) * mean(gain(case, choice, 300, s)[0] for s in range(3))
        assert guessed_speedup(case, TRIPLE, choice) == pytest.approx(found, rel=0.15)
    assert hit_chance("published", 1, 0.8, 1) == pytest.approx(0.8 * 0.75)  # the likelier outcome gets the only row


def test_a_claim_is_reached_where_the_line_crosses_it() -> None:
    assert crossing([(0.7, 2.0), (0.8, 8.0)], 4.0) == (pytest.approx(0.75), False)
    assert crossing([(0.7, 2.0), (0.8, 8.0)], 2.0) == (0.7, True)
    assert crossing([(0.7, 2.0), (0.8, 3.0)], 4.0) == (None, False)
    line = [{"chain": "a", "times": "floor", "schedule": "serial", "devices": 1, "curve": None} for _ in range(2)]
    rows = [r | {"alphas": [0.6, x], "speedup": y} for r, x, y in zip(line, (0.7, 0.9), (4.0, 8.0), strict=True)]
    assert [(r["goal"], r["lower"], r["most"]) for r in reach_rows(rows)] == [(4.1, 0.6, 8.0)]


def test_acceptance_is_what_is_published_or_says_that_it_is_assumed() -> None:
    assert find_chain("7B->70B").column("low").alphas == (0.77,)
    assert find_chain("1B->7B->70B").column("implied").alphas == (0.75, 0.845)
    for chain in CHAINS.values():
        for column in chain.columns:
            assert len(column.alphas) == len(chain.shapes) - 1
            assert any(word in column.origin for word in ("assumed", "arXiv", "Spec-Bench", "implies")), column


CONFIG = what_if.CONFIG


def test_lists_make_a_row_per_combination_and_only_those_run() -> None:
    spec = read_config(CONFIG, ["devices=[1,2]", "fan_out=[1,null]", "gamma=[[2],[4,6]]"])
    assert spec.parts == ("ablation",)
    # Serial: 2 devices x 2 gammas; pipelined: that x 2 fan-outs.
    assert len(tasks_of(spec)) == 4 + 8
    assert len(tasks_of(read_config(CONFIG, ["parts=hits"]))) == 2 * 6 * 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["devices=4"], r"devices: 4, but 1B→7B→70B occupies 1 to 3"),
        (["devices=[]"], r"devices: an empty list"),
        (["gamma=[[2]]"], r"gamma: 1B→7B→70B has 2 edges"),
        (["gamma=[[2],[0]]"], r"gamma\[1\]: .* got 0"),
        (["schedule=parallel"], r"schedule: 'parallel'"),
        (["column=best"], r"alphas: 'best' is no column of 1B→7B→70B"),
        (["chain=[1B->8B]"], r"chains: '1B->8B'"),
        (["times=eager"], r"times: 'eager'"),
        (["curve=lucky"], r"curve: 'lucky'"),
        (["fan_out=0"], r"fan_out: .* got 0"),
        (["seeds=1"], r"seeds: .* >= 2, got 1"),
        (["seed=1"], r"seed: no such key"),
        (["world=1"], r"world: set one of world\.knee"),
        (["world.transfer=-1"], r"world\.transfer: .* got -1"),
        (["world.knee=none"], r"world\.knee: expected a number, got 'none'"),
        (["map.upper=[0.9,0.8]"], r"map\.upper: .* ascending"),
        (["map.chain=7B->70B"], r"map\.chain: 7B→70B has 2 levels"),
        (["devices"], r"'devices': expected key=value"),
        (["devices=[1"], r"not valid YAML"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tasks_of(read_config(CONFIG, arguments))


def test_the_command_writes_what_it_was_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["devices=[1,2]", "fan_out=2", "gamma=[[2],[4]]", "tokens=40", "seeds=2", "workers=1"]
    assert what_if.main([*arguments, f"results_dir={tmp_path}"]) == 0
    data = json.loads((tmp_path / "what_if" / "ablation.json").read_text())
    assert [(r["schedule"], r["devices"], r["fan_out"]) for r in data["rows"]] == [
        ("serial", 1, None), ("serial", 2, None), ("pipelined", 1, 2), ("pipelined", 2, 2),
    ]  # fmt: skip
    assert data["rows"][0]["seeds"] == 0  # exact
    assert data["rows"][3]["per_device"] == pytest.approx(data["rows"][3]["speedup"] / 2)
    assert "fan-out" in capsys.readouterr().out
    assert list((tmp_path / "what_if").iterdir()) == [tmp_path / "what_if" / "ablation.json"]


def test_nothing_of_it_imports_torch() -> None:
    code = "import sys, experiments.what_if; sys.exit(int('torch' in sys.modules or 'transformers' in sys.modules))"
    root = Path(what_if.__file__).resolve().parent.parent
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0

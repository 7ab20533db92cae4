"""The GPU bench on tiny shapes on a CPU: every line of it runs, can be taken up again, and says what it measured."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from bigram_chains import random_logits
from static_tables import static_chain

from experiments import gpu_bench
from experiments.gpu_bench_cases import (
    ALPHAS,
    COLUMNS,
    GOAL_OVER_FLOOR,
    GOAL_SECONDS,
    GOAL_SPEEDUP,
    PASSES,
    TINY,
    WIDTHS,
    Case,
    case,
    cases,
)
from experiments.gpu_bench_cost import best, expected_tokens, static_passes
from experiments.gpu_bench_records import Records, made_with
from experiments.gpu_bench_streams import outcomes
from experiments.gpu_bench_summary import rows
from ssd.bench.summary import read_summary
from ssd.core.requests import Request, Sampling
from ssd.plan.acceptance import Constant
from ssd.plan.pass_times import PassTimes
from ssd.runtime.device_rounds import DeviceRounds

ROOT = Path(__file__).resolve().parent.parent
STAGES = ("passes", "predicted rounds", "rounds", "streams", "predicted batches", "batches")
ABSENT = ("hydra", "omegaconf", "datasets", "pandas", "wandb", "evaluate", "rouge_score", "sacrebleu", "matplotlib")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The folder of a whole run."""
    out = tmp_path_factory.mktemp("bench")
    assert gpu_bench.main(["--device", "cpu", "--tiny", "--out", str(out)]) == 0
    return out


def lines(folder):
    return [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]


def test_every_stage_leaves_its_records(made):
    found = Counter(r["stage"] for r in lines(made))
    assert set(found) == set(STAGES)
    batches = len(TINY.batches)
    assert found["passes"] == 1 + len(PASSES) + (batches - 1) * 3 * len(TINY.batch_widths)
    assert found["rounds"] == found["predicted rounds"] == len(cases())
    assert found["batches"] == found["predicted batches"] == 3 * batches


def test_records_say_where_they_were_made_and_what_is_made_up(made):
    for r in lines(made):
        told = r["made_with"]
        assert {"device", "versions", "git", "runtime", "tiny"} == set(told)
        assert told["tiny"] is True
        assert told["versions"]["torch"] == torch.__version__
        assert told["device"]["accelerator"] is None
        assert r["synthetic"] is (r["stage"] in ("rounds", "streams", "batches"))


def test_predictions_stand_before_what_they_predict(made):
    order = [r["stage"] for r in lines(made)]
    for stage in ("rounds", "batches"):
        last = max(i for i, name in enumerate(order) if name == f"predicted {stage}")
        assert last < order.index(stage)
    told = {(r["stage"], r["case"]): r for r in lines(made)}
    for (stage, name), r in told.items():
        if stage in ("rounds", "batches"):
            assert r["predicted_speedup"] == told[f"predicted {stage}", name]["speedup"]
            assert r["gammas"] == told[f"predicted {stage}", name]["gammas"]


def test_rounds_were_run_and_counted(made):
    for r in lines(made):
        if r["stage"] in ("rounds", "batches"):
            assert r["target_rounds"] >= (TINY.rounds if r["stage"] == "rounds" else TINY.batch_rounds)
            assert sum(chunk[3] for chunk in r["chunks"]) == r["tokens"]
            assert 1 <= r["tau"] <= 33
            assert len(r["alpha_counted"]) == len(r["alphas"])
            assert all(n > 0 for n in r["tested"])


def test_a_second_run_adds_nothing(made):
    before = (made / "records.jsonl").read_bytes()
    with (made / "records.jsonl").open("ab") as file:
        file.write(b'{"stage": "rounds", "ca')  # a process that died while writing
    gpu_bench.main(["--device", "cpu", "--tiny", "--out", str(made)])
    assert (made / "records.jsonl").read_bytes() == before


def test_a_stage_begins_nothing_after_its_time(tmp_path, capsys):
    gpu_bench.main(["--device", "cpu", "--tiny", "--out", str(tmp_path), "--stage", "passes", "--seconds", "0"])
    assert [r["case"] for r in lines(tmp_path)] == ["copy"]
    assert "passes 70B/T1/B1: left for another run" in capsys.readouterr().err
    gpu_bench.main(["--device", "cpu", "--tiny", "--out", str(tmp_path), "--stage", "rounds"])
    assert "rounds 1B->7B->70B/implied/B1: left out, no pass of 1B, 7B, 70B was timed yet" in capsys.readouterr().err


def test_the_summary_is_marked_and_has_no_goals_for_tiny_shapes(made):
    summary = read_summary(made / "summary.json")
    assert summary.synthetic
    assert all(row.goal is None for row in summary.rows)
    assert summary.row("rounds/host_share").value is None


def test_every_goal_has_its_row(made):
    records = Records(made, {}, 0.0)
    found = {row.name: row for row in rows(records, with_goals=True)}
    names = {f"speedup/{name}" for name in GOAL_SPEEDUP} | {f"pass/{level}/T1/B1" for level in GOAL_SECONDS}
    names |= {f"pass/{level}/T1/B1/over_floor" for level in GOAL_OVER_FLOOR}
    names |= {"speedup/1B->7B->70B/implied/over_best_pair", "rounds/over_predicted", "rounds/host_share"}
    assert {name for name, row in found.items() if row.goal is not None} >= names
    for name in names:
        assert found[name].met in (True, False)
        assert found[name].bound is not None
    assert found["pass/70B/T1/B1/over_floor"].sense == "max"
    triple = records.of("rounds")["1B->7B->70B/implied/B1"]
    assert found["speedup/1B->7B->70B/implied"].value == triple["speedup"]
    assert found["speedup/1B->7B->70B/implied"].met is (triple["speedup"] >= 2.9)


def test_it_needs_no_package_beyond_the_library():
    """Nothing of ours imports Hydra, pandas, datasets and the like; transformers may where it finds them."""
    program = (
        "import builtins, sys\n"
        "inner = builtins.__import__\n"
        "def guarded(name, globals=None, *rest, **more):\n"
        "    ours = str((globals or {}).get('__name__')).partition('.')[0] in ('ssd', 'experiments', 'analysis')\n"
        f"    if ours and name.partition('.')[0] in {ABSENT!r}:\n"
        "        raise ModuleNotFoundError(name)\n"
        "    return inner(name, globals, *rest, **more)\n"
        "builtins.__import__ = guarded\n"
        "from experiments import gpu_bench\n"
        "gpu_bench.main(['--device', 'cpu', '--tiny', '--stage', 'streams', '--out', sys.argv[1], '--seconds', '0'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "/dev/null/nowhere"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert "ModuleNotFoundError" not in done.stderr
    assert "NotADirectoryError" in done.stderr  # it came as far as its folder


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--device", "cpu"], "add --tiny"),
        (["--device", "cpu", "--tiny"], "needs --out"),
        (["--stage", "all"], "invalid choice"),
        (["--device", "cpu", "--tiny", "--out", "x", "--tune"], "only what is compiled for a GPU is tuned"),
    ],
)
def test_wrong_command_lines_are_refused(given, message, capsys):
    with pytest.raises(SystemExit):
        gpu_bench.arguments(given)
    assert message in capsys.readouterr().err


def test_a_broken_record_is_refused(tmp_path):
    (tmp_path / "records.jsonl").write_text('{"stage": "rounds"}\n')
    with pytest.raises(ValueError, match="line 1 lacks one of stage, case"):
        Records(tmp_path, {}, 1.0)


def test_a_folder_holds_one_runtime(tmp_path):
    Records(tmp_path, {"runtime": "graph", "tiny": True}, 1.0).add("passes", "copy")
    assert Records(tmp_path, {"runtime": "graph", "tiny": True}, 1.0).lines
    with pytest.raises(ValueError, match="line 1 was made with runtime 'graph', not 'compiled'; name another folder"):
        Records(tmp_path, {"runtime": "compiled", "tiny": True}, 1.0)
    with pytest.raises(ValueError, match="line 1 was made with tiny True, not False"):
        Records(tmp_path, {"runtime": "graph", "tiny": False}, 1.0)


def test_no_measurement_begins_that_might_outlast_the_time(tmp_path, monkeypatch):
    """The longest so far took 60 of 100 seconds, so none begins after 40."""
    now = [0.0]
    monkeypatch.setattr("experiments.gpu_bench_records.time.perf_counter", lambda: now[0])
    records = Records(tmp_path, {}, 100.0)
    for name, begin, end in (("a", 0.0, 10.0), ("b", 20.0, 80.0)):
        now[0] = begin
        assert records.wants("passes", name)
        now[0] = end
        records.add("passes", name)
    assert not records.wants("passes", "c")
    now[0] = 39.0
    assert records.wants("passes", "c")
    now[0] = 41.0
    assert not records.wants("passes", "c")


def test_a_commit_can_be_told():
    told = made_with(None, 1, "graph", True, "abc")
    assert told["git"]["commit"] != "abc"  # there is a checkout here, which knows better


def test_the_cases_are_those_that_can_be_told_apart():
    found = cases()
    assert len(found) == len(set(found)) == 16
    assert {c.column for c in found if c.chain == "7B->70B"} == set(COLUMNS)
    assert [c.column for c in found if c.chain == "1B->70B"] == ["only"]
    assert case(("68M", "1B", "7B", "70B"), "implied").alphas == (0.62, 0.75, 0.85)
    with pytest.raises(ValueError, match="nothing is known about 68M drafting for 70B"):
        case(("68M", "70B"), "implied")
    assert all(0 < alpha < 1 for alpha, _ in [*ALPHAS.values(), *COLUMNS.values()])


@pytest.mark.parametrize("gammas", [(), (3,), (2, 3), (2, 1, 2)])
@pytest.mark.parametrize("widths", [(), WIDTHS])
def test_the_cost_model_counts_the_passes_that_are_made(gammas, widths):
    tables = [random_logits(k, 9) for k in range(len(gammas) + 1)]
    chain = static_chain(tables, gammas)
    runner = DeviceRounds(chain, [Request((1, 2, 3), Sampling(0.0), max_new_tokens=40)], widths=widths)
    before = [len(level.model.passes) for level in chain.levels]
    runner.advance(2)
    made = Counter()
    for k, level in enumerate(chain.levels):
        made.update((f"L{k}", width) for width, _ in level.model.passes[before[k] :])
    expected = static_passes([f"L{k}" for k in range(len(tables))], gammas, widths)
    assert made == Counter({key: 2 * n for key, n in expected.items()})


@pytest.mark.parametrize(("gammas", "alphas"), [((4,), (0.8,)), ((3, 2), (0.6, 0.85)), ((2, 2, 1), (0.6, 0.75, 0.85))])
def test_expected_tokens_are_what_imposed_rounds_emit(gammas, alphas):
    """A z-test over 64 x 20 rounds at 4.5 sigma: false alarms in 7 of a million, and a wrong rate is found out."""
    chain = static_chain([random_logits(k, 9) for k in range(len(gammas) + 1)], gammas)
    asked = [Request((1, 2), Sampling(0.0), request=i, max_new_tokens=600) for i in range(64)]
    runner = DeviceRounds(chain, asked, [Constant(a) for a in alphas])
    runner.advance(20)
    top = len(gammas) - 1
    emitted = torch.tensor([r.emitted for row in runner.history() for r in row if r.edge == top], dtype=torch.float64)
    assert len(emitted) == 64 * 20
    error = emitted.std() / len(emitted) ** 0.5
    assert abs(emitted.mean() - expected_tokens(alphas, gammas)) < 4.5 * error
    wrong = (*alphas[:-1], alphas[-1] - 0.12)
    assert abs(emitted.mean() - expected_tokens(wrong, gammas)) > 4.5 * error


def test_the_best_pair_is_the_closed_form():
    """A tenth of the target's cost at .85 gives 2.85 times AR (arXiv 2211.17192, Theorem 3.8, at its best length)."""
    times = {"7B": PassTimes.flat("7B", 0.1), "70B": PassTimes.flat("70B", 1.0)}
    found = best(Case(("7B", "70B"), "implied", (0.85,)), times)
    closed = {g: (1 - 0.85 ** (g + 1)) / 0.15 / (1 + 0.1 * g) for g in range(1, 9)}
    assert found.gammas == (max(closed, key=closed.get),)
    assert found.speedup == pytest.approx(max(closed.values()), rel=1e-9)
    assert found.speedup == pytest.approx(2.85, abs=0.005)


def test_what_lacks_pass_times_is_told():
    with pytest.raises(ValueError, match="pass times: none of 1B in the records; run stage passes first"):
        best(case(("1B", "70B"), "implied"), {"70B": PassTimes.flat("70B", 1.0)})


def test_net_ratio_of_two_streams():
    """A hit costs the two side by side, a miss drafts once more."""
    middle = {"serial": 3.0, "together": 2.2, "draft": 1.0}
    told = outcomes(middle, alpha=0.5, gamma=1, branches=2)
    assert told["hit_rate"] == pytest.approx(0.9)
    assert told["net"] == pytest.approx(3.0 / (2.2 + 0.1))
    assert told["net_if_all_hit"] == pytest.approx(3.0 / 2.2)
    assert outcomes(middle, 0.5, 1, 1)["hit_rate"] == pytest.approx(0.45)

"""What a sweep refuses at once, prints, writes and mirrors."""

from __future__ import annotations

import io
import json
import time
from pathlib import Path

import pytest

from analysis.table import METHOD_COLUMNS, method_rows
from experiments import job as job_module
from experiments import sweep as sweep_module
from experiments.console import ProgressLine, sweep_text
from ssd.bench import tracking, wandb_tracker
from ssd.bench.divergence import Parting
from ssd.bench.json_files import read_json
from ssd.bench.records import Run, read_run
from ssd.bench.summary import read_summary
from tests.entry_point import THREE, TINY, caller, failing, folders
from tests.scripted_records import record


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    return caller(tmp_path, monkeypatch, capsys)


def test_every_job_has_a_tracker_run_of_its_own(run, tmp_path, monkeypatch):
    """B39: three jobs in one process, one of which raises."""
    pytest.importorskip("wandb")
    from tests.wandb_reader import read_wandb

    failing(monkeypatch, RuntimeError("no gamma left"))
    status, out = run(*THREE, "tracker=offline")
    assert status == 1
    assert "warning: tracker" not in out
    mirrored = [path for folder in folders(tmp_path).values() for path in folder.glob("wandb/offline-run-*")]
    assert len(mirrored) == 3
    told = [read_wandb(next(path.glob("*.wandb"))) for path in mirrored]
    assert len({run.id for run in told}) == 3
    assert sorted(run.exit_code for run in told) == [0, 0, 1]
    assert {run.config["sampling"]["temperature"] for run in told} == {0, 0.5, 1}
    pictures = {run.exit_code: len(list(path.rglob("*.png"))) for path, run in zip(mirrored, told, strict=True)}
    assert pictures == {0: 2, 1: 0}


def test_without_wandb_a_sweep_says_so_once_and_goes_on(run, monkeypatch):
    monkeypatch.setattr(tracking, "_given_up", set())
    monkeypatch.setattr(wandb_tracker, "is_installed", lambda: False)
    status, out = run(*(argument for argument in THREE if not argument.startswith("tracker")))  # the default
    assert status == 0
    assert "3 jobs: 3 complete" in out
    assert out.count("warning: tracker: wandb is not installed") == out.count("warning: tracker") == 1


@pytest.fixture
def mirrors(monkeypatch) -> list[tuple[str, int]]:
    """(status of the run, how many pictures) of every mirror, as a tracker that always works would see them."""
    calls = []

    def mirror(folder, settings, rows=(), figures=None, *, warn):
        (folder / "wandb").mkdir(exist_ok=True)
        calls.append((read_run(folder).run["status"], len(figures)))
        return "offline"

    monkeypatch.setattr(job_module, "mirror", mirror)
    return calls


def test_what_fails_after_a_run_is_complete_leaves_its_mirror_to_the_next_attempt(run, tmp_path, monkeypatch, mirrors):
    def broken(spec, done, loader):
        raise RuntimeError("no memory left to compare")

    with monkeypatch.context() as patch:
        patch.setattr(job_module, "differences", broken)
        status, out = run(*TINY, "tracker=offline")
    (folder,) = folders(tmp_path).values()
    assert (status, mirrors) == (1, [])
    assert "no memory left to compare" in (folder / "error.txt").read_text()
    for _ in range(2):
        status, out = run(*TINY, "tracker=offline")
        assert (status, mirrors) == (0, [("complete", 2)])
        assert "finished before, skipped" in out
    assert not (folder / "error.txt").exists()


def test_a_mirror_that_was_cut_short_is_made_again(run, tmp_path, monkeypatch, mirrors):
    assert run(*TINY, "tracker=offline")[0] == 0
    (folder,) = folders(tmp_path).values()
    (folder / job_module.MIRRORED_FILE).unlink()

    def broken(*arguments):
        raise ValueError("no font")

    monkeypatch.setattr(job_module, "run_figures", broken)
    status, out = run(*TINY, "tracker=offline")
    assert (status, mirrors) == (0, [("complete", 2), ("complete", 0)])
    assert "warning: tracker: no figures of" in out
    assert (folder / job_module.MIRRORED_FILE).exists()


def test_the_table_of_a_sweep_marks_times_that_others_disturbed():
    records = [record("p0")]
    quiet = {"timing": "paper", "busy": False, "busy_elsewhere": 0.01}
    runs = {"a": quiet, "b": quiet | {"busy": True, "busy_elsewhere": 0.124}, "c": quiet | {"timing": "shared"}}
    made = [(name, Run(values, records)) for name, values in runs.items()]
    assert "times" not in sweep_text(made[:1])
    titles, _, first, second, third, note = sweep_text(made).splitlines()
    assert titles.endswith("times")
    assert first.endswith("–")  # noqa: RUF001
    assert second.endswith("busy 12%")
    assert third.endswith("shared")
    assert note.startswith("times: busy, this share of the machine")
    assert "shared with other runs" in note


def test_jobs_that_share_the_machine_cannot_be_timed_for_a_paper(run, tmp_path, capsys):
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    parallel = ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2")
    with pytest.raises(SystemExit, match=r"error: timing: 'paper' needs the machine .* choose timing=shared"):
        run(*THREE, *parallel)
    assert not (tmp_path / "raw").exists()
    assert run(*TINY, *parallel)[0] == 0  # a run alone does not use the launcher


def test_times_of_a_shared_machine_do_not_pass_for_others(run, tmp_path):
    status, out = run(*TINY, "timing=shared")
    assert status == 0
    assert "timing: shared with other runs" in out
    (folder,) = folders(tmp_path).values()
    assert read_run(folder).run["timing"] == "shared"
    status, out = run(*TINY)
    assert status == 1
    assert "measured on a shared machine" in out
    assert read_run(folder).is_complete
    assert run(*TINY, "timing=shared")[0] == 0


def test_a_clean_checkout_can_be_demanded(run, tmp_path, monkeypatch):
    monkeypatch.setattr(sweep_module, "git_state", lambda: {"commit": "abc", "dirty": True})
    with pytest.raises(SystemExit, match=r"error: timing.clean: the checkout has uncommitted changes"):
        run(*TINY, "timing.clean=true")
    assert not (tmp_path / "raw").exists()
    monkeypatch.setattr(sweep_module, "git_state", lambda: {"commit": "abc", "dirty": False})
    monkeypatch.setattr(job_module, "git_state", lambda: {"commit": "abc", "dirty": False})
    assert run(*TINY, "timing.clean=true")[0] == 0


def test_what_does_not_compose_runs_nothing(run, tmp_path, capsys):
    for wrong in ("chain.edges.0.gama=2", "chain.edges.0.gamma=2.5"):
        with pytest.raises(SystemExit) as caught:
            run(*TINY, wrong)
        assert caught.value.code == 1
        assert "chain.edges" in capsys.readouterr().err
    status, out = run(*THREE, "seed=1,x")
    assert status == 1
    assert "seed" in out
    assert not list(tmp_path.glob("raw/runs/*"))


def test_the_demo_prints_and_writes_three_passes(run, tmp_path):
    small = ("experiment=demo", "chain=tiny_triple", *TINY[1:])
    status, out = run(*small)
    assert status == 0
    assert all(f"bfloat16-T{t}: 2 prompts x 4 tokens, seed 0" in out for t in (0, 1))
    assert "every output equals ar's" in out
    summary = read_summary(tmp_path / "demo" / "summary.json")
    assert len(summary.runs) == 3
    assert {row.name.split("/")[0] for row in summary.rows} == {"bfloat16-T0", "bfloat16-T1", "float32-T0"}
    assert summary.row("float32-T0/structural").met is True
    assert summary.row("bfloat16-T0/structural").met is None
    assert summary.row("bfloat16-T1/L0→L1→L2/speedup").value is not None
    with pytest.raises(ValueError, match="no row"):
        summary.row("bfloat16-T1/structural")
    run_json = read_json(Path.cwd() / summary.runs[2])
    assert (run_json["label"], run_json["timing"]) == ("float32-T0", "paper")
    assert run_json["command"].startswith("python -m experiments.run case=float32-T0 experiment=demo")
    status, out = run(*small, "case=float32-T0")  # the command line wins over the experiment's own sweep
    assert status == 0
    assert "finished before" in out
    assert out.count("tokens/s") == 1  # a run alone that is skipped shows its table


def test_a_structural_difference_fails_where_identity_is_asserted(run, tmp_path, monkeypatch):
    parting = Parting("p0", "recursive", 1, 5, 6, 0.5, 0.001)
    monkeypatch.setattr(job_module, "differences", lambda spec, done, loader: [parting])
    status, out = run(*TINY, "assert_identity=true")
    assert status == 1
    assert "STRUCTURAL: recursive, p0, token 1: 5 for 6, logit gap 0.5" in out
    assert "1 outputs differ from ar's for no rounding reason" in out
    status, out = run(*TINY)  # the same run, from its records: only informative now
    assert status == 0
    assert "(informative in 16 bit)" in out


def test_a_skipped_run_of_another_commit_says_so(run, tmp_path, monkeypatch):
    assert run(*TINY)[0] == 0
    monkeypatch.setattr(job_module, "git_state", lambda: {"commit": "abc", "dirty": False})
    (folder,) = folders(tmp_path).values()
    made = read_run(folder).run
    status, out = run(*TINY)
    assert status == 0
    assert f"finished before (commit {str(made['git']['commit'])[:10]}, {made['finished'][:10]}), skipped" in out


def test_help_runs_nothing(run, tmp_path):
    with pytest.raises(SystemExit) as caught:
        run("--help")
    assert caught.value.code == 0
    assert run("--cfg", "job", *TINY)[0] == 0
    assert not list(tmp_path.iterdir())


def test_the_bar_shows_rate_and_time_left():
    screen = io.StringIO()
    bar = ProgressLine("demo", file=screen, shown=True)
    bar("ar", 4, 10)
    time.sleep(0.2)
    bar("recursive", 8, 10)
    text = screen.getvalue()
    assert "demo" in text
    assert "8/10" in text
    assert "recursive" in text
    assert "output/s" in text or "s/output" in text
    assert "<00:" in text
    bar("done", 10, 10)
    hidden = io.StringIO()
    ProgressLine("demo", file=hidden)("ar", 0, 10)
    assert hidden.getvalue() == ""


def test_every_job_has_an_outcome_and_the_sweep_its_configuration(run, tmp_path):
    run(*THREE)
    (place,) = (tmp_path / "raw" / ".sweeps").iterdir()
    assert (place / "multirun.yaml").exists()
    outcomes = [json.loads(path.read_text()) for path in sorted(place.glob("*/outcome.json"))]
    assert [(o["job"], o["status"]) for o in outcomes] == [(0, "complete"), (1, "complete"), (2, "complete")]
    for outcome in outcomes:
        done = read_run(outcome["folder"])
        assert done.run["run_id"] == Path(outcome["folder"]).name
        assert {c.key for c in METHOD_COLUMNS} <= {*method_rows(done.records)[0], "speedup_low"}

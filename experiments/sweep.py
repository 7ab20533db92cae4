"""Before and after the jobs: what is refused at once, and the tables and summaries at the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from analysis.quality_rows import bleu_tokenizer
from analysis.rows import method_summary
from analysis.table import format_table
from experiments.console import run_text, say, sweep_text
from experiments.job import check_timing, read_partings, shares_machine
from experiments.outcome import FINISHED, Outcome, read_outcomes
from ssd.bench.divergence import Parting
from ssd.bench.environment import git_state
from ssd.bench.experiment import BASELINE
from ssd.bench.records import RUN_FILE, Run, read_run
from ssd.bench.summary import Row, write_summary

SHOWN = 100  # characters of an error in the table of failed jobs


class SweepCallback(Callback):
    """Hydra calls it once before the jobs of a command; ``place`` is then where their outcomes will be."""

    place: Path | None = None

    def on_run_start(self, config: DictConfig, **kwargs: Any) -> None:
        """A run alone begins."""
        self._begin(config, config.hydra.run.dir, shared=False)

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """A sweep begins."""
        self._begin(config, config.hydra.sweep.dir, shares_machine(config.hydra.launcher))

    def _begin(self, config: DictConfig, place: str, shared: bool) -> None:
        # Hydra turns exceptions of callbacks into warnings, but not this one.
        try:
            check_timing({"mode": config.timing.mode}, shared)
            if config.timing.clean and git_state()["dirty"]:
                raise ValueError("timing.clean: the checkout has uncommitted changes")
            Path(place).mkdir(parents=True, exist_ok=False)
        except FileExistsError:
            raise SystemExit(f"error: {place}: exists; every sweep needs a folder of its own") from None
        except ValueError as error:
            raise SystemExit(f"error: {error}") from None
        SweepCallback.place = Path(place).resolve()


@dataclass(frozen=True)
class Finished:
    """A run that is there, whoever made it."""

    title: str
    outcome: Outcome
    run: Run
    apart: list[Parting] | None


def finish(place: Path) -> int:
    """Print the table of all runs and the failed jobs, write the summaries; 1 if anything is not as it should be."""
    outcomes = read_outcomes(place)
    runs = finished(outcomes)
    for results, experiment in sorted({(r.outcome.results, r.outcome.experiment) for r in runs}):
        own = [r for r in runs if (r.outcome.results, r.outcome.experiment) == (results, experiment)]
        path = Path(results) / experiment / "summary.json"
        paths = [Path(r.outcome.folder) / RUN_FILE for r in own]
        write_summary(path, paths, [row for r in own for row in summary_rows(r)])
        say_tables(own, alone=len(outcomes) == 1)
        say(f"\nwrote {shown(path)}; records are under {shown(Path(results) / 'raw' / experiment)}/")
    say_failures(outcomes)
    return 0 if outcomes and all(outcome.is_ok for outcome in outcomes) else 1


def finished(outcomes: Sequence[Outcome]) -> list[Finished]:
    """Runs in the order of their jobs, each once, with titles that are unique."""
    by_folder = {outcome.folder: outcome for outcome in outcomes if outcome.status in FINISHED}
    titles = [outcome.title for outcome in by_folder.values()]
    found = []
    for folder, outcome in by_folder.items():
        run = read_run(folder)
        title = outcome.title if titles.count(outcome.title) == 1 else run.run["run_id"]
        found.append(Finished(title, outcome, run, read_partings(Path(folder))))
    return found


def summary_rows(done: Finished) -> list[Row]:
    """Rows of one run: its methods, and how many outputs left AR's by a tie or otherwise (goal 0 if asserted)."""
    rows = method_summary(done.title, done.run.records, BASELINE, tokenize=bleu_tokenizer(done.run))
    if done.apart is not None:
        ties = sum(p.is_tie for p in done.apart)
        goal: dict[str, Any] = {"goal": 0.0, "sense": "max"} if done.outcome.asserted else {}
        rows.append(Row(f"{done.title}/ties", float(ties), "outputs", n=len(done.apart)))
        rows.append(
            Row(f"{done.title}/structural", float(len(done.apart) - ties), "outputs", n=len(done.apart), **goal)
        )
    return rows


def say_tables(runs: Sequence[Finished], alone: bool) -> None:
    """All runs in one table; of a run alone, its own table unless it was shown when it ended."""
    if not alone:
        say("\n" + sweep_text([(r.title, r.run) for r in runs]))
    elif runs[0].outcome.status == "skipped":
        say(run_text(runs[0].title, runs[0].run, runs[0].apart, runs[0].outcome.asserted))


def say_failures(outcomes: Sequence[Outcome]) -> None:
    """The jobs that did not end well, and how many there are of each kind."""
    bad = [outcome for outcome in outcomes if not outcome.is_ok]
    if bad:
        rows = [{"job": f"#{o.job}", "run": o.title, "what": verdict(o), "folder": shown(Path(o.folder))} for o in bad]
        say("\n" + format_table(rows, ["job", "run", "what", "folder"]))
    kinds = [outcome.status if outcome.status != "running" else "died" for outcome in outcomes]
    if len(outcomes) > 1 or bad:
        counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
        say(f"\n{len(outcomes)} {'job' if len(outcomes) == 1 else 'jobs'}: {counts}")


def verdict(outcome: Outcome) -> str:
    """What is wrong with a job, on one line."""
    if outcome.structural:
        return f"{outcome.structural} outputs differ from ar's for no rounding reason"
    if outcome.status == "running":
        return "its process died"
    text = " ".join((outcome.error or outcome.status).split())
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."


def shown(path: Path) -> str:
    """A path from here if it lies below."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)

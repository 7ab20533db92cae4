"""One job of a sweep: one configuration becomes one finished run folder, or a recorded failure.

``results_dir/raw/NAME/RUN_ID/`` holds run.json, records.jsonl, identity.json where outputs at temperature 0
were compared with AR's, and after a failure error.txt with the traceback.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from omegaconf import DictConfig, OmegaConf

from analysis import figures
from analysis.quality_rows import bleu_tokenizer
from analysis.rows import method_summary
from analysis.settings import settings
from analysis.speed_rows import speed_rows, time_rows
from experiments.console import ProgressLine, run_text, say
from experiments.failures import clear_failure, record_failure
from experiments.schema import check_options, plain_config, results_root, run_spec
from ssd.bench.divergence import Parting
from ssd.bench.environment import git_state
from ssd.bench.experiment import BASELINE, differences, read_data, run_pass
from ssd.bench.json_files import read_json, write_json
from ssd.bench.loading import Loader
from ssd.bench.records import RUN_FILE, Run, read_run
from ssd.bench.run_id import run_id, scientific
from ssd.bench.run_lock import locked
from ssd.bench.spec import RunSpec, parse
from ssd.bench.summary import Row
from ssd.bench.tracking import mirror

# In the tracker's folder once a copy of the complete run stands there: one that a killed process left half-written
# lacks it, and so does that of an attempt that failed.
MIRRORED_FILE = Path("wandb", "mirrored.json")
IDENTITY_FILE = "identity.json"
# Launchers that give every job the machine to itself; all others start several on one machine.
ALONE = ("BasicLauncher", "SlurmLauncher")

_loader = Loader()  # of this process, so that the jobs of a sweep share what they have in common


@dataclass(frozen=True)
class Job:
    """What one job has to do.

    Attributes:
        number: place in the sweep.
        command: that repeats this job alone.
        spec: of the run.
        config: the whole configuration as plain values.
        parallel: other jobs of the sweep run at the same time.
    """

    number: int
    command: str
    spec: RunSpec
    config: dict[str, Any]
    parallel: bool

    @property
    def run_id(self) -> str:
        """See ``ssd.bench.run_id``."""
        return run_id(self.spec)

    @property
    def title(self) -> str:
        """What tables call the run."""
        return self.config["label"] or self.run_id

    @property
    def folder(self) -> Path:
        """The run's own folder."""
        return self.results / "raw" / self.spec.name / self.run_id

    @property
    def results(self) -> Path:
        """Root of all results."""
        return results_root(self.config)

    def run(self) -> tuple[str, int]:
        """(``complete`` or ``skipped``, structural differences from AR that are failures).

        A run that was finished before is left alone; one that was not goes on where it ended.

        Raises:
            ValueError: the folder's run is not this one, or not as asked for.
        """
        with locked(self.folder, lambda who: say(f"#{self.number} {self.run_id}: waits for {who}")):
            run = self._finished()
            status = "complete" if run is None else "skipped"
            try:
                run = run or self._decode()
                apart = self._identity(run)
            except BaseException as error:
                record_failure(self.folder, self.run_id, asdict(self.spec), error)
                _forget_models()
                # What fails after a run is complete leaves it complete: the next attempt mirrors it as that.
                if not isinstance(error, KeyboardInterrupt) and not self._is_complete():
                    self._mirror([])
                raise
            clear_failure(self.folder)
            if status == "complete" or not (self.folder / MIRRORED_FILE).exists():
                self._mirror(method_summary(self.title, run.records, BASELINE, tokenize=bleu_tokenizer(run)), run)
        asserted = self.config["assert_identity"]
        if status == "skipped":
            say(f"#{self.number} {self.title}: finished before{made_by(run)}, skipped")
        else:
            say(run_text(self.title, run, apart, asserted))
        return status, sum(not p.is_tie for p in apart or ()) if asserted else 0

    def _finished(self) -> Run | None:
        """The complete run that stands in the folder; ``None`` if there is none yet."""
        if not (self.folder / RUN_FILE).exists():
            return None
        run = read_run(self.folder)
        # Eight digits can collide, and a changed default could go unnoticed.
        if scientific(parse(RunSpec, run.run["config"], "config")) != scientific(self.spec):
            raise ValueError(f"another configuration has this folder: {self.folder}")
        if (run.run.get("timing"), self.config["timing"]["mode"]) == ("shared", "paper"):
            raise ValueError(
                "timing: this run was measured on a shared machine; choose timing=shared or another name, or remove "
                f"{self.folder}"
            )
        if not run.is_complete:
            return None
        if self.spec.prompts.path and run.run["data"] != read_data(self.spec).describe():
            raise ValueError(f"dataset.path: its prompts changed since this run; remove {self.folder} to start over")
        return run

    def _decode(self) -> Run:
        """The run is complete in its folder."""
        if self.config["timing"]["clean"] and git_state()["dirty"]:
            raise ValueError("timing.clean: the checkout has uncommitted changes")
        _loader.keep_only(self.spec.chain)
        say(f"#{self.number} {self.title}: {self.command}")
        progress = ProgressLine(self.title, shown=False if self.parallel else None)
        try:
            return run_pass(
                self.spec,
                self.folder,
                _loader,
                progress,
                run_id=self.run_id,
                resume=True,
                timing=self.config["timing"]["mode"],
                command=self.command,
                label=self.config["label"],
            )
        finally:
            progress.close()

    def _mirror(self, rows: Sequence[Row], run: Run | None = None) -> None:
        """The tracker has a copy of the run as it ended; nothing that goes wrong there gets out."""
        if self.config["tracker"]["mode"] == "none":
            return
        try:
            pictures = run_figures(run)
        except Exception as error:
            pictures = {}
            say(" ".join(f"warning: tracker: no figures of {self.title}: {type(error).__name__}: {error}".split()))
        written = mirror(self.folder, self.config["tracker"], rows, pictures, warn=say)
        if written != "none" and run is not None:
            write_json(self.folder / MIRRORED_FILE, {"mode": written})

    def _is_complete(self) -> bool:
        """Whether the run in the folder has all its records, whatever else went wrong."""
        return bool(read_json(self.folder / RUN_FILE)["status"] == "complete")

    def _identity(self, run: Run) -> list[Parting] | None:
        """Where outputs leave AR's, kept beside the records; ``None`` above temperature 0 or without AR."""
        if self.spec.sampling.temperature != 0 or BASELINE not in self.spec.methods or len(self.spec.methods) < 2:
            return None
        path = self.folder / IDENTITY_FILE
        if not path.exists():
            _loader.keep_only(self.spec.chain)
            apart = differences(self.spec, run, _loader)
            write_json(path, {"baseline": BASELINE, "partings": apart})
        return read_partings(self.folder)


def made_by(run: Run) -> str:
    """The commit and day of a run, if it is not of the present commit."""
    commit = run.run["git"]["commit"]
    return "" if commit == git_state()["commit"] else f" (commit {str(commit)[:10]}, {str(run.run['finished'])[:10]})"


def run_figures(run: Run | None) -> dict[str, Figure]:
    """Speedups and where the time went; none for a run that failed."""
    if run is None:
        return {}
    found: dict[str, Figure] = {}
    for setting in settings([run], BASELINE):
        found["speedup"] = figures.speedup(speed_rows(setting, BASELINE))
        found["time_per_token"] = figures.time_per_token(time_rows(setting))
    return found


def _forget_models() -> None:
    """The next job loads its models itself: these may be what filled the memory."""
    global _loader
    _loader = Loader()


def plan(config: DictConfig, hydra: DictConfig) -> Job:
    """The job of a composed configuration.

    Raises:
        ValueError: naming the key and value that does not fit.
    """
    data = plain_config(config)
    check_options(data)
    parallel = job_number(hydra) is not None and shares_machine(hydra.launcher)
    check_timing(data["timing"], parallel)
    return Job(job_number(hydra) or 0, command(hydra), run_spec(data), data, parallel)


def command(hydra: DictConfig) -> str:
    """The command line that repeats a job alone."""
    return shlex.join(["python", "-m", "experiments.run", *hydra.overrides.task])


def job_number(hydra: DictConfig) -> int | None:
    """Place in the sweep; ``None`` for a run alone."""
    return None if OmegaConf.is_missing(hydra.job, "num") else int(hydra.job.num)


def shares_machine(launcher: DictConfig) -> bool:
    """Whether a launcher may run several jobs on one machine at the same time."""
    return launcher._target_.rpartition(".")[2] not in ALONE and launcher.get("n_jobs") != 1


def check_timing(timing: dict[str, Any], parallel: bool) -> None:
    """Raise ValueError if jobs that share the machine would call their times ``paper``."""
    if parallel and timing["mode"] != "shared":
        raise ValueError(
            f"timing: {timing['mode']!r} needs the machine for one run at a time, and this launcher starts several; "
            "choose timing=shared or hydra/launcher=basic"
        )


def read_partings(folder: Path) -> list[Parting] | None:
    """What ``identity.json`` of a run folder says; ``None`` without one."""
    path = folder / IDENTITY_FILE
    return [Parting(**entry) for entry in read_json(path)["partings"]] if path.exists() else None

"""What became of each job of a sweep: a small file per job in the sweep's folder, whoever ran the job."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from experiments.console import say
from experiments.failures import clear_stray, record_failure, stray_folder
from experiments.job import command, job_number, plan
from experiments.schema import plain_config
from ssd.bench.json_files import read_json, write_json
from ssd.bench.records import RUN_FILE, reason

OUTCOME_FILE = "outcome.json"
FINISHED = ("complete", "skipped")


@dataclass
class Outcome:
    """One job.

    Attributes:
        job: place in the sweep.
        status: ``running`` (also of a process that died), ``complete``, ``skipped`` (finished before),
            ``failed`` or ``interrupted``.
        folder: of the run, absolute.
        results: root of all results, absolute.
        asserted: outputs at temperature 0 have to equal AR's.
        structural: outputs that had to and do not.
    """

    job: int
    command: str
    status: str = "running"
    experiment: str = ""
    title: str = ""
    folder: str = ""
    results: str = ""
    error: str | None = None
    asserted: bool = False
    structural: int = 0
    seconds: float | None = None

    @property
    def is_ok(self) -> bool:
        """Whether the run is there and as it should be."""
        return self.status in FINISHED and not self.structural


def run_job(config: DictConfig, hydra: DictConfig) -> Outcome:
    """The job is done, or its failure is on record; only an interruption by the user gets through.

    ``SystemExit`` and ``MemoryError`` are failures of the job like any other.
    """
    outcome = Outcome(job_number(hydra) or 0, command(hydra))
    with _kept(outcome, Path(hydra.runtime.output_dir) / OUTCOME_FILE):
        try:
            job = plan(config, hydra)
            outcome.experiment, outcome.title = job.spec.name, job.title
            outcome.folder, outcome.results = str(job.folder), str(job.results)
            outcome.asserted = job.config["assert_identity"]
            outcome.status, outcome.structural = job.run()
            clear_stray(job.config)
        except KeyboardInterrupt:
            outcome.status = "interrupted"
            raise
        except BaseException as error:
            outcome.status, outcome.error = "failed", reason(error)
            if not _is_recorded(outcome):
                _record_stray(outcome, config, error)
            say(f"#{outcome.job} {outcome.title}: FAILED: {outcome.error}\n  see {outcome.folder}")
    return outcome


@contextmanager
def _kept(outcome: Outcome, path: Path) -> Iterator[None]:
    """The file says ``running`` from the beginning and how it ended from the end."""
    began = time.perf_counter()
    write_json(path, asdict(outcome))
    try:
        yield
    finally:
        outcome.seconds = time.perf_counter() - began
        write_json(path, asdict(outcome))


def _is_recorded(outcome: Outcome) -> bool:
    """Whether the run's own folder tells of this failure."""
    path = Path(outcome.folder) / RUN_FILE
    return bool(outcome.folder) and path.exists() and read_json(path).get("error") == outcome.error


def _record_stray(outcome: Outcome, config: DictConfig, error: BaseException) -> None:
    """The failure is on record beside the runs."""
    try:
        data = plain_config(config)
    except OmegaConfBaseException:  # a value is missing or refers to nothing
        data = plain_config(config, strict=False)
    folder = stray_folder(data)
    record_failure(folder, folder.name, data, error)
    outcome.folder, outcome.title = str(folder), outcome.title or folder.name


def read_outcomes(place: Path) -> list[Outcome]:
    """Every job of the sweep in ``place``, in order."""
    paths = [place / OUTCOME_FILE, *place.glob(f"*/{OUTCOME_FILE}")]
    found = [Outcome(**read_json(path)) for path in paths if path.exists()]
    return sorted(found, key=lambda outcome: outcome.job)

"""One folder per run: ``run.json`` says what was run, ``records.jsonl`` what came out of it.

Everything reported is computed from these two files. Torch is not needed to read or write them.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from ssd.bench.environment import BusyMeter, device, git_state, versions
from ssd.bench.json_files import dumps, loads, plain, read_json, write_json
from ssd.bench.record_line import RECORD_FIELDS, check_record, group_by, record_line

__all__ = [
    "RECORD_FIELDS",
    "Problem",
    "Run",
    "RunFolder",
    "check_record",
    "group_by",
    "read_run",
    "read_runs",
    "record_line",
]

SCHEMA = 1
RUN_FILE = "run.json"
RECORDS_FILE = "records.jsonl"
DESCRIBED = ("config", "models", "data", "device", "warmup_seconds")


class RunFolder:
    """A run being written; use it as a context, or end it with ``finish`` or ``fail``.

    From construction on ``run.json`` exists with status ``running``. Leaving the context finishes
    the run, leaving it by an exception marks it failed; a killed process leaves ``running``.

    Args:
        path: the run's own folder, created if need be.
        run_id: default the folder's name.
        config: the resolved configuration as plain values.
        replace: start over where the folder already holds a run, instead of refusing.
        meter: measures who else used the machine; replaced in tests.
        root: checkout whose commit is noted, default the one of this package.

    Raises:
        ValueError: if the folder already holds a run and ``replace`` is false.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        run_id: str | None = None,
        config: Mapping[str, Any] | None = None,
        replace: bool = False,
        meter: BusyMeter | None = None,
        root: Path | None = None,
    ) -> None:
        self.path = Path(path)
        self.run: dict[str, Any] = {
            "run_id": self.path.name if run_id is None else run_id,
            "schema": SCHEMA,
            "status": "running",
            "error": None,
            "config": dict(config or {}),
            "git": git_state(root),
            "versions": versions(),
            "device": device(),
            "models": {},
            "data": {},
            "warmup_seconds": {},
            "started": _now(),
            "finished": None,
            "records": 0,
            "busy_elsewhere": None,
            "busy": None,
        }
        self.path.mkdir(parents=True, exist_ok=True)
        if replace:  # status first: at no moment do old claims stand beside new lines
            self._write()
        elif (self.path / RUN_FILE).exists():
            raise ValueError(f"{self.path}: already holds a run")
        try:  # creating exclusively decides between two processes that want the same folder
            self._lines = (self.path / RECORDS_FILE).open("wb" if replace else "xb")
        except FileExistsError as error:
            raise ValueError(f"{self.path}: already holds a run") from error
        self._write()
        self._meter = BusyMeter() if meter is None else meter
        self._meter.start()

    def describe(self, **fields: Any) -> None:
        """``run.json`` holds these values of ``DESCRIBED``, for what is known only after loading."""
        unknown = [name for name in fields if name not in DESCRIBED]
        if unknown:
            raise ValueError(f"run {self.run['run_id']}: {unknown} are not among {', '.join(DESCRIBED)}")
        self.run.update(plain(fields, RUN_FILE))
        self._write()

    def append(self, record: Mapping[str, Any]) -> None:
        """The record is checked and handed to the operating system as one line.

        Raises:
            ValueError: if the record contradicts itself or the run has ended.
        """
        if self.run["status"] != "running":
            raise ValueError(f"run {self.run['run_id']}: append to a run that is {self.run['status']}")
        check_record(record)
        self._lines.write(dumps(record, "record").encode("ascii") + b"\n")
        self._lines.flush()
        self.run["records"] += 1

    def finish(self) -> None:
        """All lines are on the disk and ``run.json`` says ``complete``."""
        self._end("complete", None)

    def fail(self, error: BaseException | str) -> None:
        """``run.json`` says ``failed`` and why; the lines written so far are kept."""
        reason = error if isinstance(error, str) else "".join(traceback.format_exception_only(error)).strip()
        self._end("failed", reason)

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self.run["status"] != "running":
            return
        if error is None:
            self.finish()
        else:
            self.fail(error)

    def _end(self, status: str, error: str | None) -> None:
        """Sync and close the lines, then state the outcome."""
        if self.run["status"] != "running":
            raise ValueError(f"run {self.run['run_id']}: ended already as {self.run['status']}")
        self._lines.flush()
        os.fsync(self._lines.fileno())
        self._lines.close()
        self._meter.stop()
        self.run.update(status=status, error=error, finished=_now())
        self.run.update(busy_elsewhere=self._meter.busy_elsewhere, busy=self._meter.busy)
        self._write()

    def _write(self) -> None:
        """Replace run.json in one step."""
        write_json(self.path / RUN_FILE, self.run)


@dataclass(frozen=True)
class Run:
    """A run read back: ``run.json``, its records, and notes on what had to be left out."""

    run: dict[str, Any]
    records: list[dict[str, Any]]
    notes: list[str] = field(default_factory=list)
    path: Path | None = None

    @property
    def is_complete(self) -> bool:
        """Whether the run says that it ended well."""
        return bool(self.run["status"] == "complete")


class Problem(NamedTuple):
    """A run that cannot be reported, and why."""

    path: Path
    reason: str


def read_run(path: Path | str) -> Run:
    """The run in a folder (or of a ``run.json``), complete or not; a half-written last line is noted.

    Raises:
        ValueError: naming the file, and the line where there is one, that is missing or wrong.
    """
    folder = Path(path).parent if Path(path).name == RUN_FILE else Path(path)
    run = read_json(folder / RUN_FILE)
    for name in ("run_id", "schema", "status"):
        if name not in run:
            raise ValueError(f"{folder / RUN_FILE}: field {name!r} is missing")
    if run["schema"] != SCHEMA:
        raise ValueError(f"{folder / RUN_FILE}: schema {run['schema']!r}, this version reads {SCHEMA}")
    notes: list[str] = []
    records = list(_read_lines(folder / RECORDS_FILE, notes))
    if run["status"] == "complete" and run.get("records") != len(records):
        raise ValueError(f"{folder / RECORDS_FILE}: {len(records)} records, but run.json counts {run.get('records')}")
    return Run(run, records, notes, folder)


def read_runs(root: Path | str) -> tuple[list[Run], list[Problem]]:
    """(complete runs, everything else with its reason), both ordered by path; nothing is fatal.

    A folder counts as a run if it holds either file, or if it is empty of folders: a job that died
    before its first write is listed too. Hidden folders are passed over.
    """
    good: list[Run] = []
    problems: list[Problem] = []
    for folder in _run_folders(Path(root)):
        try:
            run = read_run(folder)
        except (ValueError, OSError) as error:
            problems.append(Problem(folder, str(error)))
            continue
        if run.is_complete:
            good.append(run)
        else:
            reason = "; ".join([f"status {run.run['status']}: {run.run.get('error')}", *run.notes])
            problems.append(Problem(folder, reason))
    return good, problems


def _run_folders(root: Path) -> Iterator[Path]:
    """Folders under ``root`` that are, or were meant to be, runs."""
    for name, folders, files in os.walk(root):
        folders[:] = sorted(folder for folder in folders if not folder.startswith("."))
        if RUN_FILE in files or RECORDS_FILE in files:
            folders.clear()  # a run's own subfolders (logs, a tracker's files) are not runs
            yield Path(name)
        elif not folders and Path(name) != root:
            yield Path(name)


def _read_lines(path: Path, notes: list[str]) -> Iterator[dict[str, Any]]:
    """Checked records of a file; notes what was dropped."""
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror})") from error
    for number, line in enumerate(lines, start=1):
        if not line and number == len(lines):
            break
        try:
            record = loads(line)
            if not isinstance(record, dict):
                raise ValueError(f"expected an object, got {type(record).__name__}")
            check_record(record)
        except ValueError as error:
            # Lines are ended by a newline, so only one without can be half-written.
            if number == len(lines):
                notes.append(f"{path}: line {number} is half-written and was left out")
                break
            raise ValueError(f"{path}: line {number}: {error}") from error
        yield record


def _now() -> str:
    """UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")

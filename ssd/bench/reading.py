"""Runs read back from their folders, whole, unfinished or broken; torch is not needed.

Where ``records.jsonl`` is absent its gzipped copy is read, which is how records are published.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ssd.bench.json_files import loads, read_json
from ssd.bench.record_line import check_record

SCHEMA = 1
RUN_FILE = "run.json"
RECORDS_FILE = "records.jsonl"
PACKED_FILE = f"{RECORDS_FILE}.gz"
KINDS = (
    dict.fromkeys(("run_id", "method", "prompt_id", "task", "text"), str)
    | dict.fromkeys(("seconds", "passes"), dict)
    | {"ahead": list, "synthetic": bool}
)
ABSENT: dict[str, Any] = {
    "prompt_ids": None,
    "ahead": [],
    "synthetic": False,
}  # records written before these fields existed lack them


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
    path = records_file(folder)
    records = list(_read_lines(path, notes))
    if run["status"] == "complete" and run.get("records") != len(records):
        raise ValueError(f"{path}: {len(records)} records, but run.json counts {run.get('records')}")
    return Run(run, records, notes, folder)


def records_file(folder: Path) -> Path:
    """The file with a run's records: the plain one, else the packed one if it is there."""
    plain, packed = folder / RECORDS_FILE, folder / PACKED_FILE
    return packed if packed.exists() and not plain.exists() else plain


def runs_root(results: Path, experiment: str) -> Path:
    """The folder with an experiment's runs: the raw ones, else the published ones if there are any."""
    raw, published = results / "raw" / experiment, results / experiment
    return published if not raw.exists() and any(published.glob(f"*/{RUN_FILE}")) else raw


def read_runs(root: Path | str) -> tuple[list[Run], list[Problem]]:
    """(complete runs, everything else with its reason), both ordered by path; nothing is fatal.

    A folder counts as a run if it holds ``run.json`` or records, or if it is empty of folders: a job that died
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
        if {RUN_FILE, RECORDS_FILE, PACKED_FILE} & set(files):
            folders.clear()  # a run's own subfolders (logs, a tracker's files) are not runs
            yield Path(name)
        elif not folders and Path(name) != root:
            yield Path(name)


def _read_lines(path: Path, notes: list[str]) -> Iterator[dict[str, Any]]:
    """Checked records of a file; notes what was dropped."""
    try:
        data = path.read_bytes()
        lines = (gzip.decompress(data) if path.name == PACKED_FILE else data).split(b"\n")
    except (OSError, EOFError, zlib.error) as error:  # a damaged archive has no strerror
        raise ValueError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from error
    for number, line in enumerate(lines, start=1):
        if not line and number == len(lines):
            break
        try:
            record = _record(loads(line))
        except ValueError as error:
            # Lines are ended by a newline, so only one without can be half-written.
            if number == len(lines):
                notes.append(f"{path}: line {number} is half-written and was left out")
                break
            raise ValueError(f"{path}: line {number}: {error}") from error
        yield record


def _record(data: Any) -> dict[str, Any]:
    """A line's object with the fields it may lack; ValueError unless it is a record of our making."""
    if not isinstance(data, dict):
        raise ValueError(f"expected an object, got {type(data).__name__}")
    record = ABSENT | data
    for name, kind in KINDS.items():
        if name in data and not isinstance(data[name], kind):
            raise ValueError(f"{name}: expected {kind.__name__}, got {str(data[name])[:40]!r}")
    try:
        check_record(record)
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"a field has another form than ours ({type(error).__name__}: {error})") from error
    return record

"""One folder per run: ``run.json`` says what was run, ``records.jsonl`` what came out of it.

Everything reported is computed from these two files. Torch is not needed to read or write them.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ssd.bench.environment import BUSY_LIMIT, BusyMeter, device, git_state, versions
from ssd.bench.json_files import dumps, plain, write_json
from ssd.bench.reading import RECORDS_FILE, RUN_FILE, SCHEMA, Problem, Run, read_run, read_runs, records_file, runs_root
from ssd.bench.record_line import RECORD_FIELDS, check_real, check_record, group_by, record_line

__all__ = [
    "RECORDS_FILE",
    "RECORD_FIELDS",
    "RUN_FILE",
    "SCHEMA",
    "Problem",
    "Run",
    "RunFolder",
    "check_real",
    "check_record",
    "group_by",
    "read_run",
    "read_runs",
    "reason",
    "record_line",
    "runs_root",
]

DESCRIBED = (
    "config",
    "models",
    "data",
    "end_of_text",
    "device",
    "warmup_seconds",
    "memory",
    "timing",
    "command",
    "label",
)


class RunFolder:
    """A run being written; use it as a context, or end it with ``finish`` or ``fail``.

    From construction on ``run.json`` exists with status ``running``. Leaving the context finishes
    the run, leaving it by an exception marks it failed; a killed process leaves ``running``.

    Attributes:
        run: what ``run.json`` holds.
        kept: records of an earlier attempt that stand in the file, see ``resume``.

    Args:
        path: the run's own folder, created if need be.
        run_id: default the folder's name.
        config: the resolved configuration as plain values.
        replace: start over where the folder already holds a run, instead of refusing.
        resume: go on where an attempt that did not complete ended; its whole records stay, a half-written
            last line is cut off, and ``run["resumed"]`` gets an entry. Without an attempt, a new run.
        meter: measures who else used the machine; replaced in tests.
        root: checkout whose commit is noted, default the one of this package.

    Raises:
        ValueError: if the folder already holds a run and neither ``replace`` nor ``resume`` is given; if
            the run to resume is complete, or its records cannot be read.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        run_id: str | None = None,
        config: Mapping[str, Any] | None = None,
        replace: bool = False,
        resume: bool = False,
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
            "resumed": [],
            "synthetic": False,
        }
        self.kept: list[dict[str, Any]] = []
        self.path.mkdir(parents=True, exist_ok=True)
        if resume and (self.path / RUN_FILE).exists():
            self._take_over()
        else:
            self._open(replace or resume)
        self._write()
        self._meter = BusyMeter() if meter is None else meter
        self._meter.start()

    def _open(self, replace: bool) -> None:
        """An empty file for the lines."""
        if replace:  # status first: at no moment do old claims stand beside new lines
            self._write()
        elif (self.path / RUN_FILE).exists():
            raise ValueError(f"{self.path}: already holds a run")
        try:  # creating exclusively decides between two processes that want the same folder
            self._lines = (self.path / RECORDS_FILE).open("wb" if replace else "xb")
        except FileExistsError as error:
            raise ValueError(f"{self.path}: already holds a run") from error

    def _take_over(self) -> None:
        """What an earlier attempt left is this run's beginning."""
        records_file(self.path).touch()  # the attempt may have ended between the two files
        old = read_run(self.path)
        if old.is_complete:
            raise ValueError(f"{self.path}: the run is complete, there is nothing to resume")
        self._lines = (self.path / RECORDS_FILE).open("ab")
        entry = resumption(old.run, self.run, len(old.records), _now())
        changed = {"status": "running", "error": None, "finished": None}
        self.run = old.run | changed | {"resumed": [*old.run.get("resumed", []), entry]}
        self.keep(old.records)

    def keep(self, chosen: Sequence[Mapping[str, Any]]) -> None:
        """Of the records that were taken over only ``chosen`` stand in the file; no line may follow them yet."""
        self.kept = [dict(record) for record in chosen]
        self._lines.close()
        temporary = self.path / f".{RECORDS_FILE}.tmp"
        temporary.write_bytes(b"".join(_line(record) for record in self.kept))
        os.replace(temporary, self.path / RECORDS_FILE)
        self._lines = (self.path / RECORDS_FILE).open("ab")
        entry = self.run["resumed"][-1]
        entry.update(dropped=entry["kept"] + entry["dropped"] - len(chosen), kept=len(chosen))
        self.run["records"] = len(chosen)

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
        self._lines.write(_line(record))
        self._lines.flush()
        self.run["records"] += 1
        self.run["synthetic"] = self.run.get("synthetic", False) or record["synthetic"]

    def finish(self) -> None:
        """All lines are on the disk and ``run.json`` says ``complete``."""
        self._end("complete", None)

    def fail(self, error: BaseException | str) -> None:
        """``run.json`` says ``failed`` and why; the lines written so far are kept."""
        self._end("failed", error if isinstance(error, str) else reason(error))

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
        shares = [self._meter.busy_elsewhere, *(entry["busy_elsewhere"] for entry in self.run["resumed"])]
        worst = max((share for share in shares if share is not None), default=None)
        self.run.update(busy_elsewhere=worst, busy=None if worst is None else worst > BUSY_LIMIT)
        self._write()

    def _write(self) -> None:
        """Replace run.json in one step."""
        write_json(self.path / RUN_FILE, self.run)


def resumption(old: Mapping[str, Any], new: Mapping[str, Any], kept: int, at: str) -> dict[str, Any]:
    """The entry of ``resumed``: how the attempt ``old`` ended, and what of code and libraries changed since.

    The top of ``run.json`` keeps saying what the first attempt ran with.
    """
    entry: dict[str, Any] = {name: old.get(name) for name in ("status", "error", "busy_elsewhere")}
    git, libraries = old.get("git"), dict(old.get("versions") or {})
    for earlier in old.get("resumed", []):
        git = earlier.get("git", git)
        libraries |= earlier.get("versions", {})
    entry |= {"at": at, "kept": kept, "dropped": 0}
    if new["git"] != git:
        entry["git"] = new["git"]
    if changed := {k: v for k, v in new["versions"].items() if v != libraries.get(k)}:
        entry["versions"] = changed
    return entry


def reason(error: BaseException) -> str:
    """An error as one text, its kind first; what UTF-8 cannot hold (bytes of a file name) is written out."""
    text = "".join(traceback.format_exception_only(error)).strip()
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _line(record: Mapping[str, Any]) -> bytes:
    """A record as it stands in the file."""
    return dumps(record, "record").encode("ascii") + b"\n"


def _now() -> str:
    """UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")

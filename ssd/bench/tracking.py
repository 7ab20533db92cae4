"""Finished runs told to a tracker. The run's own files stay the only source: no number is read back from one.

``mirror`` is what experiments call, after a run has ended and its clocks have stopped. See docs/tracking.md.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from ssd.bench.acceptance import block_efficiency
from ssd.bench.json_files import dumps, plain
from ssd.bench.records import RUN_FILE, Run, read_run
from ssd.bench.summary import Row

MODES = ("none", "offline", "online")
COLUMNS = (
    "method",
    "prompt_id",
    "task",
    "sample",
    "batch_id",
    "prompt_tokens",
    "output_tokens",
    "stop_reason",
    "prefill_seconds",
    "total_seconds",
    "target_passes",
    "tokens_per_target_pass",
    "text",
)

# What this process has found not to work and does not try again: "online", or "wandb" altogether.
_given_up: set[str] = set()


class Table(NamedTuple):
    """One row per record, in the order of the file."""

    columns: tuple[str, ...]
    rows: list[list[Any]]


class Tracker(Protocol):
    """Where one run is told: ``start``, then ``log_record`` for each record, then ``finish``."""

    def start(self, run: Mapping[str, Any]) -> None:
        """The tracker knows what was run.

        Args:
            run: what ``run.json`` holds.
        """

    def log_record(self, record: Mapping[str, Any]) -> None:
        """The tracker knows one more line of ``records.jsonl``."""

    def finish(
        self,
        summary_rows: Sequence[Mapping[str, Any]],
        table: Table,
        figures: Mapping[str, Any],
        status: str,
    ) -> None:
        """Everything is told, and the run is closed there: well if ``status`` is ``complete``, else as failed.

        Args:
            summary_rows: ``Row.as_dict`` of each metric, names without the run's title.
            table: all outputs.
            figures: matplotlib figures, or paths of PNG files, by name.
            status: of the run.
        """


class NoTracker:
    """Nothing is kept."""

    def start(self, run: Mapping[str, Any]) -> None:
        """Nothing happens."""

    def log_record(self, record: Mapping[str, Any]) -> None:
        """Nothing happens."""

    def finish(
        self, summary_rows: Sequence[Mapping[str, Any]], table: Table, figures: Mapping[str, Any], status: str
    ) -> None:
        """Nothing happens."""


class MemoryTracker:
    """Everything is kept as it came, in attributes."""

    def __init__(self) -> None:
        self.run: dict[str, Any] | None = None
        self.records: list[dict[str, Any]] = []
        self.summary: list[dict[str, Any]] = []
        self.table: Table | None = None
        self.figures: dict[str, Any] = {}
        self.status: str | None = None

    def start(self, run: Mapping[str, Any]) -> None:
        """``run`` holds it."""
        self.run = dict(run)

    def log_record(self, record: Mapping[str, Any]) -> None:
        """``records`` has one more."""
        self.records.append(dict(record))

    def finish(
        self, summary_rows: Sequence[Mapping[str, Any]], table: Table, figures: Mapping[str, Any], status: str
    ) -> None:
        """The other attributes are set."""
        self.summary, self.table = [dict(row) for row in summary_rows], table
        self.figures, self.status = dict(figures), status


@dataclass
class JsonlTracker:
    """A file with one event per line, and the figures as PNG files beside it; ``replay`` tells it on.

    Attributes:
        path: of the file, replaced by ``start``.
    """

    path: Path

    def start(self, run: Mapping[str, Any]) -> None:
        """The file holds one line."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._write({"start": run}, "w")

    def log_record(self, record: Mapping[str, Any]) -> None:
        """The file holds one more line."""
        self._write({"record": record}, "a")

    def finish(
        self, summary_rows: Sequence[Mapping[str, Any]], table: Table, figures: Mapping[str, Any], status: str
    ) -> None:
        """The file is whole; figures are named by their files, which lie in the same folder."""
        files = {}
        for number, (name, figure) in enumerate(figures.items()):
            files[name] = f"{self.path.stem}-figure-{number}.png"
            save_figure(figure, self.path.with_name(files[name]))
        told = {"summary_rows": list(summary_rows), "table": table._asdict(), "figures": files, "status": status}
        self._write({"finish": told}, "a")

    def _write(self, event: Mapping[str, Any], how: str) -> None:
        """One line."""
        with self.path.open(how, encoding="ascii") as file:
            file.write(dumps(event, self.path.name) + "\n")


def replay(path: Path, tracker: Tracker) -> None:
    """``tracker`` is told what a ``JsonlTracker`` was told; figures are the paths of its PNG files."""
    with path.open(encoding="ascii") as file:
        for line in file:
            event = json.loads(line)
            if "start" in event:
                tracker.start(event["start"])
            elif "record" in event:
                tracker.log_record(event["record"])
            else:
                told = event["finish"]
                table = Table(tuple(told["table"]["columns"]), told["table"]["rows"])
                figures = {name: path.with_name(file) for name, file in told["figures"].items()}
                tracker.finish(told["summary_rows"], table, figures, told["status"])


def tell(tracker: Tracker, run: Run, rows: Sequence[Row] = (), figures: Mapping[str, Any] | None = None) -> None:
    """``tracker`` is told a whole run, complete or not.

    Args:
        tracker: what is told.
        run: read from its folder.
        rows: summary rows; a leading ``TITLE/``, where TITLE is the run's label or id, is taken off their names,
            so that a metric has one name in all runs.
        figures: matplotlib figures, or paths of PNG files, by name; they are not closed.
    """
    tracker.start(plain(run.run, RUN_FILE))
    for record in run.records:
        tracker.log_record(record)
    table = Table(COLUMNS, [list(record_row(record).values()) for record in run.records])
    tracker.finish(_untitled(run.run, rows), table, dict(figures or {}), run.run["status"])


def record_row(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record as the row of a table: ``COLUMNS``. Seconds and passes are those of its batch."""
    passes, seconds = record["passes"], record["seconds"]
    values = {name: record[name] for name in COLUMNS if name in record}
    values |= {
        "output_tokens": len(record["output_ids"]),
        "prefill_seconds": seconds["prefill"],
        "total_seconds": seconds["total"],
        "target_passes": passes[f"L{len(passes) - 1}"]["count"] if passes else None,
        "tokens_per_target_pass": block_efficiency([record]),
    }
    return {name: values[name] for name in COLUMNS}


def tracker_id(run: Mapping[str, Any]) -> str:
    """What a tracker calls a run, at most 80 characters.

    The id of the run and a digest of experiment and time of its first attempt: a run that is continued keeps its
    name and replaces what was told of it, one that is measured anew gets another.
    """
    first = [run["run_id"], (run.get("config") or {}).get("name"), run.get("started")]
    digest = hashlib.sha256(dumps(first, RUN_FILE).encode("ascii")).hexdigest()[:8]
    return f"{re.sub(r'[^A-Za-z0-9._-]', '_', run['run_id'])[:71]}-{digest}"


def save_figure(figure: Any, path: Path) -> None:
    """``path`` is a PNG file of the figure."""
    if isinstance(figure, str | Path):
        shutil.copyfile(figure, path)
    else:
        figure.savefig(path, format="png", dpi=150)


def mirror(
    folder: Path | str,
    settings: Mapping[str, Any],
    rows: Sequence[Row] = (),
    figures: Mapping[str, Any] | None = None,
    *,
    warn: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True),
) -> str:
    """Copy a run that has ended, well or not, to its tracker; the mode that was written is returned.

    No exception gets out, whatever happens there, and no more than ``wandb_tracker.ONLINE_SECONDS`` +
    ``wandb_tracker.OFFLINE_SECONDS`` pass. Where ``online`` is not possible the run is written offline, and so are
    the later ones of this process. W&B works in a process of its own, so this one is left as it was.

    Args:
        folder: the run's own; W&B's files are in ``folder/wandb``, those of an earlier mirror are replaced.
        settings: ``mode`` (one of ``MODES``), ``project`` and ``entity``.
        rows: summary rows, such as ``analysis.rows.method_summary`` makes.
        figures: matplotlib figures, or paths of PNG files, by name; they stay open.
        warn: gets one line where something is not as asked for.

    Returns:
        ``offline`` or ``online``; ``none`` if nothing was written.
    """
    wanted = settings.get("mode", "none")
    if wanted == "none" or "wandb" in _given_up:
        return "none"
    try:
        if wanted not in MODES:
            raise ValueError(f"mode: {wanted!r} is not one of {', '.join(MODES)}")
        from ssd.bench import wandb_tracker

        if not wandb_tracker.is_installed():
            _given_up.add("wandb")
            warn("warning: tracker: wandb is not installed (pip install wandb); this process mirrors no runs")
            return "none"
        run = read_run(folder)
        modes = ["offline"] if wanted == "offline" or "online" in _given_up else ["online", "offline"]
        place = {"project": settings.get("project"), "entity": settings.get("entity"), "id": tracker_id(run.run)}
        written, reasons = wandb_tracker.write(
            Path(folder), lambda path: tell(JsonlTracker(path), run, rows, figures), place, modes
        )
    except Exception as error:
        written, reasons = "none", {"": f"{type(error).__name__}: {error}"}
    if "online" in reasons:
        _given_up.add("online")
    if reasons:
        text = "; ".join(f"{mode} {reason}".strip() for mode, reason in reasons.items())
        rest = "this and later runs of this process are mirrored offline"
        if written == "none":
            rest = f"{folder} is not mirrored, its records are as they were"
        warn("warning: tracker: " + " ".join(f"{text}; {rest}".split()))
    return written


def _untitled(run: Mapping[str, Any], rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Rows as dicts, their names without the run's title if all have it."""
    for title in (run.get("label"), run["run_id"]):
        if rows and title and all(row.name.startswith(f"{title}/") for row in rows):
            return [row.as_dict() | {"name": row.name[len(title) + 1 :]} for row in rows]
    return [row.as_dict() for row in rows]

"""What an earlier call measured, which must not stand beside new predictions."""

from __future__ import annotations

from pathlib import Path

from ssd.bench.traces import TRACES_FILE

RUN = ("run.json", "records.jsonl.gz", TRACES_FILE)
MEASURED = ("measured.json", "summary.json", "report.html")


def remove_run(folder: Path) -> None:
    """``folder`` holds no published run; it is gone if nothing else was in it."""
    for name in RUN:
        (folder / name).unlink(missing_ok=True)
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def remove_measurements(results: Path) -> None:
    """``results`` holds no rows, page or published runs of an earlier call of a planner's command."""
    for name in MEASURED:
        (results / name).unlink(missing_ok=True)
    for path in sorted(results.glob("*/run.json")):
        remove_run(path.parent)

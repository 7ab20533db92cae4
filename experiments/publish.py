"""The small files of a run, copied beside the summary that was made of them, where they are committed."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

from ssd.bench.records import Run
from ssd.bench.traces import TRACES_FILE


def publish(run: Run, results: Path, name: str | None = None) -> Path:
    """Copy ``run.json`` and the packed records to ``results/NAME``, NAME being the run folder's; the new run.json."""
    assert run.path is not None
    target = results / (name or run.path.name)
    target.mkdir(parents=True, exist_ok=True)
    shutil.copy(run.path / "run.json", target / "run.json")
    if (run.path / TRACES_FILE).exists():
        shutil.copy(run.path / TRACES_FILE, target / TRACES_FILE)
    with gzip.GzipFile(target / "records.jsonl.gz", "wb", mtime=0) as out:
        out.write((run.path / "records.jsonl").read_bytes())
    return target / "run.json"

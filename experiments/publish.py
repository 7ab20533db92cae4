"""The small files of a run, copied beside the summary that was made of them, where they are committed."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

from ssd.bench.records import Run


def publish(run: Run, results: Path, name: str | None = None) -> Path:
    """Copy ``run.json`` and the packed records to ``results/NAME``, NAME being the run folder's; the new run.json."""
    assert run.path is not None
    target = results / (name or run.path.name)
    target.mkdir(parents=True, exist_ok=True)
    shutil.copy(run.path / "run.json", target / "run.json")
    with gzip.GzipFile(target / "records.jsonl.gz", "wb", mtime=0) as out:
        out.write((run.path / "records.jsonl").read_bytes())
    return target / "run.json"

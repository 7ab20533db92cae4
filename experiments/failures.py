"""How a failed job is kept: in the run's own folder, or in one beside it where there is none."""

from __future__ import annotations

import hashlib
import shutil
import traceback
from pathlib import Path
from typing import Any

from experiments.schema import results_root
from ssd.bench.json_files import dumps, read_json, write_json
from ssd.bench.records import RUN_FILE, RunFolder, reason

ERROR_FILE = "error.txt"


def record_failure(folder: Path, run_id: str, config: dict[str, Any], error: BaseException) -> None:
    """The folder's run.json says ``failed`` and why, error.txt holds the traceback; records stay."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ERROR_FILE).write_text(
        "".join(traceback.format_exception(error)), encoding="utf-8", errors="backslashreplace"
    )
    path = folder / RUN_FILE
    old = read_json(path) if path.exists() else {"status": "running"}
    if old["status"] == "running":  # it failed before the run was opened, or this attempt left no word
        RunFolder(folder, run_id=run_id, config=config, resume=True).fail(error)
    elif old["status"] == "failed":
        write_json(path, old | {"error": reason(error)})


def clear_failure(folder: Path) -> None:
    """An earlier failure that has been overcome leaves no traceback behind."""
    (folder / ERROR_FILE).unlink(missing_ok=True)


def stray_folder(config: dict[str, Any]) -> Path:
    """Where a job without a folder is recorded: its configuration is wrong, or its folder holds another run."""
    kept = {key: value for key, value in config.items() if key not in ("results_dir", "timing", "tracker")}
    digest = hashlib.sha256(dumps(kept, "config").encode("ascii")).hexdigest()[:8]
    return results_root(config) / "raw" / Path(str(config["name"])).name / f"failed-{digest}"


def clear_stray(config: dict[str, Any]) -> None:
    """The record of an earlier failure of this configuration is gone."""
    shutil.rmtree(stray_folder(config), ignore_errors=True)

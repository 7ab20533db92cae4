"""A run told to Weights & Biases, from a process of its own; the only module that imports wandb.

W&B keeps threads, a service process, exit handlers and the run that was opened last in the process that uses it.
Here that process ends with the run: jobs of a sweep cannot end up in one W&B run, and one that hangs is ended.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ssd.bench.json_files import read_json, write_json
from ssd.bench.tracking import Table, record_row, replay

ONLINE_SECONDS = 30.0
OFFLINE_SECONDS = 60.0
INIT_SECONDS = 10.0
PLACE = "wandb"  # W&B's own name for its folder
OLD = ".wandb-before"
EVENTS, JOB, OUTCOME, LOG = "events.jsonl", "job.json", "outcome.json", "log.txt"
SHOWN = 200  # characters of a reason
# Who the user is and where the server is. Other variables of W&B could merge, rename, move or switch off runs.
KEPT_VARIABLES = (
    "WANDB_API_KEY",
    "WANDB_BASE_URL",
    "WANDB_CONFIG_DIR",
    "WANDB_ENTITY",
    "WANDB_HTTP_TIMEOUT",
    "WANDB_IDENTITY_TOKEN_FILE",
    "WANDB_INSECURE_DISABLE_SSL",
)


class WandbTracker:
    """One W&B run, which is closed by ``finish``.

    Args:
        folder: W&B's files go to ``folder/wandb``.
        mode: ``offline`` or ``online``.
        project: of W&B.
        entity: user or team, default the user's own.
        id: of the W&B run.
    """

    def __init__(self, folder: Path, mode: str, project: str | None, entity: str | None, id: str) -> None:
        self.folder, self.mode, self.project, self.entity, self.id = folder, mode, project, entity, id
        self._run: Any = None

    def start(self, run: Mapping[str, Any]) -> None:
        """The W&B run is open; its config is the run's, and under ``run`` everything else of run.json."""
        import wandb

        config = dict(run.get("config") or {})
        about = {name: value for name, value in run.items() if name != "config"}
        self._run = wandb.init(
            project=self.project,
            entity=self.entity,
            id=self.id,
            name=run.get("label") or run["run_id"],
            group=config.get("name"),
            notes=run.get("error"),
            config=config | {"run": about},
            dir=str(self.folder),
            mode=self.mode,  # type: ignore[arg-type, unused-ignore]
            reinit="create_new",
            settings=wandb.Settings(
                init_timeout=INIT_SECONDS,
                console="off",
                silent=True,
                symlink=False,
                disable_git=True,
                disable_code=True,
                disable_job_creation=True,
                save_code=False,
                x_disable_stats=True,
                x_disable_meta=True,
                x_disable_machine_info=True,
                x_save_requirements=False,
            ),
        )
        # The summary holds what our files say of the whole run, not the last output's numbers.
        self._run.define_metric("output/*", summary="none")

    def log_record(self, record: Mapping[str, Any]) -> None:
        """The history has one more row, ``output/...``."""
        row = {name: value for name, value in record_row(record).items() if name != "text"}
        self._run.log({f"output/{name}": value for name, value in row.items()})

    def finish(
        self, summary_rows: Sequence[Mapping[str, Any]], table: Table, figures: Mapping[str, Any], status: str
    ) -> None:
        """Summary, table ``outputs`` and ``figures/...`` are there; the run is finished, or failed."""
        import wandb

        outputs = wandb.Table(columns=list(table.columns), data=table.rows, allow_mixed_types=True)
        images = {f"figures/{name}": wandb.Image(str(path)) for name, path in figures.items()}
        self._run.log({"outputs": outputs, **images})
        values: dict[str, Any] = {"status": status}
        for row in summary_rows:
            values[row["name"]] = row["value"]
            values |= {f"{row['name']}/{end}": row[end] for end in ("low", "high") if row[end] is not None}
        self._run.summary.update(values)
        self.close(0 if status == "complete" else 1)

    def close(self, exit_code: int) -> None:
        """No run is open."""
        if self._run is not None:
            run, self._run = self._run, None
            run.finish(exit_code=exit_code)


def is_installed() -> bool:
    """Whether wandb can be imported; it is not imported."""
    spec = importlib.util.find_spec("wandb")
    return spec is not None and spec.origin is not None  # a mere folder of that name has no origin


def write(
    folder: Path, spool: Callable[[Path], None], place: Mapping[str, Any], modes: Sequence[str]
) -> tuple[str, dict[str, str]]:
    """(first of ``modes`` that went well or ``none``, by mode why the others did not).

    ``folder/wandb`` then holds what that mode wrote and nothing older; what was there before if none went well.

    Args:
        folder: of the run.
        spool: writes the events of the run to a file.
        place: ``project``, ``entity`` and ``id``.
        modes: tried in this order.
    """
    reasons: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="ssd-tracker-") as name, _replaced(folder / PLACE) as keep:
        spool(Path(name) / EVENTS)
        for mode in modes:
            seconds = ONLINE_SECONDS if mode == "online" else OFFLINE_SECONDS
            reason = _attempt(Path(name), {"folder": folder.resolve(), "mode": mode, **place}, seconds)
            if reason is None:
                keep()
                return mode, reasons
            reasons[mode] = reason
            shutil.rmtree(folder / PLACE, ignore_errors=True)
    return "none", reasons


@contextmanager
def _replaced(place: Path) -> Iterator[Callable[[], None]]:
    """``place`` is free inside; afterwards it is as before unless the function was called that this yields."""
    old, kept = place.with_name(OLD), []
    if place.exists():
        shutil.rmtree(old, ignore_errors=True)
        place.rename(old)
    try:
        yield lambda: kept.append(True)
    finally:
        if kept:
            shutil.rmtree(old, ignore_errors=True)
        else:
            shutil.rmtree(place, ignore_errors=True)
            if old.exists():
                old.rename(place)


def _attempt(spool: Path, job: Mapping[str, Any], seconds: float) -> str | None:
    """``None`` if another process told the run, else why it did not; it lives no longer than ``seconds``."""
    write_json(spool / JOB, {**job, "seconds": seconds})
    (spool / OUTCOME).unlink(missing_ok=True)
    with (spool / LOG).open("wb") as log:
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "ssd.bench.wandb_tracker", str(spool)],
            stdin=subprocess.DEVNULL,  # W&B would ask for a key
            stdout=log,  # a file: a pipe would stay open as long as W&B's service process lives
            stderr=subprocess.STDOUT,
            cwd=spool,
            env=_environment(Path(job["folder"]), spool),
            start_new_session=True,
        )
        late = False
        try:
            child.wait(seconds)
        except subprocess.TimeoutExpired:
            late = True
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
    if (spool / OUTCOME).exists():
        reason: str | None = read_json(spool / OUTCOME)["reason"]
        return reason
    if late:
        return f"did not answer within {seconds:g} s"
    last = (spool / LOG).read_text(encoding="utf-8", errors="replace").strip().rpartition("\n")[2]
    return f"ended with status {child.returncode}: {last[:SHOWN]}"


def _environment(folder: Path, spool: Path) -> dict[str, str]:
    """Of the other process: it finds this package, and writes to ``folder`` and ``spool`` alone."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in KEPT_VARIABLES or not name.startswith(("WANDB_", "PYTHONWARNINGS"))
    }
    here = str(Path(__file__).resolve().parents[2])
    return kept | {
        "PYTHONPATH": os.pathsep.join(part for part in (here, kept.get("PYTHONPATH")) if part),
        "WANDB_SILENT": "true",
        "WANDB_ERROR_REPORTING": "false",
        "WANDB_DATA_DIR": str(folder / PLACE / "data"),  # where tables wait for their upload
        "WANDB_CACHE_DIR": str(spool / "cache"),
    }


def main(spool: Path) -> None:
    """In the other process: the run is told, and ``outcome.json`` says how that went."""
    job = json.loads((spool / JOB).read_bytes())
    signal.alarm(int(job.pop("seconds")) + 1)  # if nobody is left to end this process
    tracker = WandbTracker(Path(job.pop("folder")), **job)
    try:
        replay(spool / EVENTS, tracker)
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        write_json(spool / OUTCOME, {"reason": f"{type(error).__name__}: {lines[0]}"[:SHOWN]})
        tracker.close(1)
    else:
        write_json(spool / OUTCOME, {"reason": None})


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""Where a number was made: code version, library versions, device, and who else used the machine."""

from __future__ import annotations

import multiprocessing
import os
import platform
import subprocess
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

BUSY_LIMIT = 0.05
PACKAGES = (
    "ssd-bench",
    "torch",
    "transformers",
    "tokenizers",
    "safetensors",
    "numpy",
    "hydra-core",
    "datasets",
    "wandb",
)


def git_state(root: Path | None = None) -> dict[str, Any]:
    """``{"commit", "dirty"}`` of the checkout at ``root`` (default: the one this file is in).

    ``dirty`` is true when a tracked file differs or an unignored file is untracked, anywhere but
    under ``results/``. Both are None outside a checkout, ``commit`` is None before the first one.
    """
    root = Path(__file__).resolve().parents[2] if root is None else Path(root).resolve()
    top = _git(root, "rev-parse", "--show-toplevel")
    # An installed copy can lie inside somebody else's checkout, whose commit says nothing about it.
    if top is None or Path(top).resolve() != root:
        return {"commit": None, "dirty": None}
    changes = _git(root, "status", "--porcelain", "--", ".", ":(exclude)results")
    commit = _git(root, "rev-parse", "--verify", "--quiet", "HEAD")
    return {"commit": commit, "dirty": None if changes is None else bool(changes)}


def versions() -> dict[str, str | None]:
    """Version of Python and of every package in ``PACKAGES``, read without importing it; None if absent."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = None
    return found


def device(accelerator: str | None = None, threads: int | None = None) -> dict[str, Any]:
    """What the run had: CPU model, cores of the machine and usable by this process, memory in bytes.

    Args:
        accelerator: name of the accelerator, for callers that know one.
        threads: threads the numeric library was given.
    """
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "usable_cores": usable,
        "threads": threads,
        "memory_bytes": _memory_bytes(),
        "system": f"{platform.system()} {platform.machine()}",
        "accelerator": accelerator,
    }


def cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str | None:
    """Model name of the first processor, or what the platform calls it; None if neither is known."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next((name for name in names if name), platform.processor() or None)


def machine_cpu(stat: Path = Path("/proc/stat")) -> tuple[float, int] | None:
    """(seconds all processors together were busy since boot, number of processors).

    Time stolen by a hypervisor counts as busy: it is time this machine could not give us. None
    where the file does not exist.
    """
    try:
        lines = stat.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    names = [line.split()[0] for line in lines if line.startswith("cpu")]
    if not names or names[0] != "cpu":
        return None
    # user nice system idle iowait irq softirq steal guest guest_nice; user already holds guest.
    ticks = [int(field) for field in lines[0].split()[1:9]]
    busy = sum(ticks) - sum(ticks[3:5])
    return busy / os.sysconf("SC_CLK_TCK"), len(names) - 1


def own_cpu() -> float:
    """Seconds of CPU time of this process, of its workers, and of children that have ended and been waited for."""
    workers = sum(cpu_of(process.pid) for process in multiprocessing.active_children())
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system + workers


def cpu_of(pid: int | None) -> float:
    """Seconds of CPU time of a process that runs; 0 where that is not known."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return 0.0


class BusyMeter:
    """Share of the machine that others used between ``start`` and ``stop`` (or inside ``with``).

    Attributes:
        busy_elsewhere: (machine busy - own CPU) / (wall x processors), never negative; None before
            ``stop``, and where the machine's counters are absent or stand still.
        busy: ``busy_elsewhere`` is above ``BUSY_LIMIT``; None when that is None.
    """

    def __init__(
        self,
        machine: Callable[[], tuple[float, int] | None] = machine_cpu,
        own: Callable[[], float] = own_cpu,
        wall: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._machine, self._own, self._wall = machine, own, wall
        self._before: tuple[tuple[float, int] | None, float, float] | None = None
        self.busy_elsewhere: float | None = None

    @property
    def busy(self) -> bool | None:
        """Whether others used more of the machine than a timing run tolerates."""
        return None if self.busy_elsewhere is None else self.busy_elsewhere > BUSY_LIMIT

    def start(self) -> None:
        """Measuring begins now; an earlier result is forgotten."""
        self.busy_elsewhere = None
        self._before = (self._machine(), self._own(), self._wall())

    def stop(self) -> float | None:
        """``busy_elsewhere`` covers the time since ``start``, and is returned.

        Raises:
            ValueError: if ``start`` was never called.
        """
        if self._before is None:
            raise ValueError("busy meter: stop() without start()")
        (before, own_before, wall_before), after = self._before, self._machine()
        own, wall = self._own() - own_before, self._wall() - wall_before
        self.busy_elsewhere = None
        if before is not None and after is not None and wall > 0 and after[1] > 0:
            machine = after[0] - before[0]
            # Some sandboxes serve constant counters; then nothing is known about others. A tick
            # is 0.01 s, so shorter spells of our own may rightly leave no trace.
            if machine > 0 or own < 0.1:
                self.busy_elsewhere = max(0.0, machine - own) / (wall * after[1])
        return self.busy_elsewhere

    def __enter__(self) -> BusyMeter:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()


def _git(root: Path, *arguments: str) -> str | None:
    """Output of one git command in ``root``, or None if it failed or there is no git."""
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _memory_bytes() -> int | None:
    """Physical memory, where the system tells."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None

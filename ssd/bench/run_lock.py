"""One process at a time works on a run; the system drops the lock when a process ends, however it ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

LOCK_FILE = ".lock"


@contextmanager
def locked(folder: Path, waiting: Callable[[str], None] = lambda who: None) -> Iterator[None]:
    """The block runs while no other process holds the lock of ``folder``, which is created if need be.

    Args:
        folder: the run's own folder.
        waiting: called once with who holds the lock, if anybody does, before waiting for it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK_FILE).open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            waiting(file.read().strip() or "another process")
            fcntl.flock(file, fcntl.LOCK_EX)
        file.truncate(0)
        file.write(f"process {os.getpid()} of {os.uname().nodename}")
        file.flush()
        yield

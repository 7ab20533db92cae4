"""Cores and threads of a process, for a while."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import torch


def pin(cores: Sequence[int]) -> None:
    """This process runs on these cores, with one torch thread for each."""
    for thread in Path("/proc/self/task").iterdir():  # torch's own threads would keep the cores they had
        with suppress(ProcessLookupError):  # it ended meanwhile
            os.sched_setaffinity(int(thread.name), cores)
    torch.set_num_threads(len(cores))


@contextmanager
def pinned(cores: Sequence[int]) -> Iterator[None]:
    """``pin``, and afterwards as before; no cores: nothing is changed.

    Raises:
        ValueError: for cores that this process cannot have, or a system that pins none.
    """
    if not cores:
        yield
        return
    if not hasattr(os, "sched_setaffinity"):
        raise ValueError(f"cores: {list(cores)!r}; this system does not pin processes to cores")
    before, threads = sorted(os.sched_getaffinity(0)), torch.get_num_threads()
    try:
        with suppress(OSError):  # none of them is there, which the next line says
            pin(cores)
        if os.sched_getaffinity(0) != set(cores):
            raise ValueError(f"cores: {list(cores)!r} are not all among those that this process can have")
        yield
    finally:
        pin(before)
        torch.set_num_threads(threads)

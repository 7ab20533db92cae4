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
    """``pin``, and afterwards as before; no cores: nothing is changed."""
    if not cores:
        yield
        return
    before, threads = sorted(os.sched_getaffinity(0)), torch.get_num_threads()
    pin(cores)
    try:
        yield
    finally:
        pin(before)
        torch.set_num_threads(threads)

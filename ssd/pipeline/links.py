"""How a worker and the one below it exchange messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from queue import SimpleQueue
from typing import Any, Protocol

import torch
from torch import Tensor

from ssd.pipeline.messages import Failed, Reply, WorkerError


class Link(Protocol):
    """One end of a line between two workers."""

    def send(self, message: Any) -> None:
        """Hand a message over; does not wait for it to be read."""

    def receive(self) -> Any:
        """The next message, waited for.

        Raises:
            WorkerError: if the other end is gone.
        """

    def waiting(self) -> bool:
        """Whether a message can be received at once."""

    def close(self) -> None:
        """Let the other end know that nothing more will come."""


GONE = object()
"""Stands at the end of a closed queue."""


class QueueLink:
    """An end of a line between threads."""

    def __init__(self, outgoing: SimpleQueue[Any], incoming: SimpleQueue[Any]) -> None:
        self._out, self._in = outgoing, incoming

    def send(self, message: Any) -> None:
        """See ``Link``."""
        self._out.put(message)

    def receive(self) -> Any:
        """See ``Link``."""
        message = self._in.get()
        if message is GONE:
            self._in.put(GONE)  # for whoever tries again
            raise WorkerError("the other end: its worker ended")
        return message

    def waiting(self) -> bool:
        """See ``Link``."""
        return not self._in.empty()

    def close(self) -> None:
        """Nothing more will come from this end."""
        self._out.put(GONE)


def queue_links() -> tuple[QueueLink, QueueLink]:
    """Both ends of a line."""
    one: SimpleQueue[Any] = SimpleQueue()
    other: SimpleQueue[Any] = SimpleQueue()
    return QueueLink(one, other), QueueLink(other, one)


class PipeLink:
    """An end of a line between processes; laws of drafts pass through shared memory.

    The laws of one reply stay readable until the next is received: who asked has verified them by then.

    Args:
        watched: names of the levels of processes, by sentinel; one that ends is an error of its own.
    """

    def __init__(self, connection: Connection[Any, Any], watched: Mapping[int, str] | None = None) -> None:
        self._connection = connection
        self._watched = dict(watched or {})
        self._shared: Tensor | None = None  # written by this end
        self._theirs: Tensor | None = None  # written by the other end

    def __getstate__(self) -> dict[str, Any]:
        """For a process that is being started."""
        return {"_connection": self._connection, "_watched": {}, "_shared": None, "_theirs": None}

    def send(self, message: Any) -> None:
        """See ``Link``."""
        fresh, shape = None, None
        if isinstance(message, Reply) and message.probs is not None:
            fresh, shape = self._share(message.probs), message.probs.shape
            message = replace(message, probs=None)
        try:
            self._connection.send((message, fresh, shape))
        except OSError as error:
            raise WorkerError(f"{self._gone()}: its worker is gone") from error

    def _share(self, probs: Tensor) -> Tensor | None:
        """Write laws where the other end reads them; the shared memory itself if it is new to it."""
        fresh = None
        if self._shared is None or self._shared.dtype != probs.dtype or self._shared.numel() < probs.numel():
            self._shared = fresh = torch.empty(probs.numel(), dtype=probs.dtype).share_memory_()
        self._shared[: probs.numel()].view(probs.shape).copy_(probs)
        return fresh

    def receive(self) -> Any:
        """See ``Link``."""
        try:
            if self._watched and self._connection not in wait([self._connection, *self._watched]):
                raise EOFError
            message, fresh, shape = self._connection.recv()
        except (EOFError, OSError) as error:
            raise WorkerError(f"{self._gone()}: its worker died") from error
        if isinstance(message, Failed) and isinstance(message.error, WorkerError) and self._watched:
            raise WorkerError(f"{self._gone()}: its worker died") from message.error
        if fresh is not None:
            self._theirs = fresh
        if shape is not None:
            assert self._theirs is not None
            message = replace(message, probs=self._theirs[: shape.numel()].view(shape))
        return message

    def _gone(self) -> str:
        """Names of the levels whose process ended."""
        ended = wait(list(self._watched), timeout=1.0) if self._watched else []
        return ", ".join(self._watched[s] for s in ended if isinstance(s, int)) or "the other end"

    def waiting(self) -> bool:
        """See ``Link``."""
        try:
            return self._connection.poll()
        except (EOFError, OSError):
            return True  # so that ``receive`` tells what happened

    def close(self) -> None:
        """See ``Link``."""
        self._connection.close()

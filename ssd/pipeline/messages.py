"""What workers of a pipeline say to each other: plain data, but for the laws of a draft."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from ssd.core.clock import Interval
from ssd.core.requests import Request, Round


@dataclass(frozen=True)
class Begin:
    """A batch of requests is about to be decoded."""

    requests: tuple[Request, ...]


@dataclass(frozen=True)
class Ask:
    """A verifying level wants a draft.

    Attributes:
        start: per row, position of the draft's first token.
        limit: per row, most tokens it may have; 0: the row needs none.
        parent: per row, key of the block the verifying round belongs to.
        block: per row, tokens and rounds of the verifying level's block so far; ``None``: a target's, which
            goes on as long as there is room.
        text: per row, a position and the tokens from there up to ``start``; what is before is known.
        task: what the draft is for, see ``ssd.core.clock.Interval``.
    """

    start: list[int]
    limit: list[int]
    parent: list[int]
    block: list[tuple[int, int]] | None
    text: list[tuple[int, list[int]]]
    task: int = 0


@dataclass(frozen=True)
class Reply:
    """The draft.

    Attributes:
        tokens: per row.
        probs: [B, W, V] laws the tokens were drawn from; ``None`` if they are point masses.
        rounds: per row, the rounds of lower edges that made the draft.
        ready: per row, whether it had been made ahead, which it had not been either where the question came before
            anything was prepared; ``None``: it follows no draft that outcomes could have been prepared for.
    """

    tokens: list[list[int]]
    probs: Tensor | None
    rounds: list[list[Round]]
    ready: list[bool | None]


@dataclass(frozen=True)
class Finish:
    """The batch is done: tell what ran."""


@dataclass(frozen=True)
class Finished:
    """What ran on a worker and below it.

    Attributes:
        intervals: every pass.
        tasks: the attempt each attempt was made in the course of, for those whose work was used.
    """

    intervals: list[Interval] = field(default_factory=list)
    tasks: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Failed:
    """A worker cannot go on.

    Attributes:
        levels: names of its levels.
        error: the exception, if it can be sent, else ``None``.
        text: the exception in words.
    """

    levels: tuple[str, ...]
    error: Exception | None
    text: str


@dataclass(frozen=True)
class Stop:
    """The worker is no longer needed."""


class WorkerError(RuntimeError):
    """A worker of a pipeline died or failed; the message names its levels."""

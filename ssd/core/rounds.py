"""The log of rounds, and what can be told from it afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from torch import Tensor

from ssd.core.requests import Round
from ssd.core.verification import Draft, Emitted


class _Entry(NamedTuple):
    edge: int
    block_start: Tensor
    start: Tensor
    drafted: Tensor | None
    emitted: Emitted
    untested: Tensor | None


class RoundLog:
    """Keeps what each round did as the tensors it already had; read once, at the end."""

    def __init__(self) -> None:
        self._entries: list[_Entry | Sequence[Sequence[Round]]] = []

    def add(
        self,
        edge: int,
        block_start: Tensor,
        start: Tensor,
        draft: Draft | None,
        emitted: Emitted,
        untested: Tensor | None = None,
    ) -> None:
        """Note one round of all rows. Laws are not kept.

        ``untested`` [B] marks the rows whose draft was verified as a whole; ``None``: no row's was.
        """
        kept = replace(emitted, law=None)  # type: ignore[arg-type]
        count = None if draft is None else draft.count
        self._entries.append(_Entry(edge, block_start, start, count, kept, untested))

    def include(self, rounds: Sequence[Sequence[Round]]) -> None:
        """Note rounds of each row that were run elsewhere."""
        self._entries.append(rounds)

    def rounds(self, batch: int) -> list[list[Round]]:
        """Per row, its rounds in order of execution; rounds a row sat out are not its own."""
        out: list[list[Round]] = [[] for _ in range(batch)]
        for e in self._entries:
            if not isinstance(e, _Entry):
                for row, own in zip(out, e, strict=True):
                    row += own
                continue
            counts, accepted = e.emitted.count.tolist(), e.emitted.accepted.tolist()
            drafted = [0] * batch if e.drafted is None else e.drafted.tolist()
            starts, blocks = e.start.tolist(), e.block_start.tolist()
            overlap = None if e.emitted.overlap is None else e.emitted.overlap.tolist()
            whole = [False] * batch if e.untested is None else e.untested.tolist()
            for i in range(batch):
                if counts[i] == 0:
                    continue
                full = accepted[i] == drafted[i]
                end = "plain" if drafted[i] == 0 else "bonus" if full else "recovered"
                tested = None if whole[i] else accepted[i] + (not full)
                known = drafted[i] if tested is None else tested
                sums = () if overlap is None else tuple(overlap[i][:known])
                out[i].append(
                    Round(e.edge, blocks[i], starts[i], drafted[i], tested, accepted[i], counts[i], end, sums)
                )
        return out


def cut(rounds: Sequence[Round], top_edge: int, stop: int) -> tuple[Round, ...]:
    """Rounds of a row whose output ends before position ``stop``, the last target round shortened.

    Tokens after an end-of-text id or a stop string enter no counter of the target's edge.
    """
    out = list(rounds)
    last = max(i for i, r in enumerate(out) if r.edge == top_edge)
    r = out[last]
    kept = stop - r.start
    if kept < r.emitted:
        tested = None if r.tested is None else min(r.tested, kept)
        out[last] = replace(
            r,
            tested=tested,
            accepted=min(r.accepted, kept),
            emitted=kept,
            end="stopped",
            overlap=r.overlap[: kept if tested is None else tested],
        )
    return tuple(out)


def origins(rounds: Sequence[Round], levels: int, prompt: int, length: int) -> tuple[tuple[str | None, ...], ...]:
    """Fate of each output token at each level, replayed from the rounds (see ``Generation``).

    Level 0 computes its tokens one by one, so a token it emitted is ``plain`` there.
    """
    fates: list[dict[int, str | None]] = [{} for _ in range(levels)]
    for r in rounds:
        level = r.edge + 1
        for position in range(r.start, r.start + r.accepted):
            fates[level][position] = "draft"
            if level == 1:
                fates[0][position] = "plain"
        if r.end != "stopped":
            position = r.start + r.accepted
            fates[level][position] = r.end
            for lower in fates[:level]:
                lower[position] = None
    span = range(prompt, prompt + length)
    return tuple(tuple(level.get(p) for p in span) for level in fates)

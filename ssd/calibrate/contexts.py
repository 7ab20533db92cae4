"""Texts along which levels are compared: a prompt and what the target went on to say."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ssd.bench.json_files import dumps
from ssd.bench.turns import Turn
from ssd.core.chain import Chain
from ssd.core.generate import generate
from ssd.core.requests import Request, Sampling


@dataclass(frozen=True)
class Context:
    """One text of the target.

    Attributes:
        prompt_id: of the prompt; several texts of one prompt are drawn together wherever prompts are resampled.
        task: of the prompt.
        ids: prompt and continuation.
        new: tokens of the continuation, end of text included; every one of them is a position that counts.
    """

    prompt_id: str
    task: str
    ids: tuple[int, ...]
    new: int

    def __post_init__(self) -> None:
        if not 0 < self.new < len(self.ids):
            raise ValueError(f"context {self.prompt_id}: {self.new} new tokens of {len(self.ids)} ids")


def own_texts(
    target: Chain,
    turns: Sequence[Turn],
    sampling: Sampling,
    tokens: int,
    *,
    samples: int = 1,
    seed: int = 0,
    batch: int = 1,
    eos_ids: Sequence[int] = (),
) -> list[Context]:
    """Every turn continued ``samples`` times by ``target``, a chain of depth 0.

    Raises:
        ValueError: if ``target`` has a draft level.
    """
    if target.depth:
        raise ValueError(f"target: expected a chain of one level, got {len(target.levels)}")
    work = [
        (
            turn,
            Request(
                turn.ids,
                sampling,
                seed,
                request=turn.number,
                sample=sample,
                max_new_tokens=tokens,
                eos_ids=tuple(eos_ids),
            ),
        )
        for turn in turns
        for sample in range(samples)
    ]
    found = []
    for first in range(0, len(work), batch):
        group = work[first : first + batch]
        for (turn, request), out in zip(group, generate(target, [r for _, r in group]), strict=True):
            found.append(Context(turn.prompt_id, turn.task, (*request.ids, *out.ids), len(out.ids)))
    return found


def recorded_texts(records: Iterable[Mapping[str, Any]]) -> list[Context]:
    """The texts in the records of one method, which must be the target alone for them to be the target's."""
    return [
        Context(r["prompt_id"], r["task"], (*r["prompt_ids"], *r["output_ids"]), len(r["output_ids"]))
        for r in records
        if r["output_ids"]
    ]


def contexts_sha256(contexts: Sequence[Context]) -> str:
    """Hex digest of all ids, which identifies the texts in a record."""
    return hashlib.sha256(dumps([list(c.ids) for c in contexts]).encode()).hexdigest()

"""Every turn of a conversation as a prompt of its own, with the target's own replies in between.

The replies are those of greedy autoregressive decoding by the target alone, so that a later turn has the
same prompt ids for every method, whatever the methods of a run are and at whatever temperature they decode.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ssd.bench.json_files import read_json, write_json
from ssd.bench.prompts import Prompt, encode
from ssd.core.requests import Request, Sampling

if TYPE_CHECKING:  # torch is not needed to name turns
    from ssd.bench.methods import Method

REPLIES_FILE = "replies.json"
# Between the request numbers of two turns of one prompt: above any number of prompts, so that no number
# depends on how many prompts a run has.
STRIDE = 2**32


@dataclass(frozen=True)
class Turn:
    """One user message that a run has answered.

    Attributes:
        prompt_id: the prompt's id for its first turn, ``ID#2`` for the second of prompt ``ID``.
        task: the prompt's.
        ids: the conversation up to this message, ready for the reply.
        number: request number, distinct within a run; of first turns the prompt's place among the prompts.
    """

    prompt_id: str
    task: str
    ids: tuple[int, ...]
    number: int


def turn_ids(prompt: Prompt) -> list[str]:
    """``prompt_id`` of each turn of a prompt, in order."""
    return [prompt.id, *(f"{prompt.id}#{k}" for k in range(2, len(prompt.turns) + 1))]


def conversation_of(prompt_ids: Iterable[str]) -> dict[str, str]:
    """The id of the conversation each prompt id belongs to: its first turn's; intervals resample these together.

    ``X#3`` is a later turn only if X and X#2 are among the ids too, so that a data set may number its prompts so.
    """
    known = dict.fromkeys(prompt_ids)
    found: dict[str, str] = {}
    for name in sorted(known, key=len):  # a first turn before what may follow it
        match = re.fullmatch(r"(.+)#([2-9]|[1-9][0-9]{1,5})", name, re.DOTALL)
        before = [match[1], *(f"{match[1]}#{k}" for k in range(2, int(match[2])))] if match else []
        found[name] = found[before[0]] if before and all(turn in known for turn in before) else name
    return {name: found[name] for name in known}


def turn_references(prompt: Prompt) -> dict[str, str | None]:
    """The answer to score against by ``prompt_id`` of each turn; ``None`` for a turn without one."""
    later = list(prompt.extra.get("references") or ())[1:]
    given = [prompt.reference, *later, *([None] * len(prompt.turns))]
    return dict(zip(turn_ids(prompt), given, strict=False))


def conversations(
    prompts: Sequence[Prompt],
    target: Method,
    tokenizer: Any,
    max_new_tokens: int,
    *,
    eos_ids: Sequence[int] = (),
    stop: Sequence[str] = (),
    path: Path | None = None,
    progress: Callable[[str, int, int], None] = lambda name, done, total: None,
) -> list[Turn]:
    """Every turn of every prompt, in order.

    Args:
        prompts: those with one turn need no reply, and nothing is decoded for them.
        target: makes the replies, at temperature 0; autoregressive decoding of the target alone.
        tokenizer: the target's.
        max_new_tokens: length limit of a reply.
        eos_ids: any of these ends a reply.
        stop: strings that end a reply.
        path: replies by prompt id; those that stand there are used, new ones are added as they are made.
        progress: called before every reply that has to be made, and when all are there.

    Raises:
        ValueError: if two turns get the same id, or ``path`` does not hold replies.
    """
    names = [name for prompt in prompts for name in turn_ids(prompt)]
    if len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise ValueError(f"prompts: two turns have the prompt id {twice!r}")
    replies = _read(path)
    due = [(prompt, k) for prompt in prompts for k in range(len(replies.get(prompt.id, ())), len(prompt.turns) - 1)]
    for done, (prompt, k) in enumerate(due):
        progress("target's replies", done, len(due))
        said = replies.setdefault(prompt.id, [])
        context = tuple(encode(prompt, tokenizer, said[:k]))
        request = Request(
            context, Sampling(0.0), max_new_tokens=max_new_tokens, eos_ids=tuple(eos_ids), stop=tuple(stop)
        )
        (reply,) = target.generate([request])
        said.append(tokenizer.decode(reply.ids, skip_special_tokens=True))
        if path is not None:
            write_json(path, replies)
    if due:
        progress("target's replies", len(due), len(due))
    return [
        Turn(name, prompt.task, tuple(encode(prompt, tokenizer, replies.get(prompt.id, [])[:k])), i + k * STRIDE)
        for i, prompt in enumerate(prompts)
        for k, name in enumerate(turn_ids(prompt))
    ]


def _read(path: Path | None) -> dict[str, list[str]]:
    """The replies that ``path`` holds; none where there is no file."""
    if path is None or not path.exists():
        return {}
    replies = read_json(path)
    for name, said in replies.items():
        if not isinstance(said, list) or not all(isinstance(reply, str) for reply in said):
            raise ValueError(f"{path}: {name}: expected a list of replies, got {said!r}")
    return replies

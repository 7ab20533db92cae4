"""Prompts as the suite sees them, and the sixty that ship with it. No torch, no transformers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

TASKS = ("translation", "summarization", "question_answering", "math", "code", "long_form")
SPLITS = ("tune", "measure", "extended")


@dataclass(frozen=True)
class Prompt:
    """One conversation to start.

    Attributes:
        id: unique within its set.
        task: what is asked for; one of ``TASKS`` in the bundled set.
        split: the part of the set it belongs to; one of ``SPLITS`` in the bundled set.
        turns: the user's messages in order, at least one.
        reference: an answer to score against; ``None`` where no single answer is right.
        extra: what else the set says about it (unit tests, category, references of later turns);
            empty in the bundled set.
    """

    id: str
    task: str
    split: str
    turns: tuple[str, ...]
    reference: str | None
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if isinstance(self.turns, str):
            raise ValueError(f"prompt.turns: {self.id} has the string {self.turns!r} instead of a sequence")
        object.__setattr__(self, "turns", tuple(self.turns))
        if not self.turns or not all(self.turns):
            raise ValueError(f"prompt.turns: {self.id} has no turn or an empty one, {self.turns!r}")


def bundled(split: str | None = None, tasks: Sequence[str] | None = None, limit: int | None = None) -> list[Prompt]:
    """The bundled prompts of a selection, always in the same order.

    Tasks take turns, so the first n of any split or of the whole set, n a multiple of the number
    of tasks selected, hold every one of these tasks equally often. The whole set is ``tune``, then
    ``measure``, then ``extended``.

    Args:
        split: one of ``SPLITS``; ``None`` takes all.
        tasks: some of ``TASKS``, in any order; ``None`` takes all.
        limit: return the first ``limit`` of the selection; ``None`` returns all of it.

    Raises:
        ValueError: for an unknown split or task, an empty ``tasks``, or a ``limit`` that is not an
            integer between 1 and the size of the selection.
    """
    if split is not None and split not in SPLITS:
        raise ValueError(f"prompts.split: {split!r} is not one of {', '.join(SPLITS)}")
    if isinstance(tasks, str) or (tasks is not None and not tasks):
        raise ValueError(f"prompts.tasks: expected a sequence of {', '.join(TASKS)}; got {tasks!r}")
    for task in tasks or ():
        if task not in TASKS:
            raise ValueError(f"prompts.tasks: {task!r} is not one of {', '.join(TASKS)}")
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise ValueError(f"prompts.limit: expected an integer >= 1, got {limit!r}")
    chosen = [
        prompt
        for prompt in _read()
        if (split is None or prompt.split == split) and (tasks is None or prompt.task in tasks)
    ]
    if limit is not None and limit > len(chosen):
        raise ValueError(
            f"prompts.limit: {limit} exceeds the {len(chosen)} prompts of split {split or 'any'!r}, "
            f"tasks {', '.join(tasks or TASKS)}"
        )
    return chosen[:limit]


def data_sha256() -> str:
    """Hex digest of the bundled file, which identifies the prompt set in a record."""
    return hashlib.sha256(_data()).hexdigest()


def encode(prompt: Prompt, tokenizer: Any, replies: Sequence[str] = (), *, template: bool = True) -> list[int]:
    """Token ids of the conversation so far: turns and replies in alternation, the next reply due.

    The chat template is applied once, to the whole conversation, and supplies every special token.

    Args:
        prompt: its first turn is used, and one more for each reply.
        tokenizer: a transformers tokenizer.
        replies: to the first turns, in order.
        template: ``False`` tokenises the bare text instead, as for a base model; the tokenizer then
            adds whatever special tokens it adds to any text.

    Raises:
        ValueError: if ``template`` is true and the tokenizer has no chat template; if it is false and there
            are replies; if no turn is left after them.
    """
    if isinstance(replies, str) or len(replies) >= len(prompt.turns):
        raise ValueError(f"replies: {replies!r} leave none of the {len(prompt.turns)} turns of prompt {prompt.id!r}")
    if not template:
        if replies:
            raise ValueError(f"template: prompt {prompt.id!r} has replies, which bare text cannot tell from turns")
        return list(tokenizer(prompt.turns[0])["input_ids"])
    if not getattr(tokenizer, "chat_template", None):
        name = getattr(tokenizer, "name_or_path", "") or type(tokenizer).__name__
        raise ValueError(
            f"tokenizer.chat_template: {name!r} has none; pass template=False to tokenise "
            f"the bare text of prompt {prompt.id!r}"
        )
    messages = [{"role": "user", "content": prompt.turns[0]}]
    for reply, turn in zip(replies, prompt.turns[1:], strict=False):
        messages += [{"role": "assistant", "content": reply}, {"role": "user", "content": turn}]
    # Rendering and tokenising in one call is what keeps special tokens single: the template writes
    # them and tokenisation then adds none. return_dict must be given, as its default is a mapping.
    ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=False)
    return list(ids)


def _data() -> bytes:
    """The bundled file as it is stored."""
    return files("ssd.bench").joinpath("data/prompts.jsonl").read_bytes()


def _read() -> list[Prompt]:
    """Every bundled prompt in the order of the file, which is the interleaved one."""
    # Not str.splitlines: it also breaks at separators such as U+2028 that JSON allows in a string.
    rows = [json.loads(line) for line in _data().decode("utf-8").split("\n") if line.strip()]
    return [Prompt(row["id"], row["task"], row["split"], (row["text"],), row["reference"]) for row in rows]

"""A worker's view of the one below it: drafts are asked for, and the text they continue is kept up to date."""

from __future__ import annotations

import pickle
from dataclasses import replace

import torch
from torch import Tensor

from ssd.core.decode import Decoder
from ssd.core.verification import Draft
from ssd.core.windows import Block
from ssd.pipeline.group_decoder import shared_length
from ssd.pipeline.links import Link
from ssd.pipeline.messages import Ask, Begin, Failed, Finish, Finished, Reply, WorkerError


class Remote:
    """Drafts of one batch from the worker at the other end of a link."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self._known = torch.empty(0, 0, dtype=torch.int64)
        self._length: list[int] = []

    def begin(self, decoder: Decoder) -> None:
        """The other worker prepares for the rows of ``decoder``."""
        # Stop strings concern the output, and the tokenizer they need stays here.
        try:
            self.link.send(Begin(tuple(replace(r, stop=()) for r in decoder.requests)))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            index = next((i for i, r in enumerate(decoder.requests) if r.processors), 0)
            raise ValueError(
                f"requests[{index}].processors: cannot be sent to a worker process ({error}); a function of a module "
                f"can, and workers of kind 'thread' are sent nothing"
            ) from error
        self._known = torch.full_like(decoder.text, -1)
        self._length = [0] * len(decoder.requests)

    def draft(
        self, decoder: Decoder, k: int, start: Tensor, limit: Tensor, parent: Tensor, block: Block | None
    ) -> Draft:
        """A draft for level k's round at ``start`` [B], at most ``limit`` [B] tokens a row; it stands in the text."""
        limits = limit.tolist()
        if not any(limits):
            return Draft(decoder.text[:, :0], None, torch.zeros_like(start))
        starts = start.tolist()
        done = None if block is None else list(zip(block.count.tolist(), block.rounds.tolist(), strict=True))
        text = [self._news(decoder.text, i, n) if limits[i] else (0, []) for i, n in enumerate(starts)]
        self.link.send(Ask(starts, limits, parent.tolist(), done, text, decoder.clock.task))
        reply = self._answer()
        decoder.clock.note_ahead(k, reply.ready.count(True), reply.ready.count(False))
        decoder.log.include(reply.rounds)
        width = max(map(len, reply.tokens))
        rows = [tokens + [0] * (width - len(tokens)) for tokens in reply.tokens]
        tokens = torch.tensor(rows, dtype=torch.int64, device=decoder.home).reshape(len(rows), width)
        decoder._write(start, tokens)
        count = torch.tensor([len(tokens) for tokens in reply.tokens], device=decoder.home)
        return Draft(tokens, None if reply.probs is None else here(reply.probs, decoder.home), count)

    def _news(self, text: Tensor, row: int, length: int) -> tuple[int, list[int]]:
        """Where a row's text departs from what the other worker knows of it, and the tokens from there on."""
        known = min(self._length[row], length)
        at = shared_length(text[row, :known], self._known[row, :known])
        self._known[row, at:length] = text[row, at:length]
        self._length[row] = length
        return at, text[row, at:length].tolist()

    def _answer(self) -> Reply:
        reply = self.link.receive()
        if isinstance(reply, Failed):
            raise reply.error or WorkerError(f"{', '.join(reply.levels)}: {reply.text}")
        assert isinstance(reply, Reply)
        return reply

    def finish(self) -> Finished:
        """What ran at the other end, which is free for another batch.

        Raises:
            WorkerError: if that worker, or one below it, is gone.
        """
        self.link.send(Finish())
        failed = None
        while True:
            try:
                told = self.link.receive()
            except WorkerError as gone:
                raise gone if failed is None else WorkerError(f"{', '.join(failed.levels)}: {failed.text}") from gone
            if isinstance(told, Finished):
                return told
            if isinstance(told, Failed):  # anything else is a draft that nobody waits for any more
                failed = told
                if isinstance(told.error, WorkerError):
                    raise told.error


def here(probs: Tensor, home: torch.device) -> Tensor:
    """Laws on this worker's device; their memory is not given to others before its stream has read them."""
    if probs.device.type == "cuda":
        probs.record_stream(torch.cuda.current_stream(probs.device))
    return probs.to(home)

"""Whole target rounds on the device: drafting by all levels, verification, residual and writing, nothing read back.

With the window ``rounds`` a target round has static control flow: the same passes of the same widths every time. What
differs (how many tokens passed, where a row stands) are numbers on the device. So a round is one CUDA graph per slot
bucket; elsewhere the same code runs as it stands. Tokens are those of ``ssd.core.generate``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol, cast

import torch
from torch import Tensor

from ssd.core import randomness as rng
from ssd.core.chain import Chain
from ssd.core.decode import CHUNK, AcceptU, Decoder, DrawU, span
from ssd.core.requests import Request, Round
from ssd.core.sampling import Law, draw, law
from ssd.core.verification import Draft, Emitted, translate
from ssd.runtime.buckets import bucket_of, rounded
from ssd.runtime.compiled import PLAIN, compiled_hashes
from ssd.runtime.imposed import Imposition, Rates
from ssd.runtime.round_history import Fact, RoundHistory
from ssd.runtime.static_chain import check_chain, check_requests, longest_block, slack


class StaticScorer(Protocol):
    """A level whose passes read no value on the host (``ssd.runtime.static``)."""

    def score_static(self, tokens: Tensor, start: Tensor, bucket: int) -> Tensor:
        """Write tokens [B, T] at ``start`` [B]; logits [B, T, V] over the first ``bucket`` slots."""


class DeviceRounds(Decoder):
    """A batch that advances by whole target rounds without waiting for the device.

    Rows run to their ``max_new_tokens`` and then stand still while others go on.

    Attributes:
        length: [B] tokens of each row, prompt included, on the device.
        block: tokens that a target round drafts at most.
        reads: how often the host has waited to learn how long rows are.

    Args:
        chain: levels with ``score_static`` on one device; ``rounds`` on every edge but the lowest.
        requests: of fixed length, without processors.
        rates: per edge, imposed acceptance (``ssd.runtime.imposed``); ``None``: the real rule.
        widths: tokens a pass may have; a pass feeds committed tokens again until its width is one of them, so that
            few shapes are compiled. Wider passes, and all without ``widths``, are as narrow as they can be.

    Raises:
        ValueError: naming the level, edge or request that cannot run this way.
    """

    def __init__(
        self,
        chain: Chain,
        requests: Sequence[Request],
        rates: Sequence[Rates] | None = None,
        widths: Sequence[int] = (),
    ) -> None:
        check_chain(chain)
        check_requests(requests)
        self.block = longest_block(chain)
        self.widths = tuple(sorted(widths))
        extra = slack(chain, widths)
        super().__init__(chain, [replace(r, max_new_tokens=r.max_new_tokens + extra) for r in requests])
        if self.processors.active:
            raise ValueError("requests: penalties and other processors read the text on the host")
        for k, limit in enumerate(self.limits):
            if limit < self.limits[self.top]:
                raise ValueError(f"{chain.names[k]}.max_positions: {limit} are fewer than the target is fed")
        self.imposition = None if rates is None else Imposition(rates, chain, self.text)
        self.synthetic = rates is not None
        self.random = self.random or self.synthetic
        self._hashes, self._numbers = PLAIN, list[Any](range(self.top + 1))
        if is_compiled(chain):
            self._hashes, self._numbers = compiled_hashes(), [torch.tensor(k, device=self.home) for k in self._numbers]
        self.reads = 0
        self.length = self.prompt.clone()
        self._end = self.prompt + torch.tensor([r.max_new_tokens for r in requests], device=self.home)
        self._history = RoundHistory(max(r.max_new_tokens for r in requests), self.home)
        self._facts: list[Fact] = []
        self._sound = torch.ones((), dtype=torch.bool, device=self.home)
        self._most = max(len(r.ids) for r in requests)  # no row is longer
        self._limit = max(len(r.ids) + r.max_new_tokens for r in requests) + self.block
        self._bucket = 0
        self._recorded: dict[int, Any] = {}
        self._fill()

    @torch.inference_mode()
    def _fill(self) -> None:
        """Every level knows the prompts but for their last tokens."""
        known = self._most - 1  # shorter rows are fed what lies behind them, and again later
        for k in range(self.top + 1):
            for offset in range(0, known, CHUNK):
                self._pass(k, torch.full_like(self.prompt, offset), min(CHUNK, known - offset), keep=0)

    @torch.inference_mode()
    def advance(self, rounds: int = 1) -> None:
        """Queue ``rounds`` target rounds; the host waits only when rows may have outgrown the slot bucket.

        Raises:
            RuntimeError: another generation took over a level's cache.
        """
        for k in range(self.top + 1):
            if self.chain.scorer(k).owner is not self:
                raise RuntimeError(f"{self.chain.names[k]}: its cache was taken over by another generation meanwhile")
        for _ in range(rounds):
            bucket = self._next_bucket()
            if self.home.type != "cuda":
                self._target_round(bucket)
                continue
            if bucket not in self._recorded:
                self._recorded[bucket] = self._record(bucket)
            self._recorded[bucket].replay()

    def _next_bucket(self) -> int:
        """Slots the next round reads."""
        if self._reach() > self._bucket:
            if self._bucket:
                self.reads += 1
                self._most = int(self.length.max())
            self._bucket = bucket_of(self._reach(), rounded(min(self.limits)))
        self._most = min(self._most + self.block + 1, self._limit)
        return self._bucket

    def _reach(self) -> int:
        """Slots that are enough for the next round."""
        return max(self._most + self.block + 1, self.top + self.block + 2, *self.widths)

    def _record(self, bucket: int) -> Any:
        """A graph of one round; rows stand where they stood."""
        state = [self.length, self._history.turn, self._sound]
        before = [x.clone() for x in state]
        side = torch.cuda.Stream(self.home)
        side.wait_stream(torch.cuda.current_stream(self.home))
        with torch.cuda.device(self.home), torch.cuda.stream(side):
            for _ in range(2):  # kernels are chosen and compiled, libraries take their workspaces
                self._target_round(bucket)
        torch.cuda.current_stream(self.home).wait_stream(side)
        for x, was in zip(state, before, strict=True):
            x.copy_(was)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(self.home), torch.cuda.graph(graph, stream=side):
            self._target_round(bucket)
        return graph

    def _target_round(self, bucket: int) -> None:
        """One round of the target, in every row that has not reached its end."""
        going = self.length < self._end
        self._facts = []
        emitted = self._static_round(self.top, self.length.clone(), self.root, self.top, bucket, self.prompt, going)
        self.length.add_(torch.where(going, emitted.count, 0))
        self._history.keep(self._facts, going)

    def _static_round(
        self, k: int, start: Tensor, parent: Tensor, before: int, bucket: int, block_start: Tensor, going: Tensor
    ) -> Emitted:
        """A round of level k at ``start`` [B]; the round before it, on any edge, was one of level ``before``."""
        key = self._hashes.round_key(parent, start) if self.random else parent
        draft = self._block(k - 1, start, key, before, bucket, going) if k > 0 else None
        rows = self._laws(k, start, draft, before, bucket, going)
        emitted = self._emit(k, start, key, draft, rows)
        # A law that is not finite draws an id that no level can embed; ``outputs`` tells of it.
        self._write(start, emitted.tokens.clamp(max=self.chain.vocab_size - 1))
        if k > 0 or self.top == 0:
            drafted = torch.zeros_like(start) if draft is None else draft.count
            self._facts.append(
                Fact(k - 1, block_start, start, drafted, emitted.accepted, emitted.count, emitted.overlap)
            )
        return emitted

    def _block(self, k: int, start: Tensor, key: Tensor, before: int, bucket: int, going: Tensor) -> Draft:
        """``gamma`` rounds of level k from ``start`` [B] on."""
        count = torch.zeros_like(start)
        laws: list[tuple[Tensor, Tensor]] = []
        for i in range(self.chain.edges[k].gamma):
            emitted = self._static_round(k, start + count, key, k if i else before, bucket, start, going)
            if emitted.law.probs is not None:
                laws.append((count, emitted.law.probs))
            count = count + emitted.count
        width = longest_block(self.chain, k + 1)
        return Draft(self.text.gather(1, span(start, width)), laid_out(laws, width), count)

    def _laws(self, k: int, start: Tensor, draft: Draft | None, before: int, bucket: int, going: Tensor) -> Law:
        """Level k's laws [B, W + 1, ...] at positions start .. start + W.

        After a round of level ``before`` level k lacks at most before - k + 1 tokens: one that each level above it, up
        to that one, may have added behind an accepted block, and the last. Feeding more again changes nothing.
        """
        width = 0 if draft is None else draft.tokens.shape[1]
        fed = before - k + 1 + width
        fed = next((w for w in self.widths if w >= fed), fed)
        begin = (start + width - fed).clamp(min=0)
        model = self.chain.scorer(k)
        tokens = self.text.gather(1, span(begin, fed))
        if model.embeddings < self.chain.scorer(self.top).embeddings:
            tokens = tokens.masked_fill(tokens >= model.embeddings, 0)
        logits = cast(StaticScorer, model).score_static(tokens, begin, bucket)
        index = (start - 1 - begin)[:, None] + torch.arange(width + 1, device=self.home)
        logits = self._own_outputs(k, logits[torch.arange(len(start), device=self.home)[:, None], index])
        rows = law(logits, self.settings[k])
        assert rows.finite is not None
        last = torch.zeros_like(start) if draft is None else draft.count
        beyond = torch.arange(width + 1, device=self.home) > last[:, None]
        self._sound.logical_and_((rows.finite | beyond | ~going[:, None]).all())
        return rows

    def _emit(self, k: int, start: Tensor, key: Tensor, draft: Draft | None, rows: Law) -> Emitted:
        """As the decoder's, with hashes that may be compiled."""

        def draw_u(accepted: Tensor) -> Tensor:
            return self._hashes.uniform(key, self._numbers[k], rng.DRAW, start + accepted)

        def accept_u(width: int) -> Tensor:
            return self._hashes.uniform(key[:, None], self._numbers[k], rng.ACCEPT, span(start, width))

        if draft is None:
            none = torch.zeros_like(start)
            own = rows.argmax[:, 0] if rows.probs is None else draw(rows.probs[:, 0], draw_u(none))
            emitted = Emitted(translate(own, self.to_target[k])[:, None], none + 1, none, none == 0, rows, None)
        else:
            emitted = self._verify(k, start, draft, rows, accept_u, draw_u)
        if self.imposition is not None:
            self.imposition.note(k, start, draft, emitted)
        return emitted

    def _verify(self, k: int, start: Tensor, draft: Draft, rows: Law, accept_u: AcceptU, draw_u: DrawU) -> Emitted:
        if self.imposition is None:
            return super()._verify(k, start, draft, rows, accept_u, draw_u)
        return self.imposition.verify(self.ids[k - 1], k, start, draft, rows, accept_u, draw_u)

    @torch.inference_mode()
    def restart(self, sample: int) -> None:
        """Every row stands at its prompt again, with the randomness of another repeat; graphs are kept."""
        rows = enumerate(self.requests)
        keys = [(r.seed, i if r.request is None else r.request, sample) for i, r in rows]
        self.root.copy_(rng.root(keys, self.home))
        self.length.copy_(self.prompt)
        self._history.turn.zero_()
        self._most = max(len(r.ids) for r in self.requests)

    def is_done(self) -> bool:
        """Whether every row has reached its end; waits for the device."""
        self.reads += 1
        return not bool((self.length < self._end).any())

    def outputs(self) -> list[tuple[int, ...]]:
        """New tokens of each row so far, at most what it asked for; waits for the device.

        Raises:
            FloatingPointError: a level's logits were not finite somewhere.
        """
        self.reads += 1
        if not bool(self._sound):
            raise FloatingPointError(f"{' → '.join(self.chain.names)}: logits of one of these levels are not finite")
        ends = torch.minimum(self.length, self._end).tolist()
        text = self.text.tolist()
        return [tuple(text[i][len(r.ids) : ends[i]]) for i, r in enumerate(self.requests)]

    def history(self) -> list[list[Round]]:
        """Per row, its rounds so far in order of execution, the last ones uncut; waits for the device."""
        self.reads += 1
        return self._history.rounds(len(self.requests), self._whole)

    def _whole(self, edge: int) -> Tensor | None:
        """Rows [B], on the CPU, whose drafts on an edge are verified as a whole."""
        untested = self._untested(edge + 1)
        return None if untested is None else untested.cpu()


def is_compiled(chain: Chain) -> bool:
    """Whether the target's passes go through torch's compiler."""
    return getattr(chain.scorer(chain.depth), "runtime", None) == "compiled"


def laid_out(laws: Sequence[tuple[Tensor, Tensor]], width: int) -> Tensor | None:
    """Laws [B, width, V] of a block from (tokens before the round [B], rows [B, T, V]) of its rounds.

    Later rounds overwrite the surplus rows of earlier ones: ``ssd.core.decode.assemble`` with places on the device.
    """
    if not laws:
        return None
    widest = max(rows.shape[1] for _, rows in laws)
    batch, _, vocab = laws[0][1].shape
    out = laws[0][1].new_zeros(batch, width + widest, vocab)
    each = torch.arange(batch, device=out.device)[:, None]
    for before, rows in laws:
        out[each, span(before, rows.shape[1])] = rows
    return out[:, :width]

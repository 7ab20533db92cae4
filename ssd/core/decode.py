"""The one decoder: a chain of any depth, any number of rows.

``propose(k)``: until the window says done, take a block from ``propose(k - 1)``, score it with
level k in one pass, verify, and append what was emitted. Generating is proposing at the top.
Autoregressive decoding is depth 0, standard speculative decoding depth 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import takewhile

import torch
from torch import Tensor

from ssd.core import randomness as rng
from ssd.core.block_verification import verify_by_block
from ssd.core.chain import Chain
from ssd.core.clock import PassClock
from ssd.core.ngram import Ngram
from ssd.core.processors import Processors
from ssd.core.requests import Request
from ssd.core.rounds import RoundLog
from ssd.core.sampling import Law, LevelSampling, draw, law
from ssd.core.verification import Draft, Emitted, translate, verify_by_token
from ssd.core.windows import Block, done, longest

CHUNK = 512  # prompt tokens a pass; bounds the memory of its mask
AcceptU = Callable[[int], Tensor]  # uniforms of the tests, see ``ssd.core.verification``
DrawU = Callable[[Tensor], Tensor]  # of the added token


class Decoder:
    """The state of one batch, and the rounds that advance it.

    Attributes:
        text: [B, N] prompt and everything emitted so far, tentative tokens included: a level writes
            where its block stands, the level above overwrites from the first position it changes.
        valid: per level [B], leading slots whose keys and values agree with ``text``.
        log: rounds of every edge in order of execution.
        ahead: per edge, rounds whose draft had, and had not, been made ahead, once a pipelined batch is done.
        barren: (row, position) of emitted tokens that the request's processors had forbidden with all others.
        synthetic: what it emits is marked so in results.
    """

    synthetic = False

    def __init__(self, chain: Chain, requests: Sequence[Request], clock: PassClock | None = None) -> None:
        for i, r in enumerate(requests):
            chain.check_request(i, r)
        self.chain, self.requests, self.top = chain, requests, chain.depth
        self.home = chain.scorer(self.top).device  # laws, tokens and decisions live with the target
        levels = range(len(chain.levels))
        size = max(len(r.ids) + r.max_new_tokens for r in requests)
        # A ragged round writes as many tokens in every row as in the longest; what lies beyond a
        # row's own length is never read, but it needs a place.
        self.text = torch.zeros(len(requests), 2 * size, dtype=torch.int64, device=self.home)
        for i, r in enumerate(requests):
            self.text[i, : len(r.ids)] = torch.tensor(r.ids)
        self.prompt = torch.tensor([len(r.ids) for r in requests], device=self.home)
        identity = [(r.seed, i if r.request is None else r.request, r.sample) for i, r in enumerate(requests)]
        self.root = rng.root(identity, self.home)
        self.settings = [self._settings(k) for k in levels]
        self.processors = Processors(requests, chain.vocab_size, self.home)
        self.barren: list[tuple[int, int]] = []
        self.random = not self.settings[self.top].all_greedy
        self.ids = [chain.edge_ids(k, self.home) for k in range(self.top)]
        self.to_target = [None if x is None else x.to(self.home) for x in map(chain.output_ids, levels)]
        self.order = [None if x is None else x.to(self.home) for x in map(chain.output_order, levels)]
        self.valid = [torch.zeros_like(self.prompt) for _ in levels]
        self.limits = [self._allocate(k, size) for k in levels]
        self.log = RoundLog()
        self.ahead: tuple[tuple[int, int], ...] = ()
        self.clock = clock or PassClock(chain.devices)

    def _settings(self, k: int) -> LevelSampling:
        rows = [
            r.sampling if k == self.top else r.sampling.overridden_by(self.chain.levels[k].sampling)
            for r in self.requests
        ]
        confidence = k < self.top and self.chain.edges[k].window == "confidence"
        return LevelSampling(rows, self.home, confidence)

    def _allocate(self, k: int, size: int) -> int:
        """Give level k its slots; the number of positions it may be fed."""
        if self.chain.levels[k].is_ngram:
            return size
        model = self.chain.scorer(k)
        slots = size if model.max_positions is None else min(size, model.max_positions)
        model.allocate(len(self.requests), slots)
        model.owner = self
        return slots

    def propose(self, k: int, start: Tensor, limit: Tensor, key: Tensor) -> Draft:
        """A block of level k's own law from ``start`` [B] on, at most ``limit`` [B] tokens a row."""
        if self.chain.levels[k].is_ngram:
            return self._look_up(start, limit)
        edge = self.chain.edges[k]
        # Position p is predicted by feeding p - 1, so a level can emit up to and including its limit.
        limit = torch.minimum(longest(edge.window, edge.gamma, limit), self.limits[k] + 1 - start)
        block = Block.empty(len(self.requests), self.home)
        laws: list[tuple[Tensor, Tensor]] = []
        best: list[tuple[Tensor, Tensor]] = []
        while True:
            going = (block.count < limit) & ~done(edge.window, edge.gamma, edge.window_value, block)
            if not going.any():
                break
            room = torch.where(going, limit - block.count, 0)
            emitted = self.round(k, start + block.count, room, key, start, block)
            if emitted.law.probs is not None:
                laws.append((block.count, emitted.law.probs))
            if emitted.law.best is not None:
                best.append((block.count, emitted.law.best))
            advance(block, emitted, going)
        width = int(block.count.max())
        tokens = self.text.gather(1, span(start, width))
        return Draft(tokens, assemble(laws, width), block.count, assemble(best, width))

    def _look_up(self, start: Tensor, limit: Tensor) -> Draft:
        ngram, gamma = self.chain.levels[0].model, self.chain.edges[0].gamma
        assert isinstance(ngram, Ngram)
        text = self.text.tolist()
        most = limit.clamp(max=gamma).tolist()
        found = [ngram.look_up(text[i][:n], most[i]) for i, n in enumerate(start.tolist())]
        # A prompt may hold ids that the target embeds and never emits; a draft ends before the first.
        found = [list(takewhile(lambda token: token < self.chain.vocab_size, f)) for f in found]
        width = max(len(f) for f in found)
        tokens = torch.tensor([f + [0] * (width - len(f)) for f in found], dtype=torch.int64, device=self.home)
        if width:
            self._write(start, tokens)
        return Draft(tokens, None, torch.tensor([len(f) for f in found], device=self.home))

    def round(
        self, k: int, start: Tensor, room: Tensor, parent: Tensor, block_start: Tensor, block: Block | None = None
    ) -> Emitted:
        """One draft and one verification by level k at ``start`` [B], for the round whose key is ``parent``.

        Emits at most ``room`` [B] tokens a row; rows with room 0 ride along and emit nothing. On
        return ``text`` holds the emitted tokens and ``valid`` of levels 0..k says which slots agree.
        ``block`` is what level k's block has come to; ``None`` at the top, which has no end but its room.
        """
        key = rng.round_key(parent, start) if self.random else parent
        draft = self.draft(k, start, room, key, parent, block) if k > 0 else None
        if draft is not None and draft.tokens.shape[1] == 0:
            draft = None
        emitted = self._emit(k, start, key, draft, self._score(k, start, draft, room))
        emitted = replace(emitted, count=torch.where(room > 0, emitted.count, 0))
        self._write(start, emitted.tokens)
        kept = start + emitted.accepted
        if k == self.top and self.processors.barren:
            self.barren += [(row, at) for row, at in self.processors.barren if at <= int(kept[row])]
        for j in range(k + 1):
            self.valid[j] = torch.minimum(self.valid[j], kept)
        if k > 0 or self.top == 0:
            self.log.add(k - 1, block_start, start, draft, emitted, self._untested(k))
        return emitted

    def draft(self, k: int, start: Tensor, room: Tensor, key: Tensor, parent: Tensor, block: Block | None) -> Draft:
        """What the level below hands to level k's round; arguments as in ``round``, ``key`` is the round's own."""
        return self.propose(k - 1, start, (room - 1).clamp(min=0), key)

    def _untested(self, k: int) -> Tensor | None:
        """Rows [B] whose drafts level k verifies as a whole; between point masses both rules test each token."""
        if k == 0 or self.chain.edges[k - 1].verification == "token":
            return None
        return ~self.settings[k].greedy[:, 0, 0]

    def _emit(self, k: int, start: Tensor, key: Tensor, draft: Draft | None, rows: Law) -> Emitted:
        """Verify a draft against level k's rows, or draw a plain token when there is none."""

        def draw_u(accepted: Tensor) -> Tensor:
            return rng.uniform(key, k, rng.DRAW, start + accepted)

        def accept_u(width: int) -> Tensor:
            return rng.uniform(key[:, None], k, rng.ACCEPT, span(start, width))

        if draft is not None:
            return self._verify(k, start, draft, rows, accept_u, draw_u)
        none = torch.zeros_like(start)
        own = rows.argmax[:, 0] if rows.probs is None else draw(rows.probs[:, 0], draw_u(none))
        token = translate(own, self.to_target[k])
        return Emitted(token[:, None], none + 1, none, none == 0, rows, None)

    def _verify(self, k: int, start: Tensor, draft: Draft, rows: Law, accept_u: AcceptU, draw_u: DrawU) -> Emitted:
        """Apply the rule of the edge below level k."""
        verify = verify_by_block if self.chain.edges[k - 1].verification == "block" else verify_by_token
        return verify(draft, rows, self.ids[k - 1], accept_u, draw_u)

    def _score(self, k: int, start: Tensor, draft: Draft | None, room: Tensor) -> Law:
        """Level k's laws [B, W + 1, ...] at positions start .. start + W, in as narrow a pass as it can."""
        width = 0 if draft is None else draft.tokens.shape[1]
        end = start if draft is None else start + draft.count
        end = end.clamp(max=self.limits[k])  # binds only for rows this level has nothing to say about
        behind = torch.minimum(self.valid[k], torch.minimum(start, end) - 1)
        reach = int((end - behind).max())
        ragged = len(self.requests) > 1 and int(end.min()) < reach  # prompts of unequal lengths
        if reach > CHUNK or ragged:
            begin = (end - reach).clamp(min=0)
            for offset in range(0, reach, CHUNK):
                self._pass(k, begin + offset, min(CHUNK, reach - offset), keep=0)
            reach = width + 1
        begin = (end - reach).clamp(min=0)
        wanted = start - 1 - begin  # [B] index within the pass of the row that predicts ``start``
        keep = reach - int(wanted.min())
        logits = self._pass(k, begin, reach, keep)
        self.valid[k] = end
        logits = self._own_outputs(k, logits)
        if self.processors.active:  # column t follows the first ``begin + reach - keep + 1 + t`` tokens
            last = torch.where(room > 0, end, -1)  # a row that sits out has no position to be processed at
            first = begin + reach - keep + 1
            logits = self.processors.apply(logits, self.text, first, start, last, self.to_target[k], k == self.top)
        rows = law(logits, self.settings[k])
        if len(self.requests) > 1:
            index = (wanted - (reach - keep))[:, None] + torch.arange(width + 1, device=self.home)
            rows = rows.at(index.clamp(max=keep - 1))
        assert rows.finite is not None
        if not rows.finite.all():
            self._refuse_infinite(k, start, rows.finite, torch.where(room > 0, end - start, -1))
        return rows

    def _refuse_infinite(self, k: int, start: Tensor, finite: Tensor, last: Tensor) -> None:
        """Raise FloatingPointError if one of the laws 0 .. last [B] that a row uses came from a NaN or infinity."""
        bad = ~finite & (torch.arange(finite.shape[1], device=self.home) <= last[:, None])
        if bad.any():
            row, at = bad.nonzero()[0].tolist()
            place = f"requests[{row}] after {int(start[row]) + at} tokens"
            raise FloatingPointError(f"{self.chain.names[k]}: its logits are not finite for {place}")

    def _pass(self, k: int, begin: Tensor, width: int, keep: int) -> Tensor:
        """One model pass over ``text`` from ``begin`` [B] on; logits [B, keep, V], none for keep 0."""
        model = self.chain.scorer(k)
        if model.owner is not self:
            raise RuntimeError(f"{self.chain.names[k]}: its cache was taken over by another generation meanwhile")
        tokens = self.text.gather(1, span(begin, width))
        if (
            model.embeddings < self.chain.scorer(self.top).embeddings
        ):  # ids a draft cannot embed only cost it acceptance
            tokens = tokens.masked_fill(tokens >= model.embeddings, 0)
        if model.device != self.home:
            tokens, begin = tokens.to(model.device), begin.to(model.device)
        mark = self.clock.start(k)
        if keep == 0:
            model.fill(tokens, begin)
            logits = self.text
        else:
            logits = model.score(tokens, begin, keep)
        self.clock.stop(k, mark, width, rows=len(tokens), ends_prefill=k == self.top and keep > 0)
        return logits.to(self.home)

    def _own_outputs(self, k: int, logits: Tensor) -> Tensor:
        """The columns of level k's outputs the target knows, in ascending order of target id."""
        order = self.order[k]
        if order is not None:
            return logits[..., order]
        size = self.chain.output_size(k)
        return logits if size == logits.shape[-1] else logits[..., :size]

    def _write(self, start: Tensor, tokens: Tensor) -> None:
        """Put tokens [B, T] at ``start`` [B] onwards."""
        self.text.scatter_(1, span(start, tokens.shape[1]), tokens)


def span(start: Tensor, width: int) -> Tensor:
    """Positions [B, width] from ``start`` [B] on."""
    return start[:, None] + torch.arange(width, device=start.device)


def advance(block: Block, emitted: Emitted, going: Tensor) -> None:
    """Account for a round in which the rows ``going`` [B] took part."""
    block.count = block.count + emitted.count
    block.rounds = block.rounds + going
    block.last_full = torch.where(going, emitted.full, block.last_full)
    if emitted.law.confidence is not None:
        last = emitted.law.confidence.gather(1, emitted.accepted[:, None]).squeeze(1)
        block.last_max = torch.where(going, last, block.last_max)


def assemble(laws: list[tuple[Tensor, Tensor]], width: int) -> Tensor | None:
    """Laws [B, width, V] of a block from (tokens before the round [B], rows [B, T, V]) of its rounds.

    Later rounds overwrite the surplus rows of earlier ones.
    """
    if not laws:
        return None
    if len(laws) == 1:
        return laws[0][1][:, :width]
    batch, vocab = laws[0][1].shape[0], laws[0][1].shape[2]
    widest = max(rows.shape[1] for _, rows in laws)
    out = laws[0][1].new_zeros(batch, width + widest, vocab)
    for before, rows in laws:
        if batch == 1:
            at = int(before)
            out[:, at : at + rows.shape[1]] = rows
        else:
            out[torch.arange(batch, device=out.device)[:, None], span(before, rows.shape[1])] = rows
    return out[:, :width]

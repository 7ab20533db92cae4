"""The drafting side of an edge: it answers with drafts, and drafts ahead while its answer is being verified.

What it drafts is a pure function of the text before it, its start, its limit and its key; a draft made ahead
is used only where all four are what is asked for, so it is the draft that would be made then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ssd.core import randomness as rng
from ssd.core.sampling import draw
from ssd.core.verification import translate
from ssd.core.windows import Block, done
from ssd.pipeline.branches import Branch, Made, Verification, reply
from ssd.pipeline.group_decoder import GroupDecoder, shared_length
from ssd.pipeline.messages import Ask, Reply
from ssd.pipeline.outcomes import Guess, OutcomeProfile
from ssd.pipeline.settings import PipelineSettings


class Drafter:
    """Drafts of one batch.

    Row b of the decoder holds row b of the batch; the rows behind hold outcomes that are being prepared for.
    """

    def __init__(self, decoder: GroupDecoder, batch: int, settings: PipelineSettings) -> None:
        self.decoder, self.batch, self.settings = decoder, batch, settings
        self.level = decoder.group[-1]
        self.profile = OutcomeProfile()
        self.attempt = self.course = 0  # number of the last attempt to work ahead, and in the course of which other
        self.used: dict[int, int] = {}  # attempts whose work was used, and their courses
        self._text = decoder.text[:batch].clone()  # as the worker above knows it
        self._since = [0] * batch
        self._end = [len(r.ids) for r in decoder.requests]
        self._verified: dict[int, Verification] = {}
        self._above = decoder.chain.edges[self.level + 1] if self.level + 1 < decoder.top else None

    def hear(self, ask: Ask) -> list[bool]:
        """Take in the text of a question; per row, whether an outcome that was prepared for came to pass."""
        for row, (at, tokens) in enumerate(ask.text):
            self._text[row, at : at + len(tokens)] = torch.tensor(tokens, dtype=torch.int64)
            self._since[row] = at
        return [self._branch(ask, row) is not None for row in range(len(ask.start))]

    def _outcome(self, ask: Ask, row: int) -> tuple[int, int] | None:
        before = self._verified.get(row)
        if before is None or ask.limit[row] < 1:
            return None
        return before.outcome(self._since[row], ask, row, self._text[row, before.start : ask.start[row]].tolist())

    def _branch(self, ask: Ask, row: int) -> Branch | None:
        outcome = self._outcome(ask, row)
        if outcome is None or self.settings.force == "misses":
            return None
        for branch in self._verified[row].branches:
            if outcome == branch.guess[:2] and branch.limit == ask.limit[row]:
                return branch
        return None

    def answer(self, ask: Ask) -> Reply:
        """The drafts that were asked for, of a question that was heard."""
        rows = [row for row, limit in enumerate(ask.limit) if limit > 0]
        ready: list[bool | None] = [None] * len(ask.start)
        made: dict[int, Made] = {}
        for row in rows:
            branch, outcome = self._branch(ask, row), self._outcome(ask, row)
            if outcome is not None:
                self._learn(self._verified[row], *outcome)
                ready[row] = branch is not None and branch.made is not None
            if branch is not None and branch.made is not None:
                made[row] = self._adopt(row, branch)
        if any(ready):
            self.used[self.attempt] = self.course
        missing = [row for row in rows if row not in made]
        if missing:
            for row in missing:
                self._set_text(row, self._text[row, : ask.start[row]])
            made |= self._propose({row: (ask.start[row], ask.limit[row], ask.parent[row]) for row in missing})
        self._verified = {
            row: Verification(
                ask.start[row], ask.limit[row], ask.parent[row], ask.block[row] if ask.block else None, made[row]
            )
            for row in rows
        }
        empty = Made([], None, [], [], 0)
        return reply([made.get(row, empty) for row in range(len(ask.start))], ready)

    def _learn(self, before: Verification, accepted: int, token: int) -> None:
        guesses = before.guesses[accepted] if before.guesses else []
        rank = guesses.index(token) if token in guesses else None
        self.profile.learn(len(before.made.tokens), accepted, rank)

    def _adopt(self, row: int, branch: Branch) -> Made:
        """Give a row the text and slots of the outcome that came to pass."""
        assert branch.made is not None
        if branch.place != row:
            self._copy(branch.place, row, self._end[branch.place])
        self._end[row] = self._end[branch.place]
        return branch.made

    def _copy(self, source: int, into: int, length: int) -> None:
        """Row ``into`` has the first ``length`` tokens of ``source``, and its slots for them."""
        decoder = self.decoder
        self._set_text(into, decoder.text[source, :length].clone())
        for k in decoder.group:
            begin, end = int(decoder.valid[k][into]), min(int(decoder.valid[k][source]), length)
            if end > begin:
                scorer: Any = decoder.chain.levels[k].model
                scorer.copy(source, into, begin, end)
                decoder.valid[k][into] = end

    def _set_text(self, row: int, text: Tensor) -> None:
        """A row of the decoder has this text; slots of what it had otherwise are forgotten."""
        decoder, length = self.decoder, len(text)
        agree = shared_length(decoder.text[row, :length], text)
        decoder.text[row, :length] = text
        self._end[row] = length
        for k in decoder.group:
            decoder.valid[k][row] = min(int(decoder.valid[k][row]), agree)

    def _propose(self, wanted: dict[int, tuple[int, int, int]]) -> dict[int, Made]:
        """Drafts of rows of the decoder, given start, limit and parent key of each."""
        decoder = self.decoder
        n = max(self.batch, max(wanted) + 1)

        def column(i: int, otherwise: Sequence[int]) -> Tensor:
            return torch.tensor([wanted[p][i] if p in wanted else otherwise[p] for p in range(n)], device=decoder.home)

        start, limit, parent = column(0, self._end), column(1, [0] * n), column(2, [0] * n)
        key = rng.round_key(parent, start) if decoder.random else parent
        with decoder.first(n):
            draft = decoder.propose(self.level, start, limit, key)
            rounds = decoder.log.rounds(n)
        counts, tokens = draft.count.tolist(), draft.tokens.tolist()
        assert draft.best is not None or not any(counts)
        best = [] if draft.best is None else translate(draft.best, decoder.to_target[self.level]).tolist()
        made = {}
        for p, (at, _, _) in wanted.items():
            w = counts[p]
            probs = None if draft.probs is None else draft.probs[p, :w]
            made[p] = Made(tokens[p][:w], probs, best[p][:w] if w else [], rounds[p], at)
            self._end[p] = at + w
        return made

    def predict(self) -> None:
        """Score the last token of every draft, and guess what each outcome would go on with."""
        decoder, k = self.decoder, self.level
        rows = [
            row for row, v in self._verified.items()
            if v.made.tokens and self._end[row] <= decoder.limits[k] and any(self._useful(v))
        ]  # fmt: skip
        if not rows:
            return
        end = torch.tensor(self._end[: self.batch], device=decoder.home)
        room = torch.zeros_like(end)
        room[rows] = 1
        with decoder.first(self.batch):
            law = decoder._score(k, end, None, room)
        assert law.best is not None
        ids = decoder.to_target[k]
        last = translate(law.best[:, 0], ids).tolist()
        if law.probs is not None:
            # The verifier will draw with this very uniform, from a law that is near this one.
            drawn = translate(draw(law.probs[:, 0], self._uniform(end)), ids).tolist()
            last = [[token, *(t for t in tokens if t != token)] for token, tokens in zip(drawn, last, strict=True)]
        for row in rows:
            v = self._verified[row]
            kept = [[t for t in b if t != d] for b, d in zip(v.made.best, v.made.tokens, strict=True)]
            v.guesses = [*kept, last[row]]

    def _uniform(self, end: Tensor) -> Tensor:
        """The uniform [B] with which a bonus token at ``end`` will be drawn."""
        parent, start = torch.zeros_like(end), torch.zeros_like(end)
        for row, v in self._verified.items():
            parent[row], start[row] = v.parent, v.start
        return rng.uniform(rng.round_key(parent, start), self.level + 1, rng.DRAW, end)

    def _useful(self, v: Verification) -> list[bool]:
        """By number accepted, whether the asking level will ask for another draft."""
        return [v.limit - (a + 1) > 0 and self._goes_on(v, a) for a in range(len(v.made.tokens) + 1)]

    def _goes_on(self, v: Verification, accepted: int) -> bool:
        """Whether the asking level's block lasts; how sure it will be is not known, so it may."""
        if v.block is None or self._above is None:
            return True
        count, rounds = (torch.tensor([x]) for x in v.block)
        full = torch.tensor([accepted == len(v.made.tokens)])
        after = Block(count + accepted + 1, rounds + 1, torch.ones(1), full)
        edge = self._above
        return not bool(done(edge.window, edge.gamma, edge.window_value, after))

    def prepare(self, coming: Ask | None) -> None:
        """Choose outcomes and give each a row, its text and slots.

        Args:
            coming: the next question, if every prediction is to be right.
        """
        for row, v in self._verified.items():
            if not v.guesses or v.branches:
                continue
            places = iter(range(self.batch + row, len(self.decoder.requests), self.batch))  # of the same request
            useful = self._useful(v)
            chosen = self.profile.choose(v.guesses, useful, self.settings.budget, self.settings.fan_out)
            actual = None if coming is None or row >= len(coming.start) else self._outcome(coming, row)
            if actual is not None and useful[actual[0]] and all(g[:2] != actual for g in chosen):
                chosen = [*chosen[: self.settings.budget - 1], Guess(*actual, 1.0, -1)]
            # The row itself takes the longest: what it would forget for another, others would copy from it.
            for i, guess in enumerate(sorted(chosen, key=lambda g: -g.accepted)):
                place = row if i == 0 else next(places)
                text = [*v.made.tokens[: guess.accepted], guess.token]
                after = v.start + len(text)
                v.branches.append(Branch(guess, after, v.limit - len(text), v.parent, text, place))
            for branch in reversed(v.branches):
                if branch.place != row:
                    self._copy(row, branch.place, branch.start - 1)
            for branch in v.branches:
                head = self.decoder.text[branch.place, : branch.start].clone()
                head[-1] = branch.guess.token
                self._set_text(branch.place, head)

    def draft_ahead(self) -> None:
        """Make the drafts for all outcomes that are prepared for."""
        branches = {b.place: b for v in self._verified.values() for b in v.branches if b.made is None}
        if branches:
            wanted = {place: (b.start, b.limit, b.parent) for place, b in branches.items()}
            for place, made in self._propose(wanted).items():
                branches[place].made = made

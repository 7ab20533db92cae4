"""The decoder as a flow of passes: blocks, rounds and drafts made ahead, with nothing computed.

It follows ``ssd.core.decode``: the same recursion, limits and windows, and the same account of which
slots of a level are up to date, so that a pass has the width it has there. Draws are keyed, so that all
schedules see the same rounds. A pass carries all rows of its batch that may still be of use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from ssd.plan.blocks import Block, Fork, Row
from ssd.plan.draws import ACCEPT, COVER, HIT, fold, uniform
from ssd.plan.events import Engine, Flow, Process, Work
from ssd.plan.lookahead import Ahead, allocate, outcome_chances
from ssd.plan.setting import Setting
from ssd.plan.trace import Span


@dataclass(eq=False)
class Thread:
    """A process and the device on which its latest result is known."""

    process: Process
    device: str


class SimulatedDecoder:
    """The flows of one simulated run.

    Attributes:
        spans: every pass that ran, in order of their ends.
    """

    def __init__(self, setting: Setting, engine: Engine) -> None:
        self.setting, self.engine = setting, engine
        self.top = len(setting.edges)
        self.spans: list[Span] = []
        self._guesses: dict[tuple[int, tuple[float, ...], tuple[bool, ...]], list[int]] = {}

    def generate(self, blocks: list[Block], process: Process) -> Flow:
        """Complete the target's ``blocks``, one per row of the batch."""
        thread = Thread(process, self.setting.machine.workers[self.top].device)
        yield from self._propose(self.top, blocks, [b.row for b in blocks], thread)

    def _propose(self, k: int, blocks: list[Block], batch: list[Row], thread: Thread) -> Flow:
        """Complete level k's ``blocks``; the rows ``batch`` ride along in every pass."""
        if k < self.top and self.setting.edges[k].window == "exactly":
            for b in blocks:
                b.limit = min(b.limit, self.setting.edges[k].gamma)
        if self.setting.profile.levels[k].look_up:
            yield from self._look_up(blocks, batch, thread)
            return
        while going := [b for b in blocks if b.row.alive and not self._full(k, b)]:
            missing = [b for b in going if k > 0 and b.draft is None]
            for b in missing:
                b.draft = Block(fold(b.key, b.next), b.next, b.room - 1, b.row)
            if missing:
                yield from self._propose(k - 1, [b.draft for b in missing if b.draft], batch, thread)
            yield from self._round(k, [b for b in going if b.row.alive], batch, thread)

    def _look_up(self, blocks: list[Block], batch: list[Row], thread: Thread) -> Flow:
        """Level 0 proposes all it can at once, or nothing."""
        level, gamma = self.setting.profile.levels[0], self.setting.edges[0].gamma
        asked = [b for b in blocks if b.limit > 0]
        if not asked:
            return
        yield from self._arrive(0, thread)
        yield self._work(0, "draft", lambda: (1, sum(row.alive for row in batch)), thread.process)
        for b in asked:
            if uniform(b.key, 0, COVER, b.start) < level.coverage:
                b.fates = ["plain"] * min(gamma, b.limit)
                b.row.length = b.next

    def _full(self, k: int, block: Block, accepted: int | None = None) -> bool:
        """Whether a block is complete, or would be once ``accepted`` tokens of its draft have passed."""
        count, rounds, last_full = len(block.fates), block.rounds, block.last_full
        if accepted is not None:
            count, rounds, last_full = count + accepted + 1, rounds + 1, accepted == len(block.drafted)
        if k == self.top or count >= block.limit:
            return count >= block.limit
        edge = self.setting.edges[k]
        if edge.window == "rounds":
            return rounds >= edge.gamma
        return count >= edge.gamma or (edge.window == "until_correction" and not last_full)

    def _goes_on(self, k: int, block: Block, accepted: int) -> bool:
        """Whether a block needs another draft once ``accepted`` tokens of this one have passed."""
        return block.room - (accepted + 1) > 1 and not self._full(k, block, accepted)

    def _round(self, k: int, going: list[Block], batch: list[Row], thread: Thread) -> Flow:
        """One pass of level k for blocks whose draft is there, and what follows from it."""
        if not going:
            return
        outcomes = {b: self._accepted(k, b) for b in going}
        ahead = self.setting.works_ahead(k - 1) if k > 0 else None
        forks = [] if ahead is None else self._forks(k, ahead, outcomes)
        yield from self._arrive(k, thread)
        helper = None
        if ahead is not None and forks:
            helper = self.engine.spawn(partial(self._work_ahead, k - 1, ahead, forks), thread.process)
        span: Span | None = yield self._pass(k, going, batch, thread.process)
        ready = {f.block for f in forks if f.right}
        for b in (b for b in going if b.row.alive):
            verdict = "" if ahead is None or not self._goes_on(k, b, outcomes[b]) else "hit" if b in ready else "miss"
            b.emit(k, outcomes[b], verdict, logged=k > 0 or self.top == 0)
            if span is not None:
                span.hits += verdict == "hit"
                span.misses += verdict == "miss"
        for row in _riders(going, batch):
            row.valid[k] = row.length
        if helper is not None:
            yield from self._resolve(k, forks, helper, thread)

    def _rates(self, k: int, block: Block) -> Iterator[float]:
        for i, fate in enumerate(block.drafted):
            rate = self.setting.acceptance[k - 1].at(i, fate)
            if not 0 <= rate <= 1:
                raise ValueError(f"acceptance[{k - 1}]: {rate!r} at position {i}, fate {fate!r}, is outside [0, 1]")
            yield rate

    def _accepted(self, k: int, block: Block) -> int:
        """Draft tokens that will pass: decided by where they are, not by when that is."""
        if not block.drafted:
            return 0
        key = fold(block.key, block.next)
        for i, rate in enumerate(self._rates(k, block)):
            if uniform(key, k, ACCEPT, block.next + i) >= rate:
                return i
        return len(block.drafted)

    def _forks(self, k: int, ahead: Ahead, outcomes: dict[Block, int]) -> list[Fork]:
        """The outcomes of a pass of level k that are prepared for, and which of them are right."""
        forks = []
        for b, actual in outcomes.items():
            useful = tuple(self._goes_on(k, b, a) for a in range(len(b.drafted) + 1))
            if not any(useful):
                continue
            guesses = self._allocation(k, ahead, tuple(self._rates(k, b)), useful)
            if ahead.force == "hit" and useful[actual] and not guesses[actual]:
                guesses[guesses.index(max(guesses))] -= any(guesses)
                guesses[actual] = 1
            hit = self._is_hit(k, ahead, b, actual, guesses[actual])
            for a, number in enumerate(guesses):
                forks += [Fork.of(b, a, guess, hit and a == actual and guess == 0) for guess in range(number)]
        return forks

    def _allocation(self, k: int, ahead: Ahead, rates: tuple[float, ...], useful: tuple[bool, ...]) -> list[int]:
        key = (k, rates, useful)
        if key not in self._guesses:
            self._guesses[key] = allocate(ahead, outcome_chances(rates), useful)
        return list(self._guesses[key])

    def _is_hit(self, k: int, ahead: Ahead, block: Block, actual: int, guesses: int) -> bool:
        if ahead.force is not None or not guesses:
            return ahead.force == "hit" and guesses > 0
        chance = ahead.curve(guesses, "bonus" if actual == len(block.drafted) else "recovered")
        if not 0 <= chance <= 1:
            raise ValueError(f"ahead[{k - 1}].curve: {chance!r} for {guesses} guesses is outside [0, 1]")
        return uniform(fold(block.key, block.next), k, HIT, block.next) < chance

    def _work_ahead(self, k: int, ahead: Ahead, forks: list[Fork], process: Process) -> Flow:
        """Make level k's drafts for every fork."""
        for fork in forks:
            fork.begin(k, ahead.predict_pass)
        if ahead.predict_pass:
            bases = list(dict.fromkeys(fork.block for fork in forks))
            yield self._predict_pass(k, bases, process)
        thread = Thread(process, self.setting.machine.workers[k].device)
        rows = [fork.draft.row for fork in forks]
        yield from self._propose(k, [fork.draft for fork in forks], rows, thread)

    def _resolve(self, k: int, forks: list[Fork], helper: Process, thread: Thread) -> Flow:
        """Take over the drafts that were made for what happened, and drop all others."""
        if any(not self._full(k, b) for b in {fork.block: None for fork in forks} if b.row.alive):
            yield from self._arrive(k - 1, thread)
        right = [fork for fork in forks if fork.right and fork.block.row.alive]
        if not right:
            self.engine.cancel(helper)
            return
        for fork in forks:
            fork.draft.row.dropped = fork not in right
        self.engine.promote(helper)
        if thread.process.depth == 0:
            for span in helper.log:
                span.ahead = "used"
        else:  # whether it is used is not known before the work it belongs to is
            thread.process.log += helper.log
            helper.log = thread.process.log
        yield helper
        for fork in right:
            fork.adopt(k)

    def _arrive(self, k: int, thread: Thread) -> Flow:
        """Let what the thread knows reach level k's device."""
        machine = self.setting.machine
        device = machine.workers[k].device
        if device != thread.device:
            thread.device = device
            if machine.transfer:
                yield machine.transfer

    def _pass(self, k: int, going: list[Block], batch: list[Row], process: Process) -> Work:
        """Level k over the drafts of ``going`` and the tokens before them it lacks."""

        def shape() -> tuple[int, int]:
            widths = [b.end - min(b.row.valid[k], b.next - 1) for b in going if b.row.alive]
            if not widths:
                return 0, 0
            riders = _riders(going, batch)
            widths += [row.length - min(row.valid[k], row.length - 1) for row in riders]
            return max(widths), len(widths)

        return self._work(k, "draft" if k == 0 < self.top else "verify", shape, process)

    def _predict_pass(self, k: int, blocks: list[Block], process: Process) -> Work:
        """Level k over what it lacks of the drafts it made, for the row after their last token."""

        def shape() -> tuple[int, int]:
            live = [b for b in blocks if b.row.alive]
            return max((b.end - min(b.row.valid[k], b.end - 1) for b in live), default=0), len(live)

        return self._work(k, "draft", shape, process)

    def _work(self, k: int, what: str, shape: Callable[[], tuple[int, int]], process: Process) -> Work:
        size, ahead = (0, 0), False

        def begin() -> float | None:
            nonlocal size, ahead
            size, ahead = shape(), process.depth > 0
            return self.setting.profile.levels[k].at(*size) if size[1] else None

        def end(started: float, ended: float) -> Span:
            used = process.depth == 0 and not process.cancelled
            span = Span(k, started, ended, what, *size, "" if not ahead else "used" if used else "wasted")
            self.spans.append(span)
            process.log.append(span)
            return span

        return Work(self.setting.machine.workers[k], begin, end, self.setting.machine.demand[k])


def _riders(going: list[Block], batch: list[Row]) -> list[Row]:
    """Rows of a pass that have no part in its round: they are fed what the level lacks of them."""
    if len(going) == len(batch):
        return []
    own = {b.row for b in going}
    return [row for row in batch if row.alive and row not in own]

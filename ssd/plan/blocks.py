"""Texts, blocks and forks of a simulated run: what is known of tokens that are never computed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from ssd.plan.draws import fold


class SimRound(NamedTuple):
    """One draft and one verification that became part of the output; names as in a record.

    Attributes:
        ahead: ``hit`` or ``miss``: whether the draft of the next round had been made ahead; ``""`` if
            that was not tried.
    """

    edge: int
    start: int
    drafted: int
    accepted: int
    ahead: str

    @property
    def emitted(self) -> int:
        """Tokens it added."""
        return self.accepted + 1


@dataclass(eq=False)
class Row:
    """A text as it stands, or as it might.

    Attributes:
        valid: per level, how many leading slots agree with it.
        length: tokens of it that are known or drafted.
        base: the text it continues, for one that might be.
    """

    valid: list[int]
    length: int
    base: Row | None = None
    dropped: bool = False

    @property
    def alive(self) -> bool:
        """Whether it may still be of use."""
        return not self.dropped and (self.base is None or self.base.alive)


@dataclass(eq=False)
class Block:
    """Tokens one level emits for the level above, under way or complete.

    Attributes:
        key: of the round it is made for.
        start: position of its first token.
        limit: most tokens it may hold.
        row: the text it belongs to.
        fates: of its tokens at the level that makes it: ``draft``, ``recovered``, ``bonus``, ``plain``.
        rounds: how many it took.
        last_full: whether the last round accepted everything it was handed.
        draft: what the level below has made for the next round, if it has.
        log: rounds that made it, those of lower edges before those they drafted for.
    """

    key: int
    start: int
    limit: int
    row: Row
    fates: list[str] = field(default_factory=list)
    rounds: int = 0
    last_full: bool = True
    draft: Block | None = None
    log: list[SimRound] = field(default_factory=list)

    @property
    def next(self) -> int:
        """Position of the first token of the next round."""
        return self.start + len(self.fates)

    @property
    def room(self) -> int:
        """Tokens it may still take."""
        return self.limit - len(self.fates)

    @property
    def drafted(self) -> list[str]:
        """Fates of the draft's tokens."""
        return [] if self.draft is None else self.draft.fates

    @property
    def end(self) -> int:
        """Position after the draft."""
        return self.next + len(self.drafted)

    def emit(self, k: int, accepted: int, ahead: str, logged: bool) -> None:
        """Take in a round of level k in which ``accepted`` tokens of the draft passed."""
        drafted, start = len(self.drafted), self.next
        if self.draft is not None:
            self.log += self.draft.log
        if logged:
            self.log.append(SimRound(k - 1, start, drafted, accepted, ahead))
        valid = self.row.valid
        valid[k] = self.end
        for j in range(k + 1):
            if valid[j] > start + accepted:
                valid[j] = start + accepted
        self.last_full = accepted == drafted
        last = "plain" if not drafted else "bonus" if self.last_full else "recovered"
        self.fates += ["draft"] * accepted + [last]
        self.rounds += 1
        self.draft = None
        self.row.length = self.next


@dataclass(eq=False)
class Fork:
    """A draft made ahead for the outcome in which ``accepted`` draft tokens of ``block`` pass.

    Attributes:
        right: whether it is what happens: that number, and the right next token.
    """

    block: Block
    accepted: int
    draft: Block
    right: bool

    @staticmethod
    def of(block: Block, accepted: int, guess: int, right: bool) -> Fork:
        """The fork for one guess of the next token; a wrong one sees draws of its own."""
        start = block.next + accepted + 1
        key = fold(block.key, start)
        row = Row([], start, block.row)
        draft = Block(key if right else fold(key, guess + 1), start, block.room - accepted - 2, row)
        return Fork(block, accepted, draft, right)

    def begin(self, k: int, predicted: bool) -> None:
        """Give the drafting level k and those below the slots of the text it continues.

        Args:
            k: the drafting level.
            predicted: it has scored the whole draft of ``block``.
        """
        kept = self.block.next + self.accepted
        self.draft.row.valid = [min(slots, kept) for slots in self.block.row.valid]
        if predicted:
            self.draft.row.valid[k] = kept

    def adopt(self, k: int) -> None:
        """Make it the draft of its block, with the slots of the levels below the verifying level k."""
        self.block.draft = self.draft
        self.block.row.valid[:k] = self.draft.row.valid[:k]
        self.block.row.length = self.draft.row.length

"""Rung 1 for drafts made ahead: the law stays the target's whichever outcomes are prepared for, by enumeration.

A round's draft comes from a table of drafts that were made, with all their random choices, before the round before
it was verified; where the table has none for what came out, it is made then. Whole sequences are enumerated, unused
drafts included. That the table holds what would be made later anyway is checked apart, with keyed randomness.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product

from ssd.certify.enumerated_settings import Setting, edge, mixed, setting
from ssd.certify.exact_laws import PROMPT, TOLERANCE, Law, difference, target_law
from ssd.certify.result import Check
from ssd.core import randomness as rng
from ssd.core.chain import VERIFICATIONS, WINDOWS, Edge
from ssd.core.reference import Chooser, Row, Twin, TwinLevel, enumerate_law

Outcome = tuple[int, int]  # draft tokens accepted, next token
Predict = Callable[["AheadTwin", int, list[int], list[int]], list[Outcome]]
SEEDS = 40  # sequences whose drafts are made ahead and when asked for, per chain and prediction


class AheadTwin(Twin):
    """The twin when drafts are made ahead for predicted outcomes of every round of every edge.

    Attributes:
        predict: (twin, drafting level, text, draft) -> outcomes to prepare for.
        hits: drafts that had been made ahead.
        misses: drafts that had not.
    """

    def __init__(self, levels: Sequence[TwinLevel], edges: Sequence[Edge], chooser: Chooser, predict: Predict) -> None:
        super().__init__(levels, edges, chooser)
        self.predict, self.hits, self.misses = predict, 0, 0
        self._made: dict[tuple[int, tuple[int, ...], int, int], tuple[list[int], list[Row]]] = {}

    def round(self, k: int, text: list[int], room: int, key: int) -> tuple[list[int], list[Row], bool]:
        """As the twin's; what may be asked for after it is drafted before it is verified."""
        if k > 0 and room > 1:
            own = rng.round_key_int(key, len(text))
            tokens, laws = self.propose(k - 1, text, room - 1, own)
            for accepted, token in self.predict(self, k - 1, text, tokens):
                after, left = [*text, *tokens[:accepted], token], room - accepted - 1
                if left > 1:
                    place = k - 1, tuple(after), left - 1, rng.round_key_int(key, len(after))
                    self._made[place] = super().propose(*place[:1], after, *place[2:])
            self._made[k - 1, tuple(text), room - 1, own] = tokens, laws
            self.hits -= 1  # the look-up of the draft that is there anyway
        return super().round(k, text, room, key)

    def propose(self, k: int, text: list[int], limit: int, key: int) -> tuple[list[int], list[Row]]:
        """As the twin's, unless it was made ahead for this text, limit and key."""
        made = self._made.pop((k, tuple(text), limit, key), None)
        if made is None:
            self.misses += 1
            return super().propose(k, text, limit, key)
        self.hits += 1
        return made


def likeliest(twin: AheadTwin, level: int, text: list[int], draft: list[int]) -> list[Outcome]:
    """The draft accepted whole, and its first token refused, each with the drafting level's own next guess."""
    if twin.levels[level].law is None or not draft:
        return []
    own = [twin.law(level, [*text, *draft[:a]]) for a in (0, len(draft))]
    second = max((p, -t) for t, p in enumerate(own[0]) if t != draft[0])[1]
    return [(len(draft), own[1].index(max(own[1]))), (0, -second)]


def every(twin: AheadTwin, level: int, text: list[int], draft: list[int]) -> list[Outcome]:
    """All there are."""
    size = twin.size(text)
    return [(a, t) for a in range(len(draft) + 1) for t in range(size) if a == len(draft) or t != draft[a]]


def ahead_law(s: Setting, predict: Predict, twin: type[AheadTwin] = AheadTwin) -> Law:
    """Law of the chain's sequences after ``PROMPT`` with drafts made ahead, over all random choices."""
    return enumerate_law(lambda chooser: twin(s.levels, s.edges, chooser, predict).generate(PROMPT, s.tokens, 0))


def cases() -> Iterator[tuple[Setting, Predict]]:
    """Chains small enough for all choices of all their drafts, those never used included."""
    for window, verification in product(WINDOWS, VERIFICATIONS):
        yield setting(f"ahead {window}", [edge(window, 2, verification)], 2, 4), likeliest
        yield setting(f"all ahead {window}", [edge(window, 1, verification)], 2, 4), every
    for turn in range(10):
        yield setting(f"ahead two {turn}", mixed(turn, 2), 2, 4), likeliest


def check_ahead(twin: type[AheadTwin] = AheadTwin) -> list[Check]:
    """The law with drafts made ahead is the target's, and a draft made ahead is the one made when asked.

    Args:
        twin: replaced by a faulty one in negative controls.
    """
    worst, sequences, chains, off = 0.0, 0, 0, ""
    for s, predict in cases():
        want = target_law(s.levels[-1], s.vocab, s.tokens)
        error = difference(ahead_law(s, predict, twin), want)
        worst, sequences, chains = max(worst, error), sequences + len(want), chains + 1
        if not error <= TOLERANCE:
            off = f"; the last of them is off: {s}"
            break
    words = (
        f"{sequences} sequences of {chains} chains: probabilities differ from the target's by at most {worst:.1e} "
        f"(tolerance {TOLERANCE:.0e}){off}"
    )
    return [Check("drafts made ahead", not off, 0.0, sequences, words, worst), _same_draft(twin)]


def _same_draft(twin: type[AheadTwin]) -> Check:
    """With keyed randomness, sequences with drafts made ahead are those without, token for token."""
    n, hits, misses, apart = 0, 0, 0, 0
    for s, predict in cases():
        for seed in range(SEEDS):
            root = rng.root_int(seed, 0, 0)
            ahead = twin(s.levels, s.edges, Twin(s.levels, s.edges).chooser, predict)
            apart += ahead.generate(PROMPT, s.tokens, root) != Twin(s.levels, s.edges).generate(PROMPT, s.tokens, root)
            n, hits, misses = n + 1, hits + ahead.hits, misses + ahead.misses
    words = f"{n} sequences, {apart} differ; {hits} drafts had been made ahead, {misses} had not"
    return Check("a draft made ahead is the one made later", not apart and hits > 0, 0.0, n, words, float(apart))

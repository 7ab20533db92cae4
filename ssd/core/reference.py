"""The slow obvious twin of the decoder: one row, no cache, Python lists, a full pass per law.

It draws with the same keys as ``ssd.core.decode``, so in float64 the engine equals it token for
token at every temperature. All its randomness goes through two calls, ``accept`` and ``draw``;
``Branching`` replaces them by every possible outcome with its probability, which makes the law of
whole sequences exact by enumeration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from ssd.core import randomness as rng
from ssd.core.chain import Edge

Row = list[float]  # probabilities over the target's vocabulary
Test = Callable[[float, int], bool]  # (probability, index of the draft token) -> passed


@dataclass(frozen=True)
class TwinLevel:
    """A level as a function of the whole prefix.

    Attributes:
        law: prefix -> the law it draws from, over the target's ids.
        confidence: prefix -> maximum of its untempered softmax.
        limit: positions it may be fed.
        look_up: (prefix, limit) -> tokens; set for an n-gram level, which has no law of its own.
    """

    law: Callable[[list[int]], Row] | None
    confidence: Callable[[list[int]], float] = lambda prefix: 1.0
    limit: int = 10**9
    look_up: Callable[[list[int], int], list[int]] | None = None


class Chooser(Protocol):
    """Where randomness enters."""

    def accept(self, probability: float, key: int, level: int, position: int) -> bool:
        """Whether a test of this probability passes."""

    def draw(self, weights: Row, key: int, level: int, position: int) -> int:
        """An index, drawn in proportion to the weights."""


class Keyed:
    """The engine's keyed uniforms."""

    def accept(self, probability: float, key: int, level: int, position: int) -> bool:
        """True with ``probability`` (may exceed 1)."""
        return rng.uniform_int(key, level, rng.ACCEPT, position) < probability

    def draw(self, weights: Row, key: int, level: int, position: int) -> int:
        """An index by inverse cumulative sum."""
        u, total, running = rng.uniform_int(key, level, rng.DRAW, position), sum(weights), 0.0
        for i, w in enumerate(weights):
            running += w
            if w > 0 and running > u * total:
                return i
        return max(i for i, w in enumerate(weights) if w > 0)


class Twin:
    """A chain of ``TwinLevel`` with its edges, decoding one row."""

    def __init__(self, levels: Sequence[TwinLevel], edges: Sequence[Edge], chooser: Chooser | None = None) -> None:
        self.levels, self.edges, self.chooser = levels, edges, chooser or Keyed()

    def generate(self, ids: Sequence[int], n: int, root: int) -> list[int]:
        """``n`` new tokens of the target's law."""
        text = list(ids)
        while len(text) < len(ids) + n:
            text += self.round(len(self.levels) - 1, text, len(ids) + n - len(text), root)[0]
        return text[len(ids) :]

    def propose(self, k: int, text: list[int], limit: int, key: int) -> tuple[list[int], list[Row]]:
        """A block of level k and the law of each of its tokens."""
        level, edge = self.levels[k], self.edges[k]
        if level.look_up is not None:
            tokens = level.look_up(text, min(limit, edge.gamma))
            return tokens, [point(t, self.size(text)) for t in tokens]
        if edge.window == "exactly":
            limit = min(limit, edge.gamma)
        limit = min(limit, level.limit + 1 - len(text))
        block: list[int] = []
        laws: list[Row] = []
        rounds, last_max, last_full = 0, 1.0, True
        while len(block) < limit and not self.done(edge, len(block), rounds, last_max, last_full):
            tokens, own, last_full = self.round(k, text + block, limit - len(block), key)
            last_max = level.confidence(text + block + tokens[:-1])
            block, laws, rounds = block + tokens, laws + own, rounds + 1
        return block, laws

    def round(self, k: int, text: list[int], room: int, key: int) -> tuple[list[int], list[Row], bool]:
        """Tokens a round emits, level k's law at each, and whether everything drafted was accepted."""
        key = rng.round_key_int(key, len(text))
        tokens, drafts = self.propose(k - 1, text, room - 1, key) if k > 0 and room > 1 else ([], [])
        laws = [self.law(k, text + tokens[:i]) for i in range(len(tokens) + 1)]
        by_block = k > 0 and self.edges[k - 1].verification == "block"
        verify = self.verify_by_block if by_block else self.verify_by_token
        kept, weights = verify(tokens, drafts, laws, lambda p, i: self.chooser.accept(p, key, k, len(text) + i))
        added = self.chooser.draw(weights, key, k, len(text) + kept)
        return [*tokens[:kept], added], laws[: kept + 1], kept == len(tokens)

    @staticmethod
    def verify_by_token(tokens: list[int], drafts: list[Row], laws: list[Row], accept: Test) -> tuple[int, Row]:
        """How many tokens are kept, and the weights of the token added."""
        for i, (token, draft) in enumerate(zip(tokens, drafts, strict=True)):
            if not accept(laws[i][token] / draft[token], i):
                return i, residual(1.0, laws[i], draft)
        return len(tokens), laws[-1]

    @staticmethod
    def verify_by_block(tokens: list[int], drafts: list[Row], laws: list[Row], accept: Test) -> tuple[int, Row]:
        """The same by block: the longest prefix whose own test passes."""
        weight = [1.0]
        for i, token in enumerate(tokens):
            weight.append(min(1.0, weight[-1] * laws[i][token] / drafts[i][token]))
        for kept in range(len(tokens), 0, -1):
            probability = weight[kept]
            if kept < len(tokens):
                left = sum(max(0.0, weight[kept] * p - q) for p, q in zip(laws[kept], drafts[kept], strict=True))
                total = left + 1 - weight[kept]
                probability = left / total if total > 0 else 1.0
            if accept(probability, kept - 1):
                return kept, laws[-1] if kept == len(tokens) else residual(weight[kept], laws[kept], drafts[kept])
        return 0, residual(1.0, laws[0], drafts[0]) if tokens else laws[0]

    @staticmethod
    def done(edge: Edge, count: int, rounds: int, last_max: float, last_full: bool) -> bool:
        """The window rules, one by one."""
        if edge.window == "rounds":
            return rounds >= edge.gamma
        if edge.window == "until_correction" and not last_full:
            return True
        if edge.window == "confidence" and edge.window_value is not None and last_max < edge.window_value:
            return True
        return count >= edge.gamma

    def size(self, text: list[int]) -> int:
        """Length of the target's rows."""
        return len(self.law(len(self.levels) - 1, text))

    def law(self, k: int, text: list[int]) -> Row:
        """Level k's law after a prefix."""
        rows = self.levels[k].law
        assert rows is not None, "a look-up is never asked to score"
        return rows(text)


def residual(weight: float, target: Row, draft: Row) -> Row:
    """max(0, weight x target - draft), or the target's law where rounding leaves nothing."""
    left = [max(0.0, weight * p - q) for p, q in zip(target, draft, strict=True)]
    return left if sum(left) > 0 else target


def point(token: int, size: int) -> Row:
    """All mass on one token."""
    return [float(i == token) for i in range(size)]


class Branching:
    """Replays one path of choices and notes how each could have gone otherwise."""

    def __init__(self, script: tuple[int, ...]) -> None:
        self.script, self.taken, self.mass = script, 0, 1.0
        self.open: list[tuple[int, ...]] = []

    def _choose(self, probabilities: Row) -> int:
        options = [i for i, p in enumerate(probabilities) if p > 0]
        if self.taken < len(self.script):
            choice = self.script[self.taken]
        else:
            choice = options[0]
            self.open += [(*self.script, o) for o in options[1:]]
            self.script = (*self.script, choice)
        self.taken += 1
        self.mass *= probabilities[choice]
        return choice

    def accept(self, probability: float, key: int, level: int, position: int) -> bool:
        """Both outcomes of a test, in turn."""
        return self._choose([1 - min(1.0, probability), min(1.0, probability)]) == 1

    def draw(self, weights: Row, key: int, level: int, position: int) -> int:
        """Every index of positive weight, in turn."""
        return self._choose([w / sum(weights) for w in weights])


def enumerate_law(run: Callable[[Chooser], Sequence[int]]) -> dict[tuple[int, ...], float]:
    """Exact law of what ``run(chooser)`` returns, over all its random choices."""

    def paths() -> Iterator[tuple[tuple[int, ...], float]]:
        pending: list[tuple[int, ...]] = [()]
        while pending:
            chooser = Branching(pending.pop())
            out = tuple(run(chooser))
            pending += chooser.open
            yield out, chooser.mass

    law: dict[tuple[int, ...], float] = {}
    for out, mass in paths():
        law[out] = law.get(out, 0.0) + mass
    return law

"""A chain of drafts as a dice game: rounds are played one by one, nothing is computed from a law.

Written from the description of the algorithm, not from ``ssd.plan``: a token is only its fate, a level
remembers up to where it was fed, and a pass is as wide as what it lacks and its draft together.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import numpy as np

FOREVER = 10**9


class Game:
    """Rows that play target rounds; ``passes[level]`` counts passes by width."""

    def __init__(self, edges, acceptance, rows=1, coverage=1.0, seed=0):
        self.edges, self.acceptance, self.coverage = edges, acceptance, coverage
        self.dice = random.Random(seed)
        self.rows = range(rows)
        self.top = len(edges)
        self.text = [100] * rows  # tokens committed so far
        self.fed = [[99] * rows for _ in range(self.top + 1)]  # leading tokens each level was fed
        self.passes = [Counter() for _ in range(self.top + 1)]
        self.tested = [[0, 0] for _ in range(self.top)]  # per edge: accepted, tested

    def propose(self, k, start, limit):
        edge = self.edges[k]
        if k == 0 and self.coverage < 1:
            found = [self.dice.random() < self.coverage for _ in self.rows]
            return [["plain"] * min(edge.gamma, n) if f else [] for n, f in zip(limit, found, strict=True)]
        if edge.window == "exactly":
            limit = [min(n, edge.gamma) for n in limit]
        blocks = [[] for _ in self.rows]
        rounds = 0  # every row still going has been in all of them
        while True:
            going = [self.goes_on(edge, block, n, rounds) for block, n in zip(blocks, limit, strict=True)]
            if not any(going):
                return blocks
            room = [n - len(b) if g else 0 for n, b, g in zip(limit, blocks, going, strict=True)]
            emitted = self.round(k, [s + len(b) for s, b in zip(start, blocks, strict=True)], room)
            blocks = [b + e for b, e in zip(blocks, emitted, strict=True)]
            rounds += 1

    @staticmethod
    def goes_on(edge, block, limit, rounds):
        if len(block) >= limit:
            return False
        if edge.window == "rounds":
            return rounds < edge.gamma
        if edge.window == "until_correction" and block and block[-1] == "recovered":
            return False
        return len(block) < edge.gamma

    def round(self, k, start, room):
        draft = self.propose(k - 1, start, [max(0, r - 1) for r in room]) if k else [[] for _ in self.rows]
        self.passes[k][max(start[i] + len(draft[i]) - min(self.fed[k][i], start[i] - 1) for i in self.rows)] += 1
        emitted = []
        for i in self.rows:
            self.fed[k][i] = start[i] + len(draft[i])
            accepted = self.accepted(k, draft[i]) if room[i] else 0
            for j in range(k + 1):
                self.fed[j][i] = min(self.fed[j][i], start[i] + accepted)
            end = "plain" if not draft[i] else "bonus" if accepted == len(draft[i]) else "recovered"
            emitted.append([*["draft"] * accepted, end] if room[i] else [])
        return emitted

    def accepted(self, k, fates):
        for i, fate in enumerate(fates):
            self.tested[k - 1][1] += 1
            if self.dice.random() >= self.acceptance[k - 1].at(i, fate):
                return i
            self.tested[k - 1][0] += 1
        return len(fates)

    def play(self, rounds):
        """Tokens per row and round."""
        before = sum(self.text)
        for _ in range(rounds):
            emitted = self.round(self.top, self.text, [FOREVER for _ in self.rows])
            self.text = [t + len(e) for t, e in zip(self.text, emitted, strict=True)]
        return (sum(self.text) - before) / rounds / len(self.rows)

    def play_outputs(self, number, new_tokens):
        """Outputs of ``new_tokens`` tokens; rounds and passes of each output's first round are not counted."""
        rounds = 0
        for _ in range(number):
            end = self.text[0] + new_tokens
            kept = [Counter(c) for c in self.passes]
            while self.text[0] < end:
                first = self.text[0] == end - new_tokens
                self.text[0] += len(self.round(self.top, self.text, [end - self.text[0]])[0])
                if first:
                    self.passes = kept
                rounds += not first
        return rounds


def chunks(game, number: int, rounds: int, widest: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Per chunk of rounds: tokens per row and round [C], and passes per round [C, levels, width]."""
    tokens, passes = np.zeros(number), np.zeros((number, game.top + 1, widest))
    for c in range(number):
        for counter in game.passes:
            counter.clear()
        tokens[c] = game.play(rounds)
        for level, counter in enumerate(game.passes):
            for width, n in counter.items():
                passes[c, level, width] = n / rounds
    return tokens, passes


def deviation(samples: Sequence[float], expected: float) -> float:
    """|mean - expected| in standard errors; 0 or infinite when the samples are all alike."""
    x = np.asarray(samples, dtype=float)
    error = x.std(ddof=1) / np.sqrt(len(x))
    gap = abs(x.mean() - expected)
    if error < 1e-12:
        return 0.0 if gap < 1e-9 else float("inf")
    return float(gap / error)

"""Exact laws of whole sequences: of a chain, by enumerating the twin, and of its target alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ssd.core.chain import Edge
from ssd.core.reference import Chooser, Twin, TwinLevel, enumerate_law

PROMPT = (1, 0)
TOLERANCE = 1e-12  # of a probability; sums of some thousand float64 products err by less than 1e-14

Law = dict[tuple[int, ...], float]


def target_law(level: TwinLevel, vocab: int, n: int) -> Law:
    """Law of ``n`` tokens drawn from one level alone after ``PROMPT``: the product of its conditional rows."""
    assert level.law is not None
    law: Law = {(): 1.0}
    for _ in range(n):
        rows = {text: level.law([*PROMPT, *text]) for text, mass in law.items() if mass > 0}
        law = {(*t, token): law[t] * rows[t][token] if t in rows else 0.0 for t in law for token in range(vocab)}
    return law


def chain_law(levels: Sequence[TwinLevel], edges: Sequence[Edge], n: int, twin: type[Twin] = Twin) -> Law:
    """Law of ``n`` tokens of the chain after ``PROMPT``, its target rounds enumerated one by one.

    Only the text so far enters the next round, so this is the law of ``generate`` as a whole, in less time.
    """

    def target_round(text: tuple[int, ...]) -> Law:
        def run(chooser: Chooser) -> list[int]:
            return twin(levels, edges, chooser).round(len(edges), [*PROMPT, *text], n - len(text), 0)[0]

        return enumerate_law(run)

    laws: list[Law] = [{(): 1.0}, *({} for _ in range(n))]
    for length in range(n):
        for text, mass in laws[length].items():
            for tokens, p in target_round(text).items():
                longer = laws[length + len(tokens)]
                longer[text + tokens] = longer.get(text + tokens, 0.0) + mass * p
    return laws[n]


def difference(got: Mapping[tuple[int, ...], float], want: Mapping[tuple[int, ...], float]) -> float:
    """Largest difference of two laws over all sequences."""
    return max(abs(got.get(s, 0.0) - want.get(s, 0.0)) for s in {*got, *want})


def error(levels: Sequence[TwinLevel], edges: Sequence[Edge], vocab: int, n: int, twin: type[Twin] = Twin) -> float:
    """Largest difference, over all sequences of ``n`` tokens, between the chain's law and its target's."""
    return difference(chain_law(levels, edges, n, twin), target_law(levels[-1], vocab, n))

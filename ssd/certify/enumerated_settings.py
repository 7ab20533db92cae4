"""Chains small enough for the law of their whole sequences to be enumerated, family by family.

Laws are tables keyed by the whole prefix, over three ids where time allows: of two, a residual has one left
whatever its weights. A sequence of n tokens lets level 0 of a chain of depth d draft up to n - d of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from transformers import NoRepeatNGramLogitsProcessor

from ssd.certify.exact_laws import PROMPT
from ssd.certify.table_models import blended, hashed, table_level
from ssd.core.chain import VERIFICATIONS, WINDOWS, Edge
from ssd.core.ngram import Ngram
from ssd.core.reference import TwinLevel
from ssd.core.requests import Request, Sampling

ADAPTIVE = ("exactly", "until_correction", "confidence")  # windows whose blocks end before gamma, or are clipped to it

PROCESSED = (
    Request(PROMPT, Sampling(repetition_penalty=1.4)),
    Request(PROMPT, Sampling(0.8, frequency_penalty=0.6, presence_penalty=-0.4)),
    Request(PROMPT, Sampling(bad_words_ids=((1, 2), (0, 0), (0, 1, 1)))),
    Request(PROMPT, Sampling(logit_bias=((0, 1.5), (2, -3.0)))),
    Request(PROMPT, Sampling(min_new_tokens=2), eos_ids=(1,)),
    Request(PROMPT, processors=(NoRepeatNGramLogitsProcessor(3),)),
    Request(PROMPT, Sampling(1.3, 2, repetition_penalty=0.7, bad_words_ids=((0, 1),), logit_bias=((1, -1.0),))),
)


@dataclass(frozen=True)
class Setting:
    """A chain and how many tokens of it are enumerated.

    Attributes:
        levels: L0 .. target, over tables.
        edges: one between each pair.
        vocab: ids of the target.
        tokens: length of the sequences.
    """

    levels: tuple[TwinLevel, ...]
    edges: tuple[Edge, ...]
    vocab: int
    tokens: int

    def __str__(self) -> str:
        edges = [f"{e.window} {e.gamma} by {e.verification}" for e in self.edges]
        return f"{self.tokens} tokens of {self.vocab} ids, edges: {', '.join(edges) or 'none'}"


def setting(
    name: str,
    edges: Sequence[Edge],
    vocab: int,
    tokens: int,
    own: Sequence[Sampling] = (),
    request: Request | None = None,
) -> Setting:
    """A chain over tables of its own name; drafts lean towards the target's table, upper ones more.

    Args:
        own: settings of each level, the target's last; plain sampling by default.
        request: whose processors every level applies.
    """
    depth = len(edges)
    final = hashed(f"{name} target", vocab)
    drafts = [blended(final, hashed(f"{name} draft {k}", vocab), 0.3 + 0.15 * k) for k in range(depth)]
    chosen = own or [Sampling()] * (depth + 1)
    levels = [table_level(t, s, request=request) for t, s in zip([*drafts, final], chosen, strict=True)]
    return Setting(tuple(levels), tuple(edges), vocab, tokens)


def edge(window: str, gamma: int, verification: str, sure: float = 0.55) -> Edge:
    """An edge; ``sure`` is the threshold of ``confidence``."""
    return Edge(gamma, window, sure if window == "confidence" else None, verification)


def mixed(turn: int, depth: int, gammas: Sequence[int] = (2,)) -> list[Edge]:
    """Edges that differ from one another; over 25 turns two neighbours take every pair of windows."""
    return [
        edge(WINDOWS[(turn + k * (1 + turn // 5)) % 5], gammas[(turn + k) % len(gammas)], VERIFICATIONS[turn >> k & 1])
        for k in range(depth)
    ]


def no_draft() -> Iterator[Setting]:
    """Depth 0."""
    for vocab in (2, 3):
        yield setting(f"alone {vocab}", [], vocab, 5)


def one_draft() -> Iterator[Setting]:
    """Depth 1: every window, gamma and verification."""
    for window, gamma, verification in product(WINDOWS, (1, 2, 3), VERIFICATIONS):
        yield setting(f"one {window}", [edge(window, gamma, verification)], 3, 5)


def two_drafts() -> Iterator[Setting]:
    """Depth 2: every pair of windows with every pair of verifications."""
    pairs = product(WINDOWS, WINDOWS, VERIFICATIONS, VERIFICATIONS)
    for turn, (lower, upper, below, above) in enumerate(pairs):
        edges = [edge(lower, 1 + turn % 3, below), edge(upper, 2 + turn % 2, above)]
        yield setting(f"two {turn % 7}", edges, 3, 4)


def three_drafts() -> Iterator[Setting]:
    """Depth 3: windows and verifications mixed."""
    for turn in range(25):
        yield setting(f"three {turn}", mixed(turn, 3, (1, 2, 2)), 2, 5)
    for turn in range(8):
        yield setting(f"three of three {turn}", mixed(3 * turn, 3), 3, 4)


def four_drafts() -> Iterator[Setting]:
    """Depth 4: windows and verifications mixed, so that every edge has each of them."""
    for turn in range(10):
        yield setting(f"four {turn}", mixed(19 * turn + 2, 4, (2, 1)), 2, 6)


def blocks_that_end_early() -> Iterator[Setting]:
    """Whole blocks verified under the windows that end or clip a block for what happened in it."""
    for turn, (lower, upper) in enumerate(product(ADAPTIVE, ADAPTIVE)):
        yield setting(f"early {turn}", [edge(lower, 3, "block"), edge(upper, 3, "block")], 2, 6)
        yield setting(f"early {turn}", [edge(lower, 2, "block"), edge(upper, 3, "block")], 3, 4)


def settings_per_level() -> Iterator[Setting]:
    """Temperatures and filters per level: zeros on the draft, on the target, on both; greedy levels."""
    chosen = [
        (Sampling(0.5), Sampling(1.7), Sampling(0.8)),
        (Sampling(top_k=2), Sampling(2.0), Sampling()),
        (Sampling(), Sampling(top_p=0.7), Sampling(1.3, top_k=2)),
        (Sampling(0.0), Sampling(min_p=0.4), Sampling(1.5)),
        (Sampling(top_k=1), Sampling(0.0), Sampling()),
        (Sampling(), Sampling(1.2), Sampling(0.0)),
        (Sampling(3.0, 2, 0.9, 0.1), Sampling(0.7, 2), Sampling(1.1, 2, 0.95, 0.05)),
    ]
    for i, own in enumerate(chosen):
        for turn in (5 * i, 5 * i + 8, 5 * i + 11):
            yield setting(f"own {i}", mixed(turn, 2, (2, 3)), 3, 4, own)


def draft_vocabularies() -> Iterator[Setting]:
    """A draft law that is zero outside a subset, in any order, at L0, at L1 and at both."""
    final = hashed("wide target", 3)
    target, wide = table_level(final), table_level(blended(final, hashed("wide draft", 3), 0.4))
    for turn, ids in enumerate([(0, 2), (2, 0), (1,)]):
        narrow = [table_level(hashed(f"narrow {k}", len(ids)), ids=ids, vocab=3) for k in range(2)]
        chains = ([narrow[0], target], [narrow[0], wide, target], [wide, narrow[1], target], [*narrow, target])
        for levels, shift in product(chains, (0, 1, 7)):
            yield Setting(tuple(levels), tuple(mixed(turn + shift, len(levels) - 1)), 3, 4)


def look_ups() -> Iterator[Setting]:
    """An n-gram look-up at level 0, whose law is a point mass."""
    for depth, turn in product((1, 2, 3), range(0, 15, 2)):
        plain = setting(f"look-up {depth}", mixed(turn, depth, (3, 2)), 2, 5)
        look_up = TwinLevel(None, look_up=Ngram().look_up)
        yield Setting((look_up, *plain.levels[1:]), plain.edges, 2, 5)


def position_limits() -> Iterator[Setting]:
    """Drafts that reach their position limit before, at and after the end."""
    tables = [hashed(f"limited {k}", 2) for k in range(3)]
    for turn, limits in enumerate(product((1, 2, 3, 5), repeat=2)):
        drafts = [table_level(t, limit=n) for t, n in zip(tables, limits, strict=False)]
        yield Setting((*drafts, table_level(tables[2])), tuple(mixed(turn, 2, (2, 3))), 2, 5)


def logits_processors() -> Iterator[Setting]:
    """Penalties, forbidden and favoured tokens: laws that depend on the whole history."""
    for i, request in enumerate(PROCESSED):
        for turn, depth in ((i, 1), (i + 9, 2), (i + 5, 2)):
            own = [Sampling(1.5), request.sampling, request.sampling][-depth - 1 :]
            yield setting(f"processed {i}", mixed(turn, depth, (3, 2)), 3, 4, own, request)


FAMILIES: dict[str, Callable[[], Iterator[Setting]]] = {
    "no draft": no_draft,
    "one draft level": one_draft,
    "two draft levels": two_drafts,
    "three draft levels": three_drafts,
    "four draft levels": four_drafts,
    "whole blocks that end early": blocks_that_end_early,
    "temperatures and filters per level": settings_per_level,
    "draft vocabularies": draft_vocabularies,
    "n-gram look-up": look_ups,
    "position limits of drafts": position_limits,
    "logits processors": logits_processors,
}

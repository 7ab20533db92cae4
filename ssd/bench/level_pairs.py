"""Levels side by side: tokenizers, vocabularies, end-of-text ids and position limits of every pair."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

from ssd.bench.chain_check import Inspection, LevelFacts
from ssd.bench.compatibility import entries, vocabulary
from ssd.core.positional import context_limit

ROLES = ("bos", "eos", "pad", "unk")
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Pair:
    """Two levels compared, in words; in each entry the lower level stands first.

    Attributes:
        levels: such as ``L0, L2``.
        tokenizer: entry by entry, added and special tokens included.
        vocabulary: rows of both, and the ids that only one of them has.
        special: roles of special tokens whose ids differ.
        end_of_text: ids that end a text, from tokenizer, generation config and config.
        positions: how many each may be fed.
    """

    levels: str
    tokenizer: str
    vocabulary: str
    special: str
    end_of_text: str
    positions: str


def compare_pairs(chain: Inspection) -> list[Pair]:
    """Every pair of levels, L0 with L1 first; a level without a tokenizer has the target's."""
    numbered = list(enumerate(chain.levels))
    return [_pair(f"L{a}, L{b}", x, y, chain.tokenizer) for (a, x), (b, y) in itertools.combinations(numbered, 2)]


def padding_rows(level: LevelFacts, fallback: Any) -> int | None:
    """Rows of a level's vocabulary for which its tokenizer (else ``fallback``) has no token; ``None``: not known."""
    tokenizer, rows = level.tokenizer or fallback, _rows(level)
    if tokenizer is None or rows is None:
        return None
    return len(set(range(rows)) - set(entries(tokenizer).values()))


def _pair(name: str, a: LevelFacts, b: LevelFacts, fallback: Any) -> Pair:
    return Pair(
        name,
        _tokenizers(a, b, fallback),
        _vocabularies(a, b),
        _special(a.tokenizer or fallback, b.tokenizer or fallback),
        f"{_ids(a.end_ids)} / {_ids(b.end_ids)}",
        f"{_limit(a)} / {_limit(b)}",
    )


def _tokenizers(a: LevelFacts, b: LevelFacts, fallback: Any) -> str:
    own = [x.tokenizer or fallback for x in (a, b)]
    if own[0] is None or own[1] is None:
        return "none to compare"
    ours, theirs = map(entries, own)
    different = sum(ours.get(token) != theirs.get(token) for token in ours.keys() | theirs.keys())
    if different:
        return f"{different} of {len(ours.keys() | theirs.keys())} entries differ"
    borrowed = a.tokenizer is None or b.tokenizer is None
    return "the target's" if borrowed else f"equal, {len(ours)} entries"


def _rows(level: LevelFacts) -> int | None:
    return None if level.config is None else vocabulary(level.config)


def _vocabularies(a: LevelFacts, b: LevelFacts) -> str:
    """Both sizes in one line."""
    if a.is_ngram or b.is_ngram:
        return "a look-up has the target's"
    ours, theirs = _rows(a), _rows(b)
    if ours is None or theirs is None:
        return f"{ours or UNKNOWN} / {theirs or UNKNOWN}"
    if ours == theirs:
        return f"{ours} / {theirs}"
    wider = a if ours > theirs else b
    only = f"ids {min(ours, theirs)} to {max(ours, theirs) - 1} only in {'the lower' if wider is a else 'the upper'}"
    return f"{ours} / {theirs}, {only}"


def _special(ours: Any, theirs: Any) -> str:
    if ours is None or theirs is None:
        return UNKNOWN
    found = [(r, *(getattr(x, f"{r}_token_id", None) for x in (ours, theirs))) for r in ROLES]
    return ", ".join(f"{role} {x} / {y}" for role, x, y in found if x != y) or "equal"


def _ids(ids: tuple[int, ...] | None) -> str:
    return "-" if ids is None else ",".join(map(str, ids)) or "none"


def _limit(level: LevelFacts) -> str:
    if level.is_ngram:
        return "any"
    limit = None if level.config is None else context_limit(level.config)
    return UNKNOWN if level.config is None else str(limit or "any")

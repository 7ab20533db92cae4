"""A certificate in seconds: the lowest rungs of the ladder on a chain somebody brings, at small sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ssd.certify.forensics import narrow_levels
from ssd.certify.ladder import climb_all, steps
from ssd.certify.result import Rung
from ssd.core.chain import Chain
from ssd.core.model import CachedModel
from ssd.core.requests import Sampling

PROMPTS = 2
LONGEST = 12  # tokens of a prompt
SIZES: dict[int, dict[str, Any]] = {
    0: {"tokens": 6, "gammas": (3,), "rows": 6},
    3: {"tokens": 8, "batch": 2},
    4: {"length": 6, "batch": 8, "repeats": 2, "settings": (Sampling(1.0),)},  # its tests need 40 tokens a repeat
    5: {"tokens": 8, "batch": 2},
}
"""What each rung is called with: bookkeeping, identity, law, and ties of 16-bit outputs."""
LAW_PROMPT = 4  # tokens; the law is claimed after any prompt, and a short one is cheap
MOST_TOKENS = 8


@dataclass(frozen=True)
class MiniCertificate:
    """What was checked.

    Attributes:
        note: which rungs were not on the chain as it stands, and why; empty if all were.
        rungs: in the order climbed.
    """

    note: str
    rungs: tuple[Rung, ...]

    @property
    def failures(self) -> list[str]:
        """Every failed check in a line."""
        return [
            f"mini-certificate: {check.name}: {check.detail}"
            for rung in self.rungs
            for check in rung.checks
            if not check.passed
        ]

    @property
    def false_alarm(self) -> float:
        """Bound on the probability that a correct decoder has a failure."""
        return min(1.0, sum(rung.false_alarm for rung in self.rungs))


def mini_certificate(
    chain: Chain,
    prompts: Sequence[Sequence[int]],
    in_float32: Callable[[], Chain] | None,
    say: Callable[[Rung], None] = lambda rung: None,
) -> MiniCertificate:
    """Self-drafts, books, u = 0, identity and law, on the first two ``prompts``.

    Identity and law are claims about 32 bits. A chain held in fewer is checked for ties as it stands, and for the
    rest in a copy.

    Args:
        chain: as it stands.
        prompts: token ids.
        in_float32: gives the copy; ``None`` where there is no room for it.
        say: called with each rung as soon as it is known.
    """
    if chain.depth == 0:
        return MiniCertificate("no draft, so there is nothing to certify", ())
    narrow = bool(narrow_levels(chain))
    short = _short(chain, prompts)
    arguments: dict[int, Mapping[str, Any]] = {}
    note = ""
    if narrow:
        arguments[5] = {"chain": chain, "prompts": short, **SIZES[5]}
        note = "bookkeeping, identity and law on a copy in float32"
    if narrow and in_float32 is None:
        note = "no room for a copy in float32, in which alone books, identity and law can be checked"
    else:
        wide = in_float32() if narrow and in_float32 is not None else chain
        arguments |= {n: {"chain": wide, "prompts": short, **SIZES[n]} for n in (0, 3)}
        tails = short if chain.levels[0].is_ngram else [ids[:LAW_PROMPT] for ids in short]
        arguments[4] = {"chain": wide, "prompts": tails, **SIZES[4]}
    return MiniCertificate(note, tuple(climb_all(steps(arguments, arguments), say)))


def _short(chain: Chain, prompts: Sequence[Sequence[int]]) -> list[list[int]]:
    """The ends of two prompts, of unequal lengths; said twice for a look-up, which then has something to find."""
    limits = [x.model.max_positions for x in chain.levels if isinstance(x.model, CachedModel)]
    room = min([LONGEST, *(max(limit - MOST_TOKENS, 4) for limit in limits if limit is not None)])
    if chain.levels[0].is_ngram:
        return [(ids := list(p[-(room // 2 - i) :])) + ids for i, p in enumerate(prompts[:PROMPTS])]
    return [list(p[-(room - i) :]) for i, p in enumerate(prompts[:PROMPTS])]

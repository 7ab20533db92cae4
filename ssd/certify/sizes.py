"""How much of each rung is climbed: plain data, checked before anything is loaded."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields

LEAST = {"prompt_tokens": 4, "batch": 2, "repeats": 2}  # rungs shorten prompts by up to two tokens


@dataclass(frozen=True)
class Sizes:
    """Of a rung that decodes prompts on the real chain.

    Attributes:
        prompts: how many, the first of the set.
        prompt_tokens: the first so many tokens of a prompt's bare text; None for the whole of it in the chat template.
    """

    prompts: int
    prompt_tokens: int | None

    def __post_init__(self) -> None:
        for field in fields(self):
            value, least = getattr(self, field.name), LEAST.get(field.name, 1)
            if value is not None and value < least:
                raise ValueError(f"{field.name}: expected at least {least}, got {value}")

    def arguments(self) -> dict[str, int]:
        """What the rung's function is called with beside chain, prompts and seed."""
        return {name: value for name, value in asdict(self).items() if name not in ("prompts", "prompt_tokens")}


@dataclass(frozen=True)
class BookkeepingSizes(Sizes):
    """Rung 0: see ``ssd.certify.bookkeeping.check_bookkeeping``."""

    tokens: int
    rows: int


@dataclass(frozen=True)
class GreedySizes(Sizes):
    """Rungs 3 and 5: see ``ssd.certify.identity.check_identity`` and ``ssd.certify.forensics.check_forensics``."""

    tokens: int
    batch: int


@dataclass(frozen=True)
class LawSizes(Sizes):
    """Rung 4: see ``ssd.certify.law.check_law``."""

    length: int
    batch: int
    repeats: int


@dataclass(frozen=True)
class TwinSizes:
    """Rung 2: how many random chains, see ``ssd.certify.twin_equality.check_twin``."""

    cases: int

    def __post_init__(self) -> None:
        if self.cases < 1:
            raise ValueError(f"cases: expected at least 1, got {self.cases}")

"""What the GPU bench measures: levels, acceptance in its columns, chains, sizes of a run, goals. Plain data."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

# Level -> published shape (``ssd.bench.published_shapes``), smallest first.
LEVELS = {"68M": "68m", "160M": "160m", "1B": "tinyllama-1b", "7B": "llama2-7b", "70B": "llama2-70b"}
TARGET = "70B"
DISTINCT = {"70B": 40}  # sets of layer weights: 69 GB stored, 137 GB streamed
WIDTHS = (1, 2, 4, 8, 16, 32)  # tokens of a pass that are compiled; others are filled up with committed tokens
LARGEST = (8, 4)  # draft lengths tried: of the lowest edge, and rounds of those above

# Acceptance of 7B drafting for 70B, the pair on which the verdict hangs.
COLUMNS = {
    "public_low": (0.77, "backed out of 1.90x on Alpaca, arXiv 2405.19715"),
    "public_high": (0.81, "backed out of 2.07x on GSM8K, arXiv 2405.19715"),
    "implied": (0.85, "what a pair 2.8 times as fast as AR implies at a tenth of its cost"),
}
ALPHAS = {
    ("68M", "1B"): (0.62, "assumed"),
    ("68M", "7B"): (0.58, "Vicuna pair, Spec-Bench"),
    ("160M", "7B"): (0.65, "assumed"),
    ("1B", "7B"): (0.75, "assumed"),
    ("1B", "70B"): (0.72, "within what arXiv 2603.03251 implies for Llama-3"),
}


@dataclass(frozen=True)
class Case:
    """A chain with its imposed acceptance.

    Attributes:
        levels: smallest first; the target alone is AR.
        column: of ``COLUMNS``; ``only`` where the chain does not hold the pair they differ in.
        alphas: per edge.
    """

    levels: tuple[str, ...]
    column: str
    alphas: tuple[float, ...]

    @property
    def chain(self) -> str:
        """The chain's name."""
        return "->".join(self.levels)

    @property
    def name(self) -> str:
        """Chain and column."""
        return f"{self.chain}/{self.column}"


def case(levels: tuple[str, ...], column: str) -> Case:
    """The case of a chain in a column.

    Raises:
        ValueError: if nothing is known of one of its pairs.
    """
    alphas = []
    for pair in pairwise(levels):
        if pair == ("7B", TARGET):
            alphas.append(COLUMNS[column][0])
        elif pair in ALPHAS:
            alphas.append(ALPHAS[pair][0])
        else:
            raise ValueError(f"acceptance: nothing is known about {pair[0]} drafting for {pair[1]}")
    differs = any(pair == ("7B", TARGET) for pair in pairwise(levels))
    return Case(levels, column if differs else "only", tuple(alphas))


def cases() -> list[Case]:
    """All of them, those with goals first, each once."""
    small = [("1B", "7B", "70B"), ("68M", "7B", "70B"), ("7B", "70B"), ("1B", "70B")]
    more = [("68M", "1B", "7B", "70B"), ("160M", "7B", "70B")]
    order = [(c, "implied") for c in small]
    order += [(c, column) for column in ("public_high", "public_low") for c in small[:3]]
    order += [(c, column) for c in more for column in ("implied", "public_high", "public_low")]
    return list(dict.fromkeys(case(*each) for each in order))


@dataclass(frozen=True)
class Sizes:
    """How much is measured.

    Attributes:
        prompt: tokens of context at the start; slots: of every cache, what the prompt leaves is room for new tokens.
        rounds: target rounds per case, at least; chunk: rounds between two readings of the clock; ar_chunk: tokens of
            AR between them.
        copy_bytes: of the buffer whose copy gives the ceiling.
        groups: repeats of a pass time; seconds: how long a group should take.
        pass_widths: per level, widths that are timed.
        batches: of stage 4, whose pass times are taken at ``batch_widths``.
    """

    prompt: int = 512
    slots: int = 1024
    rounds: int = 200
    chunk: int = 10
    ar_chunk: int = 5
    copy_bytes: int = 1 << 31
    groups: int = 7
    seconds: float = 0.15
    batches: tuple[int, ...] = (1, 16)
    batch_rounds: int = 60
    batch_widths: tuple[int, ...] = (1, 8, 32)  # up to the widest, where many rows are no longer flat


TINY = Sizes(12, 256, 6, 2, 2, 1 << 18, 2, 0.002, (1, 3), 4, (1, 8))

# In the order in which they are worth having, should time run out.
PASSES = (
    *((level, 1) for level in ("70B", "7B", "1B", "68M")),
    *((level, 8) for level in ("70B", "7B", "1B")),
    *(("68M", w) for w in (2, 4)),
    *(("1B", w) for w in (2, 4)),
    *(("7B", w) for w in (2, 4, 16)),
    ("70B", 16),
    ("70B", 32),
    *(("160M", w) for w in (1, 2, 4)),
)

GOAL_OVER_FLOOR = {"70B": 1.2, "7B": 1.35, "1B": 2.2}
GOAL_SECONDS = {"68M": 0.12e-3}
GOAL_SPEEDUP = {"1B->7B->70B/implied": 2.9, "68M->7B->70B/implied": 3.3}
GOAL_OVER_PREDICTED = 0.95
GOAL_HOST_SHARE = 0.03
COVER = 0.9  # chance that one guess of the token behind an accepted draft is right; about what arXiv 2603.03251 reports

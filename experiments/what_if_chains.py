"""The chains that are simulated, and their acceptance in columns, each number with its origin."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import mean

from ssd.plan.inputs import find_published

LLAMA2, LLAMA3, SMALL, ONE_B = (
    "Llama-2-chat-7B->Llama-2-chat-70B",
    "Llama-3.2-1B->Llama-3.1-70B",
    "Vicuna-68M->Vicuna-7B",
    "TinyLlama-1.1B->Llama-2-7B",
)
LLAMA3_DATA = ("HumanEval", "GSM8K", "Alpaca", "UltraFeedback")
ONE_B_TO_70B = 0.72  # assumed: no figure for a LLaMA-2 1B drafting for the 70B was found


@dataclass(frozen=True)
class Column:
    """Acceptance of every edge of a chain.

    Attributes:
        name: short, unique within the chain.
        alphas: per edge, from the lowest up; one rate for every token.
        origin: where they come from.
    """

    name: str
    alphas: tuple[float, ...]
    origin: str


@dataclass(frozen=True)
class ChainCase:
    """A chain with its columns of acceptance.

    Attributes:
        shapes: of ``ssd.plan.h200``, from the smallest draft to the target.
        family: chains of one family are compared.
    """

    family: str
    shapes: tuple[str, ...]
    columns: tuple[Column, ...]

    @property
    def name(self) -> str:
        """How rows call it."""
        return "→".join(self.shapes)

    def column(self, name: str) -> Column:
        """The column of that name.

        Raises:
            ValueError: if there is none.
        """
        for column in self.columns:
            if column.name == name:
                return column
        raise ValueError(f"alphas: {name!r} is no column of {self.name}: {', '.join(c.name for c in self.columns)}")


def published(pair: str, data: str, second: bool = False) -> float:
    """The first published rate of a pair, or the one in its second column of doubt.

    Raises:
        ValueError: if the entry has no second column.
    """
    entry = find_published(f"published: {pair} on {data}")
    column = entry.second if second else entry.alphas
    if column is None:
        raise ValueError(f"{pair} on {data}: there is no second column")
    return column[0]


def _llama2(low: float, high: float, low_origin: str, high_origin: str) -> tuple[Column, ...]:
    """Three columns of a chain over 7B→70B: the lowest published rate, the highest, and what 2.8x would need."""
    lowest, highest = published(LLAMA2, "Alpaca"), published(LLAMA2, "GSM8K")
    implied = published(LLAMA2, "Alpaca", second=True)
    return (
        Column("low", (low, lowest), f"{low_origin}; 7B→70B lowest published (Alpaca, arXiv 2405.19715)"),
        Column("high", (high, highest), f"{high_origin}; 7B→70B highest published (GSM8K, arXiv 2405.19715)"),
        Column("implied", (high, implied), f"{high_origin}; 7B→70B as a speedup of 2.8x at c = .10 implies"),
    )


def _pair(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    return tuple(Column(c.name, c.alphas[-1:], c.origin.partition("; ")[2]) for c in columns)


def _chains() -> tuple[ChainCase, ...]:
    low_1b, high_1b = published(ONE_B, "any"), published(ONE_B, "any", second=True)
    low_68m, high_68m = published(SMALL, "Spec-Bench"), published(SMALL, "Spec-Bench", second=True)
    assumed = "assumed, no figure was found"
    one_b = _llama2(low_1b, high_1b, f"1B→7B {assumed} (low end)", f"1B→7B {assumed} (high end)")
    spec_bench = "68M→7B backed out of Spec-Bench"
    small = _llama2(low_68m, high_68m, f"{spec_bench} at gamma 7", f"{spec_bench} at gamma 4")
    cheap, dear = (mean(published(LLAMA3, d, second) for d in LLAMA3_DATA) for second in (False, True))
    cheap, dear = round(cheap, 4), round(dear, 4)
    back = "backed out of arXiv 2603.03251, mean of four sets"
    half = f"1B→8B {assumed}; 8B→70B assumed half as far from the target as 1B"
    mistral = "assumed: Mistral pairs have no published figure, so LLaMA-2's"
    return (
        ChainCase("LLaMA-2", ("7B", "70B"), _pair(one_b)),
        ChainCase("LLaMA-2", ("1B", "70B"), (Column("assumed", (ONE_B_TO_70B,), f"1B→70B {assumed}"),)),
        ChainCase("LLaMA-2", ("1B", "7B", "70B"), one_b),
        ChainCase("LLaMA-2", ("68M", "7B", "70B"), small),
        ChainCase(
            "Llama-3",
            ("Llama-3.2-1B", "Llama-3.1-70B"),
            (Column("c .03", (cheap,), f"{back} at c = .03"), Column("c .08", (dear,), f"{back} at c = .08")),
        ),
        ChainCase(
            "Llama-3",
            ("Llama-3.2-1B", "Llama-3.1-8B", "Llama-3.1-70B"),
            (
                Column("c .03", (low_1b, round((1 + cheap) / 2, 4)), half),
                Column("c .08", (high_1b, round((1 + dear) / 2, 4)), half),
            ),
        ),
        ChainCase(
            "Mistral",
            ("Mistral-7B", "Mistral-Large-123B"),
            tuple(Column(c.name, c.alphas[-1:], mistral) for c in one_b if c.name != "high"),
        ),
        ChainCase(
            "Mistral",
            ("TinyMistral-248M", "Mistral-7B", "Mistral-Large-123B"),
            tuple(Column(c.name, c.alphas, mistral) for c in one_b if c.name != "high"),
        ),
    )


CHAINS: dict[str, ChainCase] = {chain.name: chain for chain in _chains()}
PAIR_27, TRIPLE = "7B→70B", "1B→7B→70B"


def find_chain(name: str) -> ChainCase:
    """The chain that ``1B->7B->70B`` or ``1B→7B→70B`` names.

    Raises:
        ValueError: if there is none.
    """
    wanted = str(name).replace("->", "→")
    if wanted not in CHAINS:
        raise ValueError(f"chains: {name!r} is not one of {', '.join(CHAINS)}")
    return CHAINS[wanted]

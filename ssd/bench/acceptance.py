"""How often drafts pass, counted from the rounds in the records. A metric without data is None.

Every function takes the records of one method (several prompts, samples or runs) and one edge.
Counts are added up over all records before any ratio is formed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ssd.bench.length_bins import BINS, Bin, bin_of, bins_of
from ssd.bench.record_line import check_real

Record = Mapping[str, Any]


def ratio(top: float, bottom: float) -> float | None:
    """The quotient, or None where there is nothing to divide by."""
    return top / bottom if bottom else None


@dataclass
class Tally:
    """Tested draft tokens of some kind: how many, how many passed, and what was expected to pass.

    Attributes:
        tested: draft tokens the acceptance test was applied to.
        accepted: those that passed.
        overlap: sum of their overlaps, sum over the vocabulary of min(target, draft); None as soon
            as one of the tokens comes without (a foreign method does not tell its probabilities).
    """

    tested: int = 0
    accepted: int = 0
    overlap: float | None = 0.0

    def add(self, accepted: bool, overlap: float | None) -> None:
        """One more tested token is counted."""
        self.tested += 1
        self.accepted += accepted
        self.overlap = None if self.overlap is None or overlap is None else self.overlap + overlap

    @property
    def alpha(self) -> float | None:
        """Accepted / tested, the counted estimate of the acceptance of one draft token."""
        return ratio(self.accepted, self.tested)

    @property
    def alpha_overlap(self) -> float | None:
        """Mean overlap of the tested tokens, the same expectation without the noise of the draws."""
        return None if self.overlap is None else ratio(self.overlap, self.tested)


@dataclass(frozen=True)
class EdgeCounts:
    """Totals of one edge.

    Attributes:
        rounds: verifications on this edge. A round in which nothing was drafted (``plain``) is one:
            the verifier ran and emitted one token.
        plain: rounds without a draft.
        stopped: rounds cut inside the accepted tokens by an end-of-text id or a stop string; they
            count with the tokens they kept.
        drafted: draft tokens handed to the verifier.
        tested: see ``Tally``; None where a round verified its draft as a whole.
        accepted: draft tokens kept.
        emitted: accepted plus recovered, bonus and plain tokens.
        overlap: see ``Tally``.
        positions: draft tokens that ``overlap`` sums over: the tested ones, under block verification
            the drafted ones.
    """

    rounds: int
    plain: int
    stopped: int
    drafted: int
    tested: int | None
    accepted: int
    emitted: int
    overlap: float | None
    positions: int

    @property
    def alpha(self) -> float | None:
        """Accepted / tested (token verification only)."""
        return None if self.tested is None else ratio(self.accepted, self.tested)

    @property
    def alpha_overlap(self) -> float | None:
        """Mean overlap over ``positions``."""
        return None if self.overlap is None else ratio(self.overlap, self.positions)

    @property
    def draft_acceptance_rate(self) -> float | None:
        """Accepted / drafted: falls with the draft length, and is not alpha."""
        return ratio(self.accepted, self.drafted)

    @property
    def tau(self) -> float | None:
        """Emitted / rounds: mean tokens per verification, the extra token included, plain rounds as 1."""
        return ratio(self.emitted, self.rounds)


def rounds_of(records: Iterable[Record], edge: int) -> Iterator[tuple[Record, Mapping[str, Any]]]:
    """(record, round) for every round on ``edge``, in order.

    Raises:
        ValueError: if there is more than one method.
    """
    method = None
    for record in records:
        method = record["method"] if method is None else method
        if record["method"] != method:
            raise ValueError(f"records of {method} and {record['method']} are mixed; select one method first")
        for entry in record["rounds"]:
            if entry["edge"] == edge:
                yield record, entry


def edges(records: Iterable[Record]) -> list[int]:
    """Edges that occur in the rounds, ascending; empty for a chain of depth 0 and for foreign methods."""
    return sorted({entry["edge"] for record in records for entry in record["rounds"] if entry["edge"] >= 0})


def edge_counts(records: Iterable[Record], edge: int) -> EdgeCounts:
    """Totals of ``edge`` over all records; -1 gives the rounds of a chain of depth 0."""
    chosen = [entry for _, entry in rounds_of(records, edge)]

    def total(name: str) -> int:
        return sum(entry[name] for entry in chosen)

    untested = any(entry["tested"] is None for entry in chosen)
    told = all(len(entry["overlap"]) == positions(entry) for entry in chosen)
    return EdgeCounts(
        rounds=len(chosen),
        plain=sum(entry["end"] == "plain" for entry in chosen),
        stopped=sum(entry["end"] == "stopped" for entry in chosen),
        drafted=total("drafted"),
        tested=None if untested else total("tested"),
        accepted=total("accepted"),
        emitted=total("emitted"),
        positions=sum(positions(entry) for entry in chosen),
        overlap=math.fsum(x for entry in chosen for x in entry["overlap"]) if told else None,
    )


def positions(entry: Mapping[str, Any]) -> int:
    """Draft tokens of a round that have an overlap: tested ones, or under block verification drafted ones.

    A round that was stopped counts the drafted tokens it kept.
    """
    if entry["tested"] is not None:
        return int(entry["tested"])
    return int(entry["emitted"] if entry["end"] == "stopped" else entry["drafted"])


def block_efficiency(records: Sequence[Record]) -> float | None:
    """Tau of the last edge: emitted tokens per target pass; 1 at depth 0.

    Raises:
        ValueError: if the records belong to chains of different depth.
    """
    last = {max(entry["edge"] for entry in record["rounds"]) for record in records if record["rounds"]}
    if len(last) > 1:
        raise ValueError(f"block efficiency: records of chains with last edges {sorted(last)} are mixed")
    return edge_counts(records, last.pop()).tau if last else None


def acceptance_by_output_position(
    records: Iterable[Record], edge: int, bins: Sequence[int] = BINS, first_only: bool = False
) -> dict[Bin, Tally]:
    """Tallies by the place of the tested token in the output (0 is the first new token).

    Keys are (from, to) with ``to`` excluded and None for open-ended; bins without a token are there
    too, so that an empty one is seen. With ``first_only`` the first draft token of each round counts
    alone, which makes methods with different draft lengths comparable.
    """

    def place(record: Record, entry: Mapping[str, Any], i: int) -> int | None:
        return None if first_only and i else entry["start"] + i - record["prompt_tokens"]

    return _binned(records, edge, bins, place)


def acceptance_by_output_length(records: Iterable[Record], edge: int, bins: Sequence[int] = BINS) -> dict[Bin, Tally]:
    """Tallies by the length of the whole output, keys as in ``acceptance_by_output_position``."""
    return _binned(records, edge, bins, lambda record, entry, i: len(record["output_ids"]))


def acceptance_by_prompt_length(records: Iterable[Record], edge: int, bins: Sequence[int] = BINS) -> dict[Bin, Tally]:
    """Tallies by the number of prompt tokens, keys as in ``acceptance_by_output_position``."""
    return _binned(records, edge, bins, lambda record, entry, i: record["prompt_tokens"])


def tested_tokens(entry: Mapping[str, Any]) -> Iterator[tuple[bool, float | None]]:
    """(accepted, overlap) of each tested token of a round, in order; none under block verification."""
    tested = entry["tested"] or 0
    overlaps = entry["overlap"] or [None] * tested
    for i in range(tested):
        yield i < entry["accepted"], overlaps[i]


@dataclass(frozen=True)
class AcceptanceCheck:
    """Accepted against expected at the tested positions: a test of the decoder, not of the draft.

    Given the past, a tested token passes with probability equal to its overlap, so the difference
    of the sums is a martingale and ``z`` is close to standard normal.

    Attributes:
        tested: positions compared.
        accepted: how many passed.
        overlap: how many were expected to, the sum of overlaps.
        z: (accepted - overlap) / sqrt(sum of overlap (1 - overlap)); None where that root is 0, as
            at temperature 0, where ``largest_difference`` decides instead.
        largest_difference: max over positions of |passed - overlap|, 0 at temperature 0.
    """

    tested: int
    accepted: int
    overlap: float
    z: float | None
    largest_difference: float

    @property
    def is_equal(self) -> bool:
        """Whether every position came out as its overlap says (temperature 0)."""
        return self.largest_difference == 0


def acceptance_check(records: Iterable[Record], edge: int) -> AcceptanceCheck | None:
    """The comparison over all tested positions of ``edge``; None if there are none or overlaps are missing.

    Records at temperature 0 and above belong into separate calls.

    Raises:
        ValueError: if a record is synthetic: its tokens passed at imposed rates, whatever their overlap.
    """
    records = list(records)
    check_real(records, "acceptance check")
    tokens = [token for _, entry in rounds_of(records, edge) for token in tested_tokens(entry)]
    if not tokens or any(overlap is None for _, overlap in tokens):
        return None
    # Rounding of the probabilities may leave an overlap a hair above 1.
    known = [(accepted, min(max(overlap or 0.0, 0.0), 1.0)) for accepted, overlap in tokens]
    total = math.fsum(overlap for _, overlap in known)
    spread = math.sqrt(math.fsum(overlap * (1 - overlap) for _, overlap in known))
    accepted = sum(passed for passed, _ in known)
    return AcceptanceCheck(
        tested=len(known),
        accepted=accepted,
        overlap=total,
        z=(accepted - total) / spread if spread else None,
        largest_difference=max(abs(passed - overlap) for passed, overlap in known),
    )


def _binned(
    records: Iterable[Record],
    edge: int,
    bins: Sequence[int],
    place: Callable[[Record, Mapping[str, Any], int], int | None],
) -> dict[Bin, Tally]:
    """Tallies by what ``place`` says of (record, round, index in the draft); None leaves a token out."""
    tallies = {each: Tally() for each in bins_of(bins)}
    for record, entry in rounds_of(records, edge):
        for i, (accepted, overlap) in enumerate(tested_tokens(entry)):
            value = place(record, entry, i)
            if value is not None:
                tallies[bin_of(value, bins)].add(accepted, overlap)
    return tallies

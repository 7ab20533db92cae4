"""What became, one level below, of the tokens that an edge tests.

The draft that edge k hands to its verifier was emitted by level k in rounds of edge k-1, so each
draft token has a fate there: ``draft`` (accepted from level k-1), ``recovered``, ``bonus`` or
``plain``. The fates are read off the order of the rounds alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ssd.bench.acceptance import Record, Tally, tested_tokens

FATES = ("draft", "recovered", "bonus", "plain", "unknown")


def fates(rounds: Sequence[Mapping[str, Any]], edge: int) -> list[tuple[Mapping[str, Any], list[str]]]:
    """(round, fate of each of its draft tokens) for every round on ``edge``, in order.

    The rounds of edge k-1 between two rounds of edge k whose ``block_start`` equals the later one's
    ``start`` emitted its draft, token by token; a draft that was cut keeps the first of them. A draft
    token that no such round accounts for is ``unknown``, which a whole record never shows.

    Args:
        rounds: all rounds of one record, in order of execution.
        edge: at least 1; drafts on edge 0 have no level below.
    """
    if edge < 1:
        raise ValueError(f"edge {edge}: its drafts have no level below, fates need edge >= 1")
    found: list[tuple[Mapping[str, Any], list[str]]] = []
    below: list[Mapping[str, Any]] = []
    for entry in rounds:
        if entry["edge"] == edge - 1:
            below.append(entry)
        elif entry["edge"] == edge:
            emitted: list[str] = []
            for inner in below:
                if inner["block_start"] == entry["start"]:
                    emitted += ["draft"] * inner["accepted"]
                    emitted += [inner["end"]] * (inner["emitted"] - inner["accepted"])
            surplus = ["unknown"] * (entry["drafted"] - len(emitted))
            found.append((entry, emitted[: entry["drafted"]] + surplus))
            below = []
    return found


def acceptance_by_fate(records: Iterable[Record], edge: int) -> dict[str, Tally]:
    """Tallies of the tokens tested on ``edge`` by their fate one level below; all of ``FATES`` are keys.

    Raises:
        ValueError: if there is more than one method, or ``edge`` is 0.
    """
    records = list(records)
    if len(methods := {record["method"] for record in records}) > 1:
        raise ValueError(f"records of {', '.join(sorted(methods))} are mixed; select one method first")
    tallies = {fate: Tally() for fate in FATES}
    for record in records:
        for entry, kinds in fates(record["rounds"], edge):
            for fate, (accepted, overlap) in zip(kinds, tested_tokens(entry), strict=False):
                tallies[fate].add(accepted, overlap)
    return tallies

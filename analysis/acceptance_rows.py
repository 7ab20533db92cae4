"""Acceptance of single draft tokens by where they stand and what became of them one level below.

Every tested token becomes one ``Tested``; all rows are counts over groups of these, with an interval
over prompts. On edges under block verification no single token is tested, so only the unconditional
rate by draft position has a value there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from analysis.settings import Method, Record, Setting
from analysis.table import Column
from ssd.bench.acceptance import ratio, rounds_of, tested_tokens
from ssd.bench.fates import FATES, fates
from ssd.bench.intervals import fate_difference
from ssd.bench.length_bins import BINS, bin_name, bin_of, bins_of
from ssd.bench.statistics import Estimate, paired_bootstrap, ratio_of_totals
from ssd.bench.turns import conversation_of

# Outputs that all fall into one or two of the published bins get finer ones.
SHORT_BINS = (0, 16, 32, 64, 128, 256, 512, 1024)
SHORT = 256
FATE_NAMES = {
    "draft": "accepted below",
    "recovered": "recovered below",
    "bonus": "bonus below",
    "plain": "computed below",
    "unknown": "unknown",
}
POSITION_COLUMNS = (
    Column("method"),
    Column("edge"),
    Column("place", "draft position"),
    Column("drafts"),
    Column("tested"),
    Column("accepted"),
    Column("alpha", "given the earlier passed", ".3f", ("low", "high")),
    Column("unconditional", "of all drafts", ".3f"),
)
PLACE_COLUMNS = (
    Column("method"),
    Column("edge"),
    Column("place", "tokens"),
    Column("tested"),
    Column("accepted"),
    Column("alpha", "\N{GREEK SMALL LETTER ALPHA}", ".3f", ("low", "high")),
)
FATE_COLUMNS = (
    Column("method"),
    Column("edge"),
    Column("fate", "one level below"),
    Column("by"),
    Column("place"),
    Column("tested"),
    Column("accepted"),
    Column("alpha", "\N{GREEK SMALL LETTER ALPHA}", ".3f", ("low", "high")),
)


class Tested(NamedTuple):
    """One draft token to which the acceptance test was applied.

    Attributes:
        prompt: id of its prompt.
        accepted: whether it passed.
        draft_position: place in its draft, the first being 1.
        output_position: place in the output, the first new token being 0.
        output_length: of the whole output.
        fate: what it was one level below, one of ``FATES``; None on edge 0.
    """

    prompt: str
    accepted: bool
    draft_position: int
    output_position: int
    output_length: int
    fate: str | None


def tested(records: Sequence[Record], edge: int) -> list[Tested]:
    """Every tested token of an edge, of the records of one method."""
    found = []
    for record, entry, kinds in _rounds(records, edge):
        for i, (accepted, _) in enumerate(tested_tokens(entry)):
            at = entry["start"] + i - record["prompt_tokens"]
            fate = kinds[i] if kinds else None
            found.append(Tested(record["prompt_id"], accepted, i + 1, at, len(record["output_ids"]), fate))
    return found


def _rounds(records: Sequence[Record], edge: int) -> Iterable[tuple[Record, Any, list[str]]]:
    """(record, round, fates of its draft's tokens) on an edge; without fates on edge 0."""
    if edge == 0:
        return ((record, entry, []) for record, entry in rounds_of(records, edge))
    return ((record, entry, kinds) for record in records for entry, kinds in fates(record["rounds"], edge))


def by_draft_position(setting: Setting) -> list[dict[str, Any]]:
    """One row per method, edge and place in the draft, for ``POSITION_COLUMNS``."""
    rows = []
    for method, edge in _edges(setting):
        tokens = tested(method.records, edge)
        drafts = [entry for _, entry in rounds_of(method.records, edge) if entry["drafted"]]
        who = _who(method, edge)
        places = range(1, max((entry["drafted"] for entry in drafts), default=0) + 1)
        for row in _grouped(tokens, lambda t: t.draft_position, places, _prompts(method)):
            accepted = sum(entry["accepted"] >= row["place"] for entry in drafts)
            row |= {"drafts": len(drafts), "accepted": accepted, "unconditional": ratio(accepted, len(drafts))}
            rows.append(who | _without_alpha(row, edge in method.untested))
    return rows


def by_output_position(setting: Setting) -> list[dict[str, Any]]:
    """One row per method, edge and bin of places in the output, for ``PLACE_COLUMNS``."""
    return _by_bin(setting, lambda token: token.output_position)


def by_output_length(setting: Setting) -> list[dict[str, Any]]:
    """One row per method, edge and bin of output lengths, for ``PLACE_COLUMNS``."""
    return _by_bin(setting, lambda token: token.output_length)


def by_fate(setting: Setting) -> list[dict[str, Any]]:
    """Rows of every edge that has a level below its drafts, for ``FATE_COLUMNS``.

    ``by`` is ``all`` (all tokens of a fate), ``draft position``, ``output position`` or ``output length``, and
    ``place`` the position or bin; fates and places without a tested token have no row.
    """
    bins, rows = bins_for(setting), []
    places: dict[str, tuple[Callable[[Tested], Any], Sequence[Any]]] = {
        "all": (lambda t: "all", ["all"]),
        "draft position": (lambda t: t.draft_position, []),
        "output position": (lambda t: bin_name(bin_of(t.output_position, bins)), _names(bins)),
        "output length": (lambda t: bin_name(bin_of(t.output_length, bins)), _names(bins)),
    }
    for method, edge in _edges(setting):
        if edge == 0 or edge in method.untested:
            continue
        tokens = tested(method.records, edge)
        for by, (key, order) in places.items():
            longest = max((token.draft_position for token in tokens), default=0)
            for fate in FATES:
                own = [token for token in tokens if token.fate == fate]
                if not own:
                    continue
                for row in _grouped(own, key, order or range(1, longest + 1), _prompts(method)):
                    if row["tested"]:
                        rows.append(_who(method, edge) | {"fate": FATE_NAMES[fate], "by": by} | row)
    return rows


def fate_differences(setting: Setting) -> list[tuple[str, str, Estimate]]:
    """(method, edge, α of tokens accepted one level below minus α of those recovered there)."""
    return [
        (method.name, method.edge_name(edge), fate_difference(method.records, edge))
        for method, edge in _edges(setting)
        if edge > 0 and edge not in method.untested
    ]


def bins_for(setting: Setting) -> tuple[int, ...]:
    """The bins in which acceptance is published, or finer ones if no output is long."""
    longest = max((len(record["output_ids"]) for record in setting.records), default=0)
    return SHORT_BINS if longest <= SHORT else BINS


def _by_bin(setting: Setting, value: Callable[[Tested], int]) -> list[dict[str, Any]]:
    """Rows by bins of a number, from the first to the last bin with a tested token on any edge."""
    bins = bins_for(setting)
    pairs = [(method, edge, tested(method.records, edge)) for method, edge in _edges(setting)]
    pairs = [(method, edge, tokens) for method, edge, tokens in pairs if edge not in method.untested]
    values = [value(token) for token in chain.from_iterable(tokens for _, _, tokens in pairs)]
    if not values:
        return []
    shown = [each for each in bins_of(bins) if bin_of(min(values), bins) <= each and each[0] <= max(values)]
    names = [bin_name(each) for each in shown]
    return [
        _who(method, edge) | row
        for method, edge, tokens in pairs
        for row in _grouped(tokens, lambda token: bin_name(bin_of(value(token), bins)), names, _prompts(method))
    ]


def _edges(setting: Setting) -> list[tuple[Method, int]]:
    """Every edge of every method."""
    return [(method, edge) for method in setting.methods for edge in method.edges]


def _who(method: Method, edge: int) -> dict[str, Any]:
    """The part of a row that says whose it is."""
    last = edge == len(method.levels) - 2
    return {"method": method.name, "family": method.family, "edge": method.edge_name(edge), "last": last}


def _prompts(method: Method) -> list[str]:
    """Every prompt of a method, also one without a tested token."""
    return list(dict.fromkeys(record["prompt_id"] for record in method.records))


def _grouped(
    tokens: Sequence[Tested], key: Callable[[Tested], Any], order: Iterable[Any], prompts: Sequence[str]
) -> list[dict[str, Any]]:
    """Per value of ``key``, in ``order``: counts and α with its interval over the conversations of ``prompts``."""
    unit = conversation_of(prompts)
    counts: dict[Any, dict[str, list[int]]] = {}
    for token in tokens:
        own = counts.setdefault(key(token), {}).setdefault(unit[token.prompt], [0, 0])
        own[0] += token.accepted
        own[1] += 1
    rows, units = [], list(dict.fromkeys(unit.values()))
    for place in order:
        table = np.array([counts.get(place, {}).get(own, (0, 0)) for own in units], dtype=np.float64)
        found = paired_bootstrap(ratio_of_totals, table)
        accepted, total = (int(x) for x in table.sum(axis=0)) if len(table) else (0, 0)
        rows.append(
            {
                "place": place,
                "tested": total,
                "accepted": accepted,
                "alpha": found.value,
                "low": found.low,
                "high": found.high,
            }
        )
    return rows


def _without_alpha(row: dict[str, Any], untested: bool) -> dict[str, Any]:
    """The row as block verification allows it."""
    return row | {"tested": None, "alpha": None, "low": None, "high": None} if untested else row


def _names(bins: Sequence[int]) -> list[str]:
    """Names of all bins."""
    return [bin_name(each) for each in bins_of(bins)]

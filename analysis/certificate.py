"""A certificate's data as what a page shows: a headline, the ladder, and the matrix of planted faults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.provenance import Source, source
from analysis.table import Column
from ssd.bench.records import Run

Data = Mapping[str, Any]
WORDS = {"passed": "passed", "failed": "failed", "skipped": "does not apply", "inconclusive": "inconclusive"}
QUALITY_COLUMNS = (
    Column("method"),
    Column("temperature", "T", "g"),
    Column("measure"),
    Column("unit"),
    Column("ours", "chain", ".4g"),
    Column("theirs", "target", ".4g"),
    Column("value", "difference [90%]", "+.3g", ("low", "high")),
    Column("margin", "margin ±", "g"),
    Column("smallest", "smallest detectable", ".3g"),
    Column("control", "control's difference [90%]", "+.3g", ("control_low", "control_high")),
    Column("n", "conversations"),
    Column("verdict"),
)


@dataclass(frozen=True)
class Cell:
    """What a rung said to a planted fault: ``caught``, ``missed`` or ``untried``."""

    kind: str
    word: str


@dataclass(frozen=True)
class Fault:
    """A row of the matrix."""

    name: str
    what: str
    patches: str
    by: str
    cells: list[Cell]
    is_caught: bool


@dataclass(frozen=True)
class CertificatePage:
    """All of a page.

    Attributes:
        verdict: ``passed``, ``failed``, ``inconclusive``, or ``running`` before the end.
        tiles: (value, what it is, context).
        rungs: of the data, with ``word`` for the outcome.
        climbed: numbers of the rungs that have been climbed.
        columns: those that the matrix has.
        faults: rows of the matrix.
        matrix_note: what ended the matrix early, or how many it caught.
        quality: rows for ``QUALITY_COLUMNS``.
        against: what the texts of each measure were compared with.
        source: where it was made, by which code, from which weights.
    """

    chain: str
    verdict: str
    title: str
    lead: str
    tiles: list[tuple[str, str, str]]
    rungs: list[Data]
    climbed: list[str]
    columns: list[str]
    faults: list[Fault]
    matrix_note: str
    quality: list[Data]
    against: list[str]
    levels: list[Data]
    edges: list[Data]
    source: Source


def build(data: Data) -> CertificatePage:
    """The page of what ``certificate.json`` holds, finished or not."""
    rungs: list[Data] = [dict(rung, word=WORDS[rung["outcome"]]) for rung in data["rungs"]]
    columns, faults = matrix(data["matrix"])
    return CertificatePage(
        chain=str(data["chain"]),
        verdict=data["verdict"] or "running",
        title=title(data),
        lead=lead(data, faults),
        tiles=tiles(data, faults),
        rungs=rungs,
        climbed=[str(rung["number"]) for rung in rungs],
        columns=columns,
        faults=faults,
        matrix_note=matrix_note(data["matrix"], faults),
        quality=[quality_row(row) for row in data["quality"]],
        against=list(dict.fromkeys(f"{row['measure']}: {row['against']}" for row in data["quality"] if row["against"])),
        levels=list(data["spec"]["levels"]),
        edges=list(data["spec"]["edges"]),
        source=made(data),
    )


def made(data: Data) -> Source:
    """Where the certificate was made; it is told as of a run."""
    return source(Run({**data, "run_id": data["chain"]}, []))


def title(data: Data) -> str:
    """The verdict in one line."""
    chain, verdict = data["chain"], data["verdict"]
    by = {rung["outcome"]: numbers(data, rung["outcome"]) for rung in data["rungs"]}
    if verdict == "passed":
        return f"{chain} has the target's law, as far as {by['passed']} can tell"
    if verdict == "failed":
        return f"{chain} fails on {by['failed']}" if "failed" in by else "A fault was planted and no rung caught it"
    if verdict == "inconclusive":
        return f"{chain}: {by['inconclusive']} could not tell" if "inconclusive" in by else f"{chain} is not certified"
    return f"{chain}: the ladder is not climbed to its end"


def numbers(data: Data, outcome: str) -> str:
    """The rungs with an outcome, in words."""
    found = [str(rung["number"]) for rung in data["rungs"] if rung["outcome"] == outcome]
    return f"rung{'s' if len(found) > 1 else ''} {', '.join(found)}"


def lead(data: Data, faults: Sequence[Fault]) -> str:
    """What the verdict rests on, in two to four sentences."""
    told = [own] if (own := temperatures(data)) else []
    known = {rung["outcome"] for rung in data["rungs"]}
    if "inconclusive" in known:
        told.append(f"Without a verdict: {numbers(data, 'inconclusive')}.")
    if "skipped" in known:
        told.append(f"Without anything to check on this chain: {numbers(data, 'skipped')}.")
    missing = [str(n) for n in data["asked"] if n not in {rung["number"] for rung in data["rungs"]}]
    if missing:
        told.append(f"Not climbed: {', '.join(missing)}.")
    told.append(f"A correct decoder would fail this ladder with probability at most {percent(data['false_alarm'])}.")
    if faults:
        caught = sum(fault.is_caught for fault in faults)
        told.append(f"{caught} of {len(faults)} faults planted in the decoder were caught.")
    return " ".join(told)


def temperatures(data: Data) -> str:
    """Which draft levels draw at a temperature of their own, and the file that says so; empty if none does."""
    own = [(f"L{k}", level.get("temperature")) for k, level in enumerate(data["spec"]["levels"])]
    file = data["config"].get("temperatures")
    if file is None and all(t is None for _, t in own):
        return ""
    words = ", ".join(f"{name} {'that of the row' if t is None else format(t, 'g')}" for name, t in own)
    return f"Temperatures: {words}{f', from {file}' if file is not None else ''}."


def tiles(data: Data, faults: Sequence[Fault]) -> list[tuple[str, str, str]]:
    """A few numbers."""
    rungs = data["rungs"]
    checks = [check for rung in rungs for check in rung["checks"]]
    passed = sum(rung["outcome"] == "passed" for rung in rungs)
    found = [
        (f"{passed} of {len(rungs)}", "rungs passed", f"{sum(c['passed'] for c in checks)} of {len(checks)} checks"),
        (percent(data["false_alarm"]), "false-alarm bound", "sum over all checks"),
        (duration(data["seconds"]), "wall time", dict(made(data).facts).get("device", "")),
    ]
    if faults:
        caught = sum(fault.is_caught for fault in faults)
        found.insert(2, (f"{caught} of {len(faults)}", "planted faults caught", "negative controls"))
    return found


def matrix(data: Data | None) -> tuple[list[str], list[Fault]]:
    """(rungs in the matrix, its rows)."""
    rows = [] if data is None else data["rows"]
    columns = sorted({str(number) for row in rows for number in row["caught"]}, key=int)
    faults = []
    for row in rows:
        caught = {str(number): value for number, value in row["caught"].items()}
        cells = [cell(caught.get(number)) for number in columns]
        faults.append(
            Fault(row["fault"], row.get("what", ""), row["patches"], row["by"] or "", cells, any(caught.values()))
        )
    return columns, faults


def cell(caught: bool | None) -> Cell:
    """A field of the matrix."""
    if caught is None:
        return Cell("untried", "not tried")
    return Cell("caught", "caught") if caught else Cell("missed", "passes")


def matrix_note(data: Data | None, faults: Sequence[Fault]) -> str:
    """What the matrix comes to."""
    if data is None:
        return "The matrix was not asked for."
    if data["error"]:
        return f"The matrix is not finished: {data['error']}"
    empty = [fault.name for fault in faults if not fault.is_caught]
    if empty:
        return f"Nothing caught: {', '.join(empty)}."
    return f"No row is empty. It took {duration(data['seconds'])}."


def quality_row(row: Data) -> Data:
    """A comparison, flat."""
    own, control = row["difference"], row["control"] or {}
    return {
        **row,
        **{name: own[name] for name in ("ours", "theirs", "value", "low", "high", "n")},
        "control": control.get("value"),
        "control_low": control.get("low"),
        "control_high": control.get("high"),
    }


def percent(share: float) -> str:
    """A probability; small ones keep a digit that says something."""
    return "0" if share == 0 else f"{share:.2g}" if share < 0.001 else f"{share:.2%}"


def duration(seconds: float) -> str:
    """Minutes and seconds."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds // 60:.0f} min {seconds % 60:.0f} s"

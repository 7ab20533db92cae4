"""Where greedy outputs leave the baseline's, as ``identity.json`` of a run folder states it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from analysis.settings import Setting
from analysis.table import Column
from ssd.bench.json_files import read_json

IDENTITY_FILE = "identity.json"
DIVERGENCE_COLUMNS = (
    Column("method"),
    Column("prompt_id", "prompt"),
    Column("position"),
    Column("gap", "logit gap", ".3g"),
    Column("epsilon", "ε", ".3g"),
    Column("verdict"),
)


def divergence_rows(setting: Setting) -> list[dict[str, Any]]:
    """One row per output that leaves the baseline's, for ``DIVERGENCE_COLUMNS``.

    ``verdict`` is ``tie`` where rounding explains it, that is where the gap is within 2ε, else ``structural``. Empty
    above temperature 0, and for a run folder without the file.

    Raises:
        ValueError: naming the file if it does not hold what it should.
    """
    folder: Path | None = setting.run.path
    if folder is None or setting.temperature != 0 or not (folder / IDENTITY_FILE).exists():
        return []
    path = folder / IDENTITY_FILE
    names = {method.name for method in setting.methods}
    try:
        partings = [told for told in read_json(path)["partings"] if told["method"] in names]
        return [_row(told) for told in partings]
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path}: not a list of first differences ({type(error).__name__}: {error})") from error


def divergence_note(rows: list[dict[str, Any]]) -> str:
    """How many there are of each verdict, and what the verdict means."""
    ties = sum(row["verdict"] == "tie" for row in rows)
    return (
        f"{ties} ties, {len(rows) - ties} structural. The gap is the baseline's logit of its own token minus that of "
        "the method's; within 2ε, the largest difference rounding makes, the two are a tie."
    )


def _row(told: dict[str, Any]) -> dict[str, Any]:
    """One first difference and its verdict; without a gap (an output ended early) it is structural."""
    gap, epsilon = told["gap"], told["epsilon"]
    is_tie = gap is not None and abs(gap) <= 2 * epsilon
    row = {name: told[name] for name in ("method", "prompt_id", "position", "gap", "epsilon")}
    return row | {"verdict": "tie" if is_tie else "structural"}

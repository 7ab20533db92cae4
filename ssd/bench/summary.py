"""``results/<target>/summary.json``: the measured values of one make target against their goals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ssd.bench.json_files import read_json, write_json
from ssd.bench.statistics import Estimate

SENSES = ("min", "max")


@dataclass(frozen=True)
class Row:
    """One measured value.

    Attributes:
        name: unique within a summary.
        value: None if there was nothing to measure.
        unit: ``x`` for ratios, ``tokens/s``, ``s``, ``share``, ``count``, ...
        low: lower end of the value's interval, None without one.
        high: upper end.
        n: observations behind it (prompts, positions).
        goal: what the value should reach; None if it is only reported.
        low_goal: what ``low`` should reach.
        sense: ``min`` if the goal is a floor, ``max`` if it is a ceiling.
        bound: best value that could have been reached, measured or derived, for a goal not met.
    """

    name: str
    value: float | None
    unit: str
    low: float | None = None
    high: float | None = None
    n: int | None = None
    goal: float | None = None
    low_goal: float | None = None
    sense: str = "min"
    bound: float | None = None

    def __post_init__(self) -> None:
        if self.sense not in SENSES:
            raise ValueError(f"row {self.name}: sense {self.sense!r} is not one of {', '.join(SENSES)}")
        if self.low_goal is not None and self.goal is None:
            raise ValueError(f"row {self.name}: low_goal {self.low_goal!r} needs a goal")
        for name in ("value", "low", "high", "bound", "goal", "low_goal"):
            number = getattr(self, name)
            if number is not None and (isinstance(number, str) or math.isinf(number)):
                raise ValueError(f"row {self.name}: {name} {number!r} is not a finite number")
            if number is not None and math.isnan(number):
                object.__setattr__(self, name, None)

    @classmethod
    def of(cls, name: str, estimate: Estimate, unit: str = "x", **goals: Any) -> Row:
        """The row of an estimate with its interval."""
        return cls(name, estimate.value, unit, estimate.low, estimate.high, estimate.n, **goals)

    @property
    def met(self) -> bool | None:
        """None without a goal, else whether value (and low, where asked for) reach it; None never does."""
        if self.goal is None:
            return None
        if self.value is None or (self.low_goal is not None and self.low is None):
            return False
        reached = self.value <= self.goal if self.sense == "max" else self.value >= self.goal
        return reached and (self.low_goal is None or self.low is None or self.low >= self.low_goal)

    def as_dict(self) -> dict[str, Any]:
        """The row as it stands in the file; ``sense`` is written only for a ceiling."""
        names = ("name", "value", "unit", "low", "high", "n", "goal", "low_goal", "met", "bound")
        row = {name: getattr(self, name) for name in names}
        return row | ({"sense": "max"} if self.sense == "max" else {})


@dataclass(frozen=True)
class Summary:
    """A summary read back: paths of the ``run.json`` files behind it, its rows, and whether acceptance was imposed."""

    runs: list[str]
    rows: list[Row]
    synthetic: bool = False

    def row(self, name: str) -> Row:
        """The row of that name.

        Raises:
            ValueError: if there is none.
        """
        for row in self.rows:
            if row.name == name:
                return row
        raise ValueError(f"summary: no row {name!r}; there are {', '.join(r.name for r in self.rows)}")


def write_summary(
    path: Path | str, runs: Path | str | Sequence[Path | str], rows: Sequence[Row], synthetic: bool = False
) -> None:
    """The file holds these rows, replaced in one step.

    Args:
        path: ``results/<target>/summary.json``.
        runs: path of the ``run.json`` the numbers come from, or several; paths under the current
            folder are written relative to it.
        rows: with unique names.
        synthetic: drafts were accepted at imposed rates; the file says so.

    Raises:
        ValueError: if a name occurs twice.
    """
    names = [row.name for row in rows]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"summary {path}: rows {', '.join(twice)} occur twice")
    origin = _relative(runs) if isinstance(runs, str | Path) else [_relative(run) for run in runs]
    mark = {"synthetic": True} if synthetic else {}
    write_json(Path(path), {"run": origin, "rows": [row.as_dict() for row in rows]} | mark)


def read_summary(path: Path | str) -> Summary:
    """The summary in a file.

    Raises:
        ValueError: naming file and row if it is missing, malformed, or states a ``met`` that its own
            numbers contradict.
    """
    data = read_json(Path(path))
    if set(data) - {"synthetic"} != {"run", "rows"} or not isinstance(data["rows"], list):
        raise ValueError(f"{path}: expected the fields run and rows, got {sorted(data)}")
    runs = [data["run"]] if isinstance(data["run"], str) else list(data["run"])
    return Summary(runs, [_row(path, row) for row in data["rows"]], data.get("synthetic", False))


def _row(path: Path | str, data: Mapping[str, Any]) -> Row:
    """One row read back and checked."""
    fields = {name: value for name, value in data.items() if name != "met"}
    try:
        row = Row(**fields)
    except TypeError as error:
        raise ValueError(f"{path}: row {data.get('name')!r}: {error}") from error
    if row.met != data.get("met"):
        raise ValueError(f"{path}: row {row.name!r} says met {data.get('met')}, its numbers say {row.met}")
    return row


def _relative(path: Path | str) -> str:
    """A path as it should be published: relative to the current folder if it lies inside."""
    absolute = Path(path).resolve()
    here = Path.cwd()
    return (absolute.relative_to(here) if absolute.is_relative_to(here) else Path(path)).as_posix()

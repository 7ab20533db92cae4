"""What is compared with what: the methods of one run at one temperature, and what they are made of.

Levels are named as the run's chain names them (``L0`` is its smallest), also for a method that uses only
some of them, so that one name means one model throughout a report.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ssd.bench.acceptance import edges
from ssd.bench.records import Run, group_by

Record = Mapping[str, Any]
BASELINE = "ar"
FAMILIES = ("baseline", "other", "draft", "chain")
TUNING = ("tune", "calibrate", "train")
NAMELESS = {"transformers_lookup": "n-gram", "ngram": "n-gram"}


@dataclass(frozen=True)
class Method:
    """One method at one setting.

    Attributes:
        name: how the run calls it.
        family: ``baseline`` (what speedups refer to), ``other`` (another library's decoder), ``draft``
            (ours with at most one draft level) or ``chain`` (ours with two draft levels or more).
        levels: from the smallest draft to the target, at least one.
        untested: edges under block verification, where no single token is tested.
        records: its own.
    """

    name: str
    family: str
    levels: tuple[str, ...]
    untested: frozenset[int]
    records: list[Record]

    @property
    def edges(self) -> list[int]:
        """Edges that its rounds name, ascending."""
        return edges(self.records)

    def edge_name(self, edge: int) -> str:
        """``L0→L1`` for the drafts of L0 that L1 verifies."""
        return f"{self.levels[edge]}→{self.levels[edge + 1]}"


@dataclass(frozen=True)
class Setting:
    """Methods that may be compared: one run at one temperature.

    Attributes:
        title: unique within a report; the run's label, or its id.
        run: with all its records.
        temperature: of the target.
        methods: in the order of the run's configuration.
    """

    title: str
    run: Run
    temperature: float | None
    methods: list[Method]

    @property
    def records(self) -> list[Record]:
        """Of all methods."""
        return [record for method in self.methods for record in method.records]

    @property
    def is_tuning(self) -> bool:
        """Whether its prompts are those on which choices are made, so that its best is flattered."""
        return _mapping(_mapping(self.run.run.get("config")).get("prompts")).get("split") in TUNING

    @property
    def is_synthetic(self) -> bool:
        """Whether drafts of any of its methods were accepted at imposed rates; its texts then say nothing."""
        return any(record.get("synthetic") for record in self.records)

    @property
    def prompts(self) -> int:
        """Number of different prompts."""
        return len({record["prompt_id"] for record in self.records})

    def method(self, name: str) -> Method | None:
        """The method of that name."""
        return next((method for method in self.methods if method.name == name), None)


def settings(runs: Iterable[Run], baseline: str = BASELINE) -> list[Setting]:
    """Every setting of complete runs, in order, with titles that are unique.

    Raises:
        ValueError: naming run and method whose rounds or passes do not fit its configuration.
    """
    found = [
        (run, temperature, records)
        for run in runs
        for (temperature,), records in group_by(run.records, "sampling.temperature").items()
    ]
    titles = _titles([run for run, _, _ in found], [temperature for _, temperature, _ in found])
    return [
        Setting(title, run, temperature, _methods(run, records, baseline))
        for title, (run, temperature, records) in zip(titles, found, strict=True)
    ]


def _titles(runs: Sequence[Run], temperatures: Sequence[float | None]) -> list[str]:
    """Labels where they tell runs apart, else ids; several temperatures of a run are told apart by those."""
    owners: dict[str, set[int]] = {}
    for run in runs:
        owners.setdefault(_label(run), set()).add(id(run))
    labels = [_label(run) if len(owners[_label(run)]) == 1 else str(run.run["run_id"]) for run in runs]
    return [
        label if labels.count(label) == 1 else f"{label}, T {temperature:g}" if temperature is not None else label
        for label, temperature in zip(labels, temperatures, strict=True)
    ]


def _label(run: Run) -> str:
    """What a run calls itself."""
    return str(run.run.get("label") or run.run["run_id"])


def _methods(run: Run, records: Sequence[Record], baseline: str) -> list[Method]:
    """The methods of some records, in the order of the configuration (of the records without one)."""
    groups = {name: own for (name,), own in group_by(records, "method").items()}
    configured = _mapping(run.run.get("config")).get("methods")
    order = [name for name in _mapping(configured) if name in groups]
    order += [name for name in groups if name not in order]
    return [_method(run, name, groups[name], baseline) for name in order]


def _method(run: Run, name: str, records: list[Record], baseline: str) -> Method:
    """One method, as configuration and records together describe it."""
    config = _mapping(run.run.get("config"))
    own = _mapping(_mapping(config.get("methods")).get(name))
    count = max((len(record["passes"]) for record in records), default=0)
    count = max(count, max(edges(records), default=-1) + 2, 1)
    levels = level_names(config, own, count)
    kind = str(own.get("kind", "chain"))
    if name == baseline:
        family = "baseline"
    elif kind != "chain":
        family = "other"
    else:
        family = "chain" if len(levels) > 2 else "draft"
    untested = frozenset(e["edge"] for r in records for e in r["rounds"] if e["tested"] is None)
    return Method(name, family, levels, untested, records)


def level_names(config: Mapping[str, Any], method: Mapping[str, Any], count: int) -> tuple[str, ...]:
    """Names of a method's ``count`` levels, draft first, in terms of the run's chain.

    Where the configuration does not tell, or tells of another number of levels, they are counted from L0.
    """
    size = len(_mapping(config.get("chain")).get("levels") or ())
    kind = str(method.get("kind", "chain"))
    chosen = list(method.get("levels") or ())
    if size and kind == "transformers_assisted":
        chosen = [chosen[0] if chosen else 0, size - 1]
    elif size and kind == "transformers_lookup":
        chosen = [kind, size - 1]
    elif size and kind == "transformers_ar":
        chosen = [size - 1]
    elif size and not chosen:
        chosen = list(range(size))
    if len(chosen) != count:
        return tuple(f"L{k}" for k in range(count))
    return tuple(NAMELESS.get(k, k) if isinstance(k, str) else f"L{k % size}" if size else f"L{k}" for k in chosen)


def _mapping(value: Any) -> Mapping[str, Any]:
    """The value if it is a mapping: run.json may be of another version and hold anything."""
    return value if isinstance(value, Mapping) else {}

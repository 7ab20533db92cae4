"""The configurations that a validation measures, in groups that share one alternating run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from experiments.plan_config import row_temperature
from ssd.plan.edge_plan import WINDOWS
from ssd.plan.residual import NAMES as OVERHEADS

HALVES = ("fit", "test")


class Vector(NamedTuple):
    """One configuration: title, levels as a method names them, and draft length and window of each edge."""

    title: str
    levels: tuple[int | str, ...]
    gammas: tuple[int, ...]
    windows: tuple[str, ...]


@dataclass(frozen=True)
class Group:
    """Configurations at one temperature and batch size.

    Attributes:
        temperature: of the row.
        temperatures: per level, what replaces it; empty: nothing does.
        batch: rows decoded together.
        vectors: its configurations.
        first: number of the first among all configurations.
    """

    temperature: float
    temperatures: tuple[float | None, ...]
    batch: int
    vectors: tuple[Vector, ...]
    first: int

    @property
    def setting(self) -> str:
        """Names the temperatures."""
        own = "".join("-" + ("row" if t is None else f"{t:g}") for t in self.temperatures)
        return f"T{self.temperature:g}{own}"

    @property
    def name(self) -> str:
        """Names the group."""
        return f"{self.setting}-batch{self.batch}"

    @property
    def temperatures_list(self) -> list[float | None] | None:
        """As ``plan_config.chain_of`` takes them."""
        return list(self.temperatures) or None

    def half(self, name: str) -> str:
        """``fit`` or ``test``, in turns over all configurations; AR is always fitted on."""
        place = next((i for i, vector in enumerate(self.vectors) if vector.title == name), None)
        return "fit" if place is None else HALVES[(self.first + place) % 2]


def parse_groups(data: Any) -> list[Group]:
    """The groups of a configuration file.

    Raises:
        ValueError: naming the group and the field that is wrong, or if two groups are the same, or if the half that is
            fitted on has fewer configurations than there are overheads to fit.
    """
    if not isinstance(data, list) or not data:
        raise ValueError(f"groups: expected a list, got {data!r}")
    groups: list[Group] = []
    for i, entry in enumerate(data):
        groups.append(_group(f"groups[{i}]", entry, sum(len(g.vectors) for g in groups)))
    names = [g.name for g in groups]
    for i, name in enumerate(names):
        if name in names[:i]:
            raise ValueError(f"groups[{i}]: {name} occurs twice")
    fitted = sum(1 + sum(g.half(v.title) == "fit" for v in g.vectors) for g in groups)
    if fitted < len(OVERHEADS):
        least = len(OVERHEADS)
        raise ValueError(f"groups: {fitted} configurations to fit on, AR of each group included; at least {least}")
    return groups


def check_levels(group: Group, levels: Sequence[int | str]) -> None:
    """Every configuration uses levels that are there, lower ones first, and ends with the target.

    Args:
        levels: as a method names them, smallest first.

    Raises:
        ValueError: naming group, configuration and levels.
    """
    for title, own, _, _ in group.vectors:
        places = [levels.index(k) if k in levels else -1 for k in own]
        if -1 in places or places != sorted(set(places)) or places[-1] != len(levels) - 1:
            raise ValueError(
                f"groups: {group.name}: {title}: levels {list(own)!r} are no ascending choice of {list(levels)!r} that "
                "ends with the target"
            )


def _group(place: str, entry: Any, first: int) -> Group:
    known = ("temperature", "batch", "temperatures", "methods")
    if (
        not isinstance(entry, Mapping)
        or set(entry) - set(known)
        or not {"temperature", "batch", "methods"} <= set(entry)
    ):
        raise ValueError(f"{place}: expected {', '.join(known)}, got {entry!r}")
    batch, methods = entry["batch"], entry["methods"]
    if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
        raise ValueError(f"{place}.batch: expected an integer >= 1, got {batch!r}")
    if not isinstance(methods, list) or not methods:
        raise ValueError(f"{place}.methods: expected a list, got {methods!r}")
    vectors = tuple(_vector(f"{place}.methods[{j}]", m) for j, m in enumerate(methods))
    titles = [vector.title for vector in vectors]
    if len(set(titles)) < len(titles):
        raise ValueError(f"{place}.methods: {max(titles, key=titles.count)} occurs twice")
    own: Sequence[Any] = entry.get("temperatures") or []
    try:
        temperature = row_temperature(entry["temperature"])
        temperatures = tuple(None if t is None else row_temperature(t) for t in own)
    except ValueError as error:
        raise ValueError(f"{place}.{error}") from error
    return Group(temperature, temperatures, batch, vectors, first)


def _vector(place: str, entry: Any) -> Vector:
    if not isinstance(entry, Mapping) or set(entry) - {"windows"} != {"levels", "gammas"}:
        raise ValueError(f"{place}: expected levels, gammas and perhaps windows, got {entry!r}")
    levels, gammas = entry["levels"], entry["gammas"]
    if not isinstance(levels, list) or len(levels) < 2 or any(not isinstance(k, int | str) for k in levels):
        raise ValueError(f"{place}.levels: expected at least two levels, got {levels!r}")
    if not isinstance(gammas, list) or len(gammas) != len(levels) - 1:
        raise ValueError(f"{place}.gammas: {len(levels)} levels need {len(levels) - 1}, got {gammas!r}")
    for g in gammas:
        if isinstance(g, bool) or not isinstance(g, int) or g < 1:
            raise ValueError(f"{place}.gammas: expected integers >= 1, got {gammas!r}")
    windows = entry.get("windows", ["at_least"] * len(gammas))
    if not isinstance(windows, list) or len(windows) != len(gammas) or any(w not in WINDOWS for w in windows):
        raise ValueError(f"{place}.windows: expected {len(gammas)} of {', '.join(WINDOWS)}, got {windows!r}")
    names = ["n-gram" if k == "ngram" else f"L{k}" for k in levels]
    edges = [f"{g}" if w == "at_least" else f"{g} {w}" for g, w in zip(gammas, windows, strict=True)]
    return Vector(f"{'→'.join(names)} [{', '.join(edges)}]", tuple(levels), tuple(gammas), tuple(windows))

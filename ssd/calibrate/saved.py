"""Calibrated temperatures as a small YAML file, an option of Hydra's group ``chain/temperatures``. No torch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from ssd.bench.spec import ChainSpec, parse

HEAD = "# @package _global_"


@dataclass(frozen=True)
class Temperatures:
    """What a file says.

    Attributes:
        levels: temperature of each level, ``None`` inherits the row's, as the target always does; none at all:
            nothing is set.
        sources: of the levels of the chain it was made for; none: any chain of as many levels.
        target: the row's temperature it was made for; at any other it is as exact and perhaps slower.
    """

    levels: tuple[float | None, ...] = ()
    sources: tuple[str, ...] = ()
    target: float | None = None

    @staticmethod
    def of(vector: Sequence[float], sources: Sequence[str]) -> Temperatures:
        """Those of a chain at ``vector``, the target's last; a greedy row makes every level greedy by itself."""
        *drafts, target = vector
        own: list[float | None] = [None] * len(drafts) if target == 0 else list(drafts)
        return Temperatures((*own, None), tuple(sources), target)


def set_on(chain: ChainSpec, saved: Temperatures) -> ChainSpec:
    """``chain`` with these temperatures on its levels.

    Raises:
        ValueError: if the file is for another chain, sets the target's, or sets a level's that has one.
    """
    if not saved.levels:
        return chain
    sources = tuple(level.source for level in chain.levels)
    if len(saved.levels) != len(chain.levels):
        raise ValueError(
            f"temperatures.levels: {list(saved.levels)} are {len(saved.levels)}, the chain has {len(sources)} levels"
        )
    if saved.sources and saved.sources != sources:
        raise ValueError(f"temperatures.sources: made for {list(saved.sources)}, the chain is {list(sources)}")
    if saved.levels[-1] is not None:
        raise ValueError(
            f"temperatures.levels[{len(sources) - 1}]: {saved.levels[-1]!r}; the target uses the row's temperature"
        )
    levels = []
    for k, (level, own) in enumerate(zip(chain.levels, saved.levels, strict=True)):
        if own is not None and level.temperature not in (None, own):
            raise ValueError(
                f"temperatures.levels[{k}]: {own!r}, but chain.levels[{k}].temperature is {level.temperature!r}"
            )
        levels.append(level if own is None else replace(level, temperature=own))
    return replace(chain, levels=tuple(levels))


def write_temperatures(path: Path, saved: Temperatures, provenance: Sequence[str]) -> None:
    """``path`` holds the temperatures, and where they come from in comments that nothing reads."""
    lines = [HEAD, *(f"# {line}" for line in provenance), "temperatures:"]
    for name in ("levels", "sources", "target"):
        value = getattr(saved, name)
        lines.append(f"  {name}: {json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def read_temperatures(path: Path) -> Temperatures:
    """What a file says.

    Raises:
        ValueError: naming the file and what is missing or wrong.
    """
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror})") from error
    if not isinstance(data, dict) or set(data) != {"temperatures"}:
        raise ValueError(f"{path}: expected the key temperatures, got {data!r}")
    try:
        return parse(Temperatures, data["temperatures"], "temperatures")
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error

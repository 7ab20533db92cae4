"""What the what-ifs are told: ``conf/what_if.yaml`` with the values of the command line, checked before anything runs.

Nothing here imports torch, so that the simulated half of the suite runs where there is none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import yaml

from experiments.what_if_case import ALWAYS, CURVES, World
from experiments.what_if_chains import ChainCase, find_chain
from ssd.bench.yaml_text import read_yaml
from ssd.plan.h200 import COLUMNS, CONTENTION

PARTS = ("cases", "map", "hits", "batch", "ablation")
SWEPT = ("chain", "column", "times", "schedule", "devices", "curve", "gamma", "budget", "fan_out", "batch")


@dataclass(frozen=True)
class MapSpec:
    """The grid of acceptance that is mapped."""

    chain: ChainCase
    times: tuple[str, ...]
    lower: tuple[float, ...]
    upper: tuple[float, ...]


@dataclass(frozen=True)
class WhatIfSpec:
    """What is simulated.

    Attributes:
        sweep: per swept key, its values.
    """

    results: Path
    parts: tuple[str, ...]
    world: World
    tokens: int
    seeds: int
    search_tokens: int
    workers: int
    map: MapSpec
    sweep: dict[str, tuple[Any, ...]]


def read_config(path: Path, arguments: Sequence[str]) -> WhatIfSpec:
    """The configuration in ``path`` with what ``arguments`` set in it, each ``key=value`` or ``key.key=value``.

    Raises:
        ValueError: naming the argument or key that is wrong, and its value.
    """
    config: dict[str, Any] = read_yaml(path.read_text(encoding="utf-8"))
    given = [_set(config, argument) for argument in arguments]
    if any(key in SWEPT for key in given) and "parts" not in given:
        config["parts"] = ["ablation"]
    parts = _values("parts", config["parts"], PARTS)
    for key, least in (("tokens", 20), ("search_tokens", 20), ("seeds", 2), ("workers", 1)):
        _integer(key, config[key], least)
    if not isinstance(config["results_dir"], str):
        raise ValueError(f"results_dir: expected a path, got {config['results_dir']!r}")
    results = Path(config["results_dir"]).expanduser() / "what_if"
    world, grid, sweep = _world(config["world"]), _map(config["map"]), _sweep(config)
    return WhatIfSpec(
        results,
        parts,
        world,
        config["tokens"],
        config["seeds"],
        config["search_tokens"],
        config["workers"],
        grid,
        sweep,
    )


def _set(config: dict[str, Any], argument: str) -> str:
    key, equals, text = argument.partition("=")
    if not equals:
        raise ValueError(f"{argument!r}: expected key=value, such as devices=[1,2,3]")
    try:
        value = read_yaml(text)
    except yaml.YAMLError as error:
        raise ValueError(f"{argument!r}: not valid YAML ({' '.join(str(error).split())})") from error
    at, (*folders, last) = config, key.split(".")
    for folder in folders:
        at = at.get(folder, {})
    if not isinstance(at, dict) or last not in at:
        raise ValueError(f"{key}: no such key; there are {', '.join(config)}")
    if isinstance(at[last], dict):
        raise ValueError(f"{key}: set one of {', '.join(f'{key}.{name}' for name in at[last])}")
    at[last] = value
    return key


def _world(data: Mapping[str, Any]) -> World:
    values = dict(data)
    if values["contention"] is None:
        values["contention"] = CONTENTION
    for field in fields(World):
        if not (field.name == "knee" and values["knee"] is None):
            _number(f"world.{field.name}", values[field.name])
    return World(**values)


def _map(data: Mapping[str, Any]) -> MapSpec:
    chain = find_chain(data["chain"])
    if len(chain.shapes) != 3:
        raise ValueError(f"map.chain: {chain.name} has {len(chain.shapes)} levels, the map is of three")
    axes = []
    for key in ("lower", "upper"):
        values = _list(data[key])
        for value in values:
            _number(f"map.{key}", value)
            if not 0 < value < 1:
                raise ValueError(f"map.{key}: {value!r} is outside (0, 1)")
        if len(values) < 2 or sorted(set(values)) != values:
            raise ValueError(f"map.{key}: expected at least two rates in ascending order, got {data[key]!r}")
        axes.append(tuple(map(float, values)))
    return MapSpec(chain, _values("map.times", data["times"], COLUMNS), *axes)


def _sweep(config: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    sweep: dict[str, tuple[Any, ...]] = {
        "chain": tuple(find_chain(name) for name in _list(config["chain"])),
        "times": _values("times", config["times"], COLUMNS),
        "schedule": _values("schedule", config["schedule"], ("serial", "pipelined")),
        "curve": _values("curve", config["curve"], (*CURVES, ALWAYS)),
        "column": tuple(map(str, _list(config["column"]))),
    }
    for chain in sweep["chain"]:
        for name in sweep["column"]:
            chain.column(name)
        if len(config["gamma"]) != len(chain.shapes) - 1 or not all(isinstance(g, list) for g in config["gamma"]):
            raise ValueError(f"gamma: {chain.name} has {len(chain.shapes) - 1} edges and needs a list of draft lengths "
                             f"for each, got {config['gamma']!r}")  # fmt: skip
    for key in ("devices", "budget", "batch"):
        sweep[key] = tuple(_list(config[key]))
        for value in sweep[key]:
            _integer(key, value, 1)
    sweep["fan_out"] = tuple(_list(config["fan_out"]))
    for value in sweep["fan_out"]:
        if value is not None:
            _integer("fan_out", value, 1)
    sweep["gamma"] = tuple(tuple(values) for values in config["gamma"])
    for edge, values in enumerate(sweep["gamma"]):
        for value in values:
            _integer(f"gamma[{edge}]", value, 1)
    for key, values in sweep.items():
        if not values:
            raise ValueError(f"{key}: an empty list leaves nothing to simulate")
    return sweep


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _values(key: str, value: Any, allowed: Sequence[str] | Mapping[str, Any]) -> tuple[str, ...]:
    values = _list(value)
    for one in values:
        if one not in allowed:
            raise ValueError(f"{key}: {one!r} is not one of {', '.join(allowed)}")
    if not values:
        raise ValueError(f"{key}: an empty list leaves nothing to simulate")
    return tuple(values)


def _integer(key: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{key}: expected an integer >= {least}, got {value!r}")


def _number(key: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{key}: expected a number, got {value!r}")

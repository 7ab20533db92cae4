"""Whether what is given, on the command line and in a profile file, fits together; no weights are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.plan_config import NGRAM, level_names
from ssd.bench.spec import ChainSpec
from ssd.plan.inputs import PlanInputs, read_inputs
from ssd.plan.pass_times import PassTimes, Profile

PROFILING = (
    "tune",
    "profiling",
    "batches",
    "temperature_factors",
    "adaptive_gamma",
)  # keys that only a new profile uses


def check_used(config: Mapping[str, Any], arguments: Sequence[str]) -> None:
    """Every key that the command line sets has an effect.

    Raises:
        ValueError: naming the key that has none.
    """
    unused: dict[str, str] = {}
    if config["profile"] is not None:
        unused |= dict.fromkeys(PROFILING, f"profile={config['profile']} is read and nothing is profiled")
    if not config["measured"]:
        unused |= {"measure": "measured=false"}
        if config["profile"] is not None:
            unused |= {"ignore_eos": "nothing is decoded"}
    for argument in arguments:
        key = argument.partition("=")[0]
        if (why := unused.get(key.partition(".")[0])) is not None:
            raise ValueError(f"{argument}: {key} has no effect, because {why}")


def check_named(config: Mapping[str, Any], names: Sequence[str]) -> None:
    """``devices``, ``acceptance`` and ``hit_curve`` say nothing wrong about levels called ``names``.

    Raises:
        ValueError: naming the key and the value.
    """
    levels = tuple(PassTimes.flat(name, 1.0) for name in names)
    inputs = PlanInputs(Profile(levels), {}, {}, {}, (None,) * len(levels), {})
    inputs.with_devices(config["devices"] or {}).with_hit_curve(config["hit_curve"])
    inputs.with_acceptance(config["acceptance"] or {})


def check_profile(data: Mapping[str, Any], config: Mapping[str, Any], chain: ChainSpec) -> None:
    """The content of a profile file is of this chain, at the temperatures asked for, as far as it says.

    Raises:
        ValueError: naming the level and what differs; also for levels that are none of the chain's, if they would be
            measured.
    """
    where, row = config["profile"], config["temperature"]
    names = level_names(chain, config["ngram"])
    if (own := data.get("temperature", row)) != row:
        raise ValueError(f"temperature: {row!r}, but {where} is of {own!r}")
    read_inputs(data, where)
    for entry in data["levels"]:
        name, k = entry["name"], names.get(entry["name"])
        if name == NGRAM and k is None:
            raise ValueError(f"ngram: {config['ngram']!r}, but {where} has the level {NGRAM!r}")
        if k is None and config["measured"]:
            raise ValueError(f"profile: level {name!r} is none of chain {config['chain']}; plan with measured=false")
        if isinstance(k, int) and name != NGRAM:
            _check_level(entry, chain, k, config)


def _check_level(entry: Mapping[str, Any], chain: ChainSpec, k: int, config: Mapping[str, Any]) -> None:
    """Source and temperature of one level; a level without a temperature of its own draws at the row's."""
    where, level, name = config["profile"], chain.levels[k], entry["name"]
    if entry.get("source") not in (None, level.source):
        found = entry["source"]
        raise ValueError(
            f"profile: {where} is of another chain: {name} is {found!r}, in {config['chain']} {level.source!r}"
        )
    row = config["temperature"]
    asked, own = (row if t is None else t for t in (level.temperature, entry.get("temperature")))
    if asked != own:
        raise ValueError(f"temperatures: {name} is at {asked!r} in {config['chain']}, but {where} has it at {own!r}")

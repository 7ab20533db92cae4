"""What the planner's commands may be told: a file of ``conf`` with the values of the command line, checked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments.arguments import check_prompts, overridden
from experiments.bench_config import STAGE_KEYS, prompts_of
from ssd.bench.experiment import read_data
from ssd.bench.method_spec import MethodSpec
from ssd.bench.prompts import Prompt
from ssd.bench.spec import ChainSpec, RunSpec, read_chain
from ssd.calibrate.saved import read_temperatures, set_on
from ssd.core.requests import Sampling
from ssd.plan.edge_plan import WINDOWS
from ssd.plan.planner import Search

PURPOSES = {"tune": "calibrate", "measure": "evaluate"}
NGRAM = "n-gram"
AR = MethodSpec(levels=(-1,))


def read_config(path: Path, arguments: Sequence[str]) -> dict[str, Any]:
    """The configuration in ``path`` with the values that ``arguments`` set, each ``key=value``.

    Raises:
        ValueError: naming the argument, key or set of prompts that is wrong; among others if a stage would use
            prompts that are not for it.
    """
    config = overridden(path, arguments, dict.fromkeys(PURPOSES, STAGE_KEYS), "chain=smollm2")
    for stage, purpose in PURPOSES.items():
        check_prompts(stage, prompts_of(config, stage)[0], purpose)
    for key in ("chain", "results_dir"):
        _is(config, key, str)
    for key in ("ngram", "html", "measured", "ignore_eos"):
        if key in config:
            _is(config, key, bool)
    _check_profiling(config["profiling"])
    return config


def check_plan(config: Mapping[str, Any]) -> Search:
    """What ``conf/plan.yaml`` says about the search, after a check of its other keys.

    Raises:
        ValueError: naming the key and its value.
    """
    for key in ("batch", "largest_gamma", "adaptive_gamma"):
        _at_least(key, config[key], 2 if key == "adaptive_gamma" else 1)
    if config["memory_limit"] is not None:
        _at_least("memory_limit", config["memory_limit"], 1)
    if config["profile"] is not None:
        _is(config, "profile", str)
    for key in ("acceptance", "devices", "hit_curve"):
        if not isinstance(config[key] or {}, Mapping):
            raise ValueError(f"{key}: expected a mapping, got {config[key]!r}")
    windows = config["windows"]
    if not isinstance(windows, list) or not windows or any(w not in WINDOWS for w in windows):
        raise ValueError(f"windows: expected a list of {', '.join(WINDOWS)}, got {windows!r}")
    Sampling(row_temperature(config["temperature"]))
    factors = config["temperature_factors"]
    if not isinstance(factors, list) or any(
        isinstance(f, bool) or not isinstance(f, int | float) or not 0 < f < math.inf for f in factors
    ):
        raise ValueError(f"temperature_factors: expected a list of finite numbers > 0, got {factors!r}")
    budgets, batches = config["budgets"], config["batches"]
    for key, values in (("budgets", budgets), ("batches", batches)):
        if not isinstance(values, list) or (key == "budgets" and not values):
            raise ValueError(f"{key}: expected a list of integers >= 1, got {values!r}")
        for value in values:
            _at_least(key, value, 1)
    return Search(config["batch"], tuple(windows), config["largest_gamma"], config["memory_limit"], tuple(budgets))


def row_temperature(value: Any) -> float:
    """A temperature as a number; ``Sampling`` checks its range."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"temperature: expected a number, got {value!r}")
    return float(value)


def chain_of(name: str, temperatures: Any) -> ChainSpec:
    """The chain called ``name``, with temperatures of its levels replaced where a list or a calibrated file is given.

    Raises:
        ValueError: naming the chain, or the temperatures that do not fit it.
    """
    chain = read_chain(name)
    if temperatures is None:
        return chain
    if isinstance(temperatures, str):
        return set_on(chain, read_temperatures(Path(temperatures)))
    if not isinstance(temperatures, list) or len(temperatures) != len(chain.levels):
        raise ValueError(f"temperatures: {len(chain.levels)} levels need a list of as many, got {temperatures!r}")
    own = [None if t is None else row_temperature(t) for t in temperatures]
    return ChainSpec(
        tuple(replace(level, temperature=t) for level, t in zip(chain.levels, own, strict=True)), chain.edges
    )


def level_names(chain: ChainSpec, ngram: bool) -> dict[str, int | str]:
    """How plans call the levels, smallest first, and how a method names them."""
    found: dict[str, int | str] = {f"L{k}": k for k in range(len(chain.levels))}
    if chain.levels[0].source.partition(":")[0] == "ngram":
        return {NGRAM: 0, **{name: k for name, k in found.items() if k != 0}}
    return {NGRAM: "ngram", **found} if ngram else found


def prompts_from(config: Mapping[str, Any], stage: str, chain: ChainSpec) -> tuple[list[Prompt], int]:
    """The prompts of a stage, and how many new tokens it makes for each at most."""
    prompts, tokens = prompts_of(config, stage)
    spec = RunSpec("plan", chain, {"ar": AR}, prompts, max_new_tokens=tokens)
    return list(read_data(spec).prompts), tokens


def _check_profiling(settings: Any) -> None:
    if not isinstance(settings, Mapping) or set(settings) != {"widths", "repeats"}:
        raise ValueError(f"profiling: expected widths and repeats, got {settings!r}")
    widths = settings["widths"]
    if not isinstance(widths, list) or len(widths) < 2 or widths[0] != 1 or sorted(set(widths)) != widths:
        raise ValueError(f"profiling.widths: expected ascending integers from 1 on, at least two, got {widths!r}")
    for width in widths:
        _at_least("profiling.widths", width, 1)
    _at_least("profiling.repeats", settings["repeats"], 1)


def _at_least(key: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{key}: expected an integer >= {least}, got {value!r}")


def _is(config: Mapping[str, Any], key: str, kind: type) -> None:
    if not isinstance(config[key], kind):
        raise ValueError(f"{key}: expected {kind.__name__}, got {config[key]!r}")

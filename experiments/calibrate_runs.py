"""Prompts in, runs out: what the calibration and the cascade study decode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from experiments.calibrate_config import CalibrateSpec, label
from experiments.console import ProgressLine
from ssd.bench.datasets import DatasetSpec, read
from ssd.bench.experiment import BASELINE, run_pass
from ssd.bench.loading import Loader
from ssd.bench.method_spec import MethodSpec
from ssd.bench.methods import ChainMethod
from ssd.bench.records import Run
from ssd.bench.spec import ChainSpec, PromptSpec, RunSpec
from ssd.bench.turns import Turn, conversations
from ssd.calibrate.choice import Vector
from ssd.calibrate.vectors import side_by_side, stands_for
from ssd.core.chain import Chain

ALONE = MethodSpec(levels=(-1,))


def calibration_turns(spec: CalibrateSpec, chain: Chain, ends: Sequence[int] = ()) -> tuple[list[Turn], dict[str, Any]]:
    """The calibration prompts as token ids, and the version of their data."""
    return turns_of(spec.tune.prompts, chain, spec.tune.max_new_tokens, ends)


def turns_of(
    prompts: PromptSpec, chain: Chain, tokens: int, ends: Sequence[int] = ()
) -> tuple[list[Turn], dict[str, Any]]:
    """Every turn of some prompts as token ids, and the version of their data; any of ``ends`` ends a reply."""
    loaded = read(DatasetSpec(**asdict(prompts)))
    target = ChainMethod("target", Chain(chain.levels[-1:], tokenizer=chain.tokenizer))
    return conversations(loaded.prompts, target, chain.tokenizer, tokens, eos_ids=ends), loaded.describe()


def measure_vectors(
    spec: CalibrateSpec,
    chain: ChainSpec,
    vectors: Mapping[str, Vector],
    temperature: float,
    loader: Loader,
    command: str,
) -> tuple[Run, dict[str, str]]:
    """The chain at every vector, beside the target alone; and by vector the method that ran it."""
    own = {name: overrides(vector) for name, vector in vectors.items()}
    wide, methods = side_by_side(chain, own)
    run_spec = RunSpec(
        "calibrate",
        wide,
        {BASELINE: ALONE, **methods},
        spec.measure.prompts,
        spec.sampling.at(temperature),
        max_new_tokens=spec.measure.max_new_tokens,
        seed=spec.seed,
    )
    name = label(temperature)
    done = run_pass(
        run_spec, spec.raw(temperature), loader, ProgressLine(name), command=command, timing="paper", label=name
    )
    return done, stands_for(own)


def overrides(vector: Vector) -> tuple[float | None, ...]:
    """What each level must be told: nothing where the row says it already, as a greedy row does for all levels."""
    target = vector[-1]
    return tuple(None if target == 0 or t == target else t for t in vector)

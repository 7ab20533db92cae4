"""An experiment: a file that names its methods and prompts, run once per pass of its ``passes``.

A pass is one run: one sampling setting and one dtype of the target. What a pass writes is a run
folder; tables and summaries are made from those alone.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from ssd.bench.divergence import Parting, Rescorer, partings
from ssd.bench.loading import Loader
from ssd.bench.prompts import Prompt, bundled, data_sha256, encode
from ssd.bench.records import Run, RunFolder, read_run
from ssd.bench.runner import Progress, run
from ssd.bench.spec import RunSpec, chain_mapping, parse
from ssd.bench.suite import build_all

BASELINE = "ar"
PASS_FIELDS = ("target_dtype", "temperature", "assert_identity")


@dataclass(frozen=True)
class Pass:
    """One run of an experiment, and whether its outputs must equal AR's."""

    name: str
    spec: RunSpec
    assert_identity: bool


def read_experiment(path: Path, overrides: Mapping[str, str]) -> list[Pass]:
    """The passes of an experiment's YAML file, with dotted ``overrides`` of its values in place.

    Raises:
        ValueError: naming the key and value that is unknown or does not fit.
    """
    config = yaml.safe_load(path.read_text(encoding="utf-8"))
    for key, text in overrides.items():
        override(config, key, yaml.safe_load(text))
    passes = config.pop("passes")
    return [one_pass(config, name, settings) for name, settings in passes.items()]


def override(config: dict[str, Any], key: str, value: Any) -> None:
    """Set the value under a dotted key whose parents exist; a misspelt field fails in ``parse``."""
    *parents, last = key.split(".")
    node: Any = config
    for parent in parents:
        node = node.get(parent) if isinstance(node, dict) else None
    if not isinstance(node, dict):
        raise ValueError(f"{key}: there is no {'.'.join(parents)}; known are {', '.join(config)}")
    node[last] = value


def one_pass(config: Mapping[str, Any], name: str, settings: Mapping[str, Any]) -> Pass:
    """The run of one pass."""
    unknown = [k for k in settings if k not in PASS_FIELDS]
    if unknown:
        raise ValueError(f"passes.{name}.{unknown[0]}: unknown field; known are {', '.join(PASS_FIELDS)}")
    data = copy.deepcopy(dict(config))
    data["chain"] = chain_mapping(data["chain"])
    data["chain"]["levels"][-1]["dtype"] = settings["target_dtype"]
    data["sampling"] = {**data.get("sampling", {}), "temperature": settings["temperature"]}
    return Pass(name, parse(RunSpec, data), bool(settings.get("assert_identity", False)))


def select(spec: RunSpec) -> list[Prompt]:
    """The prompts of a run."""
    return bundled(spec.prompts.split, spec.prompts.tasks or None, spec.prompts.limit)


def run_pass(spec: RunSpec, folder: Path, loader: Loader, progress: Progress) -> Run:
    """Run every method on every prompt into ``folder`` (replacing what it held), and read it back."""
    methods = build_all(spec, loader)
    prompts = select(spec)
    tokenizer = loader.chain(spec.chain).tokenizer
    with RunFolder(folder, run_id=f"{spec.name}-{folder.name}", config=asdict(spec), replace=True) as out:
        out.describe(
            models=loader.describe(),
            data={"name": f"bundled/{spec.prompts.split}", "revision": None, "sha256": data_sha256()},
        )
        run(spec, methods, prompts, tokenizer, out, progress)
    return read_run(folder)


def differences(spec: RunSpec, done: Run, loader: Loader) -> list[Parting]:
    """First differences between each method's greedy outputs and AR's, with their verdicts."""
    chain = loader.chain(spec.chain)
    target = chain.levels[-1].model
    prompts = {p.id: encode(p, chain.tokenizer) for p in select(spec)}
    baseline = [r for r in done.records if r["method"] == BASELINE]
    others = [r for r in done.records if r["method"] != BASELINE]
    widest = max((e["drafted"] for r in done.records for e in r["rounds"] if e["edge"] >= 0), default=0) + 1
    return partings(others, baseline, prompts, Rescorer(target, widest))  # type: ignore[arg-type]

"""One run of an experiment: every method on every prompt under one setting, written to a run folder.

Tables and summaries are made from such folders alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from ssd.bench.datasets import DatasetSpec, Loaded, read
from ssd.bench.divergence import Parting, Rescorer, partings
from ssd.bench.json_files import plain
from ssd.bench.loading import Loader
from ssd.bench.prompts import Prompt, encode
from ssd.bench.records import Run, RunFolder, read_run
from ssd.bench.runner import Progress, run, whole_groups
from ssd.bench.spec import RunSpec
from ssd.bench.suite import build_all

BASELINE = "ar"


def override(config: dict[str, Any], key: str, value: Any) -> None:
    """Set the value under a dotted key whose parents exist; a misspelt field fails in ``parse``."""
    *parents, last = key.split(".")
    node: Any = config
    for parent in parents:
        node = node.get(parent) if isinstance(node, dict) else None
    if not isinstance(node, dict):
        raise ValueError(f"{key}: there is no {'.'.join(parents)}; known are {', '.join(config)}")
    node[last] = value


def read_data(spec: RunSpec) -> Loaded:
    """The prompts of a run and their version."""
    try:
        chosen = DatasetSpec(**{f.name: getattr(spec.prompts, f.name) for f in fields(DatasetSpec)})
    except ValueError as error:
        raise ValueError(f"dataset.{error}") from error
    return read(chosen)


def select(spec: RunSpec) -> list[Prompt]:
    """The prompts of a run."""
    return read_data(spec).prompts


def run_pass(
    spec: RunSpec,
    folder: Path,
    loader: Loader,
    progress: Progress,
    *,
    run_id: str | None = None,
    resume: bool = False,
    **described: Any,
) -> Run:
    """Run every method on every prompt into ``folder``, and read it back.

    Args:
        spec: what is run.
        folder: the run's own.
        loader: where models come from.
        progress: called before every generation and at the end.
        run_id: default the experiment's and the folder's name.
        resume: go on where an attempt in ``folder`` ended, at the group of requests in flight; otherwise
            what the folder held is replaced.
        described: further fields of ``run.json``, see ``records.DESCRIBED``.

    Raises:
        ValueError: among others if prompts or models are not those of the attempt to resume.
    """
    methods = build_all(spec, loader)
    loaded = read_data(spec)
    tokenizer = loader.chain(spec.chain).tokenizer
    run_id = run_id or f"{spec.name}-{folder.name}"
    known = {"models": loader.describe(), "data": loaded.describe()}
    with RunFolder(folder, run_id=run_id, config=asdict(spec), replace=not resume, resume=resume) as out:
        if out.kept:
            _check_unchanged(out.run, known)
            out.keep(whole_groups(spec, loaded.prompts, out.kept))
        out.describe(**known, **described)
        run(spec, methods, loaded.prompts, tokenizer, out, progress)
    return read_run(folder)


def _check_unchanged(old: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    """Records of two sets of prompts or weights do not belong into one file."""
    for name, now in known.items():
        if old[name] and old[name] != plain(now):
            raise ValueError(
                f"{name}: changed since this run began ({old[name]} then, {plain(now)} now); remove its folder to "
                "start over"
            )


def differences(spec: RunSpec, done: Run, loader: Loader) -> list[Parting]:
    """First differences between each method's greedy outputs and AR's, with their verdicts."""
    chain = loader.chain(spec.chain)
    target = chain.levels[-1].model
    prompts = {p.id: encode(p, chain.tokenizer) for p in select(spec)}
    baseline = [r for r in done.records if r["method"] == BASELINE]
    others = [r for r in done.records if r["method"] != BASELINE]
    widest = max((e["drafted"] for r in done.records for e in r["rounds"] if e["edge"] >= 0), default=0) + 1
    return partings(others, baseline, prompts, Rescorer(target, widest))  # type: ignore[arg-type]

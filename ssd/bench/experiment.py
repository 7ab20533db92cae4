"""One run of an experiment: every method on every turn of every prompt under one setting, written to a run folder.

Tables and summaries are made from such folders alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch

from ssd.bench.datasets import DatasetSpec, Loaded, read
from ssd.bench.divergence import Parting, Rescorer, partings
from ssd.bench.end_of_text import end_ids, stated_end_ids
from ssd.bench.environment import device
from ssd.bench.json_files import plain
from ssd.bench.loading import Loader
from ssd.bench.methods import ChainMethod, Method
from ssd.bench.records import Run, RunFolder, read_run
from ssd.bench.runner import Progress, run, whole_groups
from ssd.bench.sources import parse_source
from ssd.bench.spec import ChainSpec, RunSpec
from ssd.bench.suite import build_all
from ssd.bench.turns import REPLIES_FILE, conversations
from ssd.core.chain import Chain

BASELINE = "ar"


def override(
    config: dict[str, Any], key: str, value: Any, optional: Mapping[str, Collection[str]] | None = None
) -> None:
    """Set the value under a dotted key that exists already.

    Args:
        config: changed in place.
        key: such as ``tune.split``.
        value: takes the place of what the key holds.
        optional: keys that a mapping may have besides those it has, by the mapping's own dotted key.

    Raises:
        ValueError: naming the key, if there is no such one, and those that are known.
    """
    *parents, last = key.split(".")
    node: Any = config
    for parent in parents:
        node = node.get(parent) if isinstance(node, dict) else None
    if not isinstance(node, dict):
        raise ValueError(f"{key}: there is no {'.'.join(parents)}; known are {', '.join(config)}")
    known = list(dict.fromkeys([*node, *(optional or {}).get(".".join(parents), ())]))
    if last not in known:
        raise ValueError(f"{key}: unknown key; known are {', '.join(known)}")
    node[last] = value


def read_data(spec: RunSpec) -> Loaded:
    """The prompts of a run and their version."""
    try:
        chosen = DatasetSpec(**{f.name: getattr(spec.prompts, f.name) for f in fields(DatasetSpec)})
    except ValueError as error:
        raise ValueError(f"dataset.{error}") from error
    return read(chosen)


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
    """Run every method on every turn of every prompt into ``folder``, and read it back.

    Later turns of a prompt follow the target's own replies, which stand in the folder as ``replies.json``.

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
    loaded = read_data(spec)
    methods = build_all(spec, loader)
    tokenizer = loader.chain(spec.chain).tokenizer
    stated = stated_end_ids(parse_source(spec.chain.levels[-1].source), tokenizer)
    ends = end_ids(stated)
    target = ChainMethod("target", loader.chain(ChainSpec(spec.chain.levels[-1:])))
    run_id = run_id or f"{spec.name}-{folder.name}"
    known = {"models": loader.describe(), "data": loaded.describe()}
    with (
        closing_workers(methods),
        RunFolder(folder, run_id=run_id, config=asdict(spec), replace=not resume, resume=resume) as out,
    ):
        if out.kept:
            _check_unchanged(out.run, known)
            out.keep(whole_groups(spec, loaded.prompts, out.kept))
        replies = folder / REPLIES_FILE
        if any(out.run[name] != plain(now) for name, now in known.items()):
            replies.unlink(missing_ok=True)  # of another attempt, with other prompts or weights
        place = device(accelerators(loader.chain(spec.chain)), torch.get_num_threads())
        out.describe(**known, device=place, end_of_text=stated, **described)
        turns = conversations(
            loaded.prompts,
            target,
            tokenizer,
            spec.max_new_tokens,
            eos_ids=ends,
            stop=spec.stop,
            path=replies,
            progress=progress,
        )
        run(spec, methods, turns, tokenizer, out, progress, ends)
    return read_run(folder)


@contextmanager
def closing_workers(methods: Sequence[Method]) -> Iterator[None]:
    """Whatever happens inside, no worker of a method is left afterwards."""
    try:
        yield
    finally:
        for method in methods:
            if isinstance(method, ChainMethod):
                method.close()


def accelerators(chain: Chain) -> str | None:
    """Names of the CUDA devices that hold a level; None where there are none."""
    used = sorted({d.index or 0 for d in chain.devices if d.type == "cuda"})
    return ", ".join(torch.cuda.get_device_name(i) for i in used) or None


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
    target = loader.chain(spec.chain).levels[-1].model
    prompts = {r["prompt_id"]: r["prompt_ids"] for r in done.records}
    baseline = [r for r in done.records if r["method"] == BASELINE]
    others = [r for r in done.records if r["method"] != BASELINE]
    widest = max((e["drafted"] for r in done.records for e in r["rounds"] if e["edge"] >= 0), default=0) + 1
    return partings(others, baseline, prompts, Rescorer(target, widest))  # type: ignore[arg-type]

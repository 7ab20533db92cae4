"""Prompt sets by name: the bundled one, public benchmarks, hub data sets and fetched documentation.

Everything a run needs of its data is ``read(spec)``. Order is fixed: that of the source, except that the
categories of a set, or the pages of a manual, take turns, so that the first n are a fair sample. No torch,
and nothing is imported for a set that is not asked for.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from ssd.bench.dataset_formats import read_local
from ssd.bench.dataset_spec import BUNDLED_EVALUATION, LOCAL, DatasetSpec, read_spec
from ssd.bench.dataset_splits import assert_disjoint, check_use, split_of
from ssd.bench.json_files import dumps
from ssd.bench.prompts import Prompt, bundled, data_sha256

__all__ = [
    "DatasetSpec",
    "Loaded",
    "assert_disjoint",
    "check_use",
    "describe",
    "load",
    "read",
    "read_spec",
    "split_of",
]

# The usual place of a local set below SSD_DATA, and where it is published.
USUAL_FILES = {
    "spec_bench": ("spec_bench/question.jsonl", "github.com/hemingkx/Spec-Bench, data/spec_bench"),
    "human_eval": ("human_eval/HumanEval.jsonl.gz", "github.com/openai/human-eval, data"),
    "gsm8k": ("gsm8k/{split}.jsonl", "github.com/openai/grade-school-math, grade_school_math/data"),
}


@dataclass(frozen=True)
class Loaded:
    """Prompts and what they are.

    Attributes:
        prompts: at least one.
        revision: exact version that was read: commit, package version or ``sha256:<hex>``; ``None`` for the
            bundled set and for a folder that stands in for a hub set.
        sha256: of the file or package the prompts come from; for hub sets of the prompts themselves.
    """

    prompts: list[Prompt]
    name: str
    revision: str | None
    sha256: str

    def describe(self) -> dict[str, Any]:
        """The ``data`` field of run.json."""
        return {"name": self.name, "revision": self.revision, "sha256": self.sha256}


def load(spec: DatasetSpec) -> list[Prompt]:
    """The prompts of a set, at least one; see ``read``."""
    return read(spec).prompts


def describe(spec: DatasetSpec) -> dict[str, Any]:
    """``{"name", "revision", "sha256"}`` of what ``load`` returns now, for run.json; reads the data."""
    return read(spec).describe()


def read(spec: DatasetSpec) -> Loaded:
    """The prompts that ``spec`` selects, and their version.

    Raises:
        ValueError: one message that names set, split and what is missing: a file, a package, a column, the
            network, or as many prompts as asked for; or the id that two prompts share.
    """
    everything = READERS[spec.name](spec)
    check_ids(everything.prompts, spec)
    prompts = select(everything.prompts, spec)
    digest = everything.sha256 or hashlib.sha256(dumps(prompts, "prompts").encode("ascii")).hexdigest()
    return Loaded(prompts, everything.name, everything.revision, digest)


def check_ids(prompts: Iterable[Prompt], spec: DatasetSpec) -> None:
    """Nothing happens if no two prompts of the whole set share an id, by which records are told apart.

    Raises:
        ValueError: naming the first id that occurs again.
    """
    seen: set[str] = set()
    for prompt in prompts:
        if prompt.id in seen:
            raise ValueError(f"{spec.label}: prompt id {prompt.id!r} occurs more than once")
        seen.add(prompt.id)


def select(prompts: Iterable[Prompt], spec: DatasetSpec) -> list[Prompt]:
    """Filter by task, let categories or pages take turns, then cut by ``offset`` and ``limit``.

    Raises:
        ValueError: if fewer are left than ``limit``, or none.
    """
    groups: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        if not spec.tasks or prompt.task in spec.tasks:
            group = prompt.extra.get("category") or prompt.extra.get("page") or ""
            groups.setdefault(str(group), []).append(prompt)
    ordered = [p for p in chain.from_iterable(zip_longest(*groups.values())) if p is not None]
    stop = None if spec.limit is None else spec.offset + spec.limit
    chosen = ordered[spec.offset : stop]
    if len(chosen) < (spec.limit or 1):
        wanted = f"{spec.limit or 'all'} prompts from offset {spec.offset}"
        tasks = f" of tasks {', '.join(spec.tasks)}" if spec.tasks else ""
        raise ValueError(f"{spec.label}: limit: {wanted}{tasks} asked for, {len(ordered)} are there")
    return chosen


def _bundled(spec: DatasetSpec) -> Loaded:
    splits = BUNDLED_EVALUATION if spec.split is None else (spec.split,)
    prompts = [prompt for prompt in bundled(tasks=spec.tasks or None) if prompt.split in splits]
    return Loaded(prompts, f"bundled/{spec.part}", None, data_sha256())


def _local(spec: DatasetSpec) -> Loaded:
    path = local_file(spec)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    revision = f"sha256:{digest}"
    if spec.revision not in (None, revision):
        raise ValueError(f"{spec.label}: {path} is another version, {revision}")
    return Loaded(read_local(spec.name, path, str(spec.part)), f"{spec.name}/{spec.part}", revision, digest)


def local_file(spec: DatasetSpec) -> Path:
    """The file of a local set.

    Raises:
        ValueError: saying where it is looked for and published, if it is not there.
    """
    usual, published = USUAL_FILES[spec.name]
    usual = usual.format(split=spec.part)
    if spec.path is None and "SSD_DATA" not in os.environ:
        raise ValueError(f"{spec.label}: set path, or SSD_DATA to the folder with {usual} (published at {published})")
    path = Path(spec.path or Path(os.environ["SSD_DATA"]) / usual).expanduser()
    if not path.is_file():
        raise ValueError(f"{spec.label}: no file {path} (published at {published})")
    return path


def _hub(spec: DatasetSpec) -> Loaded:
    from ssd.bench.hub_datasets import split_on_disk
    from ssd.bench.hub_rows import hub_prompts

    files = split_on_disk(spec)
    name = f"{spec.repo}/{spec.config or 'default'}/{spec.split}"
    return Loaded(hub_prompts(spec, files.paths), name, files.commit, "")


def _docs(spec: DatasetSpec) -> Loaded:
    from ssd.bench.docs_package import find
    from ssd.bench.parallel_docs import summary_prompts, translation_prompts

    package, purpose = str(spec.repo), str(spec.part)
    folder, receipt = find(package, spec.revision, spec.path)
    if spec.name == "docs_translation":
        prompts = translation_prompts(package, folder, str(spec.config), purpose)
        name = f"{package}/{spec.config}/{purpose}"
    else:
        prompts = summary_prompts(package, folder, purpose)
        name = f"{package}/summarization/{purpose}"
    return Loaded(prompts, name, receipt["version"], receipt["sha256"])


READERS: dict[str, Callable[[DatasetSpec], Loaded]] = {
    "bundled": _bundled,
    **dict.fromkeys(LOCAL, _local),
    "hub": _hub,
    "docs_translation": _docs,
    "docs_summarization": _docs,
}

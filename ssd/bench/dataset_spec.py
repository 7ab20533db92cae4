"""Which prompts a run takes, as plain data: the fields of a file in ``conf/dataset``. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from ssd.bench.dataset_splits import PURPOSES, stricter
from ssd.bench.prompts import SPLITS, TASKS
from ssd.bench.spec import parse

LOCAL = ("spec_bench", "human_eval", "gsm8k")
DOCS = ("docs_translation", "docs_summarization")
NAMES = ("bundled", *LOCAL, "hub", *DOCS)
BUNDLED_EVALUATION = ("measure", "extended")

# Splits that a set may be asked for; the hub's are the data set's own.
KNOWN_SPLITS: dict[str, tuple[str, ...]] = {
    "bundled": SPLITS,
    "spec_bench": ("test",),
    "human_eval": ("test",),
    "gsm8k": ("test", "train"),
    "docs_translation": PURPOSES,
    "docs_summarization": PURPOSES,
}
HUB_PURPOSES = {"train": "train", **dict.fromkeys(("validation", "valid", "val", "dev"), "calibrate")}


@dataclass(frozen=True)
class DatasetSpec:
    """One set of prompts.

    Attributes:
        name: one of ``NAMES``.
        path: where the data is on this machine. ``LOCAL`` sets: the file, default the usual name under
            ``SSD_DATA``. ``hub``: a folder laid out like the repository, which is then not asked for.
            ``DOCS`` sets: the folder that ``experiments.fetch_docs`` made, default the one in the cache.
        repo: name on the hub; for ``DOCS`` sets the package, ``gnome-user-docs`` or ``debian-handbook``.
        config: configuration on the hub; for ``docs_translation`` the direction, such as ``en-de``.
        revision: exact version of the data: commit on the hub, version of the package, or
            ``sha256:<hex>`` of the file. ``None`` takes what is there, until ``experiments.pin`` writes it.
        split: part of the set; ``None`` takes what is for evaluation: ``measure`` and ``extended`` of the
            bundled set, else the test or evaluation part.
            A hub set needs one.
        tasks: only prompts of these tasks (see ``ssd.bench.prompts.TASKS``); empty takes all.
        limit, offset: after that, skip ``offset`` prompts and take ``limit`` (``None``: the rest).
        fields: how a row of a hub set becomes a prompt, see ``ssd.bench.hub_rows``.

    Raises:
        ValueError: naming the field and value that does not fit.
    """

    name: str
    path: str | None = None
    repo: str | None = None
    config: str | None = None
    revision: str | None = None
    split: str | None = None
    tasks: tuple[str, ...] = ()
    limit: int | None = None
    offset: int = 0
    fields: dict[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if self.name not in NAMES:
            raise ValueError(f"name: {self.name!r} is not one of {', '.join(NAMES)}")
        known = KNOWN_SPLITS.get(self.name)
        if known and self.split is not None and self.split not in known:
            raise ValueError(f"split: {self.split!r} of {self.name} is not one of {', '.join(known)}")
        for task in self.tasks:
            if task not in TASKS:
                raise ValueError(f"tasks: {task!r} is not one of {', '.join(TASKS)}")
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"limit: expected an integer >= 1, got {self.limit}")
        if self.offset < 0:
            raise ValueError(f"offset: expected an integer >= 0, got {self.offset}")
        self._check_fields()

    def _check_fields(self) -> None:
        """What only some sets need, and no other may have."""
        needs: Mapping[str, bool] = {
            "repo": self.name == "hub" or self.name in DOCS,
            "config": self.name == "docs_translation",
            "split": self.name == "hub",
            "fields": self.name == "hub",
        }
        for name, needed in needs.items():
            if needed and not getattr(self, name):
                raise ValueError(f"{name}: {self.name} needs it, got {getattr(self, name)!r}")
        if self.fields and self.name != "hub":
            raise ValueError(f"fields: {self.name} takes none, got {self.fields!r}")
        if self.name == "hub":
            if "turns" not in self.fields or not {"task", "category"} & set(self.fields):
                raise ValueError(f"fields: a hub set needs turns, and task or category; got {', '.join(self.fields)}")
            if self.fields.get("use", "evaluate") not in PURPOSES:
                raise ValueError(f"fields.use: {self.fields['use']!r} is not one of {', '.join(PURPOSES)}")

    @property
    def part(self) -> str | None:
        """The split that is read where none was asked for."""
        if self.split is None:
            usual = {"bundled": "+".join(BUNDLED_EVALUATION), **dict.fromkeys(DOCS, "evaluate")}
            return usual.get(self.name, "test" if self.name in LOCAL else None)
        return self.split

    @property
    def label(self) -> str:
        """How messages call the set."""
        kind = f"dataset {self.repo or self.name}"
        config = self.config or ("default" if self.name == "hub" else None)
        rest = (("config", config), ("split", self.part), ("revision", self.revision))
        return ", ".join([kind, *(f"{name} {value}" for name, value in rest if value is not None)])

    @property
    def purpose(self) -> str:
        """The one thing this data may be used for: ``train``, ``calibrate`` or ``evaluate``."""
        if self.name in DOCS:
            return str(self.part)
        if self.name == "bundled":
            return "calibrate" if self.split == "tune" else "evaluate"
        own = HUB_PURPOSES.get(str(self.part), "evaluate")
        use = self.fields.get("use", own)
        if stricter(own, use) != use:
            raise ValueError(f"fields.use: {use!r} would loosen split {self.split!r}, which is for {own!r}")
        return use


def read_spec(path: Path) -> DatasetSpec:
    """The set that a YAML file describes; a ``defaults`` list for Hydra is passed over.

    Raises:
        ValueError: naming the file and field that is wrong.
    """
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror})") from error
    except yaml.YAMLError as error:
        raise ValueError(f"{path}: not valid YAML ({' '.join(str(error).split())})") from error
    if not isinstance(data, dict):
        raise ValueError(f"{path}: holds no mapping")
    data.pop("defaults", None)
    return parse(DatasetSpec, data, path.name)

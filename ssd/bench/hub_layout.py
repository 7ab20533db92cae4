"""Which files of a data set repository hold a configuration and split.

The repository's card (the YAML head of README.md) says so in ``configs``; without it the names of the
files decide, as ``datasets`` would have it. Nothing is read here but names and the card.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

CARD = "README.md"
# How ``datasets`` calls the reader of a kind of file.
READERS = {".parquet": "parquet", ".jsonl": "json", ".json": "json", ".csv": "csv"}
ALIASES = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test", "testing", "eval", "evaluation"),
}
SHARD = re.compile(r"(.*)-(\d{5})-of-(\d{5})(.*)")


def reader(name: str) -> str | None:
    """The ``datasets`` reader for a file, or ``None`` if it holds no rows; a final ``.gz`` is looked through."""
    bare = name.removesuffix(".gz")
    return next((kind for ending, kind in READERS.items() if bare.endswith(ending)), None)


def split_files(names: Sequence[str], card: str, config: str | None, split: str) -> list[str]:
    """Those of ``names`` that hold the split, sorted; empty if there are none.

    Args:
        names: files of the repository, relative, with ``/``.
        card: text of README.md, empty if there is none.
        config: configuration; ``None`` takes the only or the default one.

    Raises:
        ValueError: if the card declares other configurations, or files of several kinds are found.
    """
    rows = sorted(name for name in names if reader(name))
    entry = _declared(card, config)
    if entry is None:
        found = _by_name(rows, config, split)
    elif "data_files" in entry:
        patterns = [_regex(pattern) for pattern in _patterns(entry["data_files"], split)]
        found = [name for name in rows if any(pattern.fullmatch(name) for pattern in patterns)]
    else:
        folder = f"{entry.get('data_dir', '')}/".lstrip("/")
        found = _by_name([name for name in rows if name.startswith(folder)], None, split)
    kinds = {reader(name) for name in found}
    if len(kinds) > 1:
        raise ValueError(f"split {split} is made of files of several kinds: {', '.join(found[:4])}")
    return found


def has_all_shards(names: Sequence[str]) -> bool:
    """Whether no ``-00001-of-00003`` is missing among ``names``, of which there is at least one."""
    counts: dict[tuple[str, str, str], int] = {}
    for name in names:
        if shard := SHARD.fullmatch(name):
            family = (shard[1], shard[3], shard[4])
            counts[family] = counts.get(family, 0) + 1
    return bool(names) and all(count == int(total) for (_, total, _), count in counts.items())


def _declared(card: str, config: str | None) -> Mapping[str, Any] | None:
    """The card's entry for a configuration; ``None`` if the card declares none at all."""
    head = re.match(r"\s*---\s*\n(.*?)\n---\s*(?:\n|$)", card, re.DOTALL)
    try:
        data = yaml.safe_load(head[1]) if head else None
    except yaml.YAMLError as error:
        raise ValueError(f"{CARD}: the head is not valid YAML ({' '.join(str(error).split())})") from error
    entries = data.get("configs") if isinstance(data, dict) else None
    if not entries:
        return None
    known = {str(entry["config_name"]): entry for entry in entries}
    if config is None:
        marked = [entry for name, entry in known.items() if entry.get("default") or name == "default"]
        if len(known) == 1 or marked:
            return marked[0] if marked else next(iter(known.values()))
    if config not in known:
        raise ValueError(f"config: {config!r} is not one of {', '.join(known)}")
    return known[config]


def _patterns(data_files: Any, split: str) -> list[str]:
    """Glob patterns of a split in any of the forms a card may use; files without a split are ``train``."""
    if isinstance(data_files, str):
        data_files = [data_files]
    if isinstance(data_files, Mapping):
        data_files = [{"split": name, "path": path} for name, path in data_files.items()]
    found: list[str] = []
    for entry in data_files:
        if isinstance(entry, str):
            entry = {"split": "train", "path": entry}
        if entry["split"] == split:
            path = entry["path"]
            found += [path] if isinstance(path, str) else list(path)
    return found


def _regex(pattern: str) -> re.Pattern[str]:
    """A glob in which ``*`` stays inside one folder and ``**/`` crosses any number of them."""
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    special = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(special.get(part, re.escape(part)) for part in parts))


def _by_name(names: Sequence[str], config: str | None, split: str) -> list[str]:
    """Files whose path has the split as a word, below the configuration's folder where one is asked for."""
    inside = [name for name in names if (config or "default") in name.split("/")[:-1]]
    if config is None or config == "default":
        inside = inside or list(names)
    return [name for name in inside if any(word in ALIASES.get(split, (split,)) for word in _words(name))]


def _words(name: str) -> Iterator[str]:
    """Parts of a path between separators."""
    yield from re.split(r"[/_.\s-]+", name)

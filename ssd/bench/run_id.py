"""What a run is called: a readable stem, and a hash over what decides its results.

The hash covers the fields of ``RunSpec`` that differ from their defaults, and the schema version of the
records. So an option that is added with a default renames nothing; whoever changes a default raises
``SCHEMA``. What only says where or how a run is kept (experiment, folders, tracker, timing mark, date) is
no part of ``RunSpec`` or is left out here.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any

from ssd.bench.records import SCHEMA
from ssd.bench.spec import RunSpec

# The experiment a run belongs to, and where on this machine its data lies: neither changes a result.
LEFT_OUT = frozenset({"name", "prompts.path"})


def run_id(spec: RunSpec) -> str:
    """``stem(spec)`` and 8 hex digits; equal specs have equal ids, however they were written down."""
    text = json.dumps({"schema": SCHEMA, "spec": scientific(spec)}, sort_keys=True, separators=(",", ":"))
    return f"{stem(spec)}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def stem(spec: RunSpec) -> str:
    """Target, depth, data, dtype of the target, temperature and seed, such as ``smollm2-d2-bundled.measure-...``."""
    target, prompts = spec.chain.levels[-1], spec.prompts
    data = ".".join(part for part in (prompts.repo or prompts.name, prompts.config, prompts.split) if part)
    parts = (
        _short(target.source),
        f"d{len(spec.chain.levels) - 1}",
        data,
        target.dtype,
        f"T{spec.sampling.temperature:g}",
        f"s{spec.seed}",
    )
    return "-".join(re.sub(r"[^A-Za-z0-9._]+", "_", part) for part in parts)


def scientific(spec: RunSpec) -> dict[str, Any]:
    """The fields that decide results and differ from their defaults, as plain values.

    Whole numbers have one form, whether they were written ``1`` or ``1.0``.
    """
    found: dict[str, Any] = _changed(spec, "")
    return found


def _changed(value: Any, path: str) -> Any:
    """``value`` without defaults; names of methods and places in lists are kept."""
    if is_dataclass(value):
        changed = {}
        for entry in fields(value):
            own, at = getattr(value, entry.name), f"{path}.{entry.name}".lstrip(".")
            if at not in LEFT_OUT and not _is_default(entry, own):
                changed[entry.name] = _changed(own, at)
                if is_dataclass(own) and not changed[entry.name]:
                    del changed[entry.name]  # it differs only in what is left out
        return changed
    if isinstance(value, Mapping):
        return {str(key): _changed(item, f"{path}.{key}") for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_changed(item, f"{path}[{i}]") for i, item in enumerate(value)]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _is_default(entry: Field[Any], value: Any) -> bool:
    """Whether a field holds what it holds when nothing is said."""
    if entry.default is not MISSING:
        return bool(value == entry.default)
    return entry.default_factory is not MISSING and bool(value == entry.default_factory())


def _short(source: str) -> str:
    """A source without its kind, revision and query: ``hub:org/model@main`` is ``model``."""
    _, colon, rest = source.partition(":")
    name = re.split(r"[@?]", rest if colon else source)[0].rstrip("/").rpartition("/")[2]
    return name or "model"

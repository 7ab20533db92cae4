"""JSON on disk: strict (no bare NaN in either direction) and replaced in one step."""

from __future__ import annotations

import json
import math
import os
import uuid
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np


def plain(value: Any, where: str = "value") -> Any:
    """The same value made of dict, list, str, int, float, bool and None only.

    NaN and infinities become None. Dataclasses become dicts, tuples and arrays lists, paths text.

    Raises:
        ValueError: naming ``where`` for anything that has no JSON form.
    """
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Path):
        return value.as_posix()
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name), f"{where}.{f.name}") for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, f"{where}[{i}]") for i, item in enumerate(value)]
    raise ValueError(f"{where}: {value!r} of type {type(value).__name__} has no JSON form")


def dumps(value: Any, where: str = "value", indent: int | None = None) -> str:
    """``plain(value)`` as ASCII text, on one line unless ``indent`` is given."""
    return json.dumps(plain(value, where), allow_nan=False, indent=indent)


def loads(text: str | bytes) -> Any:
    """Parsed JSON.

    Raises:
        ValueError: for anything that is not JSON, bare NaN and Infinity included.
    """
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def write_json(path: Path, value: Any) -> None:
    """``path`` holds ``value``; a reader sees the old file or the new one, never a part of either."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    text = dumps(value, path.name, indent=1)
    try:
        with temporary.open("w", encoding="ascii") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object that ``path`` holds.

    Raises:
        ValueError: naming the file if it is missing, is not JSON, or holds something else.
    """
    try:
        value = loads(path.read_bytes())
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise ValueError(f"{path}: not valid JSON ({error})") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path}: expected a JSON object, got {type(value).__name__}")
    return value


def _refuse_constant(name: str) -> float:
    """Called by the parser for NaN, Infinity and -Infinity, which are not JSON."""
    raise ValueError(f"bare {name} is not JSON")

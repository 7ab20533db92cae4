"""Predictions that are on disk before anything is measured, and measurements that name them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from experiments.console import say
from ssd.bench.environment import git_state, versions
from ssd.bench.json_files import dumps, plain, read_json, write_json


def write_predictions(path: Path, command: str, content: Mapping[str, Any]) -> str:
    """``path`` holds ``content`` with the time and its hash, which is returned."""
    body = plain(content)
    digest = sha256(body)
    write_json(
        path,
        {
            "schema": 1,
            "written": datetime.now(UTC).isoformat(timespec="seconds"),
            "command": command,
            "git": git_state(),
            "versions": versions(),
            "sha256": digest,
            "content": body,
        },
    )
    return digest


def write_measurements(path: Path, predictions: Path, digest: str, content: Mapping[str, Any]) -> None:
    """``path`` holds ``content`` and the hash of the predictions it was measured against.

    Args:
        digest: what ``write_predictions`` returned before measuring.

    Raises:
        ValueError: if the predictions were changed since they were written.
    """
    predicted = read_json(predictions)
    if not sha256(predicted["content"]) == predicted["sha256"] == digest:
        raise ValueError(f"{predictions}: its content no longer has the hash it was written with, {digest}")
    written = datetime.now(UTC).isoformat(timespec="seconds")
    head = {"schema": 1, "written": written, "predictions_written": predicted["written"]}
    write_json(path, head | {"predictions_sha256": predicted["sha256"], **plain(content)})


def say_busy(what: str, record: Mapping[str, Any]) -> None:
    """A warning is printed if ``record``, of a profile or a run, says that others used the machine."""
    if record.get("busy"):
        say(f"warning: {what}: {record['busy_elsewhere']:.0%} of the machine was busy with something else")


def sha256(content: Any) -> str:
    """Hex digest of plain data, the same for equal data."""
    return hashlib.sha256(dumps(content).encode()).hexdigest()

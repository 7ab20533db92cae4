"""The file an offline W&B run leaves: LevelDB's log format around protobuf messages, private to W&B."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from types import SimpleNamespace

FILE_HEADER, RECORD_HEADER, BLOCK = 7, 7, 32768
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4


def messages(path: Path):
    """The messages of a ``.wandb`` file, in order."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, parts = path.read_bytes(), FILE_HEADER, []
    while at + RECORD_HEADER <= len(data):
        if BLOCK - at % BLOCK < RECORD_HEADER:  # a header never spans two blocks
            at += BLOCK - at % BLOCK
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        parts.append(data[at + RECORD_HEADER : at + RECORD_HEADER + length])
        at += RECORD_HEADER + length
        if kind in (FULL, LAST):
            yield Record.FromString(b"".join(parts))
            parts = []


def read_wandb(path: Path) -> SimpleNamespace:
    """One run: id, project, group, name, config, history (a dict per row), summary, exit_code."""
    told = SimpleNamespace(config={}, history=[], summary={}, exit_code=None)
    for message in messages(path):
        kind = message.WhichOneof("record_type")
        if kind == "run":
            told.id, told.project, told.group = message.run.run_id, message.run.project, message.run.run_group
            told.name = message.run.display_name
            told.config |= _values(message.run.config.update)
        elif kind == "config":
            told.config |= _values(message.config.update)
        elif kind == "history":
            told.history.append(_values(message.history.item))
        elif kind == "summary":
            told.summary |= _values(message.summary.update)
        elif kind == "exit":
            told.exit_code = message.exit.exit_code
    return told


def _values(items) -> dict:
    """Parsed values, a dict where keys are nested."""
    values: dict = {}
    for item in items:
        *parents, last = item.nested_key or [item.key]
        place = values
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = json.loads(item.value_json)
    return values

"""Which token ids end a text of a model, and where that is said.

A chat model often ends a turn with another id than a document, and its tokenizer names only one of them;
the others stand in the files beside its weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ssd.bench.json_files import read_json
from ssd.bench.sources import Folder, Hub, Source, Wheel, local_folder

TOKENIZER = "tokenizer"
FILES = ("generation_config.json", "config.json")  # the first that says anything counts, as in transformers


def stated_end_ids(source: Source, tokenizer: Any) -> dict[str, list[int]]:
    """End-of-text ids by place: ``tokenizer`` and the first of ``FILES`` in the model's folder that names any.

    Sources without a folder of their own (random weights) leave it to the tokenizer.

    Raises:
        ValueError: naming the file whose ``eos_token_id`` is neither an id nor a list of ids.
    """
    own = None if tokenizer is None else tokenizer.eos_token_id
    stated = {} if own is None else {TOKENIZER: [int(own)]}
    if not isinstance(source, Hub | Folder | Wheel):
        return stated
    folder = local_folder(source, weights=False)
    for name in FILES:
        data = read_json(folder / name) if (folder / name).exists() else {}
        found = data.get("eos_token_id", (data.get("text_config") or {}).get("eos_token_id"))
        if found is not None:
            return {**stated, name: _ids(found, f"{source}: {name}: eos_token_id")}
    return stated


def end_ids(stated: Mapping[str, Sequence[int]]) -> tuple[int, ...]:
    """Every id that is stated anywhere, each once, the tokenizer's first."""
    return tuple(dict.fromkeys(token for ids in stated.values() for token in ids))


def _ids(value: Any, place: str) -> list[int]:
    ids = value if isinstance(value, list) else [value]
    if not all(isinstance(token, int) and not isinstance(token, bool) for token in ids):
        raise ValueError(f"{place}: expected an id or a list of ids, got {value!r}")
    return [token for token in ids if token >= 0]  # some configurations write -1 for none

"""Models from the Hugging Face hub as local folders, with one clear error when that is impossible."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import get_session, validate_repo_id  # type: ignore[attr-defined]

DESCRIPTIONS = ["*.json", "*.jinja", "*.txt", "*.model"]  # configuration and tokenizer
WEIGHTS = ("model*.safetensors", "pytorch_model*.bin")  # the first kind that a repository has
REACH_SECONDS = 5.0


def hub_folder(
    name: str, revision: str, weights: bool, snapshot: Callable[..., str] = huggingface_hub.snapshot_download
) -> Path:
    """Local folder of one revision of a hub model; its name is the resolved commit.

    What the local cache holds of ``revision`` is used without asking the hub, so repeated runs agree and
    work offline; pin a commit to be sure which one it is.

    Args:
        weights: also fetch the weights, not only configuration and tokenizer.
        snapshot: stands in for ``huggingface_hub.snapshot_download``.

    Raises:
        ValueError: within seconds if neither cache nor hub has it; names model, revision and state.
    """
    label = f"hub:{name}@{revision}"
    try:
        validate_repo_id(name)
    except HFValidationError as error:
        raise ValueError(f"{label}: not a hub name: {_first_line(error)}") from error
    try:
        # One file is named, since a cache that knows of more files than it holds is refused as a whole.
        folder = Path(snapshot(name, revision=revision, local_files_only=True, allow_patterns=["config.json"]))
        if (folder / "config.json").exists() and (not weights or weight_files(folder)):
            return folder
    except (OSError, ValueError):
        pass  # not in the cache, or only under another revision
    if reason := _unreachable(name, revision):
        raise ValueError(
            f"{label}: not in the local cache, and the hub cannot be reached (offline: {reason}). Download the "
            f"model where there is network and set HF_HOME, or give it as folder:/path"
        )
    try:
        folder = _fetch(name, revision, weights, snapshot)
    except (OSError, ValueError) as error:
        raise ValueError(f"{label}: the hub did not deliver it: {_first_line(error)}") from error
    if weights and not weight_files(folder):
        raise ValueError(f"{label}: no {' or '.join(WEIGHTS)} in this revision")
    return folder


def _fetch(name: str, revision: str, weights: bool, snapshot: Callable[..., str]) -> Path:
    """Download what is asked for; pickled weights only if there are no safetensors."""
    options: dict[str, Any] = {"revision": revision, "allow_patterns": DESCRIPTIONS}
    folder = Path(snapshot(name, **options))
    for pattern in WEIGHTS if weights else ():
        if not weight_files(folder):
            folder = Path(snapshot(name, **{**options, "allow_patterns": [pattern]}))
    return folder


def weight_files(folder: Path) -> list[Path]:
    """The files that ``from_pretrained`` reads from ``folder``; empty unless all of them are there."""
    for stem, ending in (("model", "safetensors"), ("pytorch_model", "bin")):
        if (single := folder / f"{stem}.{ending}").exists():
            return [single]
        index = folder / f"{stem}.{ending}.index.json"
        if index.exists():
            names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
            shards = [folder / name for name in names]
            if all(shard.exists() for shard in shards):
                return shards
    return []


def _unreachable(name: str, revision: str) -> str | None:
    """Why the hub cannot be asked, or ``None``; one attempt, where the hub client would retry for long."""
    if huggingface_hub.constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    try:
        url = huggingface_hub.hf_hub_url(name, "config.json", revision=revision)
        get_session().head(url, timeout=REACH_SECONDS)
    except Exception as error:  # whatever the client's transport raises
        return f"{type(error).__name__}: {_first_line(error)}"
    return None


def _first_line(error: Exception) -> str:
    """The first line of an error, which hub errors follow with advice."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]

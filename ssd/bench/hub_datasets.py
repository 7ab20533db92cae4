"""Data sets from the Hugging Face hub as local files, with one clear error when that is impossible.

Only the files of one split are fetched, into the hub's usual cache. The library that reads them never
gets to ask the network itself, which it may do for minutes.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ssd.bench.hub_layout import CARD, has_all_shards, split_files

if TYPE_CHECKING:
    from ssd.bench.dataset_spec import DatasetSpec

REACH_SECONDS = 5.0
# Where the hub keeps its own conversion of sets that were published as a program.
CONVERTED = "refs/convert/parquet"
OFFLINE_VARIABLES = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")

Snapshot = Callable[..., str]
Info = Callable[[str, str], Any]


@dataclass(frozen=True)
class SplitFiles:
    """The files of one split on this machine.

    Attributes:
        paths: in reading order, at least one.
        commit: full commit of the repository; ``None`` for a local folder.
    """

    paths: tuple[Path, ...]
    commit: str | None


def split_on_disk(spec: DatasetSpec, snapshot: Snapshot | None = None, info: Info | None = None) -> SplitFiles:
    """The files of the split that ``spec`` names.

    What the local cache holds of the revision is used without asking the hub, so repeated runs agree and
    work offline; pin a commit to be sure which one it is. Without a revision that is ``main``, or the hub's
    conversion to Parquet where ``main`` holds no such files.

    Args:
        snapshot: stands in for ``huggingface_hub.snapshot_download``.
        info: (repository, revision) -> an object with ``siblings``; stands in for the hub's answer.

    Raises:
        ValueError: within seconds if neither folder, cache nor hub has it; names data set, configuration
            and state.
    """
    if spec.path is not None:
        return _of_folder(spec, Path(spec.path).expanduser())
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    try:
        validate_repo_id(str(spec.repo))
    except HFValidationError as error:
        raise ValueError(f"{spec.label}: not a hub name: {first_line(error)}") from error
    snapshot = snapshot or snapshot_download
    revisions = [spec.revision] if spec.revision else ["main", CONVERTED]
    for revision in revisions:
        if found := _cached(spec, revision, snapshot):
            return found
    return _from_hub(spec, revisions, snapshot, info or hub_info)


def hub_info(repo: str, revision: str, endpoint: str | None = None) -> Any:
    """What the hub says about a revision, its files among it; any error of the transport is let through."""
    from huggingface_hub import HfApi

    return HfApi(endpoint=endpoint).dataset_info(repo, revision=revision, timeout=REACH_SECONDS)


def _of_folder(spec: DatasetSpec, folder: Path) -> SplitFiles:
    """The split of a folder laid out like a repository."""
    if not folder.is_dir():
        raise ValueError(f"{spec.label}: path: {folder} is not a folder")
    paths = _select(spec, folder)
    if not paths:
        raise ValueError(f"{spec.label}: path: {folder} holds no files of this configuration and split")
    return SplitFiles(paths, None)


def _select(spec: DatasetSpec, folder: Path) -> tuple[Path, ...]:
    """The split's files in a folder, none if shards are missing."""
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    card = folder / CARD
    text = card.read_text(encoding="utf-8") if card.is_file() else ""
    try:
        chosen = split_files(names, text, spec.config, str(spec.split))
    except ValueError as error:
        raise ValueError(f"{spec.label}: {error}") from error
    return tuple(folder / name for name in chosen) if has_all_shards(chosen) else ()


def _cached(spec: DatasetSpec, revision: str, snapshot: Snapshot) -> SplitFiles | None:
    """What the cache holds of a revision, if it is the whole split."""
    try:
        # The card alone is asked for: a snapshot that lacks other files counts as incomplete.
        where = snapshot(
            spec.repo, repo_type="dataset", revision=revision, allow_patterns=[CARD], local_files_only=True
        )
    except (OSError, ValueError):
        return None
    paths = _select(spec, Path(where))
    return SplitFiles(paths, Path(where).name) if paths else None


def _from_hub(spec: DatasetSpec, revisions: list[str], snapshot: Snapshot, info: Info) -> SplitFiles:
    """Ask the hub once for every candidate revision, and fetch the first that has the split."""
    for revision in revisions:
        siblings = _listing(spec, revision, info)
        options: dict[str, Any] = {"repo_type": "dataset", "revision": revision}
        try:
            folder = Path(snapshot(spec.repo, allow_patterns=[CARD], **options))
            card = (folder / CARD).read_text(encoding="utf-8") if (folder / CARD).exists() else ""
            chosen = split_files(siblings, card, spec.config, str(spec.split))
            if chosen:
                folder = Path(snapshot(spec.repo, allow_patterns=[CARD, *chosen], **options))
                return SplitFiles(tuple(folder / name for name in chosen), folder.name)
        except Exception as error:  # whatever the client's transport raises
            raise ValueError(f"{spec.label}: the hub did not deliver it: {first_line(error)}") from error
    raise ValueError(f"{spec.label}: no data files of this configuration and split in {' or '.join(revisions)}")


def _listing(spec: DatasetSpec, revision: str, info: Info) -> list[str]:
    """Files of a revision by one question to the hub, an answer to which is waited for a few seconds."""
    from huggingface_hub.errors import HfHubHTTPError

    reason = offline_reason()
    if reason is None:
        answer, error = _within(REACH_SECONDS + 1, lambda: info(str(spec.repo), revision))
        if error is None:
            return [sibling.rfilename for sibling in answer.siblings or ()]
        if isinstance(error, HfHubHTTPError):  # the hub was reached, and refused
            raise ValueError(f"{spec.label}: the hub did not deliver it: {first_line(error)}") from error
        reason = f"{type(error).__name__}: {first_line(error)}"
    raise ValueError(
        f"{spec.label}: not in the local cache, and the hub cannot be reached (offline: {reason}). Load it "
        f"once where there is network and set HF_HOME, or give path=FOLDER with the files of the repository"
    )


def offline_reason() -> str | None:
    """The variable that forbids asking the hub, or ``None``."""
    import huggingface_hub

    for name in OFFLINE_VARIABLES:
        if os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE"):
            return f"{name} is set"
    return "HF_HUB_OFFLINE is set" if huggingface_hub.constants.HF_HUB_OFFLINE else None


def _within(seconds: float, call: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """(result, None) or (None, error) after at most ``seconds``, however many addresses the client tries."""
    outcome: list[tuple[Any, BaseException | None]] = []

    def attempt() -> None:
        try:
            outcome.append((call(), None))
        except Exception as error:
            outcome.append((None, error))

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    thread.join(seconds)
    return outcome[0] if outcome else (None, TimeoutError(f"no answer within {seconds:g} s"))


def first_line(error: BaseException) -> str:
    """The first line of an error, which hub errors follow with advice."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]

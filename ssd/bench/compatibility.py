"""Whether models can form a chain, found out from configurations and tokenizers before weights are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transformers import PreTrainedConfig

from ssd.core.positional import check_model, context_limit

SHOWN = 3  # differing tokenizer entries in an error


def check_chain(
    configs: Sequence[PreTrainedConfig | None], tokenizers: Sequence[Any | None], names: Sequence[str]
) -> list[str]:
    """Refuse chains that cannot decode exactly; say what the others have to live with.

    Args:
        configs: one per level, L0 first, the target last; ``None`` for an n-gram look-up.
        tokenizers: one per level; a level without one (``None``) uses the target's.
        names: what the levels are called in messages.

    Returns:
        Warnings, one line each.

    Raises:
        ValueError: naming level, field and value.
    """
    if not len(configs) == len(tokenizers) == len(names) >= 1:
        raise ValueError(f"chain: {len(configs)} configs, {len(tokenizers)} tokenizers and {len(names)} names")
    labels = [f"level {level} ({name})" for level, name in enumerate(names)]
    models: list[PreTrainedConfig | None] = []
    for level, (config, label) in enumerate(zip(configs, labels, strict=True)):
        if config is None:
            _check_look_up(level, len(configs), label)
            models.append(None)
        else:
            models.append(check_model(config, label))
    target, warnings = models[-1], []
    assert target is not None  # a target that only looks up was refused above
    for config, tokenizer, label in zip(models[:-1], tokenizers[:-1], labels[:-1], strict=True):
        warnings += _tokenizer_warnings(tokenizer, tokenizers[-1], label, labels[-1])
        if config is not None:
            warnings += _size_warnings(config, target, label, labels[-1])
    for config, label in zip(models, labels, strict=True):
        if config is not None and tokenizers[-1] is not None:
            _check_embedding_rows(config, tokenizers[-1], label)
    return warnings


def _check_look_up(level: int, levels: int, label: str) -> None:
    """An n-gram look-up proposes but has no law to verify with."""
    if levels == 1:
        raise ValueError(f"{label}: the target must be a model, not an n-gram look-up")
    if level != 0:
        raise ValueError(f"{label}: an n-gram look-up can only be level 0, not level {level}")


def _size_warnings(draft: PreTrainedConfig, target: PreTrainedConfig, label: str, target_label: str) -> list[str]:
    """Vocabulary rows that only one of two models has, and a context that ends early."""
    warnings = []
    if draft.vocab_size != target.vocab_size:
        warnings.append(
            f"{label}.vocab_size: {draft.vocab_size} against {target.vocab_size} of {target_label}; "
            f"ids from {min(draft.vocab_size, target.vocab_size)} on are never drafted"
        )
    limit, target_limit = context_limit(draft), context_limit(target)
    if limit is not None and (target_limit is None or limit < target_limit):
        warnings.append(f"{label}.max_position_embeddings: stops drafting at position {limit} ({target_label} goes on)")
    return warnings


def _check_embedding_rows(config: PreTrainedConfig, tokenizer: Any, label: str) -> None:
    """Every id that the target's tokenizer can give must have a row in every level's embedding."""
    largest = max(tokenizer.get_vocab().values(), default=-1)
    if largest >= config.vocab_size:
        raise ValueError(f"{label}.vocab_size: {config.vocab_size} rows, but the target's tokenizer has id {largest}")


def _tokenizer_warnings(draft: Any | None, target: Any | None, label: str, target_label: str) -> list[str]:
    """Nothing if two tokenizers agree entry by entry, special tokens included; ValueError if ids differ."""
    if draft is None:
        return []
    if target is None:
        return [f"{label}.tokenizer: cannot be compared, {target_label} has none"]
    _check_same_entries(_entries(draft), _entries(target), label, target_label)
    warnings = []
    for role in ("bos_token_id", "eos_token_id"):
        own, theirs = getattr(draft, role, None), getattr(target, role, None)
        if own != theirs:
            warnings.append(f"{label}.tokenizer.{role}: {own} against {theirs} of {target_label}, which is used")
    return warnings


def _entries(tokenizer: Any) -> dict[str, int]:
    """Token to id, added and special tokens included."""
    entries = dict(tokenizer.get_vocab())
    for token, number in getattr(tokenizer, "get_added_vocab", dict)().items():
        entries.setdefault(token, number)
    return entries


def _check_same_entries(draft: dict[str, int], target: dict[str, int], label: str, target_label: str) -> None:
    """Raise ValueError showing the first entries, by id, on which two token-to-id maps differ."""
    if draft == target:
        return
    different = [token for token in draft.keys() | target.keys() if draft.get(token) != target.get(token)]

    def place(token: str) -> tuple[int, str]:
        return min(draft.get(token, target.get(token, 0)), target.get(token, draft.get(token, 0))), token

    different.sort(key=place)
    shown = "; ".join(
        f"{token!r} is {draft.get(token, 'absent')} against {target.get(token, 'absent')}"
        for token in different[:SHOWN]
    )
    raise ValueError(f"{label}.tokenizer: {len(different)} entries differ from those of {target_label}: {shown}")

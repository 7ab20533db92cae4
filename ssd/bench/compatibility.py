"""Whether models can form a chain, found out from configurations and tokenizers before weights are read."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedConfig

from ssd.core.positional import check_model, context_limit

SHOWN = 3  # differing tokenizer entries in an error


@dataclass(frozen=True)
class Findings:
    """What keeps models from forming a chain, and what a chain of them has to live with; one line each."""

    problems: tuple[str, ...]
    warnings: tuple[str, ...]


def check_chain(
    configs: Sequence[PreTrainedConfig | None], tokenizers: Sequence[Any | None], names: Sequence[str]
) -> list[str]:
    """Refuse chains that cannot decode exactly; say what the others have to live with.

    Arguments are those of ``examine_chain``.

    Returns:
        Warnings, one line each.

    Raises:
        ValueError: every problem on a line of its own, naming level, field and value.
    """
    found = examine_chain(configs, tokenizers, names)
    if found.problems:
        raise ValueError("\n".join(found.problems))
    return list(found.warnings)


def examine_chain(
    configs: Sequence[PreTrainedConfig | None],
    tokenizers: Sequence[Any | None],
    names: Sequence[str],
    unknown: Collection[int] = (),
) -> Findings:
    """All problems and warnings of a chain at once.

    Args:
        configs: one per level, L0 first, the target last; ``None`` for an n-gram look-up.
        tokenizers: one per level; a level without one (``None``) uses the target's.
        names: what the levels are called in messages.
        unknown: levels whose configuration could not be read; nothing is said of them.

    Raises:
        ValueError: the three sequences are empty or of different lengths.
    """
    if not len(configs) == len(tokenizers) == len(names) >= 1:
        raise ValueError(f"chain: {len(configs)} configs, {len(tokenizers)} tokenizers and {len(names)} names")
    labels = [f"level {level} ({name})" for level, name in enumerate(names)]
    problems: list[str] = []
    warnings: list[str] = []
    texts = []
    for level, (config, label) in enumerate(zip(configs, labels, strict=True)):
        texts.append(None if config is None else config.get_text_config(decoder=True))
        if level not in unknown:
            problems += _level_problems(config, level, len(configs), label)
    last = len(configs) - 1
    for level, label in enumerate(labels[:-1]):
        if not {level, last} & set(unknown):
            found = compare_tokenizers(tokenizers[level], tokenizers[-1], label, labels[-1])
            problems += found.problems
            warnings += found.warnings
        config, target = texts[level], texts[-1]
        if config is not None and target is not None:
            warnings += _size_warnings(config, target, label, labels[-1])
    for config, label in zip(texts, labels, strict=True):
        if config is not None and tokenizers[-1] is not None:
            problems += _embedding_problems(config, tokenizers[-1], label)
    return Findings(tuple(problems), tuple(warnings))


def _level_problems(config: PreTrainedConfig | None, level: int, levels: int, label: str) -> list[str]:
    """Why a level cannot be what it is in the chain; an n-gram look-up proposes but has no law to verify with."""
    if config is not None:
        try:
            text = check_model(config, label)
        except ValueError as error:
            return [str(error)]
        return [] if vocabulary(text) else [f"{label}.vocab_size: none in {text.model_type!r}, not a language model"]
    if levels == 1:
        return [f"{label}: the target must be a model, not an n-gram look-up"]
    return [f"{label}: an n-gram look-up can only be level 0, not level {level}"] if level else []


def vocabulary(config: PreTrainedConfig) -> int | None:
    """Rows of a model's vocabulary, padding included; ``None`` if its configuration names none."""
    size = getattr(config.get_text_config(decoder=True), "vocab_size", None)
    return int(size) if size else None


def _size_warnings(draft: PreTrainedConfig, target: PreTrainedConfig, label: str, target_label: str) -> list[str]:
    """Vocabulary rows that only one of two models has, and a context that ends early."""
    warnings = []
    own, theirs = vocabulary(draft), vocabulary(target)
    if own and theirs and own != theirs:
        warnings.append(
            f"{label}.vocab_size: {own} against {theirs} of {target_label}; "
            f"ids from {min(own, theirs)} on are never drafted"
        )
    limit, target_limit = context_limit(draft), context_limit(target)
    if limit is not None and (target_limit is None or limit < target_limit):
        warnings.append(f"{label}.max_position_embeddings: stops drafting at position {limit} ({target_label} goes on)")
    return warnings


def _embedding_problems(config: PreTrainedConfig, tokenizer: Any, label: str) -> list[str]:
    """Every id that the target's tokenizer can give must have a row in every level's embedding."""
    largest, rows = max(tokenizer.get_vocab().values(), default=-1), vocabulary(config)
    if rows is None or largest < rows:
        return []
    return [f"{label}.vocab_size: {rows} rows, but the target's tokenizer has id {largest}"]


def compare_tokenizers(draft: Any | None, target: Any | None, label: str, target_label: str) -> Findings:
    """Nothing if two tokenizers agree entry by entry, special tokens included; a problem if ids differ.

    A draft without one uses the target's; special roles (end of text, begin of text) that differ are a warning.
    """
    if draft is None:
        return Findings((), ())
    if target is None:
        return Findings((), (f"{label}.tokenizer: cannot be compared, {target_label} has none",))
    warnings = []
    for role in ("bos_token_id", "eos_token_id"):
        own, theirs = getattr(draft, role, None), getattr(target, role, None)
        if own != theirs:
            warnings.append(f"{label}.tokenizer.{role}: {own} against {theirs} of {target_label}, which is used")
    return Findings(_entry_problems(entries(draft), entries(target), label, target_label), tuple(warnings))


def entries(tokenizer: Any) -> dict[str, int]:
    """Token to id, added and special tokens included."""
    found = dict(tokenizer.get_vocab())
    for token, number in getattr(tokenizer, "get_added_vocab", dict)().items():
        found.setdefault(token, number)
    return found


def _entry_problems(draft: dict[str, int], target: dict[str, int], label: str, target_label: str) -> tuple[str, ...]:
    """The first entries, by id, on which two token-to-id maps differ; empty if they are equal."""
    if draft == target:
        return ()
    different = [token for token in draft.keys() | target.keys() if draft.get(token) != target.get(token)]

    def place(token: str) -> tuple[int, str]:
        return min(draft.get(token, target.get(token, 0)), target.get(token, draft.get(token, 0))), token

    different.sort(key=place)
    shown = "; ".join(
        f"{token!r} is {draft.get(token, 'absent')} against {target.get(token, 'absent')}"
        for token in different[:SHOWN]
    )
    return (f"{label}.tokenizer: {len(different)} entries differ from those of {target_label}: {shown}",)

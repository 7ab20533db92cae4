"""Checks of what a caller puts into a request: one ValueError that names field and value."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Iterable
from typing import Any

BOUNDS = {"temperature": (0.0, math.inf), "top_k": (0, 2**31), "top_p": (0.0, 1.0), "min_p": (0.0, 1.0)}
KEY_BITS = 64  # seeds and the like are folded into keys of this many bits; larger ones would alias


def whole_number(name: str, value: Any) -> int:
    """``value`` as an int in [0, 2**64); anything that is an integer may stand for one."""
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if isinstance(value, bool) or not 0 <= number < 2**KEY_BITS:
        raise ValueError(f"{name}: expected an integer in [0, 2**{KEY_BITS}), got {value!r}")
    return number


def token_ids(name: str, value: Any) -> tuple[int, ...]:
    """``value`` as a tuple of token ids."""
    return tuple(whole_number(f"{name}[{i}]", token) for i, token in enumerate(items(name, value)))


def stop_strings(name: str, value: Any) -> tuple[str, ...]:
    """``value`` as a tuple of strings, none of them empty."""
    found = items(name, value)
    for text in found:
        if not isinstance(text, str):
            raise ValueError(f"{name}: expected strings, got {text!r}")
    if "" in found:
        raise ValueError(f"{name}: an empty stop string would end every row at once, got {list(found)!r}")
    return found


def items(name: str, value: Any) -> tuple[Any, ...]:
    """``value`` as a tuple."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ValueError(f"{name}: expected a sequence, got {value!r}")
    return tuple(value)


def is_number(value: Any) -> bool:
    """Whether ``value`` is a finite number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def check_sampling(owner: str, settings: Any, optional: bool = False) -> None:
    """Raise ValueError naming owner, field and value for the first of ``BOUNDS`` that is left.

    ``optional``: a setting may be ``None``, for not there.
    """
    for name, (low, high) in BOUNDS.items():
        value = getattr(settings, name)
        if value is None and optional:
            continue
        if isinstance(value, bool) or not isinstance(value, int if name == "top_k" else (int, float)):
            raise ValueError(f"{owner}.{name}: expected a number, got {value!r}")
        if not low <= value <= min(high, sys.float_info.max) or (name == "top_p" and value == 0):
            raise ValueError(f"{owner}.{name}: {value!r} is outside [{low}, {high}]")


def check_penalties(settings: Any) -> tuple[tuple[tuple[int, ...], ...], tuple[tuple[int, float], ...]]:
    """Forbidden words and biases as tuples; ValueError naming the field and value that makes no sense."""
    for name in ("repetition_penalty", "frequency_penalty", "presence_penalty"):
        if not is_number(getattr(settings, name)):
            raise ValueError(f"sampling.{name}: expected a finite number, got {getattr(settings, name)!r}")
    if settings.repetition_penalty <= 0:
        raise ValueError(f"sampling.repetition_penalty: {settings.repetition_penalty!r} is not above 0")
    whole_number("sampling.min_new_tokens", settings.min_new_tokens)
    words = tuple(
        token_ids("sampling.bad_words_ids", word) for word in items("sampling.bad_words_ids", settings.bad_words_ids)
    )
    if () in words:
        raise ValueError("sampling.bad_words_ids: a word of no tokens would forbid nothing")
    return words, tuple(_bias(pair) for pair in items("sampling.logit_bias", settings.logit_bias))


def _bias(pair: Any) -> tuple[int, float]:
    entry = items("sampling.logit_bias", pair)
    if len(entry) != 2:
        raise ValueError(f"sampling.logit_bias: expected (token id, bias) pairs, got {pair!r}")
    token = whole_number("sampling.logit_bias: token", entry[0])
    if not is_number(entry[1]):
        raise ValueError(
            f"sampling.logit_bias: token {token}: expected a finite number, got {entry[1]!r}; "
            "bad_words_ids forbids a token"
        )
    return token, float(entry[1])

"""Counter-based randomness: a uniform is a hash of where it is used, never of when.

Every round has its own key: ``fold(key of the round it drafts for, its start position)``; the
target's rounds fold the root of (seed, request, sample). The mixing function is the finaliser of
splitmix64 (Steele, Lea & Flood 2014). All arithmetic is modulo 2**64 on int64 tensors, whose
products wrap; the ``*_int`` twins do the same on Python integers and tests compare the two.
"""

from __future__ import annotations

import torch
from torch import Tensor

ROUND, ACCEPT, DRAW = 0, 1, 2
_MASK = (1 << 64) - 1
_GOLDEN, _C1, _C2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def _signed(value: int) -> int:
    value &= _MASK
    return value - (1 << 64) if value >> 63 else value


_GOLDEN_S, _C1_S, _C2_S = _signed(_GOLDEN), _signed(_C1), _signed(_C2)


def _shift(x: Tensor, bits: int) -> Tensor:
    """Logical right shift; torch's is arithmetic."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def mix(x: Tensor) -> Tensor:
    """Splitmix64's finaliser, elementwise on int64."""
    x = (x ^ _shift(x, 30)) * _C1_S
    x = (x ^ _shift(x, 27)) * _C2_S
    return x ^ _shift(x, 31)


def mix_int(x: int) -> int:
    """``mix`` on a Python integer in [0, 2**64)."""
    x = ((x ^ (x >> 30)) * _C1) & _MASK
    x = ((x ^ (x >> 27)) * _C2) & _MASK
    return x ^ (x >> 31)


def fold(key: Tensor, word: Tensor | int) -> Tensor:
    """A key that depends on ``key`` and on one more integer; shapes broadcast."""
    step = _signed((word + 1) * _GOLDEN) if isinstance(word, int) else (word + 1) * _GOLDEN_S
    return mix(key + step)


def fold_int(key: int, word: int) -> int:
    """``fold`` on Python integers."""
    return mix_int((key + (word + 1) * _GOLDEN) & _MASK)


def root_int(seed: int, request: int, sample: int) -> int:
    """Root key of a row."""
    return fold_int(fold_int(fold_int(0, seed), request), sample)


def root(seeds: list[tuple[int, int, int]], device: torch.device) -> Tensor:
    """Root keys [B] int64 of rows given as (seed, request, sample)."""
    return torch.tensor([_signed(root_int(*s)) for s in seeds], dtype=torch.int64, device=device)


def uniform(key: Tensor, level: int, purpose: int, position: Tensor) -> Tensor:
    """Uniforms in [0, 1) float64 with 53 random bits, of the broadcast shape of key and position."""
    return _shift(fold(fold(key, 4 * level + purpose), position), 11).to(torch.float64) * 2.0**-53


def uniform_int(key: int, level: int, purpose: int, position: int) -> float:
    """``uniform`` on Python integers."""
    return (fold_int(fold_int(key, 4 * level + purpose), position) >> 11) * 2.0**-53


def round_key(key: Tensor, start: Tensor) -> Tensor:
    """Key [B] of the round that starts at position ``start`` and drafts for the round of ``key``."""
    return fold(fold(key, ROUND), start)


def round_key_int(key: int, start: int) -> int:
    """``round_key`` on Python integers."""
    return fold_int(fold_int(key, ROUND), start)

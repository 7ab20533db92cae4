"""Keyed uniforms in plain integers: what is drawn depends on where, never on when.

A schedule decides when work happens, so two schedules simulated with one seed must see the same
outcomes; a generator that is advanced by every draw could not give them that.
"""

from __future__ import annotations

MASK = (1 << 64) - 1
ACCEPT, HIT, COVER = 0, 1, 2  # purposes of a draw


def mix(x: int) -> int:
    """The finaliser of splitmix64 (Steele et al. 2014): 64 bits that look random."""
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def fold(key: int, value: int) -> int:
    """A key that depends on both."""
    return mix(key ^ mix(value & MASK))


def uniform(key: int, level: int, purpose: int, position: int) -> float:
    """A number in [0, 1) with 53 bits, always the same for the same arguments."""
    return (fold(fold(key, 3 * level + purpose), position) >> 11) * 2.0**-53

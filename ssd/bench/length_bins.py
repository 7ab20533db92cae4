"""Bins of positions and lengths, in tokens."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

# The bins in which acceptance by output position has been published, so that tables compare.
BINS = (0, 64, 128, 256, 512, 1024)
Bin = tuple[int, int | None]


def bins_of(bounds: Sequence[int] = BINS) -> list[Bin]:
    """(from, to) of each bin, ``to`` excluded; the last is open-ended and has None.

    Raises:
        ValueError: unless the bounds ascend and there is one.
    """
    if not bounds or any(low >= high for low, high in pairwise(bounds)):
        raise ValueError(f"bins: bounds {tuple(bounds)} do not ascend")
    return list(zip(bounds, [*bounds[1:], None], strict=True))


def bin_of(value: int, bounds: Sequence[int] = BINS) -> Bin:
    """The bin that holds ``value``.

    Raises:
        ValueError: if it lies below the first bound.
    """
    index = bisect_right(bounds, value) - 1
    if index < 0:
        raise ValueError(f"bins: {value} lies below the first bound {bounds[0]}")
    return bounds[index], bounds[index + 1] if index + 1 < len(bounds) else None


def bin_name(chosen: Bin) -> str:
    """How tables call a bin: ``64-128`` holds 64 up to 127, ``1024+`` everything from 1024 on."""
    low, high = chosen
    return f"{low}+" if high is None else f"{low}-{high}"

"""How many slots a pass reads: a few sizes where each is recorded, so that few graphs serve every length of text."""

from __future__ import annotations

GRAIN = 64  # the smallest bucket, and what buffers are rounded up to


def bucket_of(reach: int, capacity: int) -> int:
    """The smallest power of two from ``GRAIN`` on that holds ``reach`` slots, at most ``capacity``."""
    return min(capacity, max(GRAIN, 1 << (reach - 1).bit_length()))


def rounded(slots: int) -> int:
    """The next multiple of ``GRAIN``: what buffers hold, and what a pass reads where nothing is recorded."""
    return -(-slots // GRAIN) * GRAIN


def check_places(starts: list[int], width: int, slots: int) -> int:
    """Slots that a pass of ``width`` tokens a row from ``starts`` on reaches.

    Raises:
        ValueError: it does not fit, in the words of ``ssd.core.cache.Slots``.
    """
    reach = max(starts) + width
    if min(starts) < 0 or reach > slots:
        raise ValueError(f"cache: positions {min(starts)} to {reach - 1} do not fit its {slots} slots")
    return reach

"""Where a function of one number changes sign."""

from __future__ import annotations

from collections.abc import Callable


def nearest_crossing(
    gap: Callable[[float], float], reach: float, intervals: int, tolerance: float = 1e-4
) -> float | None:
    """The zero of ``gap`` nearest to 0 in [-reach, reach], to ``tolerance``; None if there is none.

    Both sides are searched outwards in steps of reach / intervals, so two zeros within one step go unseen.
    """
    start = gap(0.0)
    if start == 0:
        return 0.0
    for step in range(intervals):
        found = []
        for side in (1, -1):
            inner, outer = side * reach * step / intervals, side * reach * (step + 1) / intervals
            value = gap(outer)
            if value == 0 or (value > 0) != (start > 0):
                found.append(bisect(gap, inner, outer, tolerance))
        if found:
            return min(found, key=abs)
    return None


def bisect(gap: Callable[[float], float], a: float, b: float, tolerance: float = 1e-4) -> float:
    """A point within ``tolerance`` of where ``gap`` changes sign between ``a`` and ``b``.

    Raises:
        ValueError: if both ends have the same sign.
    """
    at_a, at_b = gap(a), gap(b)
    if at_a * at_b > 0:
        raise ValueError(f"bisection: no change of sign between {a} ({at_a}) and {b} ({at_b})")
    while abs(b - a) > tolerance:
        middle = (a + b) / 2
        if (gap(middle) > 0) == (at_a > 0):
            a = middle
        else:
            b = middle
    return (a + b) / 2

"""Pass times of LLaMA-2 shapes on one H200 as measured, and the rules by which other times follow from them.

Batch 1, bfloat16, context 512 in a cache of 1,024 slots, random weights of the true shapes. Layers of the 70B share
weights so that they fit, and still every pass streams all its bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ssd.plan.pass_times import PassTimes

BANDWIDTH = 4.25e12  # bytes per second, device copy, measured
MEMORY = 139 * 2**30  # bytes that can be used
FLAT = 32  # tokens of a pass up to which its time was seen to be nearly flat
PEAK = 989e12  # dense bfloat16 operations per second, from the vendor's data sheet, not measured


class Shape(NamedTuple):
    """A model as far as its pass time goes.

    Attributes:
        layers: transformer layers.
        bytes: read by a pass.
        like: the measured shape whose overhead per layer it is given; its own name if it was measured.
        weight_bytes: of one weight.
    """

    layers: int
    bytes: float
    like: str
    weight_bytes: int = 2


SHAPES: dict[str, Shape] = {
    "68M": Shape(2, 0.09e9, "68M"),
    "160M": Shape(12, 0.28e9, "160M"),
    "1B": Shape(22, 2.07e9, "1B"),
    "7B": Shape(32, 13.2e9, "7B"),
    "70B": Shape(80, 137e9, "70B"),
    # Not measured: weights without the input embedding, from the published configurations.
    "Llama-3.2-1B": Shape(16, 2.47e9, "1B"),
    "Llama-3.1-8B": Shape(32, 15.0e9, "7B"),
    "Llama-3.1-70B": Shape(80, 139e9, "70B"),
    "TinyMistral-248M": Shape(12, 0.43e9, "160M"),
    "Mistral-7B": Shape(32, 14.2e9, "7B"),
    "Mistral-Large-123B": Shape(88, 122e9, "70B", weight_bytes=1),
}

# Seconds of a pass by width.
GRAPH: dict[str, dict[int, float]] = {
    "68M": {1: 0.28e-3, 8: 0.33e-3, 16: 0.34e-3},
    "160M": {1: 1.36e-3, 8: 1.65e-3, 16: 1.69e-3},
    "1B": {1: 3.24e-3, 8: 3.92e-3, 16: 4.03e-3},
    "7B": {1: 7.09e-3, 8: 8.25e-3, 16: 8.61e-3},
    "70B": {1: 45.1e-3, 8: 47.5e-3, 16: 47.9e-3},
}
COMPILED: dict[str, dict[int, float]] = {
    "68M": {1: 0.155e-3},
    "160M": {1: 0.59e-3, 8: 0.57e-3},
    "1B": {1: 1.32e-3, 8: 1.46e-3},
    "7B": {1: 5.88e-3, 8: 4.68e-3},
}
FLOORS = 1.2  # assumed: passes of a compiled 70B over their bandwidth floor

COLUMNS = {
    "graph": "measured: transformers in a CUDA graph, every level",
    "compiled_70b_graph": "measured: own compiled layer in a CUDA graph; the target, not compiled, as in column graph",
    "compiled": f"measured: own compiled layer in a CUDA graph; target assumed at {FLOORS} times its bandwidth floor",
    "floor": "computed: bytes of a pass over the measured copy bandwidth, which no pass beats",
}


def floor_seconds(name: str) -> float:
    """The least seconds in which the bytes of a pass can be read."""
    return SHAPES[name].bytes / BANDWIDTH


def seconds_by_width(name: str, column: str) -> dict[int, float]:
    """Seconds of a pass by the widths that were measured.

    A shape that was not measured gets its own floor and, per layer, what passes of the shape it is like take above
    theirs: above the floor a pass is bound by the number of its kernels.

    Raises:
        ValueError: for an unknown shape or column.
    """
    if name not in SHAPES:
        raise ValueError(f"shape: {name!r} is not one of {', '.join(SHAPES)}")
    if column not in COLUMNS:
        raise ValueError(f"times: {column!r} is not one of {', '.join(COLUMNS)}")
    shape = SHAPES[name]
    if column == "floor":
        return {1: floor_seconds(name)}
    if shape.like == "70B" and column == "compiled":
        return {1: FLOORS * floor_seconds(name)}
    measured = (GRAPH if column == "graph" or shape.like == "70B" else COMPILED)[shape.like]
    if name == shape.like:
        return dict(measured)
    above = {width: (s - floor_seconds(shape.like)) / SHAPES[shape.like].layers for width, s in measured.items()}
    return {width: floor_seconds(name) + shape.layers * per_layer for width, per_layer in above.items()}


@dataclass(frozen=True)
class Widened:
    """Seconds of a pass over ``width`` tokens in each of ``batch`` rows.

    Only their product counts. Between measured widths time is interpolated, beyond the widest it stays until
    ``knee`` tokens, and from there it grows in proportion.
    """

    by_width: Mapping[int, float]
    knee: float

    def __call__(self, width: int, batch: int) -> float:
        """Seconds."""
        tokens, known = width * batch, sorted(self.by_width)
        flat = float(np.interp(tokens, known, [self.by_width[w] for w in known]))
        return flat * max(1.0, tokens / self.knee)


def pass_times(name: str, column: str, knee: float = FLAT, overhead: float = 0.0, device: str = "0") -> PassTimes:
    """A level of this shape.

    Args:
        knee: tokens from which a pass is taken to be bound by arithmetic: ``FLAT`` is the widest seen to be flat,
            ``roofline_knee`` the widest that could be.
        overhead: seconds around each pass.
    """
    return PassTimes(name, Widened(seconds_by_width(name, column), knee), overhead, int(SHAPES[name].bytes), device)


def roofline_knee(name: str) -> float:
    """Tokens at which a pass does as many operations as ``PEAK`` allows while its bytes are read."""
    shape = SHAPES[name]
    operations = 2 * shape.bytes / shape.weight_bytes
    return PEAK * floor_seconds(name) / operations


def contention(target: float, drafting: float, together: float) -> float:
    """The demand of each of two streams that explains how long they took together, in (0, 1].

    Args:
        target, drafting: seconds of each alone; the shorter is over first.
        together: seconds until both were over.

    While both run, each goes on at 1 / 2d of its speed; then the longer is alone:
    together = 2 d min + (max - min).
    """
    shorter, longer = sorted((target, drafting))
    demand = (together - (longer - shorter)) / (2 * shorter)
    if not 0.5 <= demand <= 1:
        raise ValueError(f"contention: {together!r} s for {target!r} s and {drafting!r} s is not between both and one")
    return demand


# A 70B verification of 16 tokens beside a whole 1B→7B draft on two streams, column graph, measured.
TWO_STREAMS = (47.9e-3, 65.4e-3, 100e-3)
CONTENTION = contention(*TWO_STREAMS)

"""One chain at several vectors of temperatures, side by side in one run, so that ratios are paired. No torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ssd.bench.method_spec import EdgeSpec, MethodSpec
from ssd.bench.spec import ChainSpec, LevelSpec


def side_by_side(
    chain: ChainSpec, vectors: Mapping[str, Sequence[float | None]]
) -> tuple[ChainSpec, dict[str, MethodSpec]]:
    """A chain that holds the draft levels once per vector, and a method for each that uses its own.

    Args:
        chain: its edges are those of every method.
        vectors: temperature of every level by the method's name, the target's last (it is the row's); ``None``
            inherits. Equal vectors share levels and become one method, under the first name.

    Returns:
        A chain whose levels are shared weights under different temperatures, in no order of drafting (its own
        edges are never used), and the methods.
    """
    *drafts, target = chain.levels
    levels: list[LevelSpec] = []
    methods: dict[str, list[int]] = {}
    for name, vector in distinct(vectors).items():
        own = range(len(levels), len(levels) + len(drafts))
        levels += [replace(level, temperature=t) for level, t in zip(drafts, vector[:-1], strict=True)]
        methods[name] = list(own)
    top = len(levels)
    wide = ChainSpec((*levels, target), (EdgeSpec(1),) * top)
    return wide, {name: MethodSpec(levels=(*own, top), edges=chain.edges) for name, own in methods.items()}


def distinct(vectors: Mapping[str, Sequence[float | None]]) -> dict[str, tuple[float | None, ...]]:
    """The vectors without those that equal an earlier one."""
    found: dict[str, tuple[float | None, ...]] = {}
    for name, vector in vectors.items():
        if tuple(vector) not in found.values():
            found[name] = tuple(vector)
    return found


def stands_for(vectors: Mapping[str, Sequence[float | None]]) -> dict[str, str]:
    """By every name the method that has its vector."""
    kept = distinct(vectors)
    return {name: next(k for k, v in kept.items() if v == tuple(vector)) for name, vector in vectors.items()}

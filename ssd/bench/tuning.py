"""Choosing each family's edges on prompts that nothing else is measured on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ssd.bench.method_spec import EdgeSpec, MethodSpec
from ssd.bench.metrics import tokens_per_second
from ssd.bench.records import group_by
from ssd.bench.spec import parse


@dataclass(frozen=True)
class FamilySpec:
    """A sub-chain and the edge settings it may take."""

    levels: tuple[int | str, ...]
    edges: tuple[tuple[EdgeSpec, ...], ...]


def parse_families(data: Mapping[str, Any]) -> dict[str, FamilySpec]:
    """Families by name, parsed strictly."""
    return {name: parse(FamilySpec, entry, f"families.{name}") for name, entry in data.items()}


def label(edges: Sequence[EdgeSpec]) -> str:
    """How a candidate is called: gamma per edge, with the window and rule where they are not the usual ones."""
    return ", ".join(_edge_label(edge) for edge in edges)


def _edge_label(edge: EdgeSpec) -> str:
    window = "" if edge.window == "at_least" else f" {edge.window}"
    value = "" if edge.window_value is None else f"({edge.window_value:g})"
    return f"{edge.gamma}{window}{value}{'' if edge.verification == 'token' else ' by block'}"


def candidates(families: Mapping[str, FamilySpec]) -> dict[str, MethodSpec]:
    """Every candidate of every family as a method named ``family [label]``."""
    return {
        f"{name} [{label(edges)}]": MethodSpec(levels=family.levels, edges=edges)
        for name, family in families.items()
        for edges in family.edges
    }


def choose(families: Mapping[str, FamilySpec], records: Sequence[Mapping[str, Any]]) -> dict[str, tuple[EdgeSpec, ...]]:
    """Per family, the edges with most tokens per second on ``records`` of all candidates."""
    speed = {method: tokens_per_second(own) or 0.0 for (method,), own in group_by(records, "method").items()}
    return {
        name: max(family.edges, key=lambda edges: speed[f"{name} [{label(edges)}]"])
        for name, family in families.items()
    }


def fastest(families: Mapping[str, FamilySpec], records: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str:
    """The family among ``names`` whose best candidate made most tokens per second."""
    speed = {method: tokens_per_second(own) or 0.0 for (method,), own in group_by(records, "method").items()}
    return max(names, key=lambda name: max(speed[f"{name} [{label(edges)}]"] for edges in families[name].edges))

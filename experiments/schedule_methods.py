"""The configurations that ``experiments.schedule_demo`` compares: every family under every schedule and placement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ssd.bench.method_spec import MethodSpec
from ssd.bench.metrics import tokens_per_second
from ssd.bench.records import group_by
from ssd.bench.spec import parse
from ssd.bench.tuning import FamilySpec, label
from ssd.pipeline.settings import PipelineSettings

BOTH, ONE, EACH = "serial, all cores", "serial, one core", "pipelined, a core each"
PLACEMENTS = (BOTH, ONE, EACH)
AR = {BOTH: "ar", ONE: "ar, one core"}


@dataclass(frozen=True)
class Variant:
    """One configuration.

    Attributes:
        family: levels that take part, by name.
        placement: one of ``PLACEMENTS``.
        number: among all configurations.
    """

    family: str
    placement: str
    number: int
    method: MethodSpec

    @property
    def name(self) -> str:
        """How tables call it."""
        ahead = self.method.pipeline
        own = "" if ahead is None else f", {ahead.budget} rows ahead, {ahead.fan_out} guesses"
        return f"{self.family} [{label(self.method.edges)}] {self.placement}{own}"

    @property
    def fitted(self) -> bool:
        """Whether the simulator is fitted on it; halves alternate within and across draft lengths."""
        return (self.number + self.number // 4) % 2 == 0


def variants(families: Mapping[str, FamilySpec], ahead: Sequence[Any], cores: Sequence[int]) -> list[Variant]:
    """Every family with every draft length under every schedule; ``ahead`` as in the configuration."""
    layouts = [parse(PipelineSettings, entry, f"ahead[{i}]") for i, entry in enumerate(ahead)]
    found: list[Variant] = []
    for name, family in families.items():
        for edges in family.edges:
            base = MethodSpec(levels=family.levels, edges=edges)
            made = [(BOTH, replace(base, cores=tuple(cores))), (ONE, replace(base, cores=(cores[0],)))]
            made += [(EACH, replace(base, schedule="pipelined", pipeline=layout)) for layout in layouts]
            found += [Variant(name, where, len(found) + i, method) for i, (where, method) in enumerate(made)]
    return found


def alone(cores: Sequence[int]) -> dict[str, MethodSpec]:
    """The target alone, on all cores and on one."""
    return {
        AR[BOTH]: MethodSpec(levels=(-1,), cores=tuple(cores)),
        AR[ONE]: MethodSpec(levels=(-1,), cores=(cores[0],)),
    }


def chosen(found: Sequence[Variant], records: Sequence[Mapping[str, Any]]) -> list[Variant]:
    """Per family and placement, the configuration with most tokens per second on ``records``."""
    speed = {method: tokens_per_second(own) or 0.0 for (method,), own in group_by(records, "method").items()}
    groups: dict[tuple[str, str], list[Variant]] = {}
    for variant in found:
        groups.setdefault((variant.family, variant.placement), []).append(variant)
    return [max(own, key=lambda v: speed[v.name]) for own in groups.values()]

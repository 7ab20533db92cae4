"""Pass times for a calibration: those of a plan's profile file, or timed ones, with who else used the machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.calibrate_config import CalibrateSpec
from ssd.bench.environment import BusyMeter
from ssd.bench.json_files import read_json
from ssd.bench.spec import ChainSpec
from ssd.calibrate.pass_profile import measured_profile
from ssd.core.chain import Chain
from ssd.plan.inputs import read_inputs
from ssd.plan.pass_times import Profile


@dataclass(frozen=True)
class PassProfile:
    """Pass times and the state of the machine they were timed on.

    Attributes:
        levels: of the chain.
        where: the file they were read from, or ``pass times`` where they were timed.
        busy_elsewhere: share of the machine that others used; ``None`` where that is not known.
        busy: whether that is too much; ``None`` where it is not known.
    """

    levels: Profile
    where: str
    busy_elsewhere: float | None
    busy: bool | None

    def in_record(self) -> dict[str, Any]:
        """What a record says of them."""
        seconds = {x.name: _by_text(x.seconds) for x in self.levels.levels}
        return {
            "pass_seconds": seconds,
            "pass_seconds_from": self.where,
            "busy_elsewhere": self.busy_elsewhere,
            "busy": self.busy,
        }


def given(spec: CalibrateSpec, chain: ChainSpec) -> PassProfile | None:
    """The profile file that ``spec`` names, or ``None`` if it names none; no weights are read.

    Raises:
        ValueError: naming the file and what it lacks: a level, passes of one row; or the level that is another model.
    """
    if spec.profile is None:
        return None
    where = spec.profile
    data = read_json(Path(where))
    inputs = read_inputs(data, where)
    names = [f"L{k}" for k in range(len(chain.levels))]
    sources = {entry["name"]: entry.get("source") for entry in data["levels"]}
    for name, level in zip(names, chain.levels, strict=True):
        if sources.get(name) not in (None, level.source):
            raise ValueError(
                f"profile: {where} is of another chain: {name} is {sources[name]!r}, in {spec.chain} {level.source!r}"
            )
    try:
        profile = inputs.profile.select(names)
        for passes in profile.levels:
            passes.at(1, 1)
    except ValueError as error:
        raise ValueError(f"profile: {where}: {error}") from error
    return PassProfile(profile, where, data.get("busy_elsewhere"), data.get("busy"))


def timed(spec: CalibrateSpec, chain: Chain, names: Sequence[str], ids: Sequence[int]) -> PassProfile:
    """Pass times of the chain's levels, measured now.

    Args:
        names: of the levels.
        ids: a prompt.
    """
    sampling, p = spec.sampling.at(max(spec.sampling.temperature)), spec.profiling
    with BusyMeter() as meter:
        found = measured_profile(chain, names, ids, sampling, p.widths, p.repeats, p.context)
    return PassProfile(found, "pass times", meter.busy_elsewhere, meter.busy)


def _by_text(seconds: Any) -> Mapping[str, float]:
    """Pass times with text keys, ``widthxbatch``."""
    return {f"{w}x{b}": s for (w, b), s in seconds.items()}

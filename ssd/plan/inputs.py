"""What a plan is made from, as it stands in a profile file: pass times, bytes, devices and acceptance.

The file is JSON:

    {"schema": 1, "temperature": 0.0, "context": 160,
     "levels": [{"name": "L0", "bytes": 19000000, "device": "cpu", "overhead": 0.0002, "look_up": false,
                 "coverage": 1.0, "temperature": null,
                 "seconds": [{"width": 1, "batch": 1, "seconds": 0.003}, ...]}, ...],
     "acceptance": {"L0→L2": {"alpha": 0.55, "stderr": 0.02, "n": 288, "by_position": [0.52, 0.6, ...],
                               "text_shifts": [0.04, -0.03, ...]}, ...}}

Levels stand from the smallest draft to the target. Two sections may be left out, as they are in older files:
``temperature_grid`` (``ssd.plan.temperature_grid``) and ``next_guesses``, by pair the share of next tokens among the
draft's 1, 2, … best guesses:

    {"L0→L2": {"recovered": [0.3, 0.42, ...], "bonus": [0.5, 0.61, ...]}, ...}

Further fields are kept but not read.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ssd.plan.acceptance import Acceptance, ByPosition, Constant
from ssd.plan.candidates import edge_acceptance
from ssd.plan.lookahead import HitCurve, PowerMiss, TopShares
from ssd.plan.pass_times import PassTimes, Profile
from ssd.plan.published import ACCEPTANCE, PublishedAcceptance
from ssd.plan.temperature_grid import TemperatureGrid, Vector, read_grid

SCHEMA = 1
Pair = tuple[str, str]


@dataclass(frozen=True)
class PlanInputs:
    """Everything known before planning.

    Attributes:
        profile: pass times of all levels.
        pairwise: acceptance of the pairs that are known.
        alphas: of each pair, one rate for all places: the mean over positions where measured, else the first place's.
        origins: of each pair's acceptance: ``measured``, ``imposed`` or where it was published.
        temperatures: per level, what replaces the row's; ``None`` inherits.
        second: other published values of pairs whose first is in doubt.
        shifts: of measured pairs, what each tuning text adds to the rates; pairs without are left out.
        grid: acceptance at other temperatures of the levels; ``None``: not measured, or the row is greedy.
        curves: by pair, how often a next token is among the draft's best guesses; pairs without are left out.
    """

    profile: Profile
    pairwise: dict[Pair, Acceptance]
    alphas: dict[Pair, float]
    origins: dict[Pair, str]
    temperatures: tuple[float | None, ...]
    second: dict[Pair, Acceptance]
    shifts: dict[Pair, tuple[float, ...]] = field(default_factory=dict)
    grid: TemperatureGrid | None = None
    curves: dict[Pair, HitCurve] = field(default_factory=dict)

    def acceptance(self, names: Sequence[str], vector: Vector | None = None) -> tuple[Acceptance, ...]:
        """One model per edge of the chain ``names``, its levels at the temperatures ``vector`` (``None``: their own).

        At other temperatures every rate of a pair moves by what they change in its mean.

        Raises:
            ValueError: for a pair of which nothing is known.
        """
        models = edge_acceptance(names, self.pairwise)
        if vector is None or self.grid is None or vector == self.grid.own(names):
            return models
        shifts = map(self.grid.shift, itertools.pairwise(names), itertools.pairwise(vector))
        return tuple(model.shifted(shift) for model, shift in zip(models, shifts, strict=True))

    def with_hit_curve(self, value: Mapping[str, float] | None) -> PlanInputs:
        """The same with the curve ``PowerMiss(**value)`` assumed for every pair; ``None`` keeps what was measured.

        Raises:
            ValueError: naming what is wrong with it.
        """
        if value is None:
            return self
        if set(value) != {"recovered", "bonus", "exponent"}:
            raise ValueError(f"hit_curve: expected recovered, bonus and exponent, got {value!r}")
        if any(isinstance(x, bool) or not isinstance(x, int | float) for x in value.values()):
            raise ValueError(f"hit_curve: expected numbers, got {value!r}")
        return replace(self, curves=dict.fromkeys(self.pairwise, PowerMiss(**value)))

    def with_devices(self, devices: Mapping[str, str]) -> PlanInputs:
        """The same with levels on other devices.

        Raises:
            ValueError: for a level that is not there.
        """
        for name in devices:
            if name not in self.profile.names:
                raise ValueError(f"devices: no level is called {name!r}; there are {', '.join(self.profile.names)}")
        levels = (replace(x, device=str(devices.get(x.name, x.device))) for x in self.profile.levels)
        return replace(self, profile=Profile(tuple(levels)))

    def with_acceptance(self, values: Mapping[str, Any]) -> PlanInputs:
        """The same with acceptance imposed on some pairs.

        Args:
            values: by pair (``L0->L2``): a rate, a list of rates by position, or
                ``published: DRAFT->TARGET on DATA at T`` (the temperature only where there are several).

        Raises:
            ValueError: naming the pair and the value that is wrong.
        """
        pairwise, origins, second = dict(self.pairwise), dict(self.origins), dict(self.second)
        alphas, shifts, grid = dict(self.alphas), dict(self.shifts), self.grid
        for name, value in values.items():
            pair = parse_pair(name, self.profile.names)
            second.pop(pair, None)
            shifts.pop(pair, None)
            grid = None if grid is None else grid.without(pair)
            try:
                if isinstance(value, str):
                    entry = find_published(value)
                    pairwise[pair], *others = entry.models()
                    origins[pair] = f"published: {entry.draft}→{entry.target} on {entry.data}, {entry.source}"
                    if others:
                        second[pair] = others[0]
                else:
                    pairwise[pair] = ByPosition(tuple(value)) if isinstance(value, Sequence) else Constant(value)
                    origins[pair] = "imposed"
            except ValueError as error:
                raise ValueError(f"acceptance.{name}: {error}") from error
            alphas[pair] = pairwise[pair].at(0, "plain")
        return replace(self, pairwise=pairwise, alphas=alphas, origins=origins, second=second, shifts=shifts, grid=grid)


def read_inputs(data: Mapping[str, Any], where: str) -> PlanInputs:
    """The inputs in the content of a profile file.

    Raises:
        ValueError: naming ``where`` and what is missing or wrong.
    """
    if data.get("schema") != SCHEMA:
        raise ValueError(f"{where}: schema {data.get('schema')!r}, expected {SCHEMA}")
    try:
        levels = [_level(entry) for entry in data["levels"]]
        profile = Profile(tuple(levels))
        pairwise, alphas, shifts = {}, {}, {}
        for name, entry in data.get("acceptance", {}).items():
            pair = parse_pair(name, profile.names)
            by = entry.get("by_position")
            pairwise[pair] = ByPosition(tuple(by)) if by else Constant(entry["alpha"])
            alphas[pair] = float(entry["alpha"])
            if entry.get("text_shifts"):
                shifts[pair] = tuple(map(float, entry["text_shifts"]))
        temperatures = tuple(entry.get("temperature") for entry in data["levels"])
        section = data.get("temperature_grid")
        grid = None if section is None else read_grid(section, profile.names)
        curves: dict[Pair, HitCurve] = {
            parse_pair(name, profile.names): TopShares(tuple(x["recovered"]), tuple(x["bonus"]))
            for name, x in (data.get("next_guesses") or {}).items()
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{where}: {type(error).__name__}: {error}") from error
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
    origins = dict.fromkeys(pairwise, "measured")
    return PlanInputs(profile, dict(pairwise), alphas, origins, temperatures, {}, shifts, grid, curves)


def _level(entry: Mapping[str, Any]) -> PassTimes:
    return PassTimes(
        entry["name"],
        {(int(x["width"]), int(x["batch"])): float(x["seconds"]) for x in entry["seconds"]},
        overhead=float(entry.get("overhead") or 0.0),
        bytes=entry.get("bytes"),
        device=str(entry.get("device", "0")),
        look_up=bool(entry.get("look_up", False)),
        coverage=float(entry.get("coverage", 1.0)),
        extrapolate=True,
    )


def parse_pair(name: str, names: Sequence[str]) -> Pair:
    """The (draft, verifier) that ``L0->L2`` or ``L0→L2`` names.

    Raises:
        ValueError: if it is no pair of known levels in their order.
    """
    draft, arrow, verifier = name.replace("->", "→").partition("→")
    if not arrow or draft not in names or verifier not in names or names.index(draft) >= names.index(verifier):
        raise ValueError(f"acceptance.{name}: expected DRAFT->VERIFIER of {', '.join(names)}, lower level first")
    return draft, verifier


def pair_name(pair: Pair) -> str:
    """How files and tables call a pair."""
    return f"{pair[0]}→{pair[1]}"


def find_published(text: str) -> PublishedAcceptance:
    """The one published entry that ``published: DRAFT->TARGET on DATA at T`` names.

    Raises:
        ValueError: if there is none, or several.
    """
    kind, _, rest = text.partition(":")
    if kind.strip() != "published":
        raise ValueError(f"expected a rate, a list of rates, or 'published: DRAFT->TARGET on DATA', got {text!r}")
    models, _, tail = rest.strip().replace("->", "→").partition(" on ")
    data, _, temperature = tail.partition(" at ")
    found = [
        entry
        for entry in ACCEPTANCE
        if f"{entry.draft}→{entry.target}" == models.strip()
        and entry.data == data.strip()
        and (not temperature or (entry.temperature is not None and f"{entry.temperature:g}" == temperature.strip()))
    ]
    if len(found) != 1:
        known = sorted({f"{e.draft}->{e.target} on {e.data}" for e in ACCEPTANCE})
        raise ValueError(f"{text!r} names {len(found)} published entries, expected one of: {'; '.join(known)}")
    return found[0]

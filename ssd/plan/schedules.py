"""What working ahead is predicted to bring a chain whose levels run on several devices.

Predicted by ``ssd.plan.simulate``. A simulation of the serial schedule with the same draws sees the same rounds, so the
ratio of the two times has little noise; it is applied to the speedup that ``ssd.plan.prediction`` computes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from ssd.plan.acceptance import Acceptance
from ssd.plan.edge_plan import EdgePlan
from ssd.plan.lookahead import Ahead, HitCurve
from ssd.plan.pass_times import Profile
from ssd.plan.prediction import predict
from ssd.plan.setting import Machine, Setting
from ssd.plan.simulate import Simulation, simulate

SEARCH_TOKENS, FINAL_TOKENS = 400, 2000  # simulated for a setting that is tried, and for the one that is kept


@dataclass(frozen=True)
class Pipelined:
    """The best setting found.

    Attributes:
        speedup: over the target alone.
        speedup_per_device: that divided by the devices.
        devices: that the levels occupy.
        hit_rate: of the last edge that works ahead: rounds whose next draft had been made ÷ those that needed one.
        budget: rows drafted ahead for each row that is verified.
        gammas: draft lengths, from the lowest edge up.
        ahead: edges that work ahead.
    """

    speedup: float
    speedup_per_device: float
    devices: int
    hit_rate: float | None
    budget: int
    gammas: tuple[int, ...]
    ahead: tuple[int, ...]


@dataclass(frozen=True)
class _Choice:
    gammas: tuple[int, ...]
    budget: int
    ahead: tuple[int, ...]

    def is_timed(self, profile: Profile, batch: int) -> bool:
        """Whether passes with the rows that every level would draft ahead were measured."""
        rows = [batch * self.budget ** sum(k >= j for k in self.ahead) for j in range(len(self.gammas))]
        return all(n <= level.largest_batch for n, level in zip(rows, profile.levels, strict=False))


def edges_that_may_work_ahead(profile: Profile, curves: Mapping[tuple[str, str], HitCurve]) -> tuple[int, ...]:
    """Edges whose draft levels all run on other devices than the verifier and whose guesses are known.

    A look-up has nothing to do ahead: asking it takes no time worth hiding.
    """
    devices, names = [level.device for level in profile.levels], profile.names
    return tuple(
        k
        for k, pair in enumerate(pairwise(names))
        if pair in curves and not profile.levels[k].look_up and devices[k + 1] not in devices[: k + 1]
    )


def best_pipelined(
    profile: Profile,
    edges: Sequence[EdgePlan],
    acceptance: Sequence[Acceptance],
    curves: Mapping[tuple[str, str], HitCurve],
    budgets: Sequence[int],
    batch: int = 1,
    largest: int = 10,
) -> Pipelined | None:
    """The pipelined setting that no single step betters, or ``None`` where no edge can work ahead.

    A step changes one draft length by 1, goes to the next budget, or has one edge more or fewer work ahead; the search
    starts at ``edges`` and the smallest budget, with the highest edge that may. An edge that works ahead below another
    multiplies the rows; settings with more rows than a level was timed for are left out.

    Args:
        profile: of the chain's levels.
        edges: at the best draft lengths of the serial schedule; windows stay.
        curves: by pair, how often the next token is among the best guesses.
        budgets: rows drafted ahead for each row that is verified.
        batch: rows decoded together.
        largest: longest draft tried.
    """
    able, budgets = edges_that_may_work_ahead(profile, curves), sorted(set(budgets))
    first = _Choice(tuple(e.gamma for e in edges), budgets[0], able[-1:])
    if not able or not first.is_timed(profile, batch):
        return None
    search = _Search(profile, tuple(edges), tuple(acceptance), dict(curves), batch)
    tried: dict[_Choice, float] = {}

    def seconds(choice: _Choice) -> float:
        if choice not in tried:
            tried[choice] = search.seconds(choice)
        return tried[choice]

    best = first
    while True:
        steps = (c for c in _steps(best, budgets, able, largest) if c.is_timed(profile, batch))
        step = min(steps, key=seconds, default=best)
        if seconds(step) >= seconds(best):
            return search.result(best)
        best = step


@dataclass(frozen=True)
class _Search:
    profile: Profile
    edges: tuple[EdgePlan, ...]
    acceptance: tuple[Acceptance, ...]
    curves: dict[tuple[str, str], HitCurve]
    batch: int

    def seconds(self, choice: _Choice) -> float:
        """Predicted seconds per token."""
        serial = predict(self.profile, self._edges(choice), self.acceptance, self.batch).seconds_per_token
        alone, ahead = self._simulated(choice, SEARCH_TOKENS, seed=0)
        return serial * ahead.seconds / alone.seconds

    def result(self, choice: _Choice) -> Pipelined:
        """What is predicted for a choice, with draws that did not choose it."""
        speedup = predict(self.profile, self._edges(choice), self.acceptance, self.batch).speedup
        alone, ahead = self._simulated(choice, FINAL_TOKENS, seed=1)
        speedup *= alone.seconds / ahead.seconds
        hits, devices = ahead.hit_rate(choice.ahead[-1]), ahead.machine.devices
        return Pipelined(speedup, speedup / devices, devices, hits, choice.budget, choice.gammas, choice.ahead)

    def _edges(self, choice: _Choice) -> tuple[EdgePlan, ...]:
        return tuple(replace(e, gamma=g) for e, g in zip(self.edges, choice.gammas, strict=True))

    def _simulated(self, choice: _Choice, tokens: int, seed: int) -> tuple[Simulation, Simulation]:
        """The serial and the pipelined schedule, seeing the same rounds."""
        pairs = list(pairwise(self.profile.names))
        ahead = tuple(
            Ahead(self.curves[pair], choice.budget) if k in choice.ahead else None for k, pair in enumerate(pairs)
        )
        serial = Setting(self.profile, self._edges(choice), self.acceptance, Machine.of(self.profile))
        pipelined = replace(serial, schedule="pipelined", ahead=ahead)
        return simulate(serial, tokens, self.batch, seed), simulate(pipelined, tokens, self.batch, seed)


def _steps(choice: _Choice, budgets: Sequence[int], able: Sequence[int], largest: int) -> Iterator[_Choice]:
    """Settings one step away."""
    for k, g in enumerate(choice.gammas):
        for other in (g - 1, g + 1):
            if 1 <= other <= largest:
                yield replace(choice, gammas=(*choice.gammas[:k], other, *choice.gammas[k + 1 :]))
    at = budgets.index(choice.budget)
    for i in (at - 1, at + 1):
        if 0 <= i < len(budgets):
            yield replace(choice, budget=budgets[i])
    for k in able:
        ahead = tuple(sorted(set(choice.ahead) ^ {k}))
        if ahead:
            yield replace(choice, ahead=ahead)

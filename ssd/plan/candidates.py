"""Every sub-chain of a list of levels, and its best draft lengths."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ssd.plan.acceptance import Acceptance
from ssd.plan.chain_recursion import Memo
from ssd.plan.edge_plan import EdgePlan
from ssd.plan.pass_times import Profile
from ssd.plan.prediction import Prediction, predict
from ssd.plan.schedules import Pipelined
from ssd.plan.temperature_grid import Vector

LARGEST_GAMMA = 10
IDLE = 1e-9  # passes per token at or below which a level does nothing
Pairwise = Mapping[tuple[str, str], Acceptance]  # (draft, verifier) by name


@dataclass(frozen=True)
class Plan:
    """A sub-chain with its edges and what is predicted for it.

    Attributes:
        names: of its levels, from the lowest up.
        edges, acceptance: one per pair of neighbours.
        prediction: under the serial schedule.
        temperatures: of its levels; ``None``: their own.
        pipelined: what the pipelined schedule is predicted to do; ``None``: nothing can work ahead.
    """

    names: tuple[str, ...]
    edges: tuple[EdgePlan, ...]
    prediction: Prediction
    acceptance: tuple[Acceptance, ...]
    temperatures: Vector | None = None
    pipelined: Pipelined | None = None

    @property
    def gammas(self) -> tuple[int, ...]:
        """Draft lengths from the lowest edge up; empty for AR."""
        return tuple(edge.gamma for edge in self.edges)

    @property
    def schedule(self) -> str:
        """The faster of ``serial`` and ``pipelined``."""
        faster = self.pipelined is not None and self.pipelined.speedup > self.prediction.speedup
        return "pipelined" if faster else "serial"

    @property
    def speedup(self) -> float:
        """Over the target alone, under ``schedule``."""
        own = self.prediction.speedup
        return own if self.pipelined is None else max(own, self.pipelined.speedup)

    def model(self, pair: tuple[str, str]) -> Acceptance | None:
        """The acceptance of a pair in this plan; ``None`` if it is none of its edges."""
        return dict(zip(itertools.pairwise(self.names), self.acceptance, strict=True)).get(pair)

    @property
    def idles(self) -> bool:
        """Whether a level of it never drafts anything, so that it is another, shorter chain."""
        return min(self.prediction.passes_per_token) <= IDLE

    def __str__(self) -> str:
        return "→".join(self.names) + (f" gamma={','.join(map(str, self.gammas))}" if self.edges else " (AR)")


def sub_chains(names: Sequence[str]) -> list[tuple[str, ...]]:
    """All chains with the last level as target: AR, pairs, triples, …, in order of depth."""
    *drafts, target = names
    return [(*chosen, target) for depth in range(len(names)) for chosen in itertools.combinations(drafts, depth)]


def edge_acceptance(names: Sequence[str], pairwise: Pairwise) -> tuple[Acceptance, ...]:
    """One model per edge of a chain.

    Raises:
        ValueError: if a pair was not measured.
    """
    for pair in itertools.pairwise(names):
        if pair not in pairwise:
            raise ValueError(f"acceptance: nothing is known about {pair[0]} drafting for {pair[1]}")
    return tuple(pairwise[pair] for pair in itertools.pairwise(names))


def best_gammas(
    profile: Profile,
    acceptance: Sequence[Acceptance],
    batch: int = 1,
    windows: Sequence[str] = ("at_least",),
    largest: int = LARGEST_GAMMA,
    memo: Memo | None = None,
) -> Plan:
    """The draft lengths 1 .. ``largest`` per edge, and the window, with the fewest seconds per token.

    All vectors are tried up to depth 2. Deeper chains improve one edge at a time from several starts until
    nothing improves, which finds a vector no single change can better. A vector that leaves a level idle
    (``exactly`` with one token takes plain steps) is another, shorter chain and comes last.

    Args:
        windows: rules to try on the edges above the lowest; a level 0 block holds gamma tokens under each.
    """
    memo = {} if memo is None else memo
    found: dict[tuple[EdgePlan, ...], Plan] = {}

    def plan(window: str, gammas: Sequence[int]) -> Plan:
        edges = tuple(
            EdgePlan(g, window if k else "at_least", a.verification)
            for k, (g, a) in enumerate(zip(gammas, acceptance, strict=True))
        )
        if edges not in found:
            found[edges] = Plan(
                profile.names, edges, predict(profile, edges, acceptance, batch, memo), tuple(acceptance)
            )
        return found[edges]

    depth = len(acceptance)
    for window in windows:
        if depth <= 2:
            for gammas in itertools.product(range(1, largest + 1), repeat=depth):
                plan(window, gammas)
        else:
            for start in (1, 3, 6):
                best = plan(window, [min(start, largest)] * depth)
                while True:
                    better = min((plan(window, g) for g in neighbours(best.gammas, largest)), key=_seconds)
                    if _seconds(better) >= _seconds(best):
                        break
                    best = better
    if not found:
        raise ValueError("windows: at least one rule is needed")
    return min(found.values(), key=lambda p: (_seconds(p), p.gammas))


def neighbours(gammas: Sequence[int], largest: int) -> Iterator[tuple[int, ...]]:
    """Vectors that differ in one entry, by any amount."""
    for k in range(len(gammas)):
        for g in range(1, largest + 1):
            if g != gammas[k]:
                yield (*gammas[:k], g, *gammas[k + 1 :])


def _seconds(plan: Plan) -> float:
    """Seconds per token, infinite where a level never runs."""
    return math.inf if plan.idles else plan.prediction.seconds_per_token


def label(plan: Plan) -> str:
    """How tables and records call a plan: levels, draft lengths, windows other than ``at_least``, temperatures."""
    if not plan.edges:
        return f"{plan.names[0]} alone"
    own = drawn_at(plan)
    return f"{'→'.join(plan.names)} [{lengths(plan, plan.gammas)}]" + (f" at {own}" if own else "")


def lengths(plan: Plan, gammas: Sequence[int]) -> str:
    """Draft lengths from the lowest edge up, each with its window where that is not ``at_least``."""
    edges = zip(gammas, plan.edges, strict=True)
    return ", ".join(f"{g}" if e.window == "at_least" else f"{g} {e.window}" for g, e in edges)


def drawn_at(plan: Plan) -> str:
    """Temperatures of the draft levels where the plan changes them, the look-up left out; else nothing."""
    return ", ".join(f"{t:g}" for t in (plan.temperatures or ())[:-1] if t is not None)

"""Schedules to climb rungs under: pipelined, with predictions that are all right or all wrong, or with slow workers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from ssd.certify.result import Check
from ssd.core.chain import Chain, Level
from ssd.core.clock import PassClock
from ssd.core.decode import Decoder
from ssd.core.generate import Schedule
from ssd.core.model import CachedModel
from ssd.core.requests import Request
from ssd.pipeline.pipeline import Pipeline
from ssd.pipeline.settings import PipelineSettings

REGIMES = ("hits", "misses", "slow drafts", "slow target")
"""What is imposed: every prediction right, every one wrong, or passes of some workers that wait first."""
WORKERS = ("target alone", "each alone", "target with the next")
"""How levels are shared out; a look-up has no worker to itself, and a single draft is a worker's in each of them."""


DELAY = 0.02
"""Seconds a slow worker of a chain of real models waits, about as long as a pass of a small one takes."""


class Pipelined:
    """The pipelined schedule of any chain it is handed, one pipeline at a time, which stays for the next batch.

    A chain in which nothing can be drafted ahead, alone or with no draft but a look-up, is decoded by taking turns.

    Args:
        regime: one of ``REGIMES``.
        kind: of workers.
        workers: one of ``WORKERS``.
        delay: seconds a slow worker waits before each pass.
        budget: rows drafted ahead for each row.
    """

    def __init__(
        self, regime: str, kind: str = "thread", workers: str = "target alone", delay: float = 0.002, budget: int = 2
    ) -> None:
        for name, value, known in (("regime", regime, REGIMES), ("workers", workers, WORKERS)):
            if value not in known:
                raise ValueError(f"schedule.{name}: {value!r} is not one of {', '.join(known)}")
        self.regime, self.kind, self.workers, self.delay, self.budget = regime, kind, workers, delay, budget
        self._pipeline: Pipeline | None = None
        self._held: tuple[Any, ...] = ()
        self._of: Chain | None = None  # keeps alive what ``_held`` knows by number

    def groups(self, chain: Chain) -> tuple[range, ...]:
        """Levels of each worker, the target's last; one group where nothing can be drafted ahead."""
        computed = sum(not level.is_ngram for level in chain.levels)
        if computed < 2:
            return (range(len(chain.levels)),)
        return PipelineSettings(self._share(chain)).groups(len(chain.levels))

    def _share(self, chain: Chain) -> tuple[tuple[int, ...], ...]:
        levels = list(range(len(chain.levels)))
        joined = 1 + chain.levels[0].is_ngram  # a look-up works for the level above it
        lowest = tuple(levels[:joined])
        if self.workers == "each alone":
            return (lowest, *((k,) for k in levels[joined:]))
        if self.workers == "target with the next" and len(levels) - joined > 1:
            return (tuple(levels[:-2]), tuple(levels[-2:]))
        return (tuple(levels[:-1]), (levels[-1],))

    def settings(self, chain: Chain) -> PipelineSettings:
        """Of the workers of ``chain``."""
        groups = self.groups(chain)
        slow = {"slow drafts": range(len(groups) - 1), "slow target": range(len(groups) - 1, len(groups))}
        delays = [self.delay if i in slow.get(self.regime, ()) else 0.0 for i in range(len(groups))]
        force = self.regime if self.regime in ("hits", "misses") else None
        return PipelineSettings(
            tuple(map(tuple, groups)), self.kind, budget=self.budget, force=force, delays=tuple(delays)
        )

    @contextmanager
    def decoding(self, chain: Chain, requests: Sequence[Request], clock: PassClock) -> Iterator[Decoder]:
        """See ``ssd.core.generate.Schedule``."""
        if len(self.groups(chain)) == 1:
            yield Decoder(chain, requests, clock)
            return
        pipeline = self._open(chain)
        with pipeline.decoding(pipeline.chain, requests, clock) as decoder:
            yield decoder

    def _open(self, chain: Chain) -> Pipeline:
        """The pipeline of a chain of these very models under these very rules."""
        held = (
            tuple((id(x.model), x.sampling, id(x.draft_to_target)) for x in chain.levels), chain.edges, chain.names,
        )  # fmt: skip
        if self._pipeline is None or held != self._held:
            self.close()
            own = apart(chain) if self.kind == "thread" else chain
            self._pipeline, self._held, self._of = Pipeline(own, self.settings(chain)), held, chain
        return self._pipeline

    def close(self) -> None:
        """No worker is left."""
        if self._pipeline is not None:
            self._pipeline.close()
        self._pipeline, self._held, self._of = None, (), None


def in_turn(climb: Callable[[Pipelined], Sequence[Check]], kind: str, delay: float = DELAY) -> list[Check]:
    """The checks of a rung under every one of ``REGIMES``, which stands behind their names.

    Args:
        climb: the rung.
        kind: of workers.
        delay: of each pass of a slow worker, in seconds.
    """
    checks: list[Check] = []
    for regime in REGIMES:
        schedule = Pipelined(regime, kind, delay=delay)
        try:
            checks += [replace(check, name=f"{check.name}; {regime}") for check in climb(schedule)]
        finally:
            schedule.close()
    return checks


def apart(chain: Chain) -> Chain:
    """The chain, with copies of modules that two of its levels share: threads cannot use one at the same time."""
    seen = {id(getattr(chain.levels[-1].model, "module", None))}
    levels: list[Level] = []
    for level in chain.levels[:-1]:
        shared = id(getattr(level.model, "module", None)) in seen
        levels.append(_copied(level) if shared else level)
        seen.add(id(getattr(level.model, "module", None)))
    return replace(chain, levels=(*levels, chain.levels[-1]))


def beside(chain: Chain, schedule: str | Schedule) -> Chain:
    """The chain for use while its workers run: threads use the drafts' own modules, so these are copied."""
    if not isinstance(schedule, Pipelined) or schedule.kind != "thread":
        return chain
    return replace(chain, levels=(*map(_copied, chain.levels[:-1]), chain.levels[-1]))


def _copied(level: Level) -> Level:
    """The level with a module and a cache of its own, if it has a module."""
    model = level.model
    if not isinstance(model, CachedModel):
        return level
    return replace(level, model=CachedModel(copy.deepcopy(model.module), model.name))


def with_target(chain: Chain, schedule: str | Schedule) -> range:
    """Levels that take turns with the target."""
    return schedule.groups(chain)[-1] if isinstance(schedule, Pipelined) else range(len(chain.levels))

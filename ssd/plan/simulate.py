"""What a chain does under a schedule on given devices: a discrete-event simulation.

Nothing is computed: pass times and acceptance are given, and every pass takes its place on a worker.
Left out: prefill, growth of pass times with the text, and the copying of slots when a row is forked.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from ssd.plan.blocks import Block, Row, SimRound
from ssd.plan.draws import fold, mix
from ssd.plan.events import Engine
from ssd.plan.flow import SimulatedDecoder
from ssd.plan.setting import Machine, Setting
from ssd.plan.trace import Span, Trace


@dataclass(frozen=True)
class Simulation:
    """What happened.

    Attributes:
        seconds: until the last token was known.
        tokens: emitted, over all rows.
        ar_seconds: per token, of plain decoding with the target at the same batch size.
        machine: where it ran.
        rounds: those that made the output, of each row in turn.
        spans: every pass, also those whose work was thrown away.
        levels: their names.
    """

    seconds: float
    tokens: int
    ar_seconds: float
    machine: Machine
    rounds: tuple[tuple[SimRound, ...], ...]
    spans: tuple[Span, ...]
    levels: tuple[str, ...]

    @property
    def tokens_per_second(self) -> float:
        """Over all rows."""
        return self.tokens / self.seconds

    @property
    def speedup(self) -> float:
        """Over plain decoding."""
        return self.ar_seconds * self.tokens_per_second

    @property
    def speedup_per_device(self) -> float:
        """Speedup divided by the devices that were occupied; plain decoding occupies one."""
        return self.speedup / self.machine.devices

    def utilisation(self) -> dict[str, float]:
        """Share of the time in which each worker ran a pass."""
        return {worker.name: self._busy(worker.name) / self.seconds for worker in self.machine.workers}

    def wasted(self) -> dict[str, float]:
        """Share of the time in which each worker ran a pass whose result was thrown away."""
        return {worker.name: self._busy(worker.name, "wasted") / self.seconds for worker in self.machine.workers}

    def _busy(self, worker: str, ahead: str | None = None) -> float:
        names = [w.name for w in self.machine.workers]
        return sum(s.seconds for s in self.spans if names[s.level] == worker and ahead in (None, s.ahead))

    def hit_rate(self, edge: int) -> float | None:
        """Share of the rounds of an edge whose next draft had been made ahead; ``None`` if none tried."""
        tried = [r.ahead for r in self._of(edge) if r.ahead]
        return tried.count("hit") / len(tried) if tried else None

    def tau(self, edge: int) -> float:
        """Mean tokens emitted per round of an edge.

        Raises:
            ValueError: if the edge had no rounds.
        """
        own = self._of(edge)
        if not own:
            raise ValueError(f"edge {edge} had no rounds")
        return sum(r.emitted for r in own) / len(own)

    def _of(self, edge: int) -> list[SimRound]:
        return [r for row in self.rounds for r in row if r.edge == edge]

    def trace(self, name: str) -> Trace:
        """What ran when, with a lane per level."""
        return Trace(name, self.levels, self.spans)


def simulate(setting: Setting, tokens: int = 1000, batch: int = 1, seed: int = 0) -> Simulation:
    """Decode ``tokens`` tokens for each of ``batch`` rows.

    The same arguments give the same result; settings that differ in schedule, devices or pass times
    alone, with windows that do not adapt, have the same rounds.

    Raises:
        ValueError: for numbers out of range, or as soon as a pass time is needed that was not measured.
    """
    for name, value in (("tokens", tokens), ("batch", batch)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name}: expected an integer >= 1, got {value!r}")
    engine, levels = Engine(), setting.profile.names
    decoder = SimulatedDecoder(setting, engine)
    # Position 0 stands for the prompt, known to all levels but for its last token.
    blocks = [Block(fold(mix(seed), i), 1, tokens, Row([0] * len(levels), 1)) for i in range(batch)]
    engine.run(partial(decoder.generate, blocks))
    return Simulation(
        engine.now,
        sum(len(b.fates) for b in blocks),
        setting.profile.ar_seconds(batch),
        setting.machine,
        tuple(tuple(b.log) for b in blocks),
        tuple(sorted(decoder.spans, key=lambda s: (s.start, s.level))),
        levels,
    )

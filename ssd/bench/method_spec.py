"""What fully names a method of a run: plain frozen data, no torch."""

from __future__ import annotations

from dataclasses import dataclass

from ssd.pipeline.settings import PipelineSettings
from ssd.runtime.names import RUNTIMES

KINDS = ("chain", "transformers_ar", "transformers_assisted", "transformers_lookup")
SCHEDULES = ("serial", "pipelined")


@dataclass(frozen=True)
class EdgeSpec:
    """The fields of ``ssd.core.chain.Edge``, which checks them."""

    gamma: int
    window: str = "at_least"
    window_value: float | None = None
    verification: str = "token"


@dataclass(frozen=True)
class MethodSpec:
    """One method of a run, over levels of the run's chain.

    Attributes:
        kind: ``chain`` for our decoder, else a baseline of transformers.
        levels: which levels take part, by index from the bottom or, negative, from the target (-1), or
            ``"ngram"`` as a level 0; empty: the whole chain (``chain``), the target alone (the others).
            ``transformers_assisted`` takes the draft and the target.
        edges: edges of the sub-chain; empty: the chain's own.
        gamma: draft length of ``transformers_assisted`` and ``transformers_lookup``.
        schedule: one of ``SCHEDULES``, for our decoder with a draft; ``None``: the run's.
        pipeline: workers of a pipelined schedule; ``None``: the run's.
        cores: CPU cores this process is pinned to while the method runs serially; empty: all it may use.
        runtime: how our decoder computes every model of the method, one of ``RUNTIMES``; ``None``: as the levels say.
    """

    kind: str = "chain"
    levels: tuple[int | str, ...] = ()
    edges: tuple[EdgeSpec, ...] = ()
    gamma: int | None = None
    schedule: str | None = None
    pipeline: PipelineSettings | None = None
    cores: tuple[int, ...] = ()
    runtime: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind: {self.kind!r} is not one of {', '.join(KINDS)}")
        self._check_schedule()
        if self.runtime not in (None, *RUNTIMES):
            raise ValueError(f"runtime: {self.runtime!r} is not one of {', '.join(RUNTIMES)}")
        if self.runtime is not None and self.kind != "chain":
            raise ValueError(f"runtime: {self.runtime!r} does not fit kind {self.kind!r}")
        if (self.gamma is not None) != (self.kind in ("transformers_assisted", "transformers_lookup")):
            raise ValueError(f"gamma: {self.gamma!r} does not fit kind {self.kind!r}")
        if self.gamma is not None and self.gamma < 1:
            raise ValueError(f"gamma: expected an integer >= 1, got {self.gamma!r}")

    def _check_schedule(self) -> None:
        if self.schedule not in (None, *SCHEDULES):
            raise ValueError(f"schedule: {self.schedule!r} is not one of {', '.join(SCHEDULES)}")
        if self.kind != "chain" and (self.schedule or self.pipeline):
            raise ValueError(f"schedule: {self.schedule!r} does not fit kind {self.kind!r}")
        if self.schedule == "serial" and self.pipeline:
            raise ValueError("pipeline: it has no meaning under schedule 'serial'")
        if self.cores and self.schedule == "pipelined":
            raise ValueError(f"cores: {list(self.cores)!r}; a pipelined method has its cores in pipeline.cores")

"""The passes of a batch as a trace, for a serial and a pipelined schedule alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ssd.core.clock import PassClock
from ssd.pipeline.pipeline import Pipeline
from ssd.plan.trace import Span, Trace


def traced(name: str, levels: Sequence[str], clock: PassClock, pipeline: Pipeline | None = None) -> Trace:
    """What ran when in the batch that ``clock`` has timed, from the call on; ``pipeline`` ran it, if any did."""
    intervals, tasks = clock.intervals(), dict[int, int]()
    if pipeline is not None:
        intervals, tasks = pipeline.intervals, pipeline.finished.tasks
    top = len(levels) - 1
    spans = []
    for i in sorted(intervals, key=lambda i: (i.start, i.level)):
        what = "draft" if i.level == 0 < top else "verify"
        if i.start - clock.began < clock.prefill:
            what = "prefill"
        ahead = "" if i.task == 0 else "used" if was_used(i.task, tasks) else "wasted"
        start, end = i.start - clock.began, i.end - clock.began
        spans.append(Span(i.level, start, end, what, i.tokens, i.rows, ahead, i.hits, i.misses))
    return Trace(name, tuple(levels), tuple(spans))


def was_used(task: int, tasks: Mapping[int, int]) -> bool:
    """Whether an attempt to work ahead served, and every attempt it was made in the course of did too."""
    while task:
        if task not in tasks:
            return False
        task = tasks[task]
    return True

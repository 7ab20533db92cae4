"""What the comparison of runtimes found, in sentences made from the rows of its summary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from experiments.runtime_bench_config import FAST, PLAIN, RuntimeBench
from experiments.runtime_bench_cost import COPIES, SECONDS, WEIGHTS
from experiments.runtime_bench_rows import over, over_plain, over_transformers, pass_ratio
from ssd.bench.summary import Row

GAIN, LOSS, UNCLEAR = "a gain", "a loss", "no difference that the interval shows"


def findings(bench: RuntimeBench, rows: Sequence[Row], levels: Iterable[str]) -> list[str]:
    """A sentence on our AR, on all methods, on passes, on each two that are compared, and on the cost."""
    by = {row.name: row for row in rows}
    first = by[over_transformers(FAST)]
    goal = "meets" if first.met else "misses"
    out = [
        f"Our AR under {FAST} makes {told(first)} times the tokens per second of transformers' AR, which {goal} the "
        f"goal of {first.goal:g}; under {PLAIN} it makes {told(by[over_transformers(PLAIN)])} times as many.",
        f"{FAST} over {PLAIN}: " + ", ".join(f"{name} {told(by[over_plain(name)])}" for name in bench.ours) + ".",
        _passes(bench, by, levels),
    ]
    for ours, theirs in bench.versus:
        out.append(changed(ours, theirs, *(by[over(ours, theirs, runtime)] for runtime in (PLAIN, FAST))))
    seconds, copies, weights = (by[name].value or 0.0 for name in (SECONDS, COPIES, WEIGHTS))
    out.append(
        f"Once, loading takes {seconds:.2f} s more under {FAST}, and {copies / 1e6:.0f} MB of copies lie beside "
        f"{weights / 1e6:.0f} MB of weights."
    )
    return out


def changed(ours: str, theirs: str, plain: Row, fast: Row) -> str:
    """Whether faster passes change what is to be said of one method against another of the same runtime."""
    before, after = verdict(plain), verdict(fast)
    told_of = f"{told(plain)} under {PLAIN}, {told(fast)} under {FAST}"
    if before == after:
        return f"Faster passes do not change the verdict on {ours} against {theirs}, {after} ({told_of})."
    return f"Faster passes change the verdict on {ours} against {theirs} from {before} to {after} ({told_of})."


def verdict(row: Row) -> str:
    """Gain or loss where the whole interval lies on one side of 1."""
    if row.low is not None and row.low > 1:
        return GAIN
    if row.high is not None and row.high < 1:
        return LOSS
    return UNCLEAR


def told(row: Row) -> str:
    """A ratio with its interval."""
    if row.value is None:
        return "an unknown number of"
    return f"{row.value:.2f}" + ("" if row.low is None or row.high is None else f" [{row.low:.2f}, {row.high:.2f}]")


def _passes(bench: RuntimeBench, by: Mapping[str, Row], levels: Iterable[str]) -> str:
    """By how much passes of each level are faster, and over how many tokens."""
    widths = bench.passes.widths
    parts = []
    for level in levels:
        parts.append(f"{level} {' / '.join(told(by[pass_ratio(level, width)]) for width in widths)}")
    return f"{PLAIN} over {FAST}, time of a pass of {' / '.join(map(str, widths))} tokens: {', '.join(parts)}."

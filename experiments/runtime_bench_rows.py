"""What the comparison of runtimes comes to, as rows of a summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from experiments.runtime_bench_config import AR, FAST, PLAIN, TF_AR, RuntimeBench, method
from ssd.bench.acceptance import Record
from ssd.bench.divergence import Parting
from ssd.bench.metrics import exact_match, speedup, tokens_per_second
from ssd.bench.pass_grid import PassCell
from ssd.bench.summary import Row

GOAL = 1.3  # our AR over transformers' AR, with faster passes
Records = Mapping[str, Sequence[Record]]  # by method


def over_transformers(runtime: str) -> str:
    """Name of the row of our AR under a runtime over transformers' AR."""
    return f"speedup: {method(AR, runtime)} / {TF_AR}"


def over_plain(name: str) -> str:
    """Name of the row of a method under ``FAST`` over the same under ``PLAIN``."""
    return f"speedup: {method(name, FAST)} / {method(name, PLAIN)}"


def over(ours: str, theirs: str, runtime: str) -> str:
    """Name of the row of two methods of one runtime."""
    return f"speedup: {method(ours, runtime)} / {method(theirs, runtime)}"


def speed_rows(bench: RuntimeBench, records: Records) -> list[Row]:
    """Our AR over transformers', each method over its other runtime, and over AR and over pairs of its own."""
    rows = [Row.of(over_transformers(FAST), speedup(records[method(AR, FAST)], records[TF_AR]), goal=GOAL)]
    rows.append(Row.of(over_transformers(PLAIN), speedup(records[method(AR, PLAIN)], records[TF_AR])))
    for name in bench.ours:
        found = speedup(records[method(name, FAST)], records[method(name, PLAIN)])
        rows.append(Row.of(over_plain(name), found))
    for runtime in (PLAIN, FAST):
        for ours, theirs in bench.versus:
            found = speedup(records[method(ours, runtime)], records[method(theirs, runtime)])
            rows.append(Row.of(over(ours, theirs, runtime), found))
    for name, own in records.items():
        rows.append(Row(f"tokens per second: {name}", tokens_per_second(own), "tokens/s", n=len(own)))
    return rows


def pass_rows(cells: Mapping[str, Mapping[str, Sequence[PassCell]]]) -> list[Row]:
    """Median seconds of a pass per level, runtime and width, and ``PLAIN`` over ``FAST``.

    Args:
        cells: by level, then by runtime.
    """
    rows = []
    for level, by in cells.items():
        for plain, fast in zip(by[PLAIN], by[FAST], strict=True):
            for runtime, cell in ((PLAIN, plain), (FAST, fast)):
                rows.append(Row(f"pass: {level} {runtime}, {cell.width} tokens", cell.seconds, "s", n=cell.n))
            ratio = plain.seconds / fast.seconds
            rows.append(Row(pass_ratio(level, plain.width), ratio, "x", n=min(plain.n, fast.n)))
    return rows


def pass_ratio(level: str, width: int) -> str:
    """Name of the row of a level's pass under ``PLAIN`` over the same under ``FAST``."""
    return f"pass time: {level} {PLAIN} / {FAST}, {width} tokens"


def parting_rows(bench: RuntimeBench, records: Records, apart: Sequence[Parting], epsilon: float) -> list[Row]:
    """Per method, outputs of ``FAST`` that equal those of ``PLAIN``, and those that part by no rounding tie."""
    gaps = [abs(p.gap) for p in apart if p.gap is not None]
    rows = [
        Row(f"epsilon: largest change of a logit of {method(AR, PLAIN)} in a block", epsilon, "logit"),
        Row("largest gap of two logits where outputs part", max(gaps, default=None), "logit", n=len(gaps)),
    ]
    for name in bench.ours:
        ours = method(name, FAST)
        match = exact_match(records[ours], records[method(name, PLAIN)])
        own = [p for p in apart if p.method == ours]
        faults = sum(not p.is_tie for p in own)
        rows += [
            Row(f"outputs equal to eager's: {name}", match.share, "share", n=match.n),
            Row(f"outputs that part from eager's: {name}", len(own), "count", n=match.n),
            Row(f"outputs that part by no rounding tie: {name}", faults, "count", n=match.n, goal=0.0, sense="max"),
        ]
    return rows

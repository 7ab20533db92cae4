"""What the entry points print while and after they work."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from typing import TextIO

from tqdm import tqdm

from analysis.table import METHOD_COLUMNS, Column, format_table, method_rows
from ssd.bench.divergence import Parting
from ssd.bench.experiment import BASELINE
from ssd.bench.records import Run

SWEEP_COLUMNS = (
    Column("run"),
    Column("method"),
    Column("tokens_per_second", "tokens/s", ".1f"),
    Column("speedup", "speedup [95%]", ".2f", ("speedup_low", "speedup_high")),
    Column("tau", "tau per edge", ".2f"),
    Column("exact_match", "equal to AR"),
)
TIMES = Column("times")
MARKS = {
    "shared": "shared with other runs of the sweep, for orientation only",
    "busy": "busy, this share of the machine did something else meanwhile",
}


class ProgressLine:
    """A bar for one run: what is decoded now, how far, at which rate, and the time left.

    Silent where the file is no terminal, and in the workers of a parallel sweep.

    Args:
        title: stands before the bar.
        file: default standard error.
        shown: ``None`` decides by the file.
    """

    def __init__(self, title: str, file: TextIO | None = None, shown: bool | None = None) -> None:
        self.title, self._file = title, file
        self._disable = None if shown is None else not shown
        self._bar: tqdm | None = None

    def __call__(self, name: str, done: int, total: int) -> None:
        """``done`` of ``total`` outputs are there, some perhaps from an earlier attempt, and ``name`` is next."""
        if self._bar is None:
            self._bar = tqdm(
                total=total,
                initial=done,
                desc=self.title,
                unit="output",
                smoothing=0,  # methods differ in speed, so the latest rate says little about the rest
                leave=False,
                dynamic_ncols=True,
                file=self._file,
                disable=self._disable,
            )
        self._bar.set_postfix_str(name, refresh=False)
        self._bar.update(done - self._bar.n)
        if done == total:
            self.close()

    def close(self) -> None:
        """The bar is gone from the screen."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def say(text: str) -> None:
    """One write to standard output; what its encoding lacks becomes a question mark."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    sys.stdout.write((text + "\n").encode(encoding, "replace").decode(encoding))
    sys.stdout.flush()


def print_partings(apart: Sequence[Parting], asserted: bool) -> None:
    """The verdict on identity with AR at temperature 0."""
    say(partings_text(apart, asserted))


def partings_text(apart: Sequence[Parting], asserted: bool) -> str:
    """The verdict in a line, and a line per output that left AR's."""
    if not apart:
        return "every output equals ar's, token for token"
    ties = sum(p.is_tie for p in apart)
    note = "" if asserted else " (informative in 16 bit)"
    lines = [f"{len(apart)} outputs differ from ar's: {ties} rounding ties, {len(apart) - ties} structural{note}"]
    for p in apart:
        gap = "an output ended" if p.gap is None else f"logit gap {p.gap:.3g}, epsilon {p.epsilon:.3g}"
        kind = "tie" if p.is_tie else "STRUCTURAL"
        lines.append(f"  {kind}: {p.method}, {p.prompt_id}, token {p.position}: {p.ours} for {p.theirs}, {gap}")
    return "\n".join(lines)


def run_text(title: str, run: Run, apart: Sequence[Parting] | None, asserted: bool) -> str:
    """A finished run: what it was, its table, warnings about its times, and the verdict on identity if there is one."""
    config, out = run.run["config"], io.StringIO()
    prompts = len({record["prompt_id"] for record in run.records})
    print(f"\n{title}: {prompts} prompts x {config['max_new_tokens']} tokens, seed {config['seed']}", file=out)
    print(format_table(method_rows(run.records, BASELINE), METHOD_COLUMNS), file=out)
    if run.run.get("timing") == "shared":
        print("timing: shared with other runs of this sweep, for orientation only", file=out)
    elif run.run["busy"]:
        share = f"{run.run['busy_elsewhere']:.0%}"
        print(f"warning: {share} of the machine was busy with something else; times are marked", file=out)
    if apart is not None:
        print(partings_text(apart, asserted), file=out)
    return out.getvalue().rstrip("\n")


def sweep_text(runs: Sequence[tuple[str, Run]]) -> str:
    """One table over all methods of all runs; a last column and a line below mark times that others disturbed."""
    rows = [
        {"run": title, **row, "times": times_mark(run)}
        for title, run in runs
        for row in method_rows(run.records, BASELINE)
    ]
    if not any(row["times"] for row in rows):
        return format_table(rows, SWEEP_COLUMNS)
    kinds = dict.fromkeys(row["times"].partition(" ")[0] for row in rows if row["times"])
    note = "times: " + "; ".join(MARKS[kind] for kind in kinds)
    return format_table(rows, [*SWEEP_COLUMNS, TIMES]) + "\n" + note


def times_mark(run: Run) -> str | None:
    """What disturbed the times of a run: ``shared``, ``busy 12%``, or nothing."""
    if run.run.get("timing") == "shared":
        return "shared"
    return f"busy {run.run['busy_elsewhere']:.0%}" if run.run["busy"] else None

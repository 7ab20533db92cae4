"""What the entry points print while and after they work."""

from __future__ import annotations

import sys
import time

from ssd.bench.divergence import Parting


class ProgressLine:
    """One line that is rewritten: what runs now, how far, and the time left at the rate so far.

    Silent where standard error is no terminal.
    """

    def __init__(self, title: str) -> None:
        self.title, self._began = title, 0.0
        self._shown = sys.stderr.isatty()

    def __call__(self, name: str, done: int, total: int) -> None:
        """``done`` of ``total`` generations are over and ``name`` is next."""
        if not self._shown:
            return
        if done == 0:
            self._began = time.perf_counter()
        spent = time.perf_counter() - self._began
        left = f"{spent / done * (total - done):.0f} s left" if done else ""
        text = f"{self.title}: {done}/{total} {name} {left}"
        print(f"\r{text[:79]:<79}", end="\n" if done == total else "", file=sys.stderr, flush=True)


def print_partings(apart: list[Parting], asserted: bool) -> None:
    """The verdict on identity with AR at temperature 0."""
    if not apart:
        print("every output equals ar's, token for token")
        return
    ties = sum(p.is_tie for p in apart)
    note = "" if asserted else " (informative in 16 bit)"
    print(f"{len(apart)} outputs differ from ar's: {ties} rounding ties, {len(apart) - ties} structural{note}")
    for p in apart:
        gap = "an output ended" if p.gap is None else f"logit gap {p.gap:.3g}, epsilon {p.epsilon:.3g}"
        kind = "tie" if p.is_tie else "STRUCTURAL"
        print(f"  {kind}: {p.method}, {p.prompt_id}, token {p.position}: {p.ours} for {p.theirs}, {gap}")

"""One line of JSON per finished measurement, so that a stage can be stopped and taken up again."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ssd.bench.environment import device, git_state, versions
from ssd.bench.json_files import dumps, loads

FIELDS = ("stage", "case", "synthetic", "made_with")
ALIKE = ("runtime", "tiny")  # of ``made_with``: what every record of a folder has in common


class Records:
    """The records of a folder, in ``records.jsonl``.

    Attributes:
        lines: by (stage, case).
        deadline: seconds on this process's clock by which the last measurement should be over.

    Args:
        folder: made if need be.
        made_with: device, versions and commit, written into every record.
        seconds: a stage may take.

    Raises:
        ValueError: naming the line that is no record, or that was made with another runtime or other shapes; a
            half-written last line is cut off.
    """

    def __init__(self, folder: Path, made_with: Mapping[str, Any], seconds: float) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path, self._made_with = folder / "records.jsonl", dict(made_with)
        self.deadline = time.perf_counter() + seconds
        self._longest = 0.0  # seconds of a measurement of this process
        self._began: float | None = None
        self.lines: dict[tuple[str, str], dict[str, Any]] = {}
        data = self.path.read_bytes() if self.path.exists() else b""
        whole = data[: data.rfind(b"\n") + 1]
        for number, line in enumerate(whole.splitlines(), start=1):
            record = loads(line)
            if not isinstance(record, dict) or any(name not in record for name in FIELDS):
                raise ValueError(f"{self.path}: line {number} lacks one of {', '.join(FIELDS)}")
            self._check_alike(number, record["made_with"])
            self.lines[record["stage"], record["case"]] = record
        if whole != data:
            self.path.write_bytes(whole)

    def _check_alike(self, number: int, made_with: Mapping[str, Any]) -> None:
        for name in ALIKE:
            if name in self._made_with and made_with.get(name) != self._made_with[name]:
                raise ValueError(
                    f"{self.path}: line {number} was made with {name} {made_with.get(name)!r}, not "
                    f"{self._made_with[name]!r}; name another folder"
                )

    def wants(self, stage: str, case: str) -> bool:
        """Whether a measurement is still to be made and there is time for one as long as the longest so far."""
        if (stage, case) in self.lines:
            return False
        now = time.perf_counter()
        if now + self._longest < self.deadline:
            self._began = now
            return True
        say(f"{stage} {case}: left for another run, the time of this one is over")
        return False

    def add(self, stage: str, case: str, synthetic: bool = False, **values: Any) -> dict[str, Any]:
        """The measurement is in the file; ``synthetic`` where acceptance was imposed."""
        head = {"stage": stage, "case": case, "synthetic": synthetic}
        record: dict[str, Any] = loads(dumps(head | values | {"made_with": self._made_with}, f"{stage} {case}"))
        with self.path.open("ab") as file:
            file.write(dumps(record).encode("ascii") + b"\n")
        if self._began is not None:
            self._longest, self._began = max(self._longest, time.perf_counter() - self._began), None
        self.lines[stage, case] = record
        shown = {k: v for k, v in values.items() if isinstance(v, str | int | float)}
        say(
            f"{stage} {case}: "
            + ", ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in shown.items())
        )
        return record

    def of(self, stage: str) -> dict[str, dict[str, Any]]:
        """The records of a stage by case, in order."""
        return {case: record for (own, case), record in self.lines.items() if own == stage}


def made_with(accelerator: str | None, threads: int, runtime: str, tiny: bool, commit: str | None) -> dict[str, Any]:
    """What every record says about where it was made.

    Args:
        accelerator: name of the GPU, if there is one.
        threads: that torch was given.
        runtime: of the levels.
        tiny: shapes are tiny ones, so that only the program is tried.
        commit: of the code, where there is no checkout to ask.
    """
    git = git_state()
    if git["commit"] is None and commit is not None:
        git = {"commit": commit, "dirty": None}
    told = {name: version for name, version in versions().items() if version is not None}
    return {"device": device(accelerator, threads), "versions": told, "git": git, "runtime": runtime, "tiny": tiny}


def say(text: str) -> None:
    """A line on standard error, at once."""
    print(text, file=sys.stderr, flush=True)

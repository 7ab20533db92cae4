"""The certificate as plain data: what was checked on which chain, by which code, and what came of it. No torch.

The file is replaced after every rung, so that whatever ends the process leaves what was known until then.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ssd.bench.environment import BusyMeter, device, git_state, versions
from ssd.bench.json_files import plain, write_json
from ssd.bench.spec import ChainSpec
from ssd.certify.ladder import INCONCLUSIVE
from ssd.certify.result import Rung

SCHEMA = 1
FILE = "certificate.json"
VERDICTS = ("passed", "failed", "inconclusive")
OUTCOMES = (*VERDICTS, "skipped")


class Certificate:
    """A certificate being written to ``folder/certificate.json``.

    Attributes:
        data: what the file holds.

    Args:
        folder: created if need be; an older certificate in it is replaced.
        name: of the chain.
        chain: what it consists of.
        asked: numbers of the rungs that are to be climbed.
        config: the resolved configuration as plain values.
        command: that repeats it.
        meter: measures who else used the machine; replaced in tests.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        chain: ChainSpec,
        asked: Sequence[int],
        config: Mapping[str, Any],
        command: str,
        meter: BusyMeter | None = None,
    ) -> None:
        self.path = folder / FILE
        self._began = time.perf_counter()
        self._meter = BusyMeter() if meter is None else meter
        self._meter.start()
        self.data: dict[str, Any] = {
            "schema": SCHEMA,
            "status": "running",
            "verdict": None,
            "chain": name,
            "spec": asdict(chain),
            "asked": list(asked),
            "rungs": [],
            "false_alarm": 0.0,
            "matrix": None,
            "quality": [],
            "seconds": 0.0,
            "command": command,
            "config": dict(config),
            "git": git_state(),
            "versions": versions(),
            "device": device(),
            "models": {},
            "busy_elsewhere": None,
            "started": _now(),
            "finished": None,
        }
        self.write()

    def add(self, rung: Rung) -> None:
        """The rung stands in the file."""
        self.data["rungs"].append(
            {
                "number": rung.number,
                "title": rung.title,
                "outcome": outcome(rung),
                "skipped": rung.skipped,
                "false_alarm": rung.false_alarm,
                "seconds": rung.seconds,
                "checks": [asdict(check) for check in rung.checks],
            }
        )
        self.data["false_alarm"] = min(1.0, sum(rung["false_alarm"] for rung in self.data["rungs"]))
        self.write()

    def describe(self, **fields: Any) -> None:
        """The file holds these values of ``matrix``, ``quality``, ``device`` or ``models``."""
        unknown = set(fields) - {"matrix", "quality", "device", "models"}
        if unknown:
            raise ValueError(f"certificate: {sorted(unknown)} are not among matrix, quality, device, models")
        self.data.update(plain(fields, FILE))
        self.write()

    def end(self, status: str = "complete") -> None:
        """The file says how the climb ended, and the verdict if it is ``complete``."""
        self._meter.stop()
        verdict = verdict_of(self.data) if status == "complete" else None
        self.data.update(status=status, verdict=verdict, finished=_now(), busy_elsewhere=self._meter.busy_elsewhere)
        self.write()

    def write(self) -> None:
        """Replace the file in one step."""
        self.data["seconds"] = time.perf_counter() - self._began
        write_json(self.path, self.data)


def outcome(rung: Rung) -> str:
    """One of ``OUTCOMES``."""
    if rung.skipped is not None:
        return "inconclusive" if rung.skipped.startswith(INCONCLUSIVE) else "skipped"
    return "passed" if rung.passed else "failed"


def matrix_of(rows: Sequence[Mapping[str, Any]], seconds: float, error: str | None = None) -> dict[str, Any]:
    """The matrix of planted faults and rungs as it stands in the file.

    Args:
        rows: each with ``fault``, ``what`` it does, ``patches`` (the function it replaces), ``caught`` (rung to
            True, False, or None where it was not tried) and ``by`` (the first check that caught it).
        seconds: wall time.
        error: what ended it before all rows were there.
    """
    return {"rows": [dict(row) for row in rows], "seconds": seconds, "error": error}


def uncaught(matrix: Mapping[str, Any] | None) -> list[str]:
    """Planted faults that no rung caught."""
    rows = [] if matrix is None else matrix["rows"]
    return [row["fault"] for row in rows if not any(row["caught"].values())]


def verdict_of(data: Mapping[str, Any]) -> str:
    """One of ``VERDICTS``.

    *failed* if a rung failed, a planted fault went uncaught or the matrix could not be finished; else
    *inconclusive* if a rung could not tell, one that was asked for is missing, or none passed; else *passed*. A rung
    that does not apply to the chain stands in no way.
    """
    outcomes = [rung["outcome"] for rung in data["rungs"]]
    matrix = data["matrix"]
    if "failed" in outcomes or uncaught(matrix) or (matrix is not None and matrix["error"]):
        return "failed"
    whole = [rung["number"] for rung in data["rungs"]] == list(data["asked"])
    return "passed" if whole and "passed" in outcomes and "inconclusive" not in outcomes else "inconclusive"


def _now() -> str:
    """UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")

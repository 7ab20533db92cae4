"""Rows of temperatures that an earlier call calibrated with the same settings stay in the summary."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.calibrate_config import CalibrateSpec, label, plain
from ssd.bench.json_files import plain as as_json
from ssd.bench.json_files import read_json
from ssd.bench.summary import Row, read_summary, write_summary

Part = tuple[list[Path], list[Row]]  # files and rows of one temperature


def earlier(spec: CalibrateSpec) -> tuple[dict[str, Part], list[str]]:
    """By label, what the summary has of temperatures that are not in ``spec``; and the labels that have to go.

    A temperature stays if its ``calibration.json`` was made with the same settings, the list of temperatures aside.

    Raises:
        ValueError: if the summary or one of these files cannot be read.
    """
    path = spec.results / "summary.json"
    if not path.exists():
        return {}, []
    own = {label(t) for t in spec.sampling.temperature}
    found = read_summary(path)
    kept: dict[str, Part] = {}
    for row in found.rows:
        name = row.name.partition(":")[0]
        if name not in own:
            kept.setdefault(name, ([Path(r) for r in found.runs if Path(r).parent.name == name], []))[1].append(row)
    same = settings(as_json(plain(spec)))
    gone = [name for name in kept if _settings_of(spec.results / name / "calibration.json") != same]
    return {name: part for name, part in kept.items() if name not in gone}, gone


def settings(config: dict[str, Any]) -> dict[str, Any]:
    """A calibration's configuration without the temperatures of the row."""
    return config | {"sampling": {k: v for k, v in config["sampling"].items() if k != "temperature"}}


def write_parts(spec: CalibrateSpec, parts: dict[str, Part]) -> Path:
    """The summary holds these parts, in order of temperature; its path."""
    ordered: Sequence[Part] = [parts[name] for name in sorted(parts, key=lambda name: float(name[1:]))]
    path = spec.results / "summary.json"
    write_summary(path, [file for files, _ in ordered for file in files], [row for _, rows in ordered for row in rows])
    return path


def _settings_of(path: Path) -> dict[str, Any] | None:
    return settings(read_json(path)["config"]) if path.exists() else None

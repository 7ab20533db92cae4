"""Temperatures of a chain's draft levels: ``python -m experiments.calibrate [key=value ...]``.

For every temperature of the row: texts of the target on the calibration prompts, one teacher-forced pass per
level, expected acceptance of every pair of levels at every pair of temperatures; from that a vector chosen
edge by edge from the target down, and one chosen for speed as a whole, saved as options of
``chain/temperatures``. Then equal and calibrated temperatures side by side on other prompts. Writes
``results/calibrate/summary.json``, and per temperature ``calibration.json`` and heat maps. See
docs/calibration.md.
"""

from __future__ import annotations

import gzip
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from analysis.calibration_figures import heat_map, save
from analysis.table import SUMMARY_COLUMNS, print_table
from experiments.calibrate_config import CalibrateSpec, label, plain, read_config
from experiments.calibrate_grid import at_the_end, best_of_pairs, finer, grid_of, temperatures_of
from experiments.calibrate_profile import given, timed
from experiments.calibrate_rows import EQUAL, JOINT, TOP_DOWN, cell_rows, held_out_rows, pair_name, speed_rows
from experiments.calibrate_runs import calibration_turns, measure_vectors
from experiments.calibrate_summary import Part, earlier, write_parts
from experiments.plan_record import say_busy
from experiments.plan_stale import remove_run
from experiments.publish import publish
from ssd.bench.end_of_text import end_ids, stated_end_ids
from ssd.bench.environment import git_state, versions
from ssd.bench.json_files import dumps, write_json
from ssd.bench.loading import Loader
from ssd.bench.metrics import tokens_per_second
from ssd.bench.sources import parse_source
from ssd.bench.spec import ChainSpec
from ssd.bench.statistics import Estimate
from ssd.bench.turns import Turn
from ssd.calibrate.choice import (
    Speed,
    Vector,
    edge_alphas,
    edge_cells,
    equal,
    joint,
    predicted_speed,
    top_down,
)
from ssd.calibrate.contexts import contexts_sha256, own_texts, recorded_texts
from ssd.calibrate.overlap_grid import overlap_grid
from ssd.calibrate.overlap_table import OverlapTable
from ssd.calibrate.saved import Temperatures, write_temperatures
from ssd.core.chain import Chain
from ssd.plan.edge_plan import EdgePlan

ROOT = Path(__file__).resolve().parent.parent


def main(arguments: list[str]) -> int:
    """Calibrate at every temperature, measure, and write; 0 even where a goal is not met, because that is a finding."""
    spec, chain = read_config(ROOT / "conf" / "calibrate.yaml", arguments)
    parts, gone = earlier(spec)
    calibrator = Calibrator(spec, chain, shlex.join(["python", "-m", "experiments.calibrate", *arguments]))
    own = {label(t): calibrator.run(t) for t in spec.sampling.temperature}
    print_table([row.as_dict() for _, rows in own.values() for row in rows], SUMMARY_COLUMNS)
    for name in gone:
        print(f"{name}: its rows leave the summary, they are of other settings")
    print(f"wrote {write_parts(spec, parts | own)}")
    return 0


SPLIT_FILE = "cells_by_task_and_position.jsonl.gz"
"""One cell, of the grid or of the second pass, per line, by task and by bin of output positions, with intervals."""


@dataclass(frozen=True)
class Calibration:
    """What the calibration prompts decided at one temperature of the row.

    Attributes:
        temperature: of the row.
        table: overlaps on the calibration texts.
        vectors: ``equal``, ``top_down`` and ``joint``.
        speeds: predicted tokens per second of each.
        texts: identity of the calibration texts.
    """

    temperature: float
    table: OverlapTable
    vectors: Mapping[str, Vector]
    speeds: Mapping[str, float]
    texts: str


class Calibrator:
    """The command's configuration, the models it loaded and their pass times."""

    def __init__(self, spec: CalibrateSpec, chain: ChainSpec, command: str) -> None:
        self.spec, self.chain_spec, self.command = spec, chain, command
        passes = given(spec, chain)
        self.loader = Loader()
        self.chain = self.loader.chain(chain)
        self.names = [f"L{k}" for k in range(len(chain.levels))]
        self.ends = end_ids(stated_end_ids(parse_source(chain.levels[-1].source), self.chain.tokenizer))
        self.turns, self.data = calibration_turns(spec, self.chain, self.ends)
        self.passes = passes or timed(spec, self.chain, self.names, self.turns[0].ids)
        say_busy(self.passes.where, {"busy": self.passes.busy, "busy_elsewhere": self.passes.busy_elsewhere})
        edges = [EdgePlan(e.gamma, e.window, e.verification) for e in chain.edges]
        self.speed: Speed = predicted_speed(self.passes.levels, edges, spec.largest_gamma)

    def run(self, temperature: float) -> Part:
        """Everything at one temperature of the row; files are written, their names and the rows returned."""
        found = calibrate(self.chain, self.turns, self.spec, temperature, self.speed, self.ends)
        folder = self.spec.results / label(temperature)
        grid = grid_of(self.spec, temperature)
        for message in at_the_end(found.vectors, grid, self.names) if temperature > 0 else ():
            print(f"warning: {label(temperature)}: {message}", file=sys.stderr)
        if temperature > 0:
            self._save(found)
        remove_run(folder)
        self._write(found, folder)
        rows = cell_rows(label(temperature), self.names, found.vectors, found.speeds, found.table)
        if not self.spec.evaluate:
            return [folder / "calibration.json"], rows
        done, methods = measure_vectors(
            self.spec, self.chain_spec, found.vectors, temperature, self.loader, self.command
        )
        texts = recorded_texts(r for r in done.records if r["method"] == "ar")
        levels = temperatures_of(found.vectors)
        held_out = overlap_grid(self.chain, texts, self.spec.sampling.at(temperature), levels, self.spec.bins)
        published = publish(done, folder.parent, folder.name)
        rows += held_out_rows(label(temperature), self.names, found.vectors, held_out)
        rows += speed_rows(label(temperature), self.names, methods, done.records)
        rate = tokens_per_second([r for r in done.records if r["method"] == methods[JOINT]])
        print(f"{label(temperature)}: joint {found.vectors[JOINT]}, {rate or 0:.1f} tokens/s on other prompts")
        return [published], rows

    def _save(self, found: Calibration) -> None:
        """The two calibrated vectors, ready for ``chain/temperatures``; a greedy row has none to save."""
        sources = [level.source for level in self.chain_spec.levels]
        for name in (TOP_DOWN, JOINT):
            saved = Temperatures.of(found.vectors[name], sources)
            write_temperatures(self.spec.saved(found.temperature, name), saved, self._provenance(found, name))

    def _provenance(self, found: Calibration, name: str) -> list[str]:
        """Where a vector comes from, and what it changes on the calibration texts."""
        git, known = git_state(), versions()
        table = found.table
        lines = [
            f"Chosen by {self.command}",
            f"commit {git['commit']}{' and uncommitted changes' if git['dirty'] else ''}; "
            + ", ".join(f"{k} {v}" for k, v in known.items() if v is not None),
            f"prompts {self.data['name']} sha256 {self.data['sha256']}, texts sha256 {found.texts}",
            f"{table.positions} positions, {len(table.prompts)} prompts",
        ]
        pairs = zip(edge_cells(found.vectors[EQUAL]), edge_cells(found.vectors[name]), strict=True)
        for before, after in pairs:
            change = " -> ".join(interval_text(table.alpha(cell)) for cell in (before, after))
            lines.append(f"alpha {pair_name(self.names, before)}: {change}")
        return lines

    def _write(self, found: Calibration, folder: Path) -> None:
        """``calibration.json`` with every cell, its splits by task and position, and a heat map per pair of levels."""
        chosen = dict.fromkeys(cell for v in found.vectors.values() for cell in edge_cells(v))
        entries = found.table.entries()
        content = {
            "schema": 1,
            "command": self.command,
            "config": plain(self.spec),
            "git": git_state(),
            "versions": versions(),
            "data": self.data,
            "texts_sha256": found.texts,
            "positions": found.table.positions,
            "prompts": list(found.table.prompts),
            "levels": [level.source for level in self.chain_spec.levels],
            **self.passes.in_record(),
            "vectors": found.vectors,
            "predicted_tokens_per_second": found.speeds,
            "cells": entries,
            "chosen_cells": found.table.split_entries(chosen),
        }
        write_json(folder / "calibration.json", content)
        grid = grid_of(self.spec, found.temperature)
        split = found.table.split_entries(sorted(found.table.sums))
        with gzip.GzipFile(folder / SPLIT_FILE, "wb", mtime=0) as out:
            out.write("".join(f"{dumps(entry)}\n" for entry in split).encode())
        if len(grid) > 1:
            self._draw(
                found, [e for e in entries if {e["draft_temperature"], e["verifier_temperature"]} <= {*grid}], folder
            )

    def _draw(self, found: Calibration, entries: Sequence[Mapping[str, Any]], folder: Path) -> None:
        """A heat map per pair of levels, over the grid."""
        for a, b in combinations(range(len(self.names)), 2):
            pair = [e for e in entries if (e["draft"], e["verifier"]) == (a, b)]
            marks = {name: (v[a], v[b]) for name, v in found.vectors.items()}
            save(heat_map(pair, self.names[a], self.names[b], marks), folder / f"alpha_{self.names[a]}_{self.names[b]}")


def calibrate(
    chain: Chain, turns: Sequence[Turn], spec: CalibrateSpec, temperature: float, speed: Speed, ends: Sequence[int]
) -> Calibration:
    """Vectors chosen on the target's texts of ``turns``, each up to one of ``ends``, at one temperature of the row."""
    sampling, levels = spec.sampling.at(temperature), len(chain.levels)
    texts = own_texts(
        Chain(chain.levels[-1:]),
        turns,
        sampling,
        spec.tune.max_new_tokens,
        samples=spec.samples if temperature > 0 else 1,  # greedy texts of one prompt are all the same
        seed=spec.seed,
        batch=spec.batch,
        eos_ids=ends,
    )
    grid = grid_of(spec, temperature)
    table = overlap_grid(chain, texts, sampling, [grid] * levels, spec.bins)
    vectors = choose(table, levels, temperature, speed)
    if temperature > 0:
        fine = finer(grid, vectors, spec.refine, best_of_pairs(table, levels, temperature))
        table = table.merged(overlap_grid(chain, texts, sampling, fine, spec.bins))
        vectors = choose(table, levels, temperature, speed)
    speeds = {name: speed(edge_alphas(table, v)) for name, v in vectors.items()}
    return Calibration(temperature, table, vectors, speeds, contexts_sha256(texts))


def choose(table: OverlapTable, levels: int, temperature: float, speed: Speed) -> dict[str, Vector]:
    """The three vectors, from one table."""
    return {
        EQUAL: equal(levels, temperature),
        TOP_DOWN: top_down(table, levels, temperature),
        JOINT: joint(table, levels, temperature, speed),
    }


def interval_text(alpha: Estimate) -> str:
    """A value with its interval, where there is one."""
    ends = "" if alpha.low is None or alpha.high is None else f" [{alpha.low:.4f}, {alpha.high:.4f}]"
    return f"{alpha.value:.4f}{ends}"


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ValueError as error:
        sys.exit(f"error: {error}")

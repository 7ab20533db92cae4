"""The entry point of experiments, called in this process on tiny chains."""

from __future__ import annotations

import sys
from pathlib import Path

from experiments import job as job_module
from experiments.run import main
from ssd.bench.json_files import read_json

TINY = ("chain=tiny_pair", "dataset.limit=2", "max_new_tokens=4", "tracker=none")
THREE = ("-m", *TINY, "sampling.temperature=0,0.5,1")


def caller(root: Path, monkeypatch, capsys):
    """A function of overrides that runs them with results under ``root``: (exit status, what was printed)."""
    monkeypatch.setattr(sys, "argv", ["run"])

    def call(*arguments: str) -> tuple[int, str]:
        status = main([*arguments, f"results_dir={root}"])
        printed = capsys.readouterr()
        return status, printed.out + printed.err

    return call


def failing(monkeypatch, error: BaseException, temperature: float = 0.5) -> None:
    """Runs at one temperature raise ``error`` when their first output is done."""
    real = job_module.run_pass

    def run_pass(spec, folder, loader, progress, **more):
        def break_off(name: str, done: int, total: int) -> None:
            if done == 1 and spec.sampling.temperature == temperature:
                raise error
            progress(name, done, total)

        return real(spec, folder, loader, break_off, **more)

    monkeypatch.setattr(job_module, "run_pass", run_pass)


def folders(root: Path) -> dict[float, Path]:
    """Run folders by temperature."""
    found = {}
    for path in (root / "raw" / "runs").glob("*/run.json"):
        found[read_json(path)["config"]["sampling"]["temperature"]] = path.parent
    return found

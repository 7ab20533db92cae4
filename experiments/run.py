"""Run one configuration or a sweep of them, and print the table.

    python -m experiments.run [override ...]        one run, or the sweep that an experiment is
    python -m experiments.run -m [override ...]     every combination of values separated by commas
    python -m experiments.run --help                all groups and keys

Finished runs are skipped, unfinished ones go on where they ended, failed jobs do not stop the others. Exit
status: 0 if every run is there and as it should be, 130 or 143 after an interruption, else 1. More in
docs/experiments.md.
"""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from experiments.outcome import run_job
from experiments.schema import register
from experiments.sweep import SweepCallback, finish

CONF = Path(__file__).resolve().parent.parent / "conf"


class Terminated(KeyboardInterrupt):
    """The process was asked to end."""


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")
def job(config: DictConfig) -> None:
    """One job of a command."""
    hydra_config: Any = HydraConfig.get()
    run_job(config, hydra_config)


def main(arguments: Sequence[str]) -> int:
    """Run what the command line asks for; the exit status."""
    register()
    SweepCallback.place = None
    sys.argv = [sys.argv[0], *map(dotted, arguments)]
    before = signal.signal(signal.SIGTERM, _terminate)
    status = 0
    try:
        job()
    except KeyboardInterrupt as stop:
        status = 143 if isinstance(stop, Terminated) else 130
    except SystemExit as end:  # Hydra's own: a configuration that does not compose, or --help
        if SweepCallback.place is None:
            raise
        status = 1 if end.code else 0
    finally:
        signal.signal(signal.SIGTERM, before)
    if SweepCallback.place is None:
        return status
    return max(status, finish(SweepCallback.place))


def dotted(argument: str) -> str:
    """An override as Hydra takes it: ``levels.0`` for ``levels[0]`` in its key, and a new method as a mapping.

    Hydra adds no key to a mapping of typed entries, so ``+methods.NAME=...`` becomes ``+methods={NAME: ...}``.
    """
    key, equals, value = argument.partition("=")
    key = re.sub(r"\[(\d+)\]", r".\1", key)
    if not equals or not (added := re.fullmatch(r"(\+{1,2})methods\.(.+)", key)):
        return key + equals + value
    for name in reversed(added[2].split(".")):
        value = f"{{{name}: {value}}}"
    return f"{added[1]}methods={value}"


def _terminate(number: int, frame: object) -> None:
    raise Terminated


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""What the bench runs: ``conf/bench.yaml`` with the values of the command line, checked before anything is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from experiments.arguments import check_prompts, overridden
from ssd.bench.spec import PromptSpec, parse

# What each stage does with its prompts; settings chosen on prompts are never measured on the same.
PURPOSES = {"tune": "calibrate", "measure": "evaluate", "sampled": "evaluate"}
STAGE_KEYS = ("max_new_tokens", *(field.name for field in fields(PromptSpec)))


def read_config(path: Path, arguments: Sequence[str], purposes: Mapping[str, str] = PURPOSES) -> dict[str, Any]:
    """The configuration in ``path`` with the values that ``arguments`` set, each ``key=value``.

    ``purposes`` names the stages and what each does with its prompts.

    Raises:
        ValueError: naming the argument, key or set of prompts that is wrong; among others if a stage would
            use prompts that are not for it.
    """
    config = overridden(path, arguments, dict.fromkeys(purposes, STAGE_KEYS), f"{next(iter(purposes))}.limit=6")
    for name in ("chain", "target_dtype"):
        if not isinstance(config[name], str):
            raise ValueError(f"{name}: expected str, got {config[name]!r}")
    for stage, purpose in purposes.items():
        check_prompts(stage, prompts_of(config, stage)[0], purpose)
    return config


def prompts_of(config: Mapping[str, Any], stage: str) -> tuple[PromptSpec, int]:
    """The prompts of a stage, and how many new tokens it makes for each at most.

    Raises:
        ValueError: naming the stage and the key that is missing, unknown or of the wrong type.
    """
    settings = config[stage]
    if not isinstance(settings, Mapping):
        raise ValueError(f"{stage}: expected a mapping, got {settings!r}")
    tokens = settings.get("max_new_tokens")
    if not isinstance(tokens, int) or isinstance(tokens, bool) or tokens < 1:
        raise ValueError(f"{stage}.max_new_tokens: expected an integer >= 1, got {tokens!r}")
    chosen = {key: value for key, value in settings.items() if key != "max_new_tokens"}
    return parse(PromptSpec, chosen, stage), tokens

"""What the bench runs: ``conf/bench.yaml`` with the values of the command line, checked before anything is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import yaml

from ssd.bench.dataset_spec import DatasetSpec
from ssd.bench.dataset_splits import check_use
from ssd.bench.experiment import override
from ssd.bench.spec import PromptSpec, parse
from ssd.bench.yaml_text import read_yaml

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
    config: dict[str, Any] = read_yaml(path.read_text(encoding="utf-8"))
    for argument in arguments:
        key, equals, text = argument.partition("=")
        if not equals:
            raise ValueError(f"{argument!r}: expected key=value, such as tune.limit=6")
        try:
            value = read_yaml(text)
        except yaml.YAMLError as error:
            raise ValueError(f"{argument!r}: not valid YAML ({' '.join(str(error).split())})") from error
        override(config, key, value, dict.fromkeys(purposes, STAGE_KEYS))
    for name in ("chain", "target_dtype"):
        if not isinstance(config[name], str):
            raise ValueError(f"{name}: expected str, got {config[name]!r}")
    for stage, purpose in purposes.items():
        prompts, _ = prompts_of(config, stage)
        try:
            check_use(DatasetSpec(**asdict(prompts)), purpose)
        except ValueError as error:
            raise ValueError(f"{stage}: {error}") from error
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

"""A YAML file with the values that the command line sets, each ``key=value``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from ssd.bench.dataset_spec import DatasetSpec
from ssd.bench.dataset_splits import check_use
from ssd.bench.experiment import override
from ssd.bench.spec import PromptSpec
from ssd.bench.yaml_text import read_yaml


def overridden(
    path: Path,
    arguments: Sequence[str],
    optional: Mapping[str, Collection[str]],
    example: str,
    convert: Mapping[str, Callable[[Any], Any]] | None = None,
) -> dict[str, Any]:
    """The content of ``path`` with what ``arguments`` set in it.

    Args:
        optional: keys that a mapping may have besides those it has, by the mapping's own dotted key.
        example: an argument, for the error message.
        convert: by key, what makes of a value what is meant.

    Raises:
        ValueError: naming the argument or key that is wrong.
    """
    config: dict[str, Any] = read_yaml(path.read_text(encoding="utf-8"))
    for argument in arguments:
        key, equals, text = argument.partition("=")
        if not equals:
            raise ValueError(f"{argument!r}: expected key=value, such as {example}")
        try:
            value = read_yaml(text)
        except yaml.YAMLError as error:
            raise ValueError(f"{argument!r}: not valid YAML ({' '.join(str(error).split())})") from error
        override(config, key, (convert or {}).get(key, lambda x: x)(value), optional)
    return config


def check_prompts(stage: str, prompts: PromptSpec, purpose: str) -> None:
    """Raise ValueError naming the stage if its prompts are for something else than ``purpose``."""
    try:
        check_use(DatasetSpec(**asdict(prompts)), purpose)
    except ValueError as error:
        raise ValueError(f"{stage}: {error}") from error

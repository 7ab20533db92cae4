"""Rows of a hub data set as prompts, by the templates of ``DatasetSpec.fields``.

A template is text with columns in braces, ``{translation.de}`` for one inside another. A template that
is nothing but one column keeps the column's value, so a list of turns stays a list; inside text a list
becomes lines. The keys:

- ``turns`` (required): the user's message, or a column that lists several
- ``reference``: the answer to score against, or a column with one per turn
- ``task``: one of the tasks of ``ssd.bench.prompts``; or ``category``: a category of MT-bench, from
  which the task follows
- ``id``: default the row's number
- ``source``: the passage asked about, which no two splits may share
- ``use``: ``evaluate`` or ``calibrate`` where the name of the split says less
- any other key is kept in ``Prompt.extra``
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ssd.bench.dataset_formats import references, task_of
from ssd.bench.hub_layout import reader
from ssd.bench.prompts import TASKS, Prompt

if TYPE_CHECKING:
    from ssd.bench.dataset_spec import DatasetSpec

COLUMN = re.compile(r"\{([\w.]+)\}")
OWN_KEYS = ("turns", "reference", "task", "id", "use")


def hub_prompts(spec: DatasetSpec, paths: Sequence[Path]) -> list[Prompt]:
    """The prompts of a split; where nothing is filtered, only those that ``offset`` and ``limit`` can reach.

    Raises:
        ValueError: naming data set and field for a missing column, task or reader.
    """
    rows: Iterator[Mapping[str, Any]] = iter(_rows(spec, paths))
    if spec.limit is not None and "category" not in spec.fields and not spec.tasks:
        rows = islice(rows, spec.offset + spec.limit)
    prompts = []
    for index, row in enumerate(rows):
        try:
            prompts.append(_prompt(spec, row, index))
        except ValueError as error:
            raise ValueError(f"{spec.label}: row {index}: {error}") from error
    return prompts


def _rows(spec: DatasetSpec, paths: Sequence[Path]) -> Any:
    """The split through ``datasets``, from files on this machine."""
    try:
        import datasets
    except ImportError as error:
        raise ValueError(f"{spec.label}: reading it needs the package datasets: pip install datasets") from error

    shown = not datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        files = {"rows": [path.as_posix() for path in paths]}
        return datasets.load_dataset(str(reader(paths[0].name)), data_files=files, split="rows")
    except Exception as error:  # a damaged file is reported in many ways
        cause = error.__cause__ or error
        raise ValueError(f"{spec.label}: cannot read {paths[0]}: {' '.join(str(cause).split())}") from error
    finally:
        if shown:
            datasets.enable_progress_bars()


def _prompt(spec: DatasetSpec, row: Mapping[str, Any], index: int) -> Prompt:
    """One row through the templates."""
    values = {name: fill(template, row, name) for name, template in spec.fields.items()}
    turns = values["turns"]
    reference, extra = references(values.get("reference"))
    extra |= {name: value for name, value in values.items() if name not in OWN_KEYS}
    task = values["task"] if "task" in values else task_of(str(values.get("category")))
    if task not in TASKS:
        raise ValueError(f"fields.task: {task!r} is not one of {', '.join(TASKS)}")
    name = str(values.get("id", index))
    return Prompt(name, task, str(spec.split), (turns,) if isinstance(turns, str) else tuple(turns), reference, extra)


def fill(template: str, row: Mapping[str, Any], name: str) -> Any:
    """A template with the columns of a row in place.

    Raises:
        ValueError: naming the field and the column that the row does not have.
    """
    if whole := COLUMN.fullmatch(template):
        return _look_up(whole[1], row, name)
    return COLUMN.sub(lambda match: _text(_look_up(match[1], row, name)), template)


def _look_up(path: str, row: Mapping[str, Any], name: str) -> Any:
    """The value at a dotted path."""
    value: Any = row
    for part in path.split("."):
        if not isinstance(value, Mapping) or part not in value:
            raise ValueError(f"fields.{name}: no column {path!r}; there are {', '.join(row)}")
        value = value[part]
    return value


def _text(value: Any) -> str:
    """A value inside a sentence."""
    return "\n".join(map(str, value)) if isinstance(value, list | tuple) else str(value)

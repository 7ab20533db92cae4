"""Public prompt sets read from local files in the formats they are published in.

Spec-Bench ``question.jsonl``, HumanEval ``HumanEval.jsonl.gz`` and GSM8K ``test.jsonl``; each may be
gzipped or not, by its name.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from ssd.bench.prompts import Prompt

# Categories of MT-bench and Spec-Bench, and the task of ours each belongs to.
CATEGORIES = {
    "translation": "translation",
    "summarization": "summarization",
    "qa": "question_answering",
    "rag": "question_answering",
    "reasoning": "question_answering",
    "extraction": "question_answering",
    "math": "math",
    "math_reasoning": "math",
    "coding": "code",
    "writing": "long_form",
    "roleplay": "long_form",
    "stem": "long_form",
    "humanities": "long_form",
}
COMPLETE = "Complete the following Python function. Answer with the whole function.\n\n```python\n{}\n```"
NUMBER = re.compile(r"(?<![\w.)])-?\$?\d[\d,]*(?:\.\d+)?|\d[\d,]*(?:\.\d+)?")


def read_local(name: str, path: Path, split: str) -> list[Prompt]:
    """Every prompt of a file, in its order.

    Raises:
        ValueError: naming file, line and field that is missing or wrong.
    """
    make = FORMATS[name]
    prompts = []
    for number, row in _rows(path):
        try:
            prompts.append(make(row, number - 1, split))
        except KeyError as error:
            raise ValueError(f"{path}: line {number}: field {error.args[0]!r} is missing") from error
        except ValueError as error:
            raise ValueError(f"{path}: line {number}: {error}") from error
    if not prompts:
        raise ValueError(f"{path}: holds no prompt")
    return prompts


def gsm8k_answer(text: str) -> str | None:
    """The final number of a worked solution, in one spelling per value; ``None`` if there is no number.

    That is the number after the last ``####``, else the last number of the text. Thousands separators,
    currency signs and trailing zeros of a fraction are dropped: ``$1,450.00`` gives ``1450``.
    """
    marked = text.rpartition("####")
    found = NUMBER.findall(marked[2]) if marked[1] else []
    if found:
        return _spelling(found[0])
    found = NUMBER.findall(text)
    return _spelling(found[-1]) if found else None


def task_of(category: str) -> str:
    """The task that a category of MT-bench or Spec-Bench belongs to.

    Raises:
        ValueError: for a category that neither has.
    """
    if category not in CATEGORIES:
        raise ValueError(f"category: {category!r} is not one of {', '.join(CATEGORIES)}")
    return CATEGORIES[category]


def references(value: Any) -> tuple[str | None, dict[str, Any]]:
    """(reference of the first turn, extra fields): text or one per turn, where an empty one is none."""
    if value is None or isinstance(value, str):
        return value or None, {}
    given = [str(item) if item else None for item in value]
    return (given[0] if given else None), ({"references": given} if any(given) else {})


def _spec_bench(row: Mapping[str, Any], index: int, split: str) -> Prompt:
    category = row["category"]
    reference, extra = references(row.get("reference"))
    name = f"{category}-{row['question_id']}"
    return Prompt(name, task_of(category), split, tuple(row["turns"]), reference, {"category": category, **extra})


def _human_eval(row: Mapping[str, Any], index: int, split: str) -> Prompt:
    turn = COMPLETE.format(row["prompt"].strip("\n"))
    extra = {name: row[name] for name in ("prompt", "test", "entry_point")}
    return Prompt(row["task_id"], "code", split, (turn,), row["canonical_solution"], extra)


def _gsm8k(row: Mapping[str, Any], index: int, split: str) -> Prompt:
    answer = gsm8k_answer(row["answer"])
    return Prompt(f"gsm8k-{index:04d}", "math", split, (row["question"],), row["answer"], {"answer": answer})


FORMATS: dict[str, Callable[[Mapping[str, Any], int, str], Prompt]] = {
    "spec_bench": _spec_bench,
    "human_eval": _human_eval,
    "gsm8k": _gsm8k,
}


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) of every line that is not blank."""
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: cannot be read ({error})") from error
    # Not str.splitlines: it also breaks at separators such as U+2028 that JSON allows in a string.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{path}: line {number}: not valid JSON ({error})") from error
        if not isinstance(row, dict):
            raise ValueError(f"{path}: line {number}: expected an object, got {type(row).__name__}")
        yield number, row


def _spelling(number: str) -> str:
    """Plain decimal digits."""
    value = Decimal(number.replace(",", "").replace("$", ""))
    return str(int(value)) if value == value.to_integral_value() else format(value.normalize(), "f")

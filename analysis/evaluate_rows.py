"""What chosen metrics of the ``evaluate`` library say about a run's texts, for a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from analysis.settings import Setting
from analysis.table import Column
from ssd.bench.evaluate_metrics import EvaluateMetric
from ssd.bench.records import check_real, group_by

Record = Mapping[str, Any]
EVALUATE_COLUMNS = (
    Column("method"),
    Column("task"),
    Column("against"),
    Column("n"),
    Column("metric"),
    Column("score"),
    Column("value", form=".4g"),
)


def evaluate_rows(
    setting: Setting, references: Mapping[str, str | None], metrics: Sequence[EvaluateMetric], baseline: str
) -> tuple[list[dict[str, Any]], list[str]]:
    """(one row per method, task, what it is compared with and single score; what went wrong).

    Scores per text, which some metrics give besides, have no row. A metric that fails on a task is told of in the
    second list and has no rows there.

    Args:
        setting: whose texts are scored.
        references: by ``prompt_id``; None for a prompt without one.
        metrics: loaded ones.
        baseline: method whose texts the others are compared with too.

    Raises:
        ValueError: if a record is synthetic.
    """
    check_real(setting.records, "quality")
    groups = group_by(setting.records, "method", "task")
    rows, problems = [], []
    for (method, task), own in groups.items():
        for against, pairs in _pairs(own, references, groups.get((baseline, task), []), baseline):
            who = {"method": method, "task": task, "against": against, "n": len(pairs)}
            for metric in metrics:
                name = PurePath(metric.source).stem
                try:
                    results = metric.compute([text for text, _ in pairs], [other for _, other in pairs])
                except ValueError as error:
                    problems.append(f"{method}, {task}, against {against}: {error}")
                    continue
                scores = {k: v for k, v in (results or {}).items() if isinstance(v, bool | int | float | str)}
                rows += [{**who, "metric": name, "score": key, "value": value} for key, value in scores.items()]
    return rows, problems


def _pairs(
    own: Sequence[Record], references: Mapping[str, str | None], theirs: Sequence[Record], baseline: str
) -> list[tuple[str, list[tuple[str, str]]]]:
    """(against what, [(text, what it is compared with)]) for each comparison that has anything to compare."""
    answers = [(record["text"], references.get(record["prompt_id"])) for record in own]
    known = [(text, answer) for text, answer in answers if answer is not None]
    found = [("reference", known)]
    if own[0]["method"] != baseline:
        texts = {(r["prompt_id"], r["sample"]): r["text"] for r in theirs}
        same = [(r["text"], texts[key]) for r in own if (key := (r["prompt_id"], r["sample"])) in texts]
        found.append((baseline, same))
    return [(against, pairs) for against, pairs in found if pairs]

"""A results folder becomes a report: plain data first, then one page (``analysis.report_html``).

Nothing but the run folders is read. Runs that are not complete, or cannot be read, are listed and never
averaged; the same records give the same page, byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from analysis import provenance
from analysis.divergence_rows import DIVERGENCE_COLUMNS, divergence_note, divergence_rows
from analysis.evaluate_rows import EVALUATE_COLUMNS, evaluate_rows
from analysis.headline import Verdict, lead, sentence, tiles, title, verdict
from analysis.memory_rows import MEMORY_COLUMNS, memory_rows, process_peak
from analysis.quality_rows import (
    QUALITY_COLUMNS,
    REPETITION_COLUMNS,
    bleu_tokenizer,
    quality_rows,
    repetition_rows,
)
from analysis.report_figures import Block, blocks, overview
from analysis.settings import BASELINE, Setting, settings
from analysis.speed_rows import EDGE_COLUMNS, LATENCY_COLUMNS, SPEED_COLUMNS, edge_rows, speed_rows
from analysis.table import Column
from ssd.bench.evaluate_metrics import EvaluateMetric
from ssd.bench.records import Problem, Run, read_runs

References = Callable[[Run], Mapping[str, str | None] | None]
OUTCOME_NAMES = {"pays": "pays", "costs": "does not pay", "level": "no difference", "unknown": "no interval"}


@dataclass(frozen=True)
class Table:
    """Rows under a title."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Mapping[str, Any]]
    note: str = ""


@dataclass(frozen=True)
class Section:
    """Everything about one setting.

    Attributes:
        slug: names it within the page.
        facts: (name, value) in short.
        marks: what speaks against its times or its code version.
        sentence: its answer.
        outcome: see ``analysis.headline.Verdict``.
        outcome_name: the same in a word or two, empty where nothing was compared.
        fastest: name of its fastest method.
        speed: the main table.
        figures: with the numbers behind them.
        tables: further ones that have rows, quality first.
    """

    slug: str
    setting: Setting
    facts: list[tuple[str, str]]
    marks: list[str]
    sentence: str
    outcome: str
    outcome_name: str
    fastest: str | None
    speed: Table
    figures: list[Block]
    tables: list[Table]


@dataclass(frozen=True)
class Report:
    """All of a page.

    Attributes:
        experiment: folder under ``results/raw``.
        tiles: (value, what it is, context) of a few numbers.
        marked: which settings are marked and why; empty for none.
        overview: the figure over all settings, None for one.
        problems: (folder, reason) of runs that are not reported, paths relative to the experiment's folder.
        sources: per run, where its numbers come from.
    """

    experiment: str
    title: str
    lead: str
    tiles: list[tuple[str, str, str]]
    marked: str
    sections: list[Section]
    overview: Block | None
    problems: list[tuple[str, str]]
    sources: list[provenance.Source] = field(default_factory=list)


def build(
    root: Path | str,
    references: References | None = None,
    baseline: str = BASELINE,
    metrics: Sequence[EvaluateMetric] = (),
) -> Report:
    """The report of every run folder under ``root`` (``results/raw/<experiment>``).

    Args:
        root: need not exist; then the report says that there is nothing.
        references: answers of a run's prompts by ``prompt_id``, None where they cannot be had; then texts are
            compared with the baseline's alone.
        baseline: method that speedups refer to.
        metrics: further ones to compute on the texts.
    """
    root = Path(root)
    runs, problems = read_runs(root)
    problems += [Problem(run.path or root, "complete, but without a record") for run in runs if not run.records]
    sections: list[Section] = []
    verdicts: list[Verdict] = []
    for setting in settings((run for run in runs if run.records), baseline):
        try:
            found, section = _section(setting, f"s{len(sections) + 1}", references, baseline, metrics)
        except ValueError as error:
            problems.append(Problem(setting.run.path or root, f"cannot be reported: {error}"))
            continue
        sections.append(section)
        verdicts.append(found)
    real = [found for found in verdicts if not found.setting.is_synthetic] or verdicts
    told = [found for found in real if not found.setting.is_tuning] or real
    shown: list[Run] = []
    for section in sections:
        if not any(section.setting.run is run for run in shown):
            shown.append(section.setting.run)
    return Report(
        experiment=root.name,
        title=title(told),
        lead=lead(told),
        tiles=tiles(told),
        marked=_marked(sections),
        sections=sections,
        overview=overview([(s.setting, s.speed.rows) for s in sections]) if len(sections) > 1 else None,
        problems=sorted((_inside(root, str(p.path)), _inside(root, _reason(p))) for p in problems),
        sources=[provenance.source(run) for run in shown],
    )


def _section(
    setting: Setting, slug: str, references: References | None, baseline: str, metrics: Sequence[EvaluateMetric]
) -> tuple[Verdict, Section]:
    """One setting's part of the page, and its answer."""
    rows = speed_rows(setting, baseline)
    found = verdict(setting, rows)
    apart = divergence_rows(setting)
    tables = [] if setting.is_synthetic else _quality(setting, references, baseline, metrics)
    tables += [
        Table("First divergence", DIVERGENCE_COLUMNS, apart, divergence_note(apart)),
        Table("Acceptance per edge", EDGE_COLUMNS, edge_rows(setting), "Intervals are over prompts."),
        Table(
            "Latency and end-to-end speedup",
            LATENCY_COLUMNS,
            rows,
            "Tokens of one block arrive together, so the time between tokens is 0 inside a block.",
        ),
        Table(
            "Repetition",
            REPETITION_COLUMNS,
            [] if setting.is_synthetic else [row for row in repetition_rows(setting.records) if row["tokens"]],
            "A model that loops makes every draft look good: distinct 4-grams fall, and a plain look-up gets far.",
        ),
        Table("Memory", MEMORY_COLUMNS, memory_rows(setting.run.run), process_peak(setting.run.run)),
    ]
    return found, Section(
        slug=slug,
        setting=setting,
        facts=provenance.facts(setting),
        marks=provenance.marks(setting),
        sentence=sentence(found),
        outcome=found.outcome,
        outcome_name=OUTCOME_NAMES.get(found.outcome, ""),
        fastest=None if found.fastest is None else found.fastest["method"],
        speed=Table("Methods", SPEED_COLUMNS, rows),
        figures=blocks(setting, slug, rows),
        tables=[table for table in tables if table.rows],
    )


def _quality(
    setting: Setting, references: References | None, baseline: str, metrics: Sequence[EvaluateMetric]
) -> list[Table]:
    """Scores against the baseline's texts, and against references where the run's can be had."""
    answers = None if references is None else references(setting.run)
    if answers is None:
        answers = {record["prompt_id"]: None for record in setting.records}
    tokenize = bleu_tokenizer(setting.run)
    tokenizers = {record["task"]: tokenize for record in setting.records}
    rows = [row for row in quality_rows(setting.records, answers, baseline, tokenizers) if row["n"]]
    signatures = dict.fromkeys(row[name] for row in rows for name in ("bleu_signature", "rouge_l_signature"))
    tables = [Table("Quality", QUALITY_COLUMNS, rows, "Computed as " + "; ".join(map(str, signatures)) + ".")]
    if metrics:
        scores, problems = evaluate_rows(setting, answers, metrics, baseline)
        tables.append(Table("Quality by chosen metrics", EVALUATE_COLUMNS, scores, " ".join(problems)))
    return tables


def _marked(sections: Sequence[Section]) -> str:
    """Which marks there are, and how many settings have them."""
    kinds = [mark.partition(":")[0] for section in sections for mark in dict.fromkeys(section.marks)]
    counts = [f"{kind} ({kinds.count(kind)} of {len(sections)} settings)" for kind in dict.fromkeys(kinds)]
    return f"Marked: {', '.join(counts)}." if counts else ""


def _reason(problem: Problem) -> str:
    """Why a run is not reported; one that never said how it ended has no error."""
    return problem.reason.replace("status running: None", "unfinished: it runs, or its process died")


def _inside(root: Path, text: str) -> str:
    """A text with paths below ``root`` shortened, so that it reads the same wherever the results lie."""
    return text.replace(f"{root}/", "").replace(str(root), root.name)

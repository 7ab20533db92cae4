"""Quality and repetition of a run's methods, for tables and for ``summary.json``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from analysis.table import Column
from ssd.bench.acceptance import acceptance_by_output_position, edges
from ssd.bench.length_bins import BINS, bin_name
from ssd.bench.quality import (
    Quality,
    References,
    against_baseline,
    against_references,
    bleu_difference,
    rouge_l_difference,
)
from ssd.bench.records import Run, group_by
from ssd.bench.repetition import PromptIds, distinct_by_length, ngram_acceptance
from ssd.bench.statistics import Estimate
from ssd.bench.summary import Row

Record = Mapping[str, Any]
NOTHING = Estimate(None, None, None, 0)
# sacrebleu's tokenizer by language, where words are not set apart by spaces.
TOKENIZERS = {"zh": "zh", "ja": "char", "ko": "char", "th": "char"}

QUALITY_COLUMNS = (
    Column("method"),
    Column("temperature", "T", "g"),
    Column("task"),
    Column("against"),
    Column("n"),
    Column("missing"),
    Column("exact_share", "equal texts", ".1%"),
    Column("bleu", "BLEU", ".2f"),
    Column("bleu_gain", "minus baseline's [95%]", "+.2f", ("bleu_gain_low", "bleu_gain_high")),
    Column("rouge_l", "ROUGE-L", ".3f"),
    Column("rouge_l_gain", "minus baseline's [95%]", "+.3f", ("rouge_l_gain_low", "rouge_l_gain_high")),
)
REPETITION_COLUMNS = (
    Column("method"),
    Column("temperature", "T", "g"),
    Column("tokens_from", "output tokens"),
    Column("outputs"),
    Column("distinct_4", "distinct 4-grams", ".3f"),
    Column("tokens"),
    Column("ngram_acceptance", "n-gram acceptance", ".3f"),
    Column("alpha", "alpha, last edge", ".3f"),
)


def bleu_tokenizer(run: Run) -> str:
    """BLEU's tokenizer for a run's prompts: by the target language of a direction such as ``en-zh_CN``, else 13a."""
    prompts = (run.run.get("config") or {}).get("prompts") or {}
    language = re.fullmatch(r"[a-z]{2,3}(?:[_@]\w+)?-([a-z]{2,3})(?:[_@]\w+)?", str(prompts.get("config") or ""))
    return "13a" if language is None else TOKENIZERS.get(language[1], "13a")


def quality_rows(
    records: Sequence[Record],
    references: References,
    baseline: str = "ar",
    tokenizers: Mapping[str, str] | None = None,
) -> list[dict[str, Any]]:
    """One row per method, temperature, task and what it is compared with, for ``QUALITY_COLUMNS``.

    ``against`` is ``reference`` or the baseline's name. A task without any reference has its row too, with
    ``missing`` equal to its outputs. Differences to the baseline's scores are missing where it did not run.
    ``bleu_signature`` and ``rouge_l_signature`` say how the scores were computed.

    Args:
        records: of several methods.
        references: by ``prompt_id``; None for a prompt without one.
        baseline: method that texts and scores are compared with, at the same temperature.
        tokenizers: sacrebleu's tokenizer by task, default ``13a``.
    """
    groups = group_by(records, "method", "sampling.temperature", "task")
    rows = []
    for (method, temperature, task), own in groups.items():
        tokenize = (tokenizers or {}).get(task, "13a")
        other = groups.get((baseline, temperature, task))
        who = {"method": method, "temperature": temperature, "task": task}
        scores = against_references(own, references, tokenize=tokenize)
        gains = (NOTHING, NOTHING)
        if other is not None:
            gains = (
                bleu_difference(own, other, references, tokenize),
                rouge_l_difference(own, other, references),
            )
        rows.append({**who, "against": "reference", **_scores(scores, *gains)})
        if other is not None and method != baseline:
            rows.append({**who, "against": baseline, **_scores(against_baseline(own, other, tokenize=tokenize))})
    return rows


def quality_summary(
    prefix: str,
    records: Sequence[Record],
    references: References,
    baseline: str = "ar",
    tokenizers: Mapping[str, str] | None = None,
) -> list[Row]:
    """The same numbers as rows named ``prefix/method/task/metric``; the unit of a score is its signature.

    Against the baseline's text the names end in ``_vs_<baseline>``. Rows that compare nothing are left to
    the table. ``records`` hold one temperature, as a pass of an experiment does.

    Raises:
        ValueError: for records of several temperatures.
    """
    temperatures = {temperature for (temperature,) in group_by(records, "sampling.temperature")}
    if len(temperatures) > 1:
        raise ValueError(f"quality summary {prefix}: temperatures {sorted(map(str, temperatures))} are mixed")
    rows: list[Row] = []
    for row in quality_rows(records, references, baseline, tokenizers):
        if not row["n"]:
            continue
        name, vs = f"{prefix}/{row['method']}/{row['task']}", ""
        if row["against"] != "reference":
            vs = f"_vs_{row['against']}"
        rows.append(Row(f"{name}/exact_share{vs}", row["exact_share"], "share", n=row["n"]))
        for metric in ("bleu", "rouge_l"):
            signature = row[f"{metric}_signature"]
            rows.append(Row(f"{name}/{metric}{vs}", row[metric], signature, n=row["n"]))
            if not vs and row["method"] != baseline:
                gain = Estimate(*(row[f"{metric}_gain{end}"] for end in ("", "_low", "_high", "_n")))
                rows.append(Row.of(f"{name}/{metric}_gain", gain, signature))
    return rows


def repetition_rows(
    records: Sequence[Record], prompt_ids: PromptIds | None = None, bins: Sequence[int] = BINS
) -> list[dict[str, Any]]:
    """One row per method, temperature and bin, for ``REPETITION_COLUMNS``; empty bins are there too.

    ``outputs`` and ``distinct_4`` concern the outputs whose length is in the bin; ``tokens``,
    ``ngram_acceptance`` and ``alpha`` (of the last edge, all tested tokens) the tokens at those places of
    any output, so that acceptance can be read beside what a look-up alone would reach.
    """
    rows = []
    for (method, temperature), own in group_by(records, "method", "sampling.temperature").items():
        last = max(edges(own), default=None)
        distinct, look_up = distinct_by_length(own, bins=bins), ngram_acceptance(own, prompt_ids, bins=bins)
        tested = {} if last is None else acceptance_by_output_position(own, last, bins)
        for each, found in look_up.items():
            low, high = each
            rows.append(
                {
                    "method": method,
                    "temperature": temperature,
                    "tokens_from": bin_name(each),
                    "outputs": sum(low <= len(r["output_ids"]) < (high or 1 << 62) for r in own),
                    "distinct_4": distinct[each],
                    "tokens": found.tokens,
                    "ngram_acceptance": found.acceptance,
                    "alpha": tested[each].alpha if tested else None,
                }
            )
    return rows


def _scores(scores: Quality, bleu_gain: Estimate = NOTHING, rouge_l_gain: Estimate = NOTHING) -> dict[str, Any]:
    """A table row's part that holds numbers."""
    row: dict[str, Any] = {"n": scores.n, "missing": scores.missing, "exact_share": scores.exact_share}
    for name, score, gain in (("bleu", scores.bleu, bleu_gain), ("rouge_l", scores.rouge_l, rouge_l_gain)):
        row |= {name: score.value, f"{name}_signature": score.signature, f"{name}_gain_n": gain.n}
        row |= {f"{name}_gain": gain.value, f"{name}_gain_low": gain.low, f"{name}_gain_high": gain.high}
    return row

"""Summary rows of a run's methods: the numbers that tables and ``summary.json`` share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ssd.bench.acceptance import edge_counts, edges
from ssd.bench.length_bins import bin_name
from ssd.bench.metrics import (
    exact_match,
    pass_shares,
    passes_per_token,
    speedup,
    time_to_first_token,
    token_latency,
    tokens_per_second,
)
from ssd.bench.quality import Quality, References, against_baseline, against_references
from ssd.bench.records import group_by
from ssd.bench.repetition import distinct_by_length, ngram_acceptance
from ssd.bench.summary import Row

Record = Mapping[str, Any]


def method_summary(
    prefix: str,
    records: Sequence[Record],
    baseline: str,
    references: References | None = None,
    tokenize: str = "13a",
) -> list[Row]:
    """Rows ``prefix/method/metric`` for every method of one run, speedups over ``baseline``.

    Args:
        prefix: what the rows' names begin with.
        records: of one run at one temperature.
        baseline: a method among them; the quality of the others is stated against its texts.
        references: by ``prompt_id``, where quality against them is wanted too.
        tokenize: BLEU's, see ``ssd.bench.quality.bleu``.
    """
    groups = {method: own for (method,), own in group_by(records, "method").items()}
    rows: list[Row] = []
    for method, own in groups.items():
        name, theirs = f"{prefix}/{method}", groups[baseline]
        rows.append(Row(f"{name}/tokens_per_second", tokens_per_second(own), "tokens/s", n=len(own)))
        rows.append(Row.of(f"{name}/speedup", speedup(own, theirs), "x"))
        rows.append(Row.of(f"{name}/speedup_e2e", speedup(own, theirs, kind="e2e"), "x"))
        rows.append(Row(f"{name}/outside_passes", pass_shares(own)["rest"], "share", n=len(own)))
        match = exact_match(own, theirs)
        rows.append(Row(f"{name}/exact_match", match.share, "share", n=match.n))
        rows.extend(latency_rows(name, own))
        for level, passes in passes_per_token(own).items():
            rows.append(Row(f"{name}/passes_per_token/{level}", passes, "passes", n=len(own)))
        rows.extend(edge_rows(name, own))
        rows.extend(repetition_rows(name, own))
        if method != baseline:
            scores = against_baseline(own, theirs, tokenize=tokenize)
            rows.extend(score_rows(name, scores, f"_vs_{baseline}"))
        if references is not None:
            rows.extend(score_rows(name, against_references(own, references, tokenize=tokenize)))
    return rows


def latency_rows(name: str, records: Sequence[Record]) -> Iterable[Row]:
    """Median time to the first token, and quantiles of the time between tokens."""
    first, following = time_to_first_token(records), token_latency(records)
    yield Row(f"{name}/time_to_first_token_p50", first.p50, "s", n=first.n)
    for quantile in ("p50", "p90", "p99"):
        yield Row(f"{name}/token_latency_{quantile}", getattr(following, quantile), "s", n=following.n)


def edge_rows(name: str, records: Sequence[Record]) -> Iterable[Row]:
    """alpha, alpha_overlap, draft acceptance rate and tau of each edge."""
    for edge in edges(records):
        counts = edge_counts(records, edge)
        for metric in ("alpha", "alpha_overlap", "draft_acceptance_rate", "tau"):
            unit = "tokens" if metric == "tau" else "share"
            yield Row(f"{name}/edge{edge}/{metric}", getattr(counts, metric), unit, n=counts.rounds)


def repetition_rows(name: str, records: Sequence[Record]) -> Iterable[Row]:
    """Distinct 4-grams and n-gram acceptance of the outputs in each bin of output length that has any."""
    distinct = distinct_by_length(records)
    for each, found in ngram_acceptance(records, by="length").items():
        if found.tokens:
            place = bin_name(each)
            yield Row(f"{name}/distinct_4/{place}", distinct[each], "share", n=found.tokens)
            yield Row(f"{name}/ngram_acceptance/{place}", found.acceptance, "share", n=found.tokens)


def score_rows(name: str, scores: Quality, suffix: str = "") -> Iterable[Row]:
    """Equal texts, BLEU and ROUGE-L over all tasks, their signatures as units; none where nothing was compared."""
    if scores.n:
        yield Row(f"{name}/exact_share{suffix}", scores.exact_share, "share", n=scores.n)
        yield Row(f"{name}/bleu{suffix}", scores.bleu.value, scores.bleu.signature, n=scores.n)
        yield Row(f"{name}/rouge_l{suffix}", scores.rouge_l.value, scores.rouge_l.signature, n=scores.n)

"""BLEU, chrF and ROUGE-L of outputs, against references and against the baseline's text.

The libraries are called directly, so nothing is fetched. One text per hypothesis is compared with
exactly one reference, and the share of equal texts always stands beside a score: a score built on
four-grams calls two identical three-word texts 0.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ssd.bench.acceptance import Record, ratio
from ssd.bench.metrics import batches, check_paired
from ssd.bench.record_line import check_real
from ssd.bench.statistics import Array, Estimate, paired_bootstrap
from ssd.bench.turns import conversation_of
from ssd.bench.word_segments import WordSegments

BLEU_TOKENIZERS = ("13a", "intl", "zh", "char", "none")  # those of sacrebleu that need no download
References = Mapping[str, str | None]
_COLUMNS = 10  # of a text's share in BLEU: 4 matches, 4 n-grams, length, reference length


@dataclass(frozen=True)
class Score:
    """A score and how it was computed.

    Attributes:
        value: None without texts.
        signature: sacrebleu's own, or one of the same form; scores of different signatures are not comparable.
    """

    value: float | None
    signature: str


@dataclass(frozen=True)
class Quality:
    """Scores of a set of texts.

    Attributes:
        n: texts scored; an empty text is one of them.
        missing: texts that had nothing to be compared with (their task has no references).
        equal: texts that are their reference, character by character.
        bleu: corpus BLEU, 0 to 100.
        rouge_l: mean over the texts of the F-measure of the longest common subsequence, 0 to 1.
        chrf: corpus chrF2, 0 to 100; None unless asked for.
    """

    n: int
    missing: int
    equal: int
    bleu: Score
    rouge_l: Score
    chrf: Score | None = None

    @property
    def exact_share(self) -> float | None:
        """Equal / n."""
        return ratio(self.equal, self.n)


def bleu(hypotheses: Sequence[str], references: Sequence[str], tokenize: str = "13a") -> Score:
    """Corpus BLEU with sacrebleu's defaults (exponential smoothing, no effective order).

    Args:
        hypotheses: texts.
        references: one text for each of them, in the same order.
        tokenize: one of ``BLEU_TOKENIZERS``; ``zh`` for Chinese, ``char`` for any unspaced script.

    Raises:
        ValueError: if the lists do not pair up text by text.
    """
    check_texts(hypotheses, references)
    metric = _bleu_metric(tokenize)
    value = float(metric.corpus_score(list(hypotheses), [list(references)]).score) if hypotheses else None
    return Score(value, _bleu_signature(tokenize))


def sentence_bleu(hypothesis: str, reference: str, tokenize: str = "13a") -> float:
    """BLEU of one text, 0 to 100, with the effective order: orders the text is too short for do not count."""
    check_texts([hypothesis], [reference])
    return float(_bleu_metric(tokenize, True).sentence_score(hypothesis, [reference]).score)


def chrf(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """Corpus chrF2 of sacrebleu; arguments and errors as for ``bleu``."""
    check_texts(hypotheses, references)
    metric: Any = _library("sacrebleu").CHRF()
    result = metric.corpus_score(list(hypotheses) or [""], [list(references) or [""]])
    return Score(float(result.score) if hypotheses else None, str(metric.get_signature()))


def rouge_l(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """Mean F-measure of rouge-score's ``rougeL`` on words of any script; arguments and errors as for ``bleu``."""
    check_texts(hypotheses, references)
    pairs = [sentence_rouge_l(h, r) for h, r in zip(hypotheses, references, strict=True)]
    version = importlib.metadata.version("rouge-score")
    signature = f"rougeL|fmeasure|agg:mean|tok:{WordSegments.signature}|stem:no|version:{version}"
    return Score(ratio(sum(pairs), len(pairs)), signature)


@lru_cache(maxsize=16384)  # greedy methods repeat each other's texts, and one pair costs O(words squared)
def sentence_rouge_l(hypothesis: str, reference: str) -> float:
    """F-measure of the longest common subsequence of words, 0 to 1; 0 if either text has no word."""
    return float(_rouge_scorer().score(reference, hypothesis)["rougeL"].fmeasure)


def check_texts(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    """Raise ValueError unless both are equally long lists of texts.

    Refused are the slips a scoring library takes in silence: one string for a list of one, references
    grouped into sets, lists of unequal length.
    """
    for name, texts in (("hypotheses", hypotheses), ("references", references)):
        if isinstance(texts, str):
            raise ValueError(f"{name}: expected a list of texts, got the text {texts[:40]!r}")
        if not isinstance(texts, Sequence):  # a set has no order, a mapping's keys are no texts
            raise ValueError(f"{name}: expected a list of texts, got {type(texts).__name__}")
        for i, text in enumerate(texts):
            if not isinstance(text, str):
                raise ValueError(f"{name}[{i}]: expected a text, got {type(text).__name__} {str(text)[:40]}")
    if len(hypotheses) != len(references):
        raise ValueError(f"quality: {len(hypotheses)} hypotheses but {len(references)} references")


def quality(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    missing: int = 0,
    tokenize: str = "13a",
    with_chrf: bool = False,
) -> Quality:
    """All scores of paired texts; arguments and errors as for ``bleu``."""
    check_texts(hypotheses, references)
    return Quality(
        n=len(hypotheses),
        missing=missing,
        equal=sum(h == r for h, r in zip(hypotheses, references, strict=True)),
        bleu=bleu(hypotheses, references, tokenize),
        rouge_l=rouge_l(hypotheses, references),
        chrf=chrf(hypotheses, references) if with_chrf else None,
    )


def against_references(records: Sequence[Record], references: References, **options: Any) -> Quality:
    """The texts of one method against the references of their prompts.

    Args:
        records: of one method.
        references: by ``prompt_id``; None where a prompt has no reference, which is counted in ``missing``.
        options: ``tokenize`` and ``with_chrf`` of ``quality``.

    Raises:
        ValueError: for a prompt that ``references`` does not know, mixed methods or repeated requests.
    """
    check_real([row for batch in batches(records) for row in batch], "quality")
    pairs = [(record["text"], _reference(record, references)) for record in records]
    known = [(text, reference) for text, reference in pairs if reference is not None]
    return quality([h for h, _ in known], [r for _, r in known], missing=len(pairs) - len(known), **options)


def against_baseline(records: Sequence[Record], baseline: Sequence[Record], **options: Any) -> Quality:
    """The texts of one method against the baseline's of the same run, prompt and sample.

    Raises:
        ValueError: if the two do not cover the same requests.
    """
    theirs = _paired(records, baseline)
    return quality([r["text"] for r in records], [theirs[_key(r)]["text"] for r in records], **options)


def bleu_difference(
    records: Sequence[Record],
    baseline: Sequence[Record],
    references: References,
    tokenize: str = "13a",
    **bootstrap: Any,
) -> Estimate:
    """BLEU of ``records`` minus BLEU of ``baseline`` against the references, resampling prompts in pairs.

    Args:
        records: of one method.
        baseline: of another, covering the same requests.
        references: as for ``against_references``; prompts without one take no part.
        tokenize: as for ``bleu``.
        bootstrap: ``n``, ``seed`` and ``level`` of ``paired_bootstrap``.
    """

    def counts(text: str, reference: str) -> list[float]:
        return list(bleu_counts(text, reference, tokenize))

    table = _paired_table(records, baseline, references, counts)
    return paired_bootstrap(_bleu_gain, table, **bootstrap)


def rouge_l_difference(
    records: Sequence[Record], baseline: Sequence[Record], references: References, **bootstrap: Any
) -> Estimate:
    """Mean ROUGE-L of ``records`` minus that of ``baseline``; arguments as for ``bleu_difference``."""
    table = _paired_table(records, baseline, references, lambda text, reference: [sentence_rouge_l(text, reference), 1])
    return paired_bootstrap(lambda t: t[..., 0] / t[..., 1] - t[..., 2] / t[..., 3], table, **bootstrap)


def _paired_table(
    records: Sequence[Record],
    baseline: Sequence[Record],
    references: References,
    counts: Callable[[str, str], list[float]],
) -> Array:
    """[conversations, 2C]: ``counts`` of our texts and of the baseline's, added up over the turns of each."""
    theirs = _paired(records, baseline)
    rows: dict[str, Array] = {}
    unit = conversation_of(record["prompt_id"] for record in records)
    for record in records:
        reference = _reference(record, references)
        if reference is not None:
            row = np.array(counts(record["text"], reference) + counts(theirs[_key(record)]["text"], reference))
            own = unit[record["prompt_id"]]
            rows[own] = rows.get(own, 0) + row
    return np.array(list(rows.values()))


def _bleu_gain(totals: Array) -> Array:
    """[..., 2 x 10] -> [...], BLEU of the first half of the columns minus BLEU of the second."""
    compute = _library("sacrebleu").BLEU.compute_bleu
    flat = totals.reshape(-1, 2, _COLUMNS)
    scores = [
        [compute(list(c[:4]), list(c[4:8]), c[8], c[9], smooth_method="exp").score for c in pair]
        for pair in flat.astype(int)
    ]
    gain: Array = np.diff(np.array(scores)[:, ::-1], axis=1)
    return gain.reshape(totals.shape[:-1])


@lru_cache(maxsize=16384)
def bleu_counts(text: str, reference: str, tokenize: str) -> tuple[float, ...]:
    """What one text adds to a corpus's BLEU: matches and n-grams of orders 1 to 4, and both lengths."""
    score = _bleu_metric(tokenize, True).sentence_score(text, [reference])
    return (*score.counts, *score.totals, score.sys_len, score.ref_len)


@lru_cache(maxsize=8)
def _bleu_metric(tokenize: str, effective_order: bool = False) -> Any:
    """The metric object of sacrebleu."""
    if tokenize not in BLEU_TOKENIZERS:
        raise ValueError(f"bleu.tokenize: {tokenize!r} is not one of {', '.join(BLEU_TOKENIZERS)}")
    return _library("sacrebleu").BLEU(tokenize=tokenize, effective_order=effective_order)


@lru_cache(maxsize=8)
def _bleu_signature(tokenize: str) -> str:
    """Signature of corpus BLEU with one reference per text; sacrebleu knows it after a score."""
    metric = _bleu_metric(tokenize)
    metric.corpus_score(["a"], [["a"]])
    return str(metric.get_signature())


@lru_cache(maxsize=1)
def _rouge_scorer() -> Any:
    """rouge-score's scorer with our words."""
    return _library("rouge_score.rouge_scorer").RougeScorer(["rougeL"], tokenizer=WordSegments())


def _library(name: str) -> Any:
    """A scoring library, imported when first needed."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        package = {"sacrebleu": "sacrebleu"}.get(name, "rouge-score")
        raise ModuleNotFoundError(f"quality scores need {package}: pip install {package} ({error})") from error


def _paired(records: Sequence[Record], baseline: Sequence[Record]) -> dict[Any, Record]:
    """The baseline's record by request, after the check that both cover the same ones once."""
    check_paired(records, baseline)
    batches(records), batches(baseline)  # refuses mixed methods and repeated requests
    check_real([*records, *baseline], "quality")
    return {_key(record): record for record in baseline}


def _reference(record: Record, references: References) -> str | None:
    """Reference of a record's prompt."""
    if record["prompt_id"] not in references:
        raise ValueError(f"references: prompt {record['prompt_id']!r} is not among the {len(references)} known ones")
    return references[record["prompt_id"]]


def _key(record: Record) -> tuple[str, str, int]:
    """What identifies a request across methods."""
    return record["run_id"], record["prompt_id"], record["sample"]

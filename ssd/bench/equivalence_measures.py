"""The scores by which outputs are called equivalent: BLEU, ROUGE-L, task accuracy, log-probability, distinct n-grams.

Texts are compared with their prompt's reference where it has one, else with the baseline's text of another sample:
two independent outputs of one law, so an exact method scores on average what the baseline scores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from ssd.bench.acceptance import Record
from ssd.bench.dataset_formats import gsm8k_answer
from ssd.bench.equivalence import Measure, by_key
from ssd.bench.quality import References, bleu_counts, sentence_rouge_l
from ssd.bench.statistics import Array, ratio_of_totals

BLEU, ROUGE_L, ACCURACY = "BLEU", "ROUGE-L", "task accuracy"
LOG_PROBABILITY, DISTINCT = "log-probability", "distinct 2-grams"
# Log-probability first: it is the one whose control is found with few prompts.
UNITS = {LOG_PROBABILITY: "nats/token", DISTINCT: "share", BLEU: "points", ROUGE_L: "F-measure", ACCURACY: "share"}
MATH = "math"

LogProbabilities = Mapping[tuple[str, str, str, int], tuple[float, int]]  # by run, method, prompt, sample


class Texts:
    """What each output is compared with.

    Args:
        baseline: records of the target alone, one temperature.
        references: by ``prompt_id``; None or absent for a prompt without one.
        tokenize: BLEU's, see ``ssd.bench.quality``.
    """

    def __init__(self, baseline: Sequence[Record], references: References, tokenize: str = "13a") -> None:
        self.references, self.tokenize = references, tokenize
        self._baseline = by_key(baseline)
        # Greedy texts of one prompt are one text, not independent samples.
        self._greedy = any(record["sampling"]["temperature"] == 0 for record in baseline)
        self._samples: dict[str, list[int]] = {}
        for prompt, sample in self._baseline:
            self._samples.setdefault(prompt, []).append(sample)

    def other(self, record: Record) -> str | None:
        """The text that a record's is compared with; None where there is none."""
        if (reference := self.references.get(record["prompt_id"])) is not None:
            return reference
        samples = sorted(self._samples.get(record["prompt_id"], ()))
        if self._greedy or len(samples) < 2 or record["sample"] not in samples:
            return None
        following = samples[(samples.index(record["sample"]) + 1) % len(samples)]
        return str(self._baseline[record["prompt_id"], following]["text"])

    def answer(self, record: Record) -> str | None:
        """The final number of a maths problem's reference."""
        reference = self.references.get(record["prompt_id"]) if record["task"] == MATH else None
        return None if reference is None else gsm8k_answer(reference)

    @property
    def against(self) -> str:
        """How many prompts are compared with what, in words."""
        prompts = list(self._samples)
        given = sum(self.references.get(prompt) is not None for prompt in prompts)
        able = 0 if self._greedy else sum(len(samples) > 1 for samples in self._samples.values())
        drawn = min(len(prompts) - given, able)
        parts = [f"{given} prompts against their reference"] if given else []
        parts += [f"{drawn} against the target's text of another sample"] if drawn else []
        return ", ".join(parts)


def measures(
    texts: Texts, margins: Mapping[str, float], log_probabilities: LogProbabilities | None = None
) -> list[Measure]:
    """Those of ``margins``, in the order of ``UNITS``; log-probability only where it is known.

    Raises:
        ValueError: naming a margin for no measure, or one that is not above 0.
    """
    check_margins(margins)

    def bleu(record: Record) -> Sequence[float] | None:
        other = texts.other(record)
        return None if other is None else bleu_counts(record["text"], other, texts.tokenize)

    def rouge(record: Record) -> Sequence[float] | None:
        other = texts.other(record)
        return None if other is None else (sentence_rouge_l(record["text"], other), 1)

    def accuracy(record: Record) -> Sequence[float] | None:
        answer = texts.answer(record)
        return None if answer is None else (gsm8k_answer(record["text"]) == answer, 1)

    def log_probability(record: Record) -> Sequence[float] | None:
        key = (record["run_id"], record["method"], record["prompt_id"], record["sample"])
        return (log_probabilities or {}).get(key)

    known = {
        LOG_PROBABILITY: (log_probability, ratio_of_totals, ""),
        DISTINCT: (distinct, ratio_of_totals, ""),
        BLEU: (bleu, pooled_bleu, texts.against),
        ROUGE_L: (rouge, ratio_of_totals, texts.against),
        ACCURACY: (accuracy, ratio_of_totals, "the last number of the reference"),
    }
    chosen = [name for name in UNITS if name in margins and (name != LOG_PROBABILITY or log_probabilities)]
    return [
        Measure(name, UNITS[name], margins[name], against, columns, score)
        for name in chosen
        for columns, score, against in [known[name]]
    ]


def check_margins(margins: Mapping[str, float]) -> None:
    """Raise ValueError naming a margin for no measure, or one that is not a number above 0; for no margin at all."""
    if not margins:
        raise ValueError(f"margins: expected some of {', '.join(UNITS)}")
    for name, margin in margins.items():
        if name not in UNITS:
            raise ValueError(f"margins.{name}: unknown; known are {', '.join(UNITS)}")
        if isinstance(margin, bool) or not isinstance(margin, int | float) or not margin > 0:
            raise ValueError(f"margins.{name}: expected a number above 0, got {margin!r}")


def distinct(record: Record) -> Sequence[float]:
    """(distinct 2-grams of an output, 2-grams of it)."""
    ids = record["output_ids"]
    grams = list(pairwise(ids))
    return len(set(grams)), len(grams)


def pooled_bleu(totals: Array) -> Array:
    """Corpus BLEU, 0 to 100, of added-up counts [..., 10] -> [...], smoothed as sacrebleu's default does.

    Columns are matches and n-grams of orders 1 to 4, length and reference length. The k-th order without a match
    counts as 1 / 2^k matches.
    """
    matches, grams, length, reference = totals[..., :4], totals[..., 4:8], totals[..., 8], totals[..., 9]
    whole = (grams > 0).all(-1) & (matches > 0).any(-1)
    smoothed = np.where(matches > 0, matches, 0.5 ** np.cumsum(matches == 0, axis=-1))
    precision = np.divide(smoothed, grams, out=np.ones_like(smoothed), where=grams > 0)
    short = np.divide(reference, length, out=np.ones_like(length), where=length > 0)
    score: Array = 100 * np.exp(np.log(precision).mean(-1) + np.minimum(0.0, 1 - short))
    return np.where(whole, score, 0.0)

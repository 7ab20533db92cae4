"""Scores of texts against values known from the libraries, and the slips libraries take in silence."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.quality_rows import (
    QUALITY_COLUMNS,
    REPETITION_COLUMNS,
    quality_rows,
    quality_summary,
    repetition_rows,
)
from analysis.table import format_table
from ssd.bench.quality import (
    against_baseline,
    against_references,
    bleu,
    bleu_difference,
    chrf,
    quality,
    rouge_l,
    rouge_l_difference,
    sentence_bleu,
    sentence_rouge_l,
)
from ssd.bench.word_segments import WordSegments
from tests.scripted_records import record, scripted

pytest.importorskip("sacrebleu")
pytest.importorskip("rouge_score")

HYPOTHESES = ["The dog bit the man.", "It wasn't surprising.", "The man had just bitten him."]
REFERENCES = ["The dog bit the man.", "It was not unexpected.", "The man bit him first."]
FIVE = "one two three four five"


def said(prompt, text, method="spec", task="translation", **fields):
    made = record(prompt, method, **fields)
    return {**made, "text": text, "task": task}


def test_bleu_pairs_texts_one_by_one():
    """B42: 45.07; references grouped the wrong way would give 100, a flat list 0."""
    score = bleu(HYPOTHESES, REFERENCES)
    assert score.value == pytest.approx(45.07, abs=0.005)
    assert score.signature.startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    order = [2, 0, 1]
    assert bleu([HYPOTHESES[i] for i in order], [REFERENCES[i] for i in order]).value == score.value


def test_short_and_empty_texts_stay_in_the_score():
    """B42: 36.79 with one of two emptied, 0 for all empty and for identical three-word texts."""
    assert bleu(["", FIVE], [FIVE, FIVE]).value == pytest.approx(36.79, abs=0.005)
    empty = quality(["", ""], [FIVE, FIVE])
    assert (empty.n, empty.bleu.value, empty.rouge_l.value, empty.exact_share) == (2, 0.0, 0.0, 0.0)
    short = quality(["one two three"], ["one two three"])
    assert (short.bleu.value, short.rouge_l.value, short.exact_share) == (0.0, 1.0, 1.0)
    assert quality(["", ""], ["", ""]).exact_share == 1.0
    nothing = quality([], [], with_chrf=True)
    assert (nothing.n, nothing.exact_share) == (0, None)
    assert [s.value for s in (nothing.bleu, nothing.rouge_l, nothing.chrf)] == [None, None, None]
    assert nothing.bleu.signature == bleu(HYPOTHESES, REFERENCES).signature


@pytest.mark.parametrize(
    ("hypotheses", "references", "words"),
    [
        (HYPOTHESES, REFERENCES[:2], "3 hypotheses but 2 references"),
        (HYPOTHESES, [REFERENCES], r"references\[0\]: expected a text, got list"),
        (HYPOTHESES[:1], REFERENCES[0], "references: expected a list of texts"),
        ("abc", REFERENCES, "hypotheses: expected a list"),
        (HYPOTHESES, [*REFERENCES[:2], None], r"references\[2\]: expected a text, got NoneType"),
    ],
)
@pytest.mark.parametrize("score", [bleu, chrf, rouge_l, quality])
def test_lists_that_do_not_pair_up(score, hypotheses, references, words):
    """B42: the libraries score all of these without a word."""
    with pytest.raises(ValueError, match=words):
        score(hypotheses, references)


def test_sentence_scores_use_the_effective_order():
    assert sentence_bleu("one two three", "one two three") == pytest.approx(100)
    assert sentence_bleu("", FIVE) == 0
    assert sentence_rouge_l("a b c d", "a c") == pytest.approx(2 / 3)  # precision 1/2, recall 1


def test_tokenizers_that_need_no_download():
    assert bleu(["你好世界"], ["你好世界"], "zh").value == pytest.approx(100)
    assert "tok:zh" in bleu(["你好"], ["你好"], "zh").signature
    with pytest.raises(ValueError, match="tokenize: 'flores200' is not one of"):
        bleu(["a"], ["a"], "flores200")


def test_chrf_is_there_when_asked_for():
    scores = quality(HYPOTHESES, REFERENCES, with_chrf=True)
    assert scores.chrf == chrf(HYPOTHESES, REFERENCES)
    assert scores.chrf.signature.startswith("nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:")
    assert quality(HYPOTHESES, REFERENCES).chrf is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Don't foo_bar, 3.5!", ["don", "t", "foo", "bar", "3", "5"]),
        ("Größe STRASSE Straße", ["grösse", "strasse", "strasse"]),
        ("Привет, мир!", ["привет", "мир"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("日本語はABC", ["日", "本", "語", "は", "abc"]),
        ("東京ﾀﾜー", ["東", "京", "タ", "ワ", "ー"]),
        ("한국어 문장", ["한국어", "문장"]),
        ("ภาษา ไทย", ["ภ", "า", "ษ", "า", "ไ", "ท", "ย"]),
        ("ที่นี่", ["ที่", "นี่"]),
        ("cafe\u0301 café", ["café", "café"]),
        ("\uff26\uff55\uff4c\uff4c ﬁne", ["full", "fine"]),
        (
            "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 a\u200bb",
            ["\u0645\u06cc\u062e\u0648\u0627\u0647\u0645", "a", "b"],
        ),
        ("\u0301x 🙂 --", ["\u0301x"]),
        ("", []),
    ],
)
def test_words_of_any_script(text, words):
    assert WordSegments().tokenize(text) == words


@given(st.text(st.characters(max_codepoint=127)))
def test_ascii_words_are_those_of_the_library(text):
    from rouge_score.tokenize import tokenize

    assert WordSegments().tokenize(text) == tokenize(text, None)


def test_rouge_l_sees_texts_the_library_alone_does_not():
    from rouge_score.rouge_scorer import RougeScorer

    assert RougeScorer(["rougeL"]).score("Привет мир", "Привет мир")["rougeL"].fmeasure == 0
    assert rouge_l(["Привет мир"], ["Привет, мир!"]).value == 1.0
    assert rouge_l(["猫坐下"], ["猫坐"]).value == pytest.approx(0.8)
    own = rouge_l(HYPOTHESES, REFERENCES)
    theirs = [
        RougeScorer(["rougeL"]).score(r, h)["rougeL"].fmeasure for h, r in zip(HYPOTHESES, REFERENCES, strict=True)
    ]
    assert own.value == pytest.approx(sum(theirs) / 3)
    assert own.signature.startswith("rougeL|fmeasure|agg:mean|tok:unicode-words|stem:no|version:")


def test_outputs_without_a_reference_are_counted():
    records = [said("a", FIVE), said("b", ""), said("c", "free text")]
    scores = against_references(records, {"a": FIVE, "b": FIVE, "c": None})
    assert (scores.n, scores.missing, scores.equal, scores.exact_share) == (2, 1, 1, 0.5)
    assert scores.bleu.value == pytest.approx(36.79, abs=0.005)
    with pytest.raises(ValueError, match="prompt 'c' is not among the 1 known"):
        against_references(records[2:], {"a": FIVE})
    with pytest.raises(ValueError, match="mixed"):
        against_references([said("a", ""), said("a", "", "ar")], {"a": ""})
    with pytest.raises(ValueError, match="expected a text, got NoneType"):
        against_references([said("a", None)], {"a": FIVE})


def test_the_baselines_text_is_found_by_prompt_and_sample():
    ar = [said("a", FIVE, "ar"), said("a", "other words here now", "ar", sample=1)]
    ours = [said("a", "other words here now", sample=1), said("a", FIVE)]
    scores = against_baseline(ours, ar)
    assert (scores.n, scores.exact_share, scores.rouge_l.value) == (2, 1.0, 1.0)
    assert scores.bleu.value == pytest.approx(100)
    with pytest.raises(ValueError, match="only the baseline has 1"):
        against_baseline(ours[:1], ar)


def test_differences_are_of_corpus_scores_with_paired_intervals():
    prompts = [f"p{i}" for i in range(6)]
    texts = dict(zip(prompts, [*HYPOTHESES, FIVE, "", "one two"], strict=True))
    references = dict(zip(prompts, [*REFERENCES, FIVE, FIVE, "one three"], strict=True))
    ar = [said(p, REFERENCES[0], "ar") for p in prompts]
    ours = [said(p, texts[p]) for p in prompts]
    gain = bleu_difference(ours, ar, references, n=200)
    wanted = against_references(ours, references).bleu.value - against_references(ar, references).bleu.value
    assert gain.value == pytest.approx(wanted)
    assert gain.low < gain.value < gain.high
    assert gain.n == 6
    words = rouge_l_difference(ours, ar, references, n=200)
    assert words.value == pytest.approx(
        against_references(ours, references).rouge_l.value - against_references(ar, references).rouge_l.value
    )
    same = bleu_difference([{**r, "method": "spec"} for r in ar], ar, references, n=50)
    assert same[:3] == (0.0, 0.0, 0.0)  # the same texts: no difference in any resample
    assert bleu_difference(ours, ar, dict.fromkeys(prompts))[::3] == (None, 0)
    samples = [said("p0", FIVE, m, sample=s) for m in ("ar", "spec") for s in range(3)]
    assert bleu_difference(samples[3:], samples[:3], references).n == 1  # samples of a prompt are one unit


def test_rows_per_task_say_what_they_compare():
    records = [
        said(p, text, method, task)
        for method in ("ar", "spec")
        for p, text, task in (("a", FIVE, "translation"), ("b", "x", "translation"), ("c", "free", "long_form"))
    ]
    references = {"a": FIVE, "b": FIVE, "c": None}
    rows = quality_rows(records, references)
    assert [(r["method"], r["task"], r["against"], r["n"], r["missing"]) for r in rows] == [
        ("ar", "translation", "reference", 2, 0),
        ("ar", "long_form", "reference", 0, 1),
        ("spec", "translation", "reference", 2, 0),
        ("spec", "translation", "ar", 2, 0),
        ("spec", "long_form", "reference", 0, 1),
        ("spec", "long_form", "ar", 1, 0),
    ]
    assert rows[2]["bleu_gain"] == 0
    assert all("nrefs:1" in r["bleu_signature"] for r in rows)
    text = format_table(rows, QUALITY_COLUMNS).splitlines()
    assert len(text) == 8
    summary = {row.name: row for row in quality_summary("T0", records, references)}
    assert summary["T0/spec/translation/exact_share"].value == 0.5
    assert summary["T0/spec/translation/bleu"].unit == rows[0]["bleu_signature"]
    assert summary["T0/spec/translation/bleu_gain"].n == 2
    assert summary["T0/spec/long_form/exact_share_vs_ar"].value == 1.0
    assert "T0/ar/translation/bleu_gain" not in summary
    assert "T0/spec/long_form/bleu" not in summary
    warm = [said("a", FIVE, temperature=1.0)]
    with pytest.raises(ValueError, match="temperatures"):
        quality_summary("T", records + warm, references)
    assert quality_rows(warm, references)[0]["bleu_gain"] is None


def test_repetition_stands_beside_acceptance():
    records = [record("a", "spec", ids=[7, 8] * 6, rounds=scripted(3, (3, 3, 3)), prompt_tokens=10)]
    records += [record("a", "ar", ids=range(12), prompt_tokens=10)]
    rows = repetition_rows(records, bins=(0, 8, 64))
    assert [(r["method"], r["tokens_from"], r["outputs"], r["tokens"]) for r in rows] == [
        ("spec", "0-8", 0, 8),
        ("spec", "8-64", 1, 4),
        ("spec", "64+", 0, 0),
        ("ar", "0-8", 0, 8),
        ("ar", "8-64", 1, 4),
        ("ar", "64+", 0, 0),
    ]
    assert [r["ngram_acceptance"] for r in rows] == [5 / 8, 1.0, None, 0.0, 0.0, None]
    assert [r["distinct_4"] for r in rows] == [None, 2 / 9, None, None, 1.0, None]
    assert [r["alpha"] for r in rows] == [1.0, 1.0, None, None, None, None]
    assert len(format_table(rows, REPETITION_COLUMNS).splitlines()) == 8


def test_scores_tables_and_frames_need_no_torch():
    pytest.importorskip("pandas")
    modules = (
        "quality, ssd.bench.repetition, ssd.bench.intervals, ssd.bench.memory, analysis.quality_rows, analysis.frames"
    )
    code = (
        f"import sys, ssd.bench.{modules}; from ssd.bench.quality import quality; "
        "assert quality(['a b'], ['a b']).exact_share == 1; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

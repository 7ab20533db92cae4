"""Nothing that measures is used to train or to calibrate."""

from __future__ import annotations

from collections import Counter

import pytest

from ssd.bench.dataset_splits import PURPOSES, assert_disjoint, check_use, normalised, split_of
from ssd.bench.datasets import DatasetSpec, load
from ssd.bench.prompts import SPLITS, Prompt


def hub(split: str, **fields: str) -> DatasetSpec:
    return DatasetSpec("hub", repo="org/set", split=split, fields={"turns": "{q}", "task": "math", **fields})


def prompt(name: str, text: str, **extra: str) -> Prompt:
    return Prompt(name, "math", "test", (text,), None, extra)


def test_the_split_of_a_text_never_changes():
    # Fixed values: another rule would move texts that were measured on into training.
    texts = [f"Text number {n}." for n in range(10)]
    assert [split_of(text)[0] for text in texts] == list("ttetttttte")


def test_spelling_does_not_move_a_text():
    for text in ("  text  NUMBER 2", "Text\nnumber \uff12!", "\u201eText number 2\u201c"):
        assert normalised(text) == "text number 2"
        assert split_of(text) == split_of("Text number 2.")
    assert normalised("+ -  *") == "+ - *" != normalised("+ - /")


def test_the_shares_are_about_seven_one_and_two():
    counts = Counter(split_of(f"key {n}") for n in range(5000))
    assert list(counts) != []
    for purpose, share in zip(PURPOSES, (0.7, 0.1, 0.2), strict=True):
        assert abs(counts[purpose] / 5000 - share) < 0.02


@pytest.mark.parametrize(
    ("spec", "purpose"),
    [
        (DatasetSpec("bundled", split="tune"), "calibrate"),
        (DatasetSpec("bundled", split="measure"), "evaluate"),
        (DatasetSpec("bundled", split="extended"), "evaluate"),
        (DatasetSpec("bundled"), "evaluate"),
        (DatasetSpec("spec_bench"), "evaluate"),
        (DatasetSpec("human_eval"), "evaluate"),
        (DatasetSpec("gsm8k"), "evaluate"),
        (DatasetSpec("gsm8k", split="train"), "train"),
        (hub("train"), "train"),
        (hub("train", use="evaluate"), "evaluate"),
        (hub("validation"), "calibrate"),
        (hub("test"), "evaluate"),
        (hub("prompt"), "evaluate"),
        (DatasetSpec("docs_translation", repo="gnome-user-docs", config="en-de"), "evaluate"),
        (DatasetSpec("docs_summarization", repo="gnome-user-docs", split="train"), "train"),
    ],
)
def test_every_set_has_one_purpose(spec, purpose):
    assert spec.purpose == purpose
    check_use(spec, purpose)
    for other in set(PURPOSES) - {purpose}:
        with pytest.raises(ValueError, match=f"is for '{purpose}' and must not be used for '{other}'"):
            check_use(spec, other)


def test_a_file_cannot_loosen_the_purpose_of_a_split():
    with pytest.raises(ValueError, match=r"fields\.use: 'train' would loosen split 'test'"):
        check_use(hub("test", use="train"), "train")
    with pytest.raises(ValueError, match="purpose: 'fun' is not one of"):
        check_use(hub("test"), "fun")


def test_what_settings_were_chosen_on_is_only_read_when_asked_for():
    everything = load(DatasetSpec("bundled"))
    assert Counter(p.split for p in everything) == {"measure": 24, "extended": 30}
    assert_disjoint(load(DatasetSpec("bundled", split="tune")), everything)


def test_shared_texts_are_found_however_they_are_asked():
    first = [prompt("a", "What is 2 + 2?"), prompt("b", "Summarize: The cat sat.", source="The cat sat.")]
    assert_disjoint(first, [prompt("c", "What is 2 + 3?"), prompt("d", "The cat ran.")])
    with pytest.raises(ValueError, match=r"splits: 1 texts are in both sets: a and c$"):
        assert_disjoint(first, [prompt("c", "what is 2 +  2")])
    with pytest.raises(ValueError, match=r"b and c"):
        assert_disjoint(first, [prompt("c", "Shorten this: the cat sat", source="the cat sat")])
    with pytest.raises(ValueError, match=r"splits: 4 texts .* \.\.\.$"):
        assert_disjoint(first, [prompt(str(n), "What is 2 + 2?") for n in range(4)])


def test_the_bundled_splits_are_disjoint():
    parts = {split: load(DatasetSpec("bundled", split=split)) for split in SPLITS}
    for split in SPLITS:
        for other in set(SPLITS) - {split}:
            assert_disjoint(parts[split], parts[other])

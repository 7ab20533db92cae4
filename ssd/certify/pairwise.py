"""A seeded sample of decoder settings that covers every pair of values of two factors."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from itertools import combinations, product
from typing import Any

from transformers import NoRepeatNGramLogitsProcessor

from ssd.certify.cases import SCHEDULES, Case, DraftLevel, vocabulary, whole_history
from ssd.certify.schedules import WORKERS
from ssd.core.chain import VERIFICATIONS, WINDOWS, Edge
from ssd.core.requests import Override, Request, Sampling

Value = int | str
Values = dict[str, Value | None]  # factor -> value; None where the depth leaves it no level
Pair = tuple[tuple[str, Value], tuple[str, Value]]

DRAFTS = range(3)  # levels that draft, at the greatest depth
FACTORS: dict[str, tuple[Value, ...]] = {
    "depth": (0, 1, 2, 3),
    "rows": (1, 2, 3),
    "temperature": ("zero", "positive", "mixed"),
    "filters": ("none", "top_k", "top_p", "min_p", "all"),
    **{f"gamma {k}": (1, 2, 3, 4, 5, 6) for k in DRAFTS},
    **{f"window {k}": WINDOWS for k in DRAFTS},
    **{f"outputs {k}": ("same", "unsorted map", "smaller", "larger", *["ngram"][k:]) for k in DRAFTS},
    **{f"own {k}": ("inherits", "temperature", "greedy", "filters") for k in DRAFTS},
    **{f"context {k}": ("long", "short") for k in DRAFTS},
    **{f"verification {k}": VERIFICATIONS for k in DRAFTS},
    "processors": ("none", "penalties", "words", "own"),
    "end": ("length", "eos", "stop"),
    "target": ("long", "tight"),
}
PIPELINED: dict[str, tuple[Value, ...]] = {"schedule": SCHEDULES, "workers": WORKERS}
"""More factors, where levels need not all take turns."""


def level_of(factor: str) -> int:
    """The draft level a factor belongs to, -1 for factors of the whole."""
    return int(factor[-1]) if factor[-1].isdigit() else -1


def possible(values: Mapping[str, Value | None]) -> bool:
    """Whether some configuration has all these values (of two factors, or of all)."""
    depth = values.get("depth", len(DRAFTS))
    assert isinstance(depth, int)
    if any(level_of(f) >= depth for f, v in values.items() if v is not None):
        return False
    if values.get("rows") == 1 and values.get("temperature") == "mixed":
        return False
    if values.get("schedule", "serial") != "serial" and depth - (values.get("outputs 0") == "ngram") < 1:
        return False  # nothing could be drafted ahead
    looked_up = values.get("outputs 0") == "ngram"  # it has no settings and no positions
    return not (
        looked_up and (values.get("own 0", "inherits"), values.get("context 0", "long")) != ("inherits", "long")
    )


def pairs(values: Values) -> Iterator[Pair]:
    """All pairs of a configuration's values."""
    return combinations(((f, v) for f, v in values.items() if v is not None), 2)


def factors(pipelined: bool) -> dict[str, tuple[Value, ...]]:
    """``FACTORS``, with ``PIPELINED`` or without."""
    return FACTORS | PIPELINED if pipelined else FACTORS


def required(among: Mapping[str, tuple[Value, ...]] = FACTORS) -> list[Pair]:
    """Every pair of values of two factors that some configuration has."""
    return [
        ((f, v), (g, w))
        for f, g in combinations(among, 2)
        for v, w in product(among[f], among[g])
        if possible({f: v, g: w})
    ]


def random_configuration(
    source: random.Random, pinned: Mapping[str, Value], among: Mapping[str, tuple[Value, ...]] = FACTORS
) -> Values:
    """A configuration with the pinned values."""
    while True:
        values: Values = {**{f: source.choice(options) for f, options in among.items()}, **pinned}
        depth = values["depth"]
        assert isinstance(depth, int)
        for f in among:
            if level_of(f) >= depth and f not in pinned:
                values[f] = None
        if values["outputs 0"] == "ngram" and not {"own 0", "context 0"} & {*pinned}:
            values |= {"own 0": "inherits", "context 0": "long"}
        if possible(values):
            return values


def sample(size: int, seed: int = 0, pipelined: bool = False) -> list[Values]:
    """At least ``size`` configurations: a greedy cover of all pairs, filled up at random.

    Args:
        pipelined: whether ``PIPELINED`` are among the factors; else every schedule is serial.
    """
    among = factors(pipelined)
    source, missing = random.Random(seed), dict.fromkeys(required(among))
    chosen: list[Values] = []
    while missing or len(chosen) < size:
        pinned = dict(source.choice(list(missing))) if missing else {}
        tries = [random_configuration(source, pinned, among) for _ in range(8 if missing else 1)]
        best = max(tries, key=lambda values: sum(p in missing for p in pairs(values)))
        chosen.append(best)
        for pair in pairs(best):
            missing.pop(pair, None)
    return chosen


FILTERS: dict[str, dict[str, Any]] = {
    "none": {}, "top_k": {"top_k": 8}, "top_p": {"top_p": 0.9}, "min_p": {"min_p": 0.05},
    "all": {"top_k": 20, "top_p": 0.95, "min_p": 0.02},
}  # fmt: skip
OWN = {
    "inherits": Override(), "temperature": Override(temperature=1.4), "greedy": Override(temperature=0.0),
    "filters": Override(temperature=0.8, top_k=3, top_p=0.9),
}  # fmt: skip
PROCESSED: dict[str, dict[str, Any]] = {
    "none": {}, "own": {},
    "penalties": {"repetition_penalty": 1.3, "frequency_penalty": 0.4, "presence_penalty": -0.3},
    "words": {"bad_words_ids": ((3,), (1, 2)), "logit_bias": ((0, 1.0), (4, -2.5)), "min_new_tokens": 4},
}  # fmt: skip
SHORT = 11  # positions of a draft with a short context; prompts and outputs together are often longer
NEW_TOKENS = {"tables": (8, 14), "llama": (5, 9), "gpt2": (5, 9)}  # least and most; passes of models take time


def case_of(values: Values, index: int, model: str) -> Case:
    """A case with these values; what they leave open is drawn with ``index`` as the seed."""
    source = random.Random(index)
    depth = values["depth"]
    assert isinstance(depth, int)
    drafts = tuple(_draft(values, k, source) for k in range(depth))
    requests = tuple(_requests(values, source, model))
    return Case(model, drafts, requests, source.randrange(2), values["target"] == "tight", *_schedule(values))


def _schedule(values: Values) -> tuple[str, str]:
    return str(values.get("schedule", "serial")), str(values.get("workers", WORKERS[0]))


def _draft(values: Values, k: int, source: random.Random) -> DraftLevel:
    gamma, window, rule = (values[f"{name} {k}"] for name in ("gamma", "window", "verification"))
    sure = source.choice([0.4, 0.7])
    edge = Edge(int(gamma or 0), str(window), sure if window == "confidence" else None, str(rule))
    short = SHORT if values[f"context {k}"] == "short" else None
    return DraftLevel(edge, str(values[f"outputs {k}"]), OWN[str(values[f"own {k}"])], short)


def _requests(values: Values, source: random.Random, model: str) -> Iterator[Request]:
    """Rows of unequal prompts and lengths; the first has the configuration's filters and processors."""
    rows, vocab = int(values["rows"] or 0), vocabulary(model)
    warm = [0.0 if values["temperature"] == "zero" else source.choice([0.7, 1.0, 1.3]) for _ in range(rows)]
    if values["temperature"] == "mixed":
        warm[source.randrange(rows)] = 0.0
    for i, length in enumerate(source.sample(range(1, 10), rows)):
        filters = str(values["filters"]) if i == 0 else source.choice([*FILTERS])
        processors = str(values["processors"]) if i == 0 else source.choice([*PROCESSED])
        own = (whole_history, NoRepeatNGramLogitsProcessor(3)) if processors == "own" else ()
        ends = source.sample(range(vocab), vocab // 6)
        yield Request(
            prompt(length, vocab),
            Sampling(warm[i], **FILTERS[filters], **PROCESSED[processors]),
            seed=source.randrange(3),
            max_new_tokens=source.randint(*NEW_TOKENS[model]),
            eos_ids=tuple(ends) if values["end"] == "eos" else (),
            stop=tuple(f" {token} " for token in ends[:3]) if values["end"] == "stop" else (),
            processors=own,
        )


def prompt(length: int, vocab: int) -> tuple[int, ...]:
    """Always the same prompt of a length: four ids in random order, so that a look-up finds something."""
    source = random.Random(length)
    few = [source.randrange(vocab) for _ in range(4)]
    return tuple(source.choice(few) for _ in range(length))

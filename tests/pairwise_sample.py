"""A seeded sample of decoder settings that covers every pair of values of two factors."""

from __future__ import annotations

import random
from itertools import combinations, product

from ssd.core.chain import WINDOWS

DRAFTS = range(3)  # levels that draft, at the greatest depth
FACTORS = {
    "depth": (0, 1, 2, 3),
    "rows": (1, 2, 3),
    "temperature": ("zero", "positive", "mixed"),
    "filters": ("none", "top_k", "top_p", "min_p", "all"),
    **{f"gamma {k}": (1, 2, 3, 4, 5, 6) for k in DRAFTS},
    **{f"window {k}": WINDOWS for k in DRAFTS},
    **{f"outputs {k}": ("same", "unsorted map", "smaller", "larger", *["ngram"][k:]) for k in DRAFTS},
    **{f"own {k}": ("inherits", "temperature", "greedy", "filters") for k in DRAFTS},
    **{f"context {k}": ("long", "short") for k in DRAFTS},
}


def level_of(factor):
    """The draft level a factor belongs to, -1 for factors of the whole."""
    return int(factor[-1]) if factor[-1].isdigit() else -1


def possible(values):
    """Whether some configuration has all these values (of two factors, or of all)."""
    depth = values.get("depth", len(DRAFTS))
    if any(level_of(f) >= depth for f, v in values.items() if v is not None):
        return False
    if values.get("rows") == 1 and values.get("temperature") == "mixed":
        return False
    looked_up = values.get("outputs 0") == "ngram"  # it has no settings and no positions
    return not (
        looked_up and (values.get("own 0", "inherits"), values.get("context 0", "long")) != ("inherits", "long")
    )


def pairs(values):
    """All pairs of a configuration's values."""
    return combinations(((f, v) for f, v in values.items() if v is not None), 2)


def required():
    """Every pair of values of two factors that some configuration has."""
    return [
        ((f, v), (g, w))
        for f, g in combinations(FACTORS, 2)
        for v, w in product(FACTORS[f], FACTORS[g])
        if possible({f: v, g: w})
    ]


def random_configuration(source, pinned):
    """A configuration with the pinned values."""
    while True:
        values = {f: source.choice(options) for f, options in FACTORS.items()} | pinned
        for f in FACTORS:
            if level_of(f) >= values["depth"] and f not in pinned:
                values[f] = None
        if values["outputs 0"] == "ngram" and not {"own 0", "context 0"} & {*pinned}:
            values |= {"own 0": "inherits", "context 0": "long"}
        if possible(values):
            return values


def sample(size, seed=0):
    """Greedy cover of all pairs, filled up at random."""
    source, missing, chosen = random.Random(seed), dict.fromkeys(required()), []
    while missing or len(chosen) < size:
        pinned = dict(source.choice(list(missing))) if missing else {}
        tries = [random_configuration(source, pinned) for _ in range(8 if missing else 1)]
        best = max(tries, key=lambda values: sum(p in missing for p in pairs(values)))
        chosen.append(best)
        for pair in pairs(best):
            missing.pop(pair, None)
    return chosen

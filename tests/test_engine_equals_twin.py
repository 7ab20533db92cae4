"""The decoder equals its slow twin token for token, over a sample that covers every pair of settings.

Each configuration runs twice: on tiny random Llamas in float64, and on tables keyed by the whole
prefix. The twin has neither cache nor batch; it gets one row at a time.
"""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache
from itertools import combinations, product

import pytest
import torch
from pairwise_sample import FACTORS, level_of, pairs, possible, required, sample
from random_models import VOCAB, near, tiny_llama, twin_level, with_draft_vocabulary
from table_models import TableScorer, blended, hashed

from ssd.core import decode, verification
from ssd.core import randomness as rng
from ssd.core.chain import Chain, Edge, Level
from ssd.core.generate import generate
from ssd.core.model import CachedModel
from ssd.core.ngram import Ngram
from ssd.core.reference import Twin
from ssd.core.requests import Override, Request, Round, Sampling
from ssd.core.sampling import LevelSampling

SIZE, CHUNKS = 300, 10
SHORT = 14  # positions of a draft with a short context; prompts and outputs together are longer

FILTERS = {
    "none": {}, "top_k": {"top_k": 8}, "top_p": {"top_p": 0.9}, "min_p": {"min_p": 0.05},
    "all": {"top_k": 20, "top_p": 0.95, "min_p": 0.02},
}  # fmt: skip
OWN = {
    "inherits": Override(), "temperature": Override(temperature=1.4), "greedy": Override(temperature=0.0),
    "filters": Override(temperature=0.8, top_k=3, top_p=0.9),
}  # fmt: skip


CONFIGURATIONS = sample(SIZE)


def test_the_sample_covers_every_pair_of_values():
    assert len(CONFIGURATIONS) == SIZE
    assert all(possible(c) for c in CONFIGURATIONS)
    seen = {pair for c in CONFIGURATIONS for pair in pairs(c)}
    assert seen >= {*required()}
    # The rule for pairs asks for nothing less than the factors promise.
    deepest = {f: v for f, v in FACTORS.items() if level_of(f) == 2 or f in ("rows", "filters")}
    for f, g in combinations(deepest, 2):
        assert all(((f, v), (g, w)) in seen for v, w in product(FACTORS[f], FACTORS[g]))


# --- levels from settings ---------------------------------------------------------------------

MAP = random.Random(0).sample(range(VOCAB), 40)
TABLE_MAP, TABLE_VOCAB, TABLE_SIZES = (4, 0, 5, 2), 6, {"same": 6, "smaller": 4, "larger": 8}


@cache
def module(k, outputs):
    """The Llama of draft level k, or the target for k None; drafts are noisy copies of the target."""
    if k is None:
        return tiny_llama(0)
    vocab = {"smaller": 48, "larger": 72}.get(outputs, VOCAB)
    draft = near(module(None, "same"), 0.06 - 0.015 * k, 10 + k, vocab=vocab)
    return with_draft_vocabulary(draft, MAP) if outputs == "unsorted map" else draft


@cache
def table(k, outputs):
    """The same as tables over up to 8 ids."""
    target = hashed("target", 8, 2.0)
    if k is None:
        return lambda prefix: target(prefix)[:TABLE_VOCAB]
    wide = blended(target, hashed(f"draft {k}", 8, 2.0), 0.6 + 0.1 * k)
    if outputs == "unsorted map":
        return lambda prefix: tuple(wide(prefix)[i] for i in TABLE_MAP)
    return lambda prefix: wide(prefix)[: TABLE_SIZES[outputs]]


def level(c, k, tables):
    """Draft level k of configuration ``c``."""
    outputs = c[f"outputs {k}"]
    if outputs == "ngram":
        return Level(Ngram())
    if tables:
        model = TableScorer(table(k, outputs), TABLE_SIZES.get(outputs, len(TABLE_MAP)))
    else:
        model = CachedModel(module(k, outputs))
    if c[f"context {k}"] == "short":
        model.max_positions = SHORT
    ids = torch.tensor(TABLE_MAP if tables else MAP) if outputs == "unsorted map" else None
    return Level(model, OWN[c[f"own {k}"]], ids)


def chain(c, index, tables):
    """The chain of configuration ``c``."""
    source = random.Random(index)
    edges = [
        Edge(c[f"gamma {k}"], c[f"window {k}"], source.choice([0.4, 0.7]) if c[f"window {k}"] == "confidence" else None)
        for k in range(c["depth"])
    ]
    last = TableScorer(table(None, "same"), TABLE_VOCAB) if tables else CachedModel(module(None, "same"))
    return Chain((*(level(c, k, tables) for k in range(c["depth"])), Level(last)), tuple(edges))


def requests(c, index, tables):
    """Rows of unequal prompts and lengths; the first has the configuration's filters."""
    source, vocab = random.Random(index), TABLE_VOCAB if tables else VOCAB
    warm = [source.choice([0.7, 1.0, 1.3]) for _ in range(c["rows"])]
    if c["temperature"] == "zero":
        warm = [0.0] * c["rows"]
    elif c["temperature"] == "mixed":
        warm[source.randrange(c["rows"])] = 0.0
    filters = [c["filters"], *(source.choice(list(FILTERS)) for _ in warm)]
    lengths = source.sample(range(1, 10), c["rows"])
    return [
        Request(
            tuple(random.Random(n).randrange(vocab) for _ in range(n)),
            Sampling(temperature, **FILTERS[chosen]),
            seed=source.randrange(3),
            max_new_tokens=source.randint(8, 14),
        )
        for n, temperature, chosen in zip(lengths, warm, filters, strict=False)
    ]


class Recorded(Twin):
    """The twin, noting its rounds as the decoder does."""

    def __init__(self, levels, edges, prompt):
        super().__init__(levels, edges)
        self.rounds, self.handed_up, self.blocks = [], {}, {len(edges): prompt}

    def propose(self, k, text, limit, key):
        self.blocks[k] = len(text)
        tokens, laws = super().propose(k, text, limit, key)
        self.handed_up[k + 1] = laws
        return tokens, laws

    def round(self, k, text, room, key):
        self.handed_up[k] = []
        tokens, laws, full = super().round(k, text, room, key)
        if k > 0 or not self.edges:
            drafts, accepted = self.handed_up[k], len(tokens) - 1
            tested = accepted + (not full)
            end = "plain" if not drafts else "bonus" if full else "recovered"
            overlap = tuple(sum(map(min, *both)) for both in zip(laws[:tested], drafts, strict=False))
            place = (k - 1, self.blocks[k], len(text))
            self.rounds.append(Round(*place, len(drafts), tested, accepted, accepted + 1, end, overlap))
        return tokens, laws, full


@cache
def twins(index, tables):
    """What the twin generates for each row of a configuration, and its rounds."""
    c, out = CONFIGURATIONS[index], []
    built = chain(c, index, tables)
    for i, r in enumerate(requests(c, index, tables)):
        twin = Recorded([twin_level(built, k, r) for k in range(c["depth"] + 1)], built.edges, len(r.ids))
        ids = twin.generate(r.ids, r.max_new_tokens, rng.root_int(r.seed, i, r.sample))
        out.append((ids, twin.rounds))
    return out


def engine(index, tables):
    """The same from the decoder, for the whole batch at once."""
    c = CONFIGURATIONS[index]
    return [(list(g.ids), list(g.rounds)) for g in generate(chain(c, index, tables), requests(c, index, tables))]


def equal(got, want):
    """The same tokens after the same rounds; overlaps are sums and agree to rounding."""
    counts = [[(ids, [replace(r, overlap=()) for r in rounds]) for ids, rounds in rows] for rows in (got, want)]
    sums = [[x for _, rounds in rows for r in rounds for x in r.overlap] for rows in (got, want)]
    return counts[0] == counts[1] and sums[0] == pytest.approx(sums[1], abs=1e-9)


@pytest.mark.parametrize("tables", [False, True], ids=["models", "tables"])
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_token_for_token_and_round_for_round(chunk, tables):
    different, drafted = {}, []
    for index in range(chunk, SIZE, CHUNKS):
        got, want = engine(index, tables), twins(index, tables)
        if not equal(got, want):
            different[index] = (CONFIGURATIONS[index], got, want)
        drafted += [r for _, rounds in got for r in rounds if r.drafted]
    assert not different
    # The sample is not idle: blocks of several tokens are accepted, rejected at once, rejected within.
    assert sum(r.end == "bonus" and r.accepted > 1 for r in drafted) > 40
    assert sum(r.end == "recovered" and r.accepted == 0 for r in drafted) > 40
    assert sum(r.end == "recovered" and r.accepted > 0 for r in drafted) > 40


# --- planted faults ---------------------------------------------------------------------------


def residual_not_subtracted(monkeypatch):
    def target(draft, probs, ids, own, accepted):
        return probs[torch.arange(len(accepted)), accepted].double()

    monkeypatch.setattr(verification, "owed", target)


def one_slot_too_many_believed(monkeypatch):
    real = decode.Decoder.round

    def faulty(self, *args):
        emitted = real(self, *args)
        self.valid = [v + 1 for v in self.valid]
        return emitted

    monkeypatch.setattr(decode.Decoder, "round", faulty)


def laws_one_position_late(monkeypatch):
    real = decode.assemble

    def faulty(laws, width):
        probs = real(laws, width)
        return None if probs is None else probs.roll(1, dims=1)

    monkeypatch.setattr(decode, "assemble", faulty)


def corrections_do_not_end_a_block(monkeypatch):
    real = decode.done
    monkeypatch.setattr(
        decode, "done", lambda window, *rest: real("at_least" if window == "until_correction" else window, *rest)
    )


def keys_without_the_start(monkeypatch):
    monkeypatch.setattr(rng, "round_key", lambda key, start: rng.fold(key, rng.ROUND).expand_as(start))


def settings_of_the_first_row(monkeypatch):
    monkeypatch.setattr(decode, "LevelSampling", lambda rows, *rest: LevelSampling([rows[0]] * len(rows), *rest))


@pytest.mark.parametrize("tables", [False, True], ids=["models", "tables"])
@pytest.mark.parametrize(
    "plant",
    [residual_not_subtracted, one_slot_too_many_believed, laws_one_position_late, corrections_do_not_end_a_block,
     keys_without_the_start, settings_of_the_first_row],
)  # fmt: skip
def test_a_planted_fault_shows(plant, tables, monkeypatch):
    deep = [i for i, c in enumerate(CONFIGURATIONS) if c["depth"] >= 2 and c["temperature"] != "zero"][:40]
    expected = {i: twins(i, tables) for i in deep}
    plant(monkeypatch)

    def shows(i):
        try:
            return [ids for ids, _ in engine(i, tables)] != [ids for ids, _ in expected[i]]
        except LookupError:  # a table was asked to look at a slot nobody wrote
            return True

    assert any(map(shows, deep))

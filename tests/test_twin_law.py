"""The twin's law by exact enumeration: what a chain emits is the target's own law, and faults show.

Every random choice of the twin is branched with its probability, so the laws of whole sequences
are exact up to rounding. Tables are keyed by the whole prefix. A sequence of n tokens lets level 0
of a chain of depth d draft up to n - d tokens, hence the lengths below.
"""

from __future__ import annotations

import random
from itertools import product
from typing import NamedTuple

import pytest

from ssd.certify.exact_laws import PROMPT, TOLERANCE, chain_law, difference, error, target_law
from ssd.certify.table_models import blended, hashed, table_level
from ssd.core.chain import WINDOWS, Edge
from ssd.core.ngram import Ngram
from ssd.core.reference import Branching, Twin, TwinLevel, enumerate_law
from ssd.core.requests import Sampling

PLAIN = Sampling()
VISIBLE = 1e-3  # a planted fault must move some sequence by more than this


def chain(depth, vocab, name="", drafts=(), target=PLAIN):
    """Levels L0 .. target over hashed tables; drafts lean towards the target's table."""
    final = hashed(f"{name}target", vocab)
    tables = [blended(final, hashed(f"{name}draft {k}", vocab), 0.3 + 0.2 * k) for k in range(depth)]
    settings = drafts or [PLAIN] * depth
    return [*map(table_level, tables, settings), table_level(final, target)]


def edge(window, gamma, sure=0.6):
    """An edge; ``sure`` is the threshold of ``confidence``."""
    return Edge(gamma, window, sure if window == "confidence" else None)


def test_branching_enumerates_a_known_law():
    def two_coins(chooser):
        first = chooser.draw([3.0, 1.0], 0, 0, 0)
        return [first, int(chooser.accept(0.2 if first else 7.0, 0, 0, 0))]

    assert enumerate_law(two_coins) == pytest.approx({(0, 1): 0.75, (1, 0): 0.2, (1, 1): 0.05})
    again = Branching((2,))
    assert again.draw([0.0, 1.0, 3.0], 0, 0, 0) == 2
    assert again.mass == 0.75


@pytest.mark.parametrize("window", WINDOWS)
def test_round_by_round_equals_enumerating_generate_as_a_whole(window):
    for depth, vocab, n in ((1, 3, 3), (2, 2, 4), (3, 2, 4)):
        levels, edges = chain(depth, vocab), [edge(window, 2)] * depth
        whole = enumerate_law(lambda c, levels=levels, edges=edges, n=n: Twin(levels, edges, c).generate(PROMPT, n, 0))
        assert set(map(len, whole)) == {n}
        assert abs(sum(whole.values()) - 1) < TOLERANCE
        assert difference(whole, chain_law(levels, edges, n)) < TOLERANCE
        assert difference(whole, target_law(levels[-1], vocab, n)) < TOLERANCE


def test_a_chain_without_drafts():
    for vocab in (2, 3):
        assert error(chain(0, vocab), [], vocab, 4) < TOLERANCE


@pytest.mark.parametrize("window", WINDOWS)
def test_one_draft_level(window):
    for gamma, sure in product((1, 2, 3), (0.55, 0.7)):
        assert error(chain(1, 2), [edge(window, gamma, sure)], 2, 5) < TOLERANCE
        assert error(chain(1, 3), [edge(window, gamma, sure)], 3, 4) < TOLERANCE


@pytest.mark.parametrize("upper", WINDOWS)
@pytest.mark.parametrize("lower", WINDOWS)
def test_two_draft_levels(lower, upper):
    for g0, g1 in ((1, 2), (2, 2), (3, 2), (2, 3), (1, 4)):
        assert error(chain(2, 2), [edge(lower, g0), edge(upper, g1)], 2, 5) < TOLERANCE
    assert error(chain(2, 3), [edge(lower, 2, 0.5), edge(upper, 2, 0.5)], 3, 4) < TOLERANCE


@pytest.mark.parametrize("middle", WINDOWS)
@pytest.mark.parametrize("lower", WINDOWS)
def test_three_draft_levels(lower, middle):
    source = random.Random(f"{lower} {middle}")
    for upper in WINDOWS:
        edges = [edge(w, source.randint(1, 3)) for w in (lower, middle, upper)]
        assert error(chain(3, 2, f"{lower}"), edges, 2, 5) < TOLERANCE
    assert error(chain(3, 2, f"{middle}"), [edge(w, 2) for w in (lower, middle, lower)], 2, 6) < TOLERANCE


@pytest.mark.parametrize("window", WINDOWS)
def test_levels_with_temperatures_and_filters_of_their_own(window):
    """Rows with zeros on the draft, on the target, on both; greedy drafts; a greedy target."""
    settings = [
        ((Sampling(0.5), Sampling(1.7)), Sampling(0.8)),
        ((Sampling(top_k=2), Sampling(2.0)), Sampling()),
        ((Sampling(), Sampling(top_p=0.7)), Sampling(1.3, top_k=2)),
        ((Sampling(0.0), Sampling(min_p=0.4)), Sampling(1.5)),
        ((Sampling(top_k=1), Sampling(0.0)), Sampling()),
        ((Sampling(), Sampling(1.2)), Sampling(0.0)),
        ((Sampling(3.0, 2, 0.9, 0.1), Sampling(0.7, 2)), Sampling(1.1, 2, 0.95, 0.05)),
    ]
    for i, (drafts, target) in enumerate(settings):
        levels = chain(2, 3, f"filters {i}", drafts, target)
        assert error(levels, [edge(window, 2, 0.5), edge(window, 2, 0.5)], 3, 4) < TOLERANCE


@pytest.mark.parametrize("ids", [(0, 2), (2, 0), (1,)])
@pytest.mark.parametrize("window", WINDOWS)
def test_draft_vocabularies(window, ids):
    """The draft law is zero outside a subset, at L0, at L1 and at both."""
    narrow = [table_level(hashed(f"narrow {k}", len(ids)), ids=ids, vocab=3) for k in range(2)]
    wide, target = chain(1, 3)
    for levels in ([narrow[0], target], [narrow[0], wide, target], [wide, narrow[1], target], [*narrow, target]):
        assert error(levels, [edge(window, 2, 0.5)] * (len(levels) - 1), 3, 4) < TOLERANCE


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("window", WINDOWS)
def test_an_ngram_at_the_bottom(window, depth):
    ngram = Ngram()
    assert ngram.look_up([1, 0, 1, 1, 0], 3) == [1, 1, 0]  # it is not idle on prefixes this short
    levels = [TwinLevel(None, look_up=ngram.look_up), *chain(depth - 1, 2)]
    assert error(levels, [Edge(3), *[edge(window, 2)] * (depth - 1)], 2, 5) < TOLERANCE


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("limits", list(product((1, 2, 3, 5, 99), repeat=2)))
def test_position_limits_of_the_drafts(limits, window):
    tables = [hashed(f"limited {k}", 2) for k in range(3)]
    levels = [table_level(t, limit=n) for t, n in zip(tables, (*limits, 10**9), strict=True)]
    assert error(levels, [edge(window, 2), edge(window, 3)], 2, 5) < TOLERANCE


# Lengths of L1's blocks and of L2's, all gammas 2, at most 6 tokens asked for.
LENGTHS = {
    "at_least": ({2, 3, 4}, {2, 3, 4, 5, 6}),
    "exactly": ({2}, {2}),
    "rounds": ({2, 3, 4, 5, 6}, {2, 3, 4, 5, 6}),
    "until_correction": ({1, 2, 3}, {1, 2, 3, 4}),
    "confidence": ({1, 2, 3}, {2, 3, 4, 5, 6}),  # L1's first row is unsure and L2's is not
}


@pytest.mark.parametrize("window", WINDOWS)
def test_blocks_have_their_levels_law_wherever_they_reach(window):
    """Given the tokens before i and that the block reaches i, token i has the level's own law."""
    levels, edges = chain(3, 2, "block"), [edge(window, 2)] * 3
    for k in range(3):
        blocks = enumerate_law(lambda c, k=k: Twin(levels, edges, c).propose(k, [*PROMPT], 6, 0)[0])
        assert k == 0 or set(map(len, blocks)) == LENGTHS[window][k - 1]
        for prefix in {b[:i] for b in blocks for i in range(len(b))}:
            reach = [(b[len(prefix)], p) for b, p in blocks.items() if b[: len(prefix)] == prefix and b != prefix]
            mass = sum(p for _, p in reach)
            for token, p in enumerate(levels[k].law([*PROMPT, *prefix])):
                assert abs(sum(q for t, q in reach if t == token) - p * mass) < TOLERANCE


# --- planted faults ---------------------------------------------------------------------------


class Fault(NamedTuple):
    """What a faulty twin does otherwise; all false is the twin itself."""

    whole_target_after_rejection: bool = False
    bonus_after_rejection: bool = False
    accepted_by_own_probability: bool = False
    drafters_rows_handed_up: bool = False
    correction_dropped: bool = False
    unlikely_token_dropped: bool = False


class Faulty(Twin):
    """A second writing of ``round`` and ``propose`` with places for faults."""

    fault = Fault()

    def propose(self, k, text, limit, key):
        block, laws = super().propose(k, text, limit, key)
        if self.fault.drafters_rows_handed_up and k > 0:
            laws = [self.levels[k - 1].law(text + block[:i]) for i in range(len(block))]
        if self.fault.unlikely_token_dropped and block and laws[-1][block[-1]] < 0.5:
            return block[:-1], laws[:-1]
        return block, laws

    def round(self, k, text, room, key):
        tokens, drafts = self.propose(k - 1, text, room - 1, key) if k > 0 and room > 1 else ([], [])
        laws = [self.levels[k].law(text + tokens[:i]) for i in range(len(tokens) + 1)]
        for i, (token, draft) in enumerate(zip(tokens, drafts, strict=True)):
            odds = laws[i][token] / (1.0 if self.fault.accepted_by_own_probability else draft[token])
            if not self.chooser.accept(odds, key, k, 0):
                if self.fault.correction_dropped and k < len(self.edges):
                    return tokens[:i], laws[:i], False
                owed = [max(0.0, p - q) for p, q in zip(laws[i], draft, strict=True)]
                if self.fault.whole_target_after_rejection or sum(owed) == 0:
                    owed = laws[i]
                if self.fault.bonus_after_rejection:
                    owed = laws[-1]
                return [*tokens[:i], self.chooser.draw(owed, key, k, 0)], laws[: i + 1], False
        return [*tokens, self.chooser.draw(laws[-1], key, k, 0)], laws, True


def planted(*names):
    """The second writing with these faults."""
    return type("Planted", (Faulty,), {"fault": Fault(**dict.fromkeys(names, True))})


FAULTS = [
    *product(("whole_target_after_rejection", "bonus_after_rejection"), WINDOWS),
    *product(("accepted_by_own_probability", "drafters_rows_handed_up"), WINDOWS),
    # Only under these windows may a block end at the token concerned.
    ("correction_dropped", "until_correction"),
    ("unlikely_token_dropped", "until_correction"),
    ("unlikely_token_dropped", "confidence"),
]


@pytest.mark.parametrize("window", WINDOWS)
def test_the_second_writing_without_a_fault_is_exact(window):
    assert error(chain(2, 2), [edge(window, 2), edge(window, 3)], 2, 4, planted()) < TOLERANCE


@pytest.mark.parametrize(("fault", "window"), FAULTS)
def test_a_planted_fault_shows(fault, window):
    assert error(chain(2, 2), [edge(window, 2), edge(window, 3)], 2, 4, planted(fault)) > VISIBLE
    assert error(chain(3, 2), [edge(window, 2)] * 3, 2, 5, planted(fault)) > VISIBLE

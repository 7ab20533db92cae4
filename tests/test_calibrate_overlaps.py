"""Expected acceptance of pairs of levels on a grid of temperatures: sums of overlaps, intervals, texts."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from bigram_chains import bigram_chain, random_logits

from ssd.bench.turns import Turn
from ssd.calibrate.contexts import Context, own_texts, recorded_texts
from ssd.calibrate.overlap_grid import overlap_grid
from ssd.calibrate.overlap_table import Cell, OverlapTable
from ssd.core.chain import Chain, Edge
from ssd.core.ngram import Ngram
from ssd.core.requests import Override, Sampling

VOCAB = 12
CONTEXTS = [
    Context("a", "math", (3, 1, 4, 1, 5, 9, 2, 6), 6),
    Context("b", "code", (7, 7, 2, 0, 11), 2),
    Context("a", "math", (3, 1, 8, 8), 2),
]


def whole_table(logits, ids, temperature, top_k):
    """[V, VOCAB] law by last token over the target's ids, written down without the engine."""
    scores = logits.numpy().copy()
    if temperature == 0:
        probs = np.eye(scores.shape[1])[scores.argmax(1)]
    else:
        if top_k:
            scores[scores < np.sort(scores, axis=1)[:, -top_k][:, None]] = -np.inf
        weights = np.exp((scores - scores.max(1, keepdims=True)) / temperature)
        probs = weights / weights.sum(1, keepdims=True)
    full = np.zeros((len(scores), VOCAB))
    full[:, range(VOCAB) if ids is None else ids.tolist()] = probs
    return full


@pytest.mark.parametrize("top_k", [0, 3])
@pytest.mark.parametrize("chunk", [1, 3, 64])
def test_streamed_sums_are_those_of_whole_tables(chunk, top_k):
    maps = [torch.tensor([9, 2, 0, 5, 7]), torch.tensor([1, 2, 9, 5, 11, 0, 6]), None]
    tables = [random_logits(k, VOCAB, None if ids is None else len(ids)) for k, ids in enumerate(maps)]
    chain = bigram_chain(tables, [Edge(2), Edge(2)], maps)
    temperatures = [[0.0, 0.6], [0.0, 0.9, 1.4], [0.0, 1.0]]
    found = overlap_grid(chain, CONTEXTS, Sampling(1.0, top_k=top_k), temperatures, (0, 4), chunk)
    assert found.prompts == ("a", "b")
    assert found.tasks == ("math", "code")
    assert found.counts.tolist() == [[6, 2], [2, 0]]
    laws = {(k, t): whole_table(tables[k], maps[k], t, top_k) for k, own in enumerate(temperatures) for t in own}
    for a, b in itertools.combinations(range(3), 2):
        for s, t in itertools.product(temperatures[a], temperatures[b]):
            wanted = np.zeros((2, 2))
            for c in CONTEXTS:
                for i in range(c.new):
                    last = c.ids[len(c.ids) - c.new + i - 1]
                    wanted["ab".index(c.prompt_id), int(i >= 4)] += np.minimum(laws[a, s][last], laws[b, t][last]).sum()
            np.testing.assert_allclose(found.sums[Cell(a, b, s, t)], wanted, atol=1e-12)
    assert len(found.sums) == 2 * 3 + 2 * 2 + 3 * 2


def test_a_draft_levels_own_filters_replace_the_rows_and_the_targets_do_not_change():
    tables = [random_logits(k, VOCAB) for k in range(2)]
    plain = bigram_chain(tables, [Edge(2)])
    own = Chain((replace(plain.levels[0], sampling=Override(temperature=0.4, top_k=3)), plain.levels[1]), plain.edges)
    found = overlap_grid(own, CONTEXTS, Sampling(1.0, top_k=5), [[0.6], [1.0]], (0,))
    laws = whole_table(tables[0], None, 0.6, 3), whole_table(tables[1], None, 1.0, 5)
    last = [c.ids[len(c.ids) - c.new + i - 1] for c in CONTEXTS for i in range(c.new)]
    wanted = sum(np.minimum(laws[0][t], laws[1][t]).sum() for t in last)
    assert found.sums[Cell(0, 1, 0.6, 1.0)].sum() == pytest.approx(wanted)


def test_never_more_than_a_chunk_of_logits_is_asked_for():
    chain = bigram_chain([random_logits(k, VOCAB) for k in range(2)], [Edge(2)])
    context = Context("a", "math", tuple(i % VOCAB for i in range(50)), 40)
    overlap_grid(chain, [context], Sampling(), [[1.0], [1.0]], (0,), chunk=4)
    assert [chain.scorer(k).widest for k in range(2)] == [4, 4]


def test_a_text_is_cut_where_a_level_cannot_be_fed():
    chain = bigram_chain([random_logits(k, VOCAB) for k in range(2)], [Edge(2)])
    chain.scorer(0).max_positions = 4  # of the 7 ids fed, the prompt's 2 and two of the continuation's
    cut = overlap_grid(chain, CONTEXTS[:1], Sampling(), [[1.0], [1.0]], (0,))
    assert cut.positions == 3
    chain.scorer(0).max_positions = 1
    with pytest.raises(ValueError, match="no text has a position"):
        overlap_grid(chain, CONTEXTS[:1], Sampling(), [[1.0], [1.0]], (0,))


def test_a_look_up_and_a_missing_list_are_refused():
    chain = bigram_chain([random_logits(k, VOCAB) for k in range(2)], [Edge(2)])
    with pytest.raises(ValueError, match="2 levels need a list each"):
        overlap_grid(chain, CONTEXTS, Sampling(), [[1.0]], (0,))
    look_up = Chain((type(chain.levels[0])(Ngram()), chain.levels[1]), chain.edges)
    with pytest.raises(ValueError, match=r"chain\.levels\[0\]: a look-up has no temperature"):
        overlap_grid(look_up, CONTEXTS, Sampling(), [[1.0], [1.0]], (0,))


def test_intervals_tasks_bins_and_differences_are_of_the_same_prompts():
    cells = Cell(0, 1, 1.0, 1.0), Cell(0, 1, 0.5, 1.0)
    sums = {cells[0]: np.array([[3.0, 1.0], [1.0, 0.0]]), cells[1]: np.array([[4.0, 2.0], [1.5, 0.0]])}
    table = OverlapTable(("a", "b"), ("math", "code"), (0, 4), np.array([[6.0, 2.0], [2.0, 0.0]]), sums)
    assert table.value(cells[0]) == pytest.approx(5 / 10)
    assert table.alpha(cells[0], task="math").value == pytest.approx(4 / 8)
    assert table.alpha(cells[0], bin_index=1) == (pytest.approx(1 / 2), None, None, 1)
    gap = table.difference(cells[1], cells[0])
    assert gap.value == pytest.approx(7.5 / 10 - 5 / 10)
    assert gap.low is not None
    assert gap.low <= gap.value <= gap.high
    split = table.split_entries([cells[0]])
    assert [(e.get("task"), e.get("positions"), e["positions_n"]) for e in split] == [
        ("math", None, 8),
        ("code", None, 2),
        (None, "0-4", 8),
        (None, "4+", 2),
    ]
    with pytest.raises(ValueError, match="different texts"):
        table.merged(OverlapTable(("a", "c"), ("math", "code"), (0, 4), table.counts, sums))


def test_texts_are_the_targets_own():
    tables = [random_logits(k, VOCAB) for k in range(2)]
    target = Chain(bigram_chain(tables, [Edge(2)]).levels[-1:])
    turns = [Turn("p", "math", (3, 1), 0), Turn("q", "code", (2,), 1)]
    found = own_texts(target, turns, Sampling(0.0), 5, samples=2, batch=3)
    last, wanted = 1, []
    for _ in range(5):
        last = int(tables[1][last].argmax())
        wanted.append(last)
    assert [(c.prompt_id, c.new) for c in found] == [("p", 5), ("p", 5), ("q", 5), ("q", 5)]
    assert found[0].ids == (3, 1, *wanted)
    sampled = own_texts(target, turns, Sampling(1.0), 12, samples=2)
    assert sampled[0].ids != sampled[1].ids
    with pytest.raises(ValueError, match="expected a chain of one level, got 2"):
        own_texts(bigram_chain(tables, [Edge(2)]), turns, Sampling(0.0), 5)
    record = {"prompt_id": "p", "task": "math", "prompt_ids": [3, 1], "output_ids": [4, 4]}
    assert recorded_texts([record, {**record, "output_ids": []}]) == [Context("p", "math", (3, 1, 4, 4), 2)]

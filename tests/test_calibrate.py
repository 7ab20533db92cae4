"""Temperatures of draft levels: overlaps on a grid, the two ways to choose, the saved file and the command."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
import torch
from bigram_chains import bigram_chain, random_logits
from hydra import compose, initialize_config_dir

from experiments import calibrate, schema
from experiments.calibrate_config import read_config
from experiments.calibrate_rows import best_equal
from experiments.calibrate_runs import overrides
from experiments.run import CONF
from experiments.schema import plain_config, run_spec
from ssd.bench.records import read_run
from ssd.bench.spec import ChainSpec, EdgeSpec, LevelSpec
from ssd.bench.summary import read_summary
from ssd.bench.turns import Turn
from ssd.calibrate.choice import edge_alphas, equal, joint, predicted_gain, predicted_speed, refined, top_down
from ssd.calibrate.contexts import Context, own_texts, recorded_texts
from ssd.calibrate.overlap_grid import overlap_grid
from ssd.calibrate.overlap_table import Cell, OverlapTable
from ssd.calibrate.saved import Temperatures, read_temperatures, set_on, write_temperatures
from ssd.calibrate.vectors import distinct, side_by_side, stands_for
from ssd.core.chain import Chain, Edge
from ssd.core.ngram import Ngram
from ssd.core.requests import Sampling
from ssd.plan.edge_plan import EdgePlan
from ssd.plan.pass_times import PassTimes, Profile

VOCAB = 12
GRID = [0.0, 0.3, 0.5, 0.7, 1.0, 1.3, 1.6]
CONTEXTS = [
    Context("a", "math", (3, 1, 4, 1, 5, 9, 2, 6), 6),
    Context("b", "code", (7, 7, 2, 0, 11), 2),
    Context("a", "math", (3, 1, 8, 8), 2),
]


# --- overlaps -----------------------------------------------------------------------------------------------------


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


# --- the choice ---------------------------------------------------------------------------------------------------


def scaled_chain(*factors: float) -> Chain:
    """Drafts whose logits are the target's times a constant: at that constant times its temperature they agree."""
    target = random_logits(0, VOCAB)
    return bigram_chain([*(f * target for f in factors), target], [Edge(2)] * len(factors))


def flat(*seconds: float) -> Profile:
    return Profile(tuple(PassTimes.flat(f"L{k}", s) for k, s in enumerate(seconds)))


@pytest.mark.parametrize(
    ("factors", "target", "best"), [((1.3, 0.5), 1.0, (1.3, 0.5, 1.0)), ((0.6, 2.0), 0.5, (0.3, 1.0, 0.5))]
)
def test_both_ways_find_the_temperatures_at_which_all_levels_agree(factors, target, best):
    chain = scaled_chain(*factors)
    table = overlap_grid(chain, CONTEXTS, Sampling(), [GRID] * 3, (0,))
    speed = predicted_speed(flat(0.1, 0.3, 1.0), [EdgePlan(2), EdgePlan(3)])
    assert top_down(table, 3, target) == best
    assert joint(table, 3, target, speed) == best
    assert edge_alphas(table, best) == pytest.approx([1.0, 1.0])
    assert max(edge_alphas(table, equal(3, target))) < 0.95  # or nothing had to be found


def synthetic(values: dict[tuple, float]) -> OverlapTable:
    sums = {Cell(*key): np.array([[100 * v]]) for key, v in values.items()}
    return OverlapTable(("a",), ("math",), (0,), np.array([[100.0]]), sums)


def sharper(loss: float) -> OverlapTable:
    """A sharper L1 accepts .9 instead of .5 from L0 and loses ``loss`` of .8 at the target."""
    values = {(1, 2, 1.0, 1.0): 0.8, (1, 2, 0.5, 1.0): 0.8 - loss}
    values |= {(0, 1, s, t): 0.9 if t == 0.5 else 0.5 for s in (0.5, 1.0) for t in (0.5, 1.0)}
    return synthetic(values)


def test_only_the_joint_choice_gives_up_acceptance_at_the_target_for_more_below_it():
    speed = predicted_speed(flat(0.02, 0.5, 1.0), [EdgePlan(2), EdgePlan(3)])  # L1 is dear, so L0 matters
    assert top_down(sharper(0.02), 3, 1.0) == (1.0, 1.0, 1.0)
    assert joint(sharper(0.02), 3, 1.0, speed) == (0.5, 0.5, 1.0)
    assert joint(sharper(0.6), 3, 1.0, speed) == (1.0, 1.0, 1.0)
    cheap = predicted_speed(flat(0.001, 0.001, 1.0), [EdgePlan(2), EdgePlan(3)])
    assert joint(sharper(0.02), 3, 1.0, cheap) == (1.0, 1.0, 1.0)


def test_nothing_is_changed_for_nothing():
    table = synthetic({(0, 1, s, 1.0): 0.7 for s in (0.5, 1.0, 1.5)})
    speed = predicted_speed(flat(0.1, 1.0), [EdgePlan(2)])
    assert top_down(table, 2, 1.0) == joint(table, 2, 1.0, speed) == (1.0, 1.0)


def two_prompts(first: dict[tuple, float], second: dict[tuple, float]) -> OverlapTable:
    sums = {Cell(*key): np.array([[100 * first[key]], [100 * second[key]]]) for key in first}
    return OverlapTable(("a", "b"), ("math", "code"), (0,), np.array([[100.0], [100.0]]), sums)


@pytest.mark.parametrize(("second", "chosen"), [(0.62, 0.5), (0.58, 1.0)])
def test_a_gain_that_only_some_prompts_show_is_no_reason_to_leave_equal_temperatures(second, chosen):
    same, other = (0, 1, 1.0, 1.0), (0, 1, 0.5, 1.0)
    table = two_prompts({same: 0.6, other: 0.7}, {same: 0.6, other: second})
    speed = predicted_speed(flat(0.1, 1.0), [EdgePlan(2)])
    assert table.value(Cell(*other)) > table.value(Cell(*same))
    assert top_down(table, 2, 1.0) == joint(table, 2, 1.0, speed) == (chosen, 1.0)
    gain = predicted_gain(table, (0.5, 1.0), (1.0, 1.0), speed)
    assert gain.value == pytest.approx(speed([(0.7 + second) / 2]) / speed([0.6]))
    assert (gain.low > 1) == (chosen == 0.5)


def test_the_second_pass_knows_equal_temperatures_for_every_verifier():
    vectors = {"equal": (1.0, 1.0, 1.0), "top_down": (0.5, 1.3, 1.0), "joint": (1.0, 1.0, 1.0)}
    found = calibrate.finer([0.5, 1.0, 1.3], vectors, 1)
    assert found == [[0.5, 0.75, 1.0, 1.15, 1.3], [0.5, 0.75, 1.0, 1.15, 1.3], [1.0]]


def test_a_deep_chain_is_climbed_to_a_vector_that_no_single_change_betters():
    factors = (1.6, 0.5, 1.3)
    table = overlap_grid(scaled_chain(*factors), CONTEXTS, Sampling(), [GRID] * 4, (0,))
    # Under ``exactly`` blocks keep their length, so that more acceptance below can only help.
    edges = [EdgePlan(2), EdgePlan(3, "exactly"), EdgePlan(4, "exactly")]
    speed = predicted_speed(flat(0.05, 0.1, 0.3, 1.0), edges)
    found = joint(table, 4, 1.0, speed)
    assert found == (*factors, 1.0)


def test_draft_lengths_may_be_chosen_along():
    table = sharper(0.3)
    fixed = predicted_speed(flat(0.02, 0.5, 1.0), [EdgePlan(8), EdgePlan(8)])
    free = predicted_speed(flat(0.02, 0.5, 1.0), [EdgePlan(8), EdgePlan(8)], largest_gamma=8)
    for vector in ((1.0, 1.0, 1.0), (0.5, 0.5, 1.0)):
        assert free(edge_alphas(table, vector)) > 1.05 * fixed(edge_alphas(table, vector))
    with pytest.raises(ValueError, match=r"chain\.edges\[0\]\.verification: 'block'"):
        predicted_speed(flat(0.02, 1.0), [EdgePlan(2, verification="block")])


def test_refining_goes_to_either_neighbour():
    assert refined([0.5, 1.0, 2.0], 1.0, 1) == [0.5, 0.75, 1.0, 1.5, 2.0]
    assert refined([0.5, 1.0, 2.0], 0.5, 3) == [0.5, 0.625, 0.75, 0.875, 1.0]
    with pytest.raises(ValueError, match=r"grid: 0\.6 is not one of 0\.5, 1\.0"):
        refined([0.5, 1.0], 0.6, 1)


def test_the_better_equal_setting_for_this_verifier_is_what_a_lower_edge_is_held_to():
    values = {(0, 1, 0.8, 0.5): 0.7, (0, 1, 0.5, 0.5): 0.4, (0, 1, 1.0, 0.5): 0.6}
    assert best_equal(synthetic(values), Cell(0, 1, 0.8, 0.5), 1.0) == Cell(0, 1, 1.0, 0.5)
    assert best_equal(synthetic({**values, (0, 1, 0.5, 0.5): 0.65}), Cell(0, 1, 0.8, 0.5), 1.0) == Cell(0, 1, 0.5, 0.5)


# --- side by side, and saved --------------------------------------------------------------------------------------

CHAIN = ChainSpec(tuple(LevelSpec(f"random:{k}") for k in "abc"), (EdgeSpec(2), EdgeSpec(3)))


def test_vectors_share_one_run_and_equal_ones_one_method():
    vectors = {"equal": (None, None, None), "top_down": (0.5, 0.8, None), "joint": (0.5, 0.8, None)}
    wide, methods = side_by_side(CHAIN, vectors)
    assert [(x.source, x.temperature) for x in wide.levels] == [
        ("random:a", None),
        ("random:b", None),
        ("random:a", 0.5),
        ("random:b", 0.8),
        ("random:c", None),
    ]
    assert {name: (m.levels, m.edges) for name, m in methods.items()} == {
        "equal": ((0, 1, 4), CHAIN.edges),
        "top_down": ((2, 3, 4), CHAIN.edges),
    }
    assert stands_for(vectors) == {"equal": "equal", "top_down": "top_down", "joint": "top_down"}
    assert set(distinct(vectors)) == {"equal", "top_down"}
    assert overrides((0.5, 0.7, 0.7)) == (0.5, None, None)
    assert overrides((0.0, 0.0, 0.0)) == (None, None, None)


def test_a_saved_vector_reads_back_and_keeps_its_provenance(tmp_path):
    path = tmp_path / "calibrated_x.yaml"
    saved = Temperatures.of((0.5, 0.8, 0.7), [level.source for level in CHAIN.levels])
    write_temperatures(path, saved, ["Chosen by a test", "alpha L0→L1: 0.5 -> 0.6"])
    assert read_temperatures(path) == saved
    assert saved.levels == (0.5, 0.8, None)
    assert "# alpha L0→L1: 0.5 -> 0.6" in path.read_text(encoding="utf-8").splitlines()
    assert [x.temperature for x in set_on(CHAIN, saved).levels] == [0.5, 0.8, None]
    assert Temperatures.of((0.0, 0.0, 0.0), ()).levels == (None, None, None)  # a greedy row needs no more
    assert set_on(CHAIN, Temperatures()) is CHAIN
    path.write_text("levels: [1.0]")
    with pytest.raises(ValueError, match="expected the key temperatures"):
        read_temperatures(path)


@pytest.mark.parametrize(
    ("saved", "words"),
    [
        (Temperatures((0.5, None)), "are 2, the chain has 3 levels"),
        (Temperatures((0.5, 0.5, 0.5)), r"temperatures\.levels\[2\]: 0\.5; the target uses the row's"),
        (Temperatures((0.5, 0.5, None), ("random:a", "random:b", "random:z")), r"temperatures\.sources: made for"),
        (Temperatures((0.5, 0.9, None)), r"levels\[1\]: 0\.9, but chain\.levels\[1\]\.temperature is 0\.4"),
    ],
)
def test_a_vector_for_another_chain_is_refused(saved, words):
    levels = (CHAIN.levels[0], LevelSpec("random:b", temperature=0.4), CHAIN.levels[2])
    with pytest.raises(ValueError, match=words):
        set_on(ChainSpec(levels, CHAIN.edges), saved)


def composed(*options: str, folder: object = None):
    schema.register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        search = [] if folder is None else [f"hydra.searchpath=[file://{folder}]"]
        return run_spec(plain_config(compose("config", overrides=[*search, *options])))


def test_a_saved_vector_is_an_option_of_hydra(tmp_path):
    chain = composed("chain=tiny_triple").chain
    assert [x.temperature for x in chain.levels] == [None, None, None]
    saved = Temperatures((0.45, 1.2, None), tuple(x.source for x in chain.levels), 0.7)
    write_temperatures(tmp_path / "chain" / "temperatures" / "calibrated_x_T0.7.yaml", saved, ["Chosen by a test"])
    option = "chain/temperatures=calibrated_x_T0.7"
    found = composed("chain=tiny_triple", option, folder=tmp_path)
    assert [x.temperature for x in found.chain.levels] == [0.45, 1.2, None]
    assert found == composed("chain=tiny_triple", "chain.levels.0.temperature=0.45", "chain.levels.1.temperature=1.2")
    with pytest.raises(ValueError, match=r"temperatures\.levels: .* are 3, the chain has 2 levels"):
        composed("chain=tiny_pair", option, folder=tmp_path)


def test_every_saved_vector_that_comes_with_the_suite_composes_with_some_chain():
    for path in sorted((CONF / "chain" / "temperatures").glob("*.yaml")):
        saved = read_temperatures(path)
        if saved.sources:
            spec = composed(f"chain/temperatures={path.stem}")
            assert tuple(x.source for x in spec.chain.levels) == saved.sources


# --- the command --------------------------------------------------------------------------------------------------

SMALL = [
    "chain=tiny_triple",
    "tune.max_new_tokens=6",
    "tune.limit=3",
    "measure.max_new_tokens=6",
    "measure.limit=2",
    "samples=2",
    "grid=[0.0, 0.7, 1.6]",
    "profiling={widths: [1, 4], repeats: 1, context: 8}",
]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["tune.split=measure"], r"tune: .*is for 'evaluate' and must not be used for 'calibrate'"),
        (["tune.split=extended"], "must not be used for 'calibrate'"),
        (["measure.split=tune"], r"measure: .*is for 'calibrate' and must not be used for 'evaluate'"),
        (["grid=[-1.0]"], r"grid: sampling\.temperature: -1\.0"),
        (["grid=[]"], "grid: at least one"),
        (["sampling.temperature=[0.7, 0.7]"], r"sampling\.temperature: expected different numbers"),
        (["sampling.temperature=hot"], r"sampling\.temperature: expected a list"),
        (["sampling.top_p=0"], r"top_p: 0"),
        (["samples=0"], "samples: expected an integer >= 1, got 0"),
        (["bins=[8, 16]"], "bins: expected the first to be 0, got 8"),
        (["profiling.widths=[2, 4]"], r"profiling\.widths: expected ascending"),
        (["temperature=1"], "temperature: unknown key"),
        (["tune.limt=3"], r"tune\.limt: unknown key"),
        (["chain"], "expected key=value"),
    ],
)
def test_wrong_settings_are_refused_before_anything_is_loaded(arguments, words):
    with pytest.raises(ValueError, match=words):
        read_config(CONF / "calibrate.yaml", arguments)


@pytest.mark.parametrize(
    ("edge", "level", "words"),
    [
        ("{gamma: 2, verification: block}", "a", r"chain\.edges\[0\]\.verification: 'block'"),
        ("{gamma: 2, window: confidence, window_value: 0.5}", "a", r"chain\.edges\[0\]: edge\.window: 'confidence'"),
        ("{gamma: 2}", "ngram", r"chain\.levels\[0\]: 'ngram' is a look-up"),
    ],
)
def test_chains_that_cannot_be_calibrated_are_refused(tmp_path, edge, level, words):
    path = tmp_path / "chain.yaml"
    path.write_text(f"levels: [{{source: '{level}'}}, {{source: b}}]\nedges: [{edge}]")
    with pytest.raises(ValueError, match=words):
        read_config(CONF / "calibrate.yaml", [f"chain={path}"])


def test_one_temperature_or_several():
    spec, chain = read_config(CONF / "calibrate.yaml", ["sampling.temperature=1"])
    assert spec.sampling.temperature == (1.0,)
    assert spec.saved(0.7, "joint").name == "calibrated_smollm2_T0.7_joint.yaml"
    assert len(chain.levels) == 3
    spec, _ = read_config(CONF / "calibrate.yaml", [])
    assert spec.sampling.temperature == (0.0, 0.5, 0.7, 1.0, 1.3)


def test_the_command_leaves_vectors_maps_and_rows(tmp_path, capsys):
    saved = tmp_path / "chain" / "temperatures"
    where = [f"results_dir={tmp_path}", f"temperatures_dir={saved}"]
    assert calibrate.main([*SMALL, *where, "sampling.temperature=[0.0, 0.7]"]) == 0
    assert "wrote" in capsys.readouterr().out
    folder = tmp_path / "calibrate"
    summary = read_summary(folder / "summary.json")
    assert [p.rsplit("/", 2)[-2:] for p in summary.runs] == [["T0", "run.json"], ["T0.7", "run.json"]]
    assert read_run(folder / "T0.7").is_complete
    for name in ("alpha_L0_L1.svg", "alpha_L1_L2.png"):
        assert (folder / "T0.7" / name).stat().st_size > 1000
    data = json.loads((folder / "T0.7" / "calibration.json").read_text())
    assert data["positions"] == 3 * 2 * 6
    assert {len(v) for v in data["vectors"].values()} == {3}
    coarse = [c for c in data["cells"] if c["verifier"] == 2 and c["verifier_temperature"] == 1.6]
    assert len(coarse) >= 2 * 3  # heat maps reach beyond the target's own temperature
    for vector in ("top_down", "joint"):
        row = summary.row(f"T0.7: alpha L1→L2, {vector} - equal")
        assert (row.goal, row.n) == (0.0, 2)
        found = composed(
            "chain=tiny_triple", f"chain/temperatures=calibrated_tiny_triple_T0.7_{vector}", folder=tmp_path
        )
        assert [x.temperature for x in found.chain.levels] == [*data["vectors"][vector][:-1], None]
        greedy = read_temperatures(saved / f"calibrated_tiny_triple_T0_{vector}.yaml")
        assert greedy.levels == (None, None, None)
    assert summary.row("T0.7: speed, joint / equal").goal == 0.995
    assert summary.row("T0: speed, joint / equal").value == 1.0  # a greedy row has nothing to choose
    assert summary.row("T0.7: predicted speed, joint / equal").value >= 1.0


def test_a_profile_may_be_read_and_nothing_measured(tmp_path):
    times = [{"width": w, "batch": 1, "seconds": 0.01} for w in (1, 8)]
    levels = [{"name": f"L{k}", "seconds": times} for k in range(3)]
    path = tmp_path / "profile.json"
    path.write_text(json.dumps({"schema": 1, "levels": levels}))
    where = [f"results_dir={tmp_path}", f"temperatures_dir={tmp_path}", f"profile={path}", "evaluate=false"]
    assert calibrate.main([*SMALL, *where, "sampling.temperature=0.7", "largest_gamma=2"]) == 0
    summary = read_summary(tmp_path / "calibrate" / "summary.json")
    assert summary.runs[0].endswith("T0.7/calibration.json")
    assert not (tmp_path / "raw").exists()
    assert not any("speedup" in row.name for row in summary.rows)

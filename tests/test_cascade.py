"""Acceptance of an edge alone, in the chain and by fate; and that under ``exactly`` nothing below can be seen."""

from __future__ import annotations

import pytest
import torch
from bigram_chains import Bigram, bigram_chain, random_logits

from analysis.calibration_page import DIFFERING
from experiments import cascade
from experiments.cascade_config import read_config, windowed
from experiments.cascade_rows import figure_rows, lower_rows, recovery_rows
from experiments.run import CONF
from ssd.bench.loading import Loader
from ssd.bench.method_spec import EdgeSpec
from ssd.bench.records import read_run
from ssd.bench.spec import read_chain
from ssd.bench.summary import Row, read_summary
from ssd.calibrate.cascade import (
    FALSE_ALARMS,
    alpha,
    counted,
    counted_by_fate,
    difference,
    expected,
    records_of,
    same_law,
)
from ssd.calibrate.pair_alone import WholeVocabulary, pair_alone
from ssd.calibrate.saved import Temperatures, write_temperatures
from ssd.core.chain import Chain, Edge, Level
from ssd.core.generate import generate
from ssd.core.ngram import Ngram
from ssd.core.requests import Request, Sampling

VOCAB = 10


def entry(edge, block_start, start, drafted, accepted, end):
    tested = accepted + (end == "recovered")
    return {
        "edge": edge,
        "block_start": block_start,
        "start": start,
        "drafted": drafted,
        "tested": tested,
        "accepted": accepted,
        "emitted": accepted + 1,
        "end": end,
        "overlap": [],
    }


SCRIPT = [
    {
        "method": "x",
        "prompt_id": "p",
        "rounds": [
            entry(0, 5, 5, 2, 1, "recovered"),  # L1's block from 5 on: draft, recovered
            entry(0, 5, 7, 2, 2, "bonus"),  # and draft, draft, bonus
            entry(1, 5, 5, 5, 3, "recovered"),  # the third passes, the fourth does not
        ],
    },
    {"method": "x", "prompt_id": "q", "rounds": [entry(0, 9, 9, 1, 0, "recovered"), entry(1, 9, 9, 1, 0, "recovered")]},
]


def test_counts_by_prompt_first_token_and_fate():
    assert counted(SCRIPT, 1) == {"p": (3, 4), "q": (0, 1)}
    assert counted(SCRIPT, 1, first_only=True) == {"p": (1, 1), "q": (0, 1)}
    assert counted_by_fate(SCRIPT, 1) == {
        "draft": {"p": (2, 3), "q": (0, 0)},
        "recovered": {"p": (1, 1), "q": (0, 1)},
    }
    assert alpha(counted(SCRIPT, 1)).value == pytest.approx(3 / 5)
    assert difference(counted(SCRIPT, 1), counted(SCRIPT, 1, True)).value == pytest.approx(3 / 5 - 1 / 2)
    whole = [{**SCRIPT[1], "rounds": [{**SCRIPT[1]["rounds"][1], "tested": None}]}]
    with pytest.raises(ValueError, match="under block verification no single token is tested"):
        counted(whole, 1)
    with pytest.raises(ValueError, match="are in one of the two runs only"):
        same_law(counted(SCRIPT, 1), counted(SCRIPT[:1], 1))
    with pytest.raises(ValueError, match="none of method 'y'"):
        records_of(SCRIPT, "y")


# --- the engine ---------------------------------------------------------------------------------------------------

TARGET, MIDDLE = random_logits(0, VOCAB, spread=1.0), random_logits(1, VOCAB, spread=1.0)
MIDDLE = 0.6 * TARGET + 0.6 * MIDDLE
SMALL = 0.5 * MIDDLE + 0.5 * random_logits(2, VOCAB, spread=1.0)
EXACTLY = [Edge(2), Edge(3, "exactly")]


def decoded(chain: Chain, seed: int, method: str = "x") -> list[dict]:
    """Records of 30 prompts of one token, 48 tokens each."""
    requests = [Request((i % VOCAB,), Sampling(1.0), seed, request=i, max_new_tokens=48) for i in range(30)]
    return [
        {"method": method, "prompt_id": str(i), "rounds": [vars(r) for r in g.rounds]}
        for i, g in enumerate(generate(chain, requests))
    ]


def below(level: Level, edges=EXACTLY) -> Chain:
    """The chain with another level 0."""
    return Chain((level, Level(Bigram(MIDDLE)), Level(Bigram(TARGET))), tuple(edges))


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(lambda: (below(Level(Ngram())), 1), id="look-up"),
        pytest.param(
            lambda: (bigram_chain([SMALL, MIDDLE, TARGET], EXACTLY, temperatures=[0.3, None, None]), 1), id="cold"
        ),
        pytest.param(lambda: (below(Level(Bigram(random_logits(9, VOCAB)))), 1), id="stranger"),
        pytest.param(lambda: (bigram_chain([MIDDLE, TARGET], [Edge(3)]), 0), id="alone"),
    ],
)
def test_under_exactly_the_upper_edge_does_not_see_what_drafts_below(other):
    # False alarms: FALSE_ALARMS, 1 in 1000, in each of the four cases; seeds are fixed and differ.
    chain, edge = other()
    ours = counted(decoded(bigram_chain([SMALL, MIDDLE, TARGET], EXACTLY), 1), 1)
    theirs = counted(decoded(chain, 2), edge)
    assert same_law(ours, theirs).p > FALSE_ALARMS


def test_the_control_sees_another_middle_level():
    ours = counted(decoded(bigram_chain([SMALL, MIDDLE, TARGET], EXACTLY), 1), 1)
    chain = bigram_chain([SMALL, 0.5 * TARGET + 0.5 * MIDDLE, TARGET], EXACTLY)
    assert same_law(ours, counted(decoded(chain, 2), 1)).p <= FALSE_ALARMS


def test_acceptance_by_fate_belongs_to_what_drafts_below_and_its_mean_does_not():
    # A level 0 that knows the target makes the tokens it lands the better ones, one that misleads the worse.
    kin = decoded(below(Level(Bigram(0.9 * TARGET + 0.1 * MIDDLE))), 3)
    misleading = decoded(below(Level(Bigram(2 * MIDDLE - TARGET))), 4)
    gaps = [difference(own["draft"], own["recovered"]) for own in (counted_by_fate(r, 1) for r in (kin, misleading))]
    assert gaps[0].low > 0
    assert gaps[1].high < 0
    assert same_law(counted(kin, 1), counted(misleading, 1)).p > FALSE_ALARMS


def test_every_edge_above_the_lowest_is_split_by_fate():
    edges = [Edge(2), Edge(2, "exactly"), Edge(3, "exactly")]
    chain = bigram_chain([random_logits(9, VOCAB), SMALL, MIDDLE, TARGET], edges)
    records = decoded(chain, 5, "in the chain, exactly")
    for edge, pair in enumerate(([random_logits(9, VOCAB), SMALL], [SMALL, MIDDLE])):
        alone = decoded(bigram_chain(pair, edges[:1]), 6, "alone")
        rows = {row.name: row for row in lower_rows(records, alone, ["exactly"], edge)}
        where = f"L{edge}→L{edge + 1}, in the chain, exactly"
        assert rows[f"alpha {where}"].value == alpha(counted(records, edge)).value
        if edge == 0:
            assert not any("below" in name for name in rows)
            continue
        fates = counted_by_fate(records, edge)
        words = {"draft": "accepted", "recovered": "recovered", "bonus": "bonus", "plain": "computed"}
        assert set(words) == set(fates)
        for fate, word in words.items():
            assert rows[f"alpha {where}, {word} below"].value == alpha(fates[fate]).value
        shares = [row.value for name, row in rows.items() if name.startswith("share of tested")]
        assert sum(shares) == pytest.approx(1)


# --- pairs alone --------------------------------------------------------------------------------------------------


def test_a_level_with_a_draft_vocabulary_becomes_a_target_with_its_own_law():
    ids = torch.tensor([7, 1, 4, 2])
    inner = Bigram(random_logits(3, VOCAB, 5))  # one output more than there are ids, which a chain cuts off
    target = WholeVocabulary(inner, ids, VOCAB)
    target.allocate(1, 3)
    rows = target.score(torch.tensor([[5, 0, 9]]), torch.tensor([0]), 2)
    assert rows.shape == (1, 2, VOCAB)
    assert rows[0, :, ids].equal(inner.logits[[0, 9], :4])
    assert rows.isinf().sum() == 2 * (VOCAB - 4)
    pair = Chain(
        (Level(Bigram(SMALL)), Level(WholeVocabulary(Bigram(random_logits(3, VOCAB, 4)), ids, VOCAB))), (Edge(2),)
    )
    (done,) = generate(pair, [Request((5,), Sampling(1.0), 4, max_new_tokens=60)])
    assert set(done.ids) <= set(ids.tolist())
    assert len(set(done.ids)) > 1


def test_a_pair_alone_speaks_like_its_upper_level():
    spec, loader = read_chain("tiny_triple"), Loader()
    pair = pair_alone(spec, 0, loader)
    request = Request(tuple(b"a prompt"), Sampling(0.0), max_new_tokens=12)
    middle = Level(loader.level(spec.levels[1], "alone").model)
    assert generate(pair, [request])[0].ids == generate(Chain((middle,)), [request])[0].ids
    assert pair.edges == (Edge(2),)
    top = pair_alone(spec, 1, loader)
    assert generate(top, [request])[0].ids == generate(Chain(loader.chain(spec).levels[-1:]), [request])[0].ids
    with pytest.raises(ValueError, match="edge 2: a chain of 3 levels has edges 0 to 1"):
        pair_alone(spec, 2, loader)


# --- the command --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["measure.split=tune"], "measure: .*is for 'calibrate'"),
        (["chain=tiny_pair"], "chain: 'tiny_pair' has 1 edges, a cascade needs two"),
        (["windows=[at_least]"], r"windows: \['at_least'\] lack 'exactly'"),
        (["windows=[exactly, sometimes]"], "windows: 'sometimes'"),
        (["temperature=0"], "temperature: 0 makes every level greedy"),
        (["other_temperature=1.0"], "other_temperature: 1.0 is that of the row"),
        (["batch=0"], "batch: expected an integer >= 1"),
        (["temperatures=nowhere.yaml"], r"nowhere\.yaml: cannot be read"),
    ],
)
def test_wrong_settings_are_refused_before_anything_is_loaded(arguments, words):
    with pytest.raises(ValueError, match=words):
        read_config(CONF / "cascade.yaml", arguments)


def test_temperatures_for_another_row_are_refused(tmp_path):
    path = tmp_path / "x.yaml"
    write_temperatures(path, Temperatures((0.5, 0.5, None), (), 0.7), [])
    with pytest.raises(ValueError, match=r"temperatures: made for a row at 0\.7, the study's is at 1"):
        read_config(CONF / "cascade.yaml", [f"temperatures={path}"])


def test_windows_apply_above_the_lowest_edge():
    edges = (EdgeSpec(2), EdgeSpec(3, "confidence", 0.5), EdgeSpec(4))
    assert windowed(edges, "exactly") == (EdgeSpec(2), EdgeSpec(3, "exactly"), EdgeSpec(4, "exactly"))


def test_the_command_leaves_rows_and_a_figure(tmp_path, capsys):
    path = tmp_path / "x.yaml"
    write_temperatures(path, Temperatures((1.4, 1.2, None), (), 0.7), [])
    where = [f"results_dir={tmp_path}", "chain=tiny_triple", "temperature=0.7", f"temperatures={path}"]
    assert (
        cascade.main(
            [*where, "measure.max_new_tokens=8", "measure.limit=3", "windows=[exactly, at_least]", "samples=2"]
        )
        == 0
    )
    assert "wrote" in capsys.readouterr().out
    folder = tmp_path / "cascade"
    summary = read_summary(folder / "summary.json")
    assert [p.rsplit("/", 2)[-2] for p in summary.runs] == ["upper", "control", "alone_L0_L1"]
    upper, control = read_run(folder / "upper"), read_run(folder / "control")
    assert control.run["config"]["seed"] == upper.run["config"]["seed"] + 1
    for other in ("alone", "n-gram below", "L0 at 0.5 below"):
        name = f"control L1→L2, exactly: in the chain - {other}"
        assert summary.row(f"{name}, p-value").goal is None  # 3 prompts cannot miss it
        assert summary.row(f"{name}, overlap").n == 3
    by_sample = {r["sample"] for r in upper.records}, {r["sample"] for r in read_run(folder / "alone_L0_L1").records}
    assert by_sample == ({0, 1}, {0, 1})
    own = records_of(upper.records, "in the chain, exactly")
    assert summary.row("overlap L1→L2, in the chain, exactly").value == alpha(expected(own, 1)).value
    calibrated = records_of(upper.records, "in the chain, exactly, calibrated")
    row = summary.row("alpha L1→L2, in the chain, exactly, calibrated")
    assert row.value == alpha(counted(calibrated, 1)).value
    assert summary.row(DIFFERING).value == 2
    assert summary.row("alpha L0→L1, alone").n == 3
    shown = figure_rows(summary.rows, 1)
    assert {"alone", "at_least", "exactly, accepted below"} <= {r["name"] for r in shown}
    assert not any("share" in r["name"] or " - " in r["name"] for r in shown)
    assert len({r["name"] for r in shown}) == len(shown)
    assert (folder / "alpha.png").stat().st_size > 1000


@pytest.mark.parametrize(
    "saved", [Temperatures((0.7, None, None), (), 0.7), Temperatures()], ids=["nothing better found", "equal.yaml"]
)
def test_a_file_that_says_what_the_row_says_is_stated_and_not_run_twice(tmp_path, saved):
    path = tmp_path / "x.yaml"
    write_temperatures(path, saved, [])
    where = [f"results_dir={tmp_path}", "chain=tiny_triple", "temperature=0.7", f"temperatures={path}"]
    assert cascade.main([*where, "measure.max_new_tokens=4", "measure.limit=2", "windows=[exactly]"]) == 0
    summary = read_summary(tmp_path / "cascade" / "summary.json")
    assert summary.row(DIFFERING) == Row(DIFFERING, 0, "count")
    assert not any("calibrated" in row.name for row in summary.rows if row.name != DIFFERING)
    methods = {r["method"] for r in read_run(tmp_path / "cascade" / "upper").records}
    assert methods == {"in the chain, exactly", "alone"}
    assert recovery_rows([], (None, None, None), 1) == [summary.row(DIFFERING)]

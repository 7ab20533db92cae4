"""The numbers of a report are those of the metrics, under names that mean one model each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analysis import acceptance_rows as rows
from analysis.headline import lead, tiles, title, verdict
from analysis.settings import level_names, settings
from analysis.speed_rows import edge_rows, speed_rows, time_rows
from ssd.bench.acceptance import acceptance_by_output_length, acceptance_by_output_position, edge_counts
from ssd.bench.draft_positions import acceptance_at
from ssd.bench.intervals import edge_estimates, fate_estimates
from ssd.bench.length_bins import bin_name
from ssd.bench.metrics import tokens_per_second
from ssd.bench.records import Run
from tests.scripted_records import record, scripted
from tests.simulated_runs import config, simulated

X = "\N{MULTIPLICATION SIGN}"
CHAIN = "L0→L1→L2"


def run(records, run_id="r", **told):
    return Run({"run_id": run_id, "status": "complete", **told}, [{**r, "run_id": run_id} for r in records])


@pytest.fixture(scope="module")
def setting():
    records = simulated("r", 1.0, 6, 60)
    return settings([run(records, config=config("x", 1.0, 60, "float32"))])[0]


def test_levels_have_the_names_of_the_runs_chain(setting):
    levels = {method.name: method.levels for method in setting.methods}
    assert levels == {
        "ar": ("L2",),
        "library assisted": ("L0", "L2"),
        "n-gram→L2": ("n-gram", "L2"),
        "L0→L2": ("L0", "L2"),
        "L1→L2": ("L1", "L2"),
        CHAIN: ("L0", "L1", "L2"),
    }
    assert [m.family for m in setting.methods] == ["baseline", "other", "draft", "draft", "draft", "chain"]
    assert [setting.method(CHAIN).edge_name(k) for k in (0, 1)] == ["L0→L1", "L1→L2"]
    assert level_names({}, {}, 3) == ("L0", "L1", "L2")
    assert level_names(config("x", 0, 1, "float32"), {"kind": "transformers_lookup"}, 2) == ("n-gram", "L2")
    assert level_names({"chain": {"levels": [1, 2]}}, {"levels": [0, 1]}, 3) == ("L0", "L1", "L2")


def test_settings_without_a_configuration_and_with_several_temperatures():
    found = settings([run([record("a", "ar", temperature=t) for t in (0.0, 1.0)], label="both")])
    assert [(s.title, s.temperature) for s in found] == [("both, T 0", 0.0), ("both, T 1", 1.0)]
    twins = settings([run([record()], "one", label="same"), run([record()], "two", label="same")])
    assert [s.title for s in twins] == ["one", "two"]


def test_rows_by_place_agree_with_the_metrics(setting):
    for method in setting.methods:
        for edge in method.edges:
            name, records = method.edge_name(edge), method.records
            at = {e.position: e for e in acceptance_at(records, edge)}
            own = [r for r in rows.by_draft_position(setting) if (r["method"], r["edge"]) == (method.name, name)]
            assert [r["place"] for r in own] == list(at)
            for row in own:
                expected = at[row["place"]]
                assert (row["alpha"], row["unconditional"]) == (expected.conditional, expected.unconditional)
                assert (row["tested"], row["accepted"]) == (expected.tested, expected.accepted)
            bins = rows.bins_for(setting)
            for made, tallies in (
                (rows.by_output_position(setting), acceptance_by_output_position(records, edge, bins)),
                (rows.by_output_length(setting), acceptance_by_output_length(records, edge, bins)),
            ):
                own = [r for r in made if (r["method"], r["edge"]) == (method.name, name)]
                expected = {bin_name(b): (t.tested, t.accepted, t.alpha) for b, t in tallies.items()}
                assert all((r["tested"], r["accepted"], r["alpha"]) == expected[r["place"]] for r in own)
                assert sum(r["tested"] for r in own) == edge_counts(records, edge).tested


def test_rows_by_fate_agree_with_the_metrics(setting):
    method, made = setting.method(CHAIN), rows.by_fate(setting)
    assert {(r["method"], r["edge"]) for r in made} == {(CHAIN, "L1→L2")}
    expected = {rows.FATE_NAMES[f]: e for f, e in fate_estimates(method.records, 1).items() if e.value is not None}
    whole = {r["fate"]: (r["alpha"], r["low"], r["high"]) for r in made if r["by"] == "all"}
    assert whole == {f: (e.value, e.low, e.high) for f, e in expected.items()}
    for by in ("draft position", "output position", "output length"):
        assert sum(r["tested"] for r in made if r["by"] == by) == edge_counts(method.records, 1).tested
    ((name, edge, difference),) = rows.fate_differences(setting)
    assert (name, edge) == (CHAIN, "L1→L2")
    assert difference.value == pytest.approx(expected["accepted below"].value - expected["recovered below"].value)


def test_time_rows_add_up_to_the_time_per_token(setting):
    made = time_rows(setting)
    for method in setting.methods:
        own = [r for r in made if r["method"] == method.name]
        assert [r["level"] for r in own] == [*method.levels, "outside passes"]
        assert sum(r["milliseconds"] for r in own) == pytest.approx(1000 / tokens_per_second(method.records))
        assert own[-2]["role"] == "target"
    broken = run(
        [dict(record("a", "ar", 5, (0.5, 1.0)), seconds={"total": None, "prefill": 0, "rest": 0, "passes": {}})]
    )
    assert [r["milliseconds"] for r in time_rows(settings([broken])[0])] == [None]


def test_speed_rows_and_edge_rows(setting):
    made = {row["method"]: row for row in speed_rows(setting)}
    assert made[CHAIN]["edge"] == ["L0→L1", "L1→L2"]
    assert made["ar"]["speedup"] == made["ar"]["speedup_e2e"] == 1
    assert made["ar"]["edge"] == made["ar"]["alpha"] == []
    assert made[CHAIN]["speedup_low"] < made[CHAIN]["speedup"] < made[CHAIN]["speedup_high"]
    own = [r for r in edge_rows(setting) if r["method"] == CHAIN]
    expected = edge_estimates(setting.method(CHAIN).records, 1)["tau"]
    assert (own[1]["tau"], own[1]["tau_low"], own[1]["tau_high"]) == expected[:3]


def test_no_alpha_under_block_verification():
    """Then no single token is tested."""
    told = {"chain": {"levels": [1, 2], "edges": [{"gamma": 4, "verification": "block"}]}, "methods": {"spec": {}}}
    whole = tuple(replace(r, tested=None) for r in scripted(4, [4, 0, 2]))
    records = [record("a", "spec", 9, rounds=whole, counts=())]
    found = settings([run(records, config=told)])[0]
    assert speed_rows(found)[0]["alpha"] == [None]
    assert edge_rows(found)[0]["alpha"] is None
    assert edge_rows(found)[0]["tau"] == 3.0
    places = rows.by_draft_position(found)
    assert [(r["alpha"], r["unconditional"]) for r in places] == [(None, x / 3) for x in (2, 2, 1, 1)]
    assert rows.by_output_position(found) == rows.by_output_length(found) == []


def answer(chain_seconds, prompts=8, names=("ar", "one", "two"), levels=3):
    """Verdict of a setting where one draft takes 5 s per prompt and the chain ``chain_seconds`` (by prompt)."""
    methods = {"ar": {"levels": [-1]}, "one": {"levels": [1, 2]}, "two": {"levels": [0, 1, 2]}}
    records = []
    for i in range(prompts):
        seconds = {"ar": 10.0, "one": 5.0, "two": chain_seconds(i)}
        records += [
            record(f"p{i}", m, 10, (0, seconds[m]), counts=({"count": 1, "tokens": 1},) * len(methods[m]["levels"]))
            for m in names
        ]
    told = {"chain": {"levels": [1] * levels}, "methods": methods}
    found = settings([run(records, config=told, label="s")])[0]
    return verdict(found, speed_rows(found))


@pytest.mark.parametrize(
    ("seconds", "outcome", "words"),
    [
        (lambda i: 4.0, "pays", f"A draft for the draft pays: two is 1.25{X} as fast as one"),
        (lambda i: 6.25, "costs", f"A draft for the draft does not pay: two is 0.80{X} as fast as one"),
        (
            lambda i: 4.0 if i % 2 else 6.0,
            "level",
            f"A draft for the draft changes little: two is 1.00{X} as fast as one",
        ),
    ],
)
def test_headline_of_one_setting(seconds, outcome, words):
    found = answer(seconds)
    assert found.outcome == outcome
    assert title([found]) == words
    assert f"a single draft is one with 2.0 tokens/s, 2.00{X} plain decoding [2.00, 2.00]. " in lead([found])
    assert tiles([found])[1][0] == f"{found.gain.value:.2f}{X}"


def test_headline_of_many_settings_counts_them():
    found = [answer(lambda i: 4.0), answer(lambda i: 6.25), answer(lambda i: 7.0)]
    assert title(found) == "A draft for the draft pays in 1 of 3 settings"
    assert lead(found).startswith(f"At best, in s: two decodes 2.5 tokens/s, 2.50{X} plain decoding [2.50, 2.50]; ")
    assert title(found[1:]) == "A draft for the draft pays in none of 2 settings"


def test_headline_where_there_is_nothing_to_compare():
    assert title([]) == "No run has completed"
    assert answer(lambda i: 4.0, prompts=1).outcome == "unknown"
    alone = answer(lambda i: 4.0, names=("ar", "one"))
    assert (alone.outcome, title([alone])) == ("absent", f"one decodes 2.00{X} as fast as plain decoding")
    assert title([answer(lambda i: 4.0, names=("ar",))]) == "Nothing is faster than plain decoding here"
    assert title([answer(lambda i: 4.0, names=("one",))]) == "one: 2.0 tokens per second"

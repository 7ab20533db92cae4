"""``experiments.plan_validate``: its configurations, the fit of overheads, the verdict, and one whole run."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from experiments import plan_validate as command
from experiments.plan_config import read_config
from experiments.plan_groups import check_levels, parse_groups
from experiments.plan_verdict import Measured, Verdict, summary_rows, validate
from ssd.bench.statistics import Estimate
from ssd.bench.summary import read_summary
from ssd.plan.acceptance import Constant
from ssd.plan.edge_plan import EdgePlan
from ssd.plan.pass_times import PassTimes, Profile
from ssd.plan.prediction import predict
from ssd.plan.residual import Features, Overheads, fit

PLANTED = Overheads((0.02, 0.05, 0.004))


def test_the_file_has_what_is_to_be_shown():
    groups = parse_groups(read_config(command.CONFIG, [])["groups"])
    vectors = [v for g in groups for v in g.vectors]
    assert len(vectors) >= 20
    assert {len(v.gammas) for v in vectors} == {1, 2}
    assert sum("exactly" in v.windows for v in vectors) == 2
    assert {g.batch for g in groups} == {1, 4}
    assert {g.temperature for g in groups} == {0.0, 1.0}
    assert any(g.temperatures for g in groups)
    halves = [g.half(v.title) for g in groups for v in g.vectors]
    assert abs(halves.count("fit") - halves.count("test")) <= 1
    assert {g.half("ar") for g in groups} == {"fit"}
    for group in groups:
        check_levels(group, ["ngram", 0, 1, 2])


GROUP = {"temperature": 0.0, "batch": 1, "methods": [{"levels": [0, 2], "gammas": [1]}]}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ([], "groups: expected a list"),
        ([{"batch": 1}], "groups[0]: expected temperature, batch"),
        ([GROUP | {"batch": 0}], "groups[0].batch: expected an integer >= 1, got 0"),
        ([GROUP | {"temperature": "x"}], "groups[0].temperature: expected a number, got 'x'"),
        ([GROUP, GROUP], "groups[1]: T0-batch1 occurs twice"),
        ([GROUP | {"methods": GROUP["methods"] * 2}], "groups[0].methods: L0→L2 [1] occurs twice"),
        ([GROUP | {"methods": [{"levels": [0, 2], "gammas": [1, 2]}]}], "methods[0].gammas: 2 levels need 1"),
        ([GROUP | {"methods": [{"levels": [0, 2], "gammas": [0]}]}], "methods[0].gammas: expected integers >= 1"),
        ([GROUP | {"methods": [{"levels": [2], "gammas": []}]}], "methods[0].levels: expected at least two"),
        (
            [GROUP | {"methods": [GROUP["methods"][0] | {"windows": ["wide"]}]}],
            "methods[0].windows: expected 1 of at_least, exactly, rounds, until_correction, got ['wide']",
        ),
    ],
)
def test_a_wrong_group_is_named(data, words):
    with pytest.raises(ValueError) as caught:
        parse_groups(data)
    assert words in str(caught.value)


@pytest.mark.parametrize("levels", [[0, 1], [2, 0], [0, 5], [0, 0, 2]])
def test_levels_end_with_the_target_in_order(levels):
    wrong = {"levels": levels, "gammas": [1] * (len(levels) - 1)}
    right = [{"levels": [0, 2], "gammas": [g]} for g in (1, 2, 3)]
    (group,) = parse_groups([GROUP | {"methods": [*right, wrong]}])
    with pytest.raises(ValueError, match="no ascending choice of"):
        check_levels(group, ["ngram", 0, 1, 2])


def features(gammas, batch, sampled):
    """Features of a chain with flat passes."""
    costs = (0.05, 0.3, 1.0)
    names = ("L0", "L2") if len(gammas) == 1 else ("L0", "L1", "L2")[2 - len(gammas) :]
    used = (costs[0], costs[2]) if len(gammas) == 1 else costs[2 - len(gammas) :]
    profile = Profile(tuple(PassTimes.flat(n, c) for n, c in zip(names, used, strict=True)))
    found = predict(profile, [EdgePlan(g) for g in gammas], [Constant(0.7)] * len(gammas), batch)
    return Features.of(found, batch, look_up=False, sampled=sampled)


def configurations(noise=0.0, wrong=1.0):
    """Sixteen configurations whose clock follows ``PLANTED``; every second is off by ``noise`` either way."""
    out = []
    for batch, sampled in ((1, False), (1, True), (4, False), (4, True)):
        vectors = [(), (1,), (3,), (1, 2), (2, 4)]
        own = [features(v, batch, sampled) for v in vectors]
        base = PLANTED.seconds_per_token(own[0])
        for i, (vector, f) in enumerate(zip(vectors, own, strict=True)):
            seconds = wrong * f.profiled + PLANTED.seconds_per_token(f) - f.profiled
            seconds *= 1 + (noise if i % 4 < 2 else -noise) * bool(vector)
            gained = Estimate(base / seconds, 0.95 * base / seconds, 1.05 * base / seconds, 12) if vector else None
            half = "fit" if not vector or i % 2 else "test"
            out.append(
                Measured(
                    f"T{sampled:d}-b{batch}", str(vector) if vector else "ar", half, f, seconds, gained, f.profiled
                )
            )
    return out


def test_planted_overheads_are_found_on_half_and_predict_the_other():
    verdict = validate(configurations())
    assert verdict.overheads.seconds == pytest.approx(PLANTED.seconds, rel=1e-6)
    rows = {row.name: row for row in summary_rows(verdict)}
    assert rows["median error: test half"].value == pytest.approx(0, abs=1e-9)
    assert rows["median error: test half"].met
    assert rows["median error without overheads: test half"].value > 0.01
    assert rows["choice / best measured: worst group"].value == pytest.approx(1.0)
    assert rows["median error: test half"].bound == pytest.approx(0.6745 / 3.92 * 0.1)
    assert not rows["configurations"].met  # sixteen are fewer than twenty


def test_an_error_of_the_clock_shows_on_the_other_half():
    """Negative control: what the model does not know is reported, not fitted away."""
    rows = {row.name: row for row in summary_rows(validate(configurations(noise=0.15)))}
    assert rows["median error: test half"].value > 0.07
    assert rows["median error: test half"].met is False


def test_a_choice_that_the_clock_refutes_is_seen():
    best = configurations()
    speeds = {m.name: m.seconds for m in best if m.group == "T0-b1"}
    fastest = min(speeds, key=speeds.__getitem__)
    slowed = [replace(m, seconds=m.seconds * 2) if (m.group, m.name) == ("T0-b1", fastest) else m for m in best]
    verdict = Verdict(tuple(slowed), PLANTED)
    chosen, share = verdict.choice("T0-b1")
    assert chosen.name == fastest
    assert share < 0.95


OWN = "median error of the planner's own model, all configurations"


def test_the_planners_own_model_is_judged_unfitted():
    planted = configurations()
    rows = {row.name: row for row in summary_rows(validate(planted))}
    assert rows[OWN].value > 0.01  # it knows of no overhead here, and nothing is fitted for it
    assert rows[OWN].n == 16
    exact = summary_rows(validate([replace(m, planner=m.seconds) for m in planted]))
    rows = {row.name: row for row in exact}
    assert rows[OWN].value == pytest.approx(0, abs=1e-12)
    assert rows["planner's own choice / best measured: worst group"].value == 1.0
    partial = [replace(m, planner=0.0 if m.name == "(1,)" else m.seconds) for m in planted if m.group == "T0-b1"]
    share = Verdict(tuple(partial), Overheads()).planner_choice("T0-b1")[1]
    assert share == pytest.approx(min(m.seconds for m in partial) / partial[1].seconds)
    assert share < 1


def test_overheads_are_never_negative_and_need_three_configurations():
    own = [features(v, 1, True) for v in [(), (1,), (3,), (2, 4)]]
    assert fit(own, [0.9 * f.profiled for f in own]).seconds == (0.0, 0.0, 0.0)
    assert fit(own, [f.profiled + 0.1 * f.counts[0] for f in own]).seconds == pytest.approx((0.1, 0, 0), abs=1e-9)
    with pytest.raises(ValueError, match="at least 3"):
        fit(own[:2], [1.0, 1.0])


def test_features_count_what_a_round_does():
    """Three draft passes and one verification of four rows per round of the batch."""
    profile = Profile((PassTimes.flat("L0", 0.1), PassTimes.flat("L2", 1.0)))
    found = predict(profile, [EdgePlan(3)], [Constant(0.0)])
    counted = Features.of(found, 1, look_up=False, sampled=True)
    assert counted.counts == pytest.approx((4.0, 1.0, 3 + 4))
    assert counted.profiled == pytest.approx(1.3)
    assert Features.of(found, 1, look_up=False, sampled=False).counts[2] == 0
    assert Features.of(found, 1, look_up=True, sampled=False).counts[0] == pytest.approx(1.0)


def test_the_whole_path_on_a_tiny_chain(tmp_path):
    results = tmp_path / "validate"
    triple = "{levels: [0, 1, 2], gammas: [1, 2], windows: [at_least, exactly]}"
    methods = f"[{{levels: [ngram, 2], gammas: [2]}}, {{levels: [0, 2], gammas: [1]}}, {triple}]"
    batch = "{temperature: 0.0, batch: 2, methods: [{levels: [0, 2], gammas: [2]}]}"
    arguments = [f"groups=[{{temperature: 0.0, batch: 1, methods: {methods}}}, {batch}]", "measure.limit=2"]
    arguments += ["tune.limit=2"]
    arguments += ["tune.max_new_tokens=10", "measure.max_new_tokens=6", "profiling={widths: [1, 4, 8], repeats: 1}"]
    assert command.main(["chain=tiny_triple", f"results_dir={results}", *arguments]) == 0
    rows = {row.name: row for row in read_summary(results / "summary.json").rows}
    assert rows["configurations"].value == 4
    assert rows["median error: test half"].n == 2
    assert rows[OWN].n == 4
    predicted, measured = (json.loads((results / f"{n}.json").read_text()) for n in ("predictions", "measured"))
    assert measured["predictions_sha256"] == predicted["sha256"]
    assert measured["predictions_written"] <= measured["written"]
    assert [row["half"] for row in measured["configurations"]] == ["fit", "test", "fit", "test"]
    group, other = predicted["content"]["groups"]
    assert set(group["configurations"]) == {"ar", "n-gram→L2 [2]", "L0→L2 [1]", "L0→L1→L2 [1, 2 exactly]"}
    assert group["planner_choice"] in group["configurations"]
    assert {own["slowest_row"] for own in group["configurations"].values()} == {1.0}
    assert other["configurations"]["ar"]["slowest_row"] == pytest.approx(1.0)
    assert other["configurations"]["L0→L2 [2]"]["slowest_row"] >= 1
    assert (results / "report.html").exists()
    assert (results / "profiles" / "T0.json").exists()

"""Vectors of temperatures side by side and in files, and the command that chooses them."""

from __future__ import annotations

import gzip
import json

import pytest
from hydra import compose, initialize_config_dir

from experiments import calibrate, schema
from experiments.calibrate_config import read_config
from experiments.calibrate_runs import overrides
from experiments.run import CONF
from experiments.schema import plain_config, run_spec
from ssd.bench.loading import Loader
from ssd.bench.method_spec import EdgeSpec
from ssd.bench.records import read_run
from ssd.bench.spec import ChainSpec, LevelSpec
from ssd.bench.summary import read_summary
from ssd.calibrate.saved import Temperatures, read_temperatures, set_on, write_temperatures
from ssd.calibrate.vectors import distinct, side_by_side, stands_for

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


def made_for_a_chain(folder) -> list[tuple[str, Temperatures]]:
    """Name and content of every file of a folder's ``chain/temperatures`` that names its sources."""
    found = [(p.stem, read_temperatures(p)) for p in sorted((folder / "chain" / "temperatures").glob("*.yaml"))]
    return [(name, saved) for name, saved in found if saved.sources]


def test_every_saved_vector_that_comes_with_the_suite_composes_with_the_default_chain(tmp_path):
    sources = tuple(x.source for x in composed().chain.levels)
    one = Temperatures((0.5, None, None), sources, 0.7)
    write_temperatures(tmp_path / "chain" / "temperatures" / "calibrated_written.yaml", one, [])
    written = made_for_a_chain(tmp_path)
    assert written == [("calibrated_written", one)]
    for name, saved in [*made_for_a_chain(CONF), *written]:
        levels = composed(f"chain/temperatures={name}", folder=tmp_path).chain.levels
        assert tuple(x.source for x in levels) == saved.sources
        assert tuple(x.temperature for x in levels) == saved.levels
    stranger = Temperatures(one.levels, (*sources[:-1], "random:other"), 0.7)
    write_temperatures(tmp_path / "chain" / "temperatures" / "stranger.yaml", stranger, [])
    with pytest.raises(ValueError, match=r"temperatures\.sources: made for"):
        composed("chain/temperatures=stranger", folder=tmp_path)


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
        ("{gamma: 2}", "a', temperature: 0.4, dtype: 'float32", r"chain\.levels\[0\]\.temperature: 0\.4; a calibrated"),
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
    filtered, _ = read_config(CONF / "calibrate.yaml", ["sampling.top_k=5", "sampling.top_p=0.9"])
    assert filtered.saved(0.7, "joint").name == "calibrated_smollm2_T0.7_top_k5_top_p0.9_joint.yaml"
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
    for name in ("alpha_L0_L1.svg", "alpha_L0_L2.svg", "alpha_L1_L2.png"):
        assert (folder / "T0.7" / name).stat().st_size > 1000
    data = json.loads((folder / "T0.7" / "calibration.json").read_text())
    assert data["positions"] == 3 * 2 * 6
    assert {len(v) for v in data["vectors"].values()} == {3}
    coarse = [c for c in data["cells"] if c["verifier"] == 2 and c["verifier_temperature"] == 1.6]
    assert len(coarse) >= 2 * 3  # heat maps reach beyond the target's own temperature
    for vector in ("top_down", "joint"):
        row = summary.row(f"T0.7: alpha L1→L2, {vector} - equal")
        assert (row.goal, row.n) == (-0.005, 2)
        found = composed(
            "chain=tiny_triple", f"chain/temperatures=calibrated_tiny_triple_T0.7_{vector}", folder=tmp_path
        )
        assert [x.temperature for x in found.chain.levels] == [*data["vectors"][vector][:-1], None]
    assert not list(saved.glob("*_T0_*"))  # a greedy row has nothing to choose
    for pair in ("L0→L1", "L0→L2", "L1→L2"):
        assert summary.row(f"T0.7: alpha {pair}, best cell - equal, calibration texts").value >= 0
    same = data["vectors"]["joint"] == data["vectors"]["equal"]
    speed = summary.row(f"T0.7: speed, joint / equal{', same run' if same else ''}")
    assert speed.goal == (None if same else 0.995)
    assert summary.row("T0: speed, joint / equal, same run").value == 1.0
    with gzip.open(folder / "T0.7" / "cells_by_task_and_position.jsonl.gz", "rt") as lines:
        split = [json.loads(line) for line in lines]
    key = ("draft", "verifier", "draft_temperature", "verifier_temperature")
    assert {tuple(c[k] for k in key) for c in split if "task" in c} == {tuple(c[k] for k in key) for c in data["cells"]}
    assert data["busy_elsewhere"] is None or 0 <= data["busy_elsewhere"] <= 1
    speeds = data["predicted_tokens_per_second"]
    assert summary.row("T0.7: predicted speed, joint / equal").value == speeds["joint"] / speeds["equal"]


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


def given(tmp_path, batch=1, sources=(None, None, None)):
    """A profile file of three levels with passes of so many rows."""
    times = [{"width": w, "batch": batch, "seconds": 0.01} for w in (1, 8)]
    levels = [{"name": f"L{k}", "seconds": times, "source": s} for k, s in enumerate(sources)]
    path = tmp_path / "profile.json"
    path.write_text(json.dumps({"schema": 1, "levels": levels, "busy": True, "busy_elsewhere": 0.25}))
    return path


@pytest.mark.parametrize(
    ("profile", "words"),
    [
        ({"batch": 4}, r"profile: .*profile\.json: level L0: no pass was measured for batch 1"),
        (
            {"sources": ("random:other", None, None)},
            r"profile: .*profile\.json is of another chain: L0 is 'random:other'",
        ),
    ],
)
def test_a_profile_that_does_not_fit_is_refused_before_weights_are_read(tmp_path, monkeypatch, profile, words):
    monkeypatch.setattr(Loader, "chain", lambda *_: pytest.fail("weights were read"))
    with pytest.raises(ValueError, match=words):
        calibrate.main([*SMALL, f"results_dir={tmp_path}", f"profile={given(tmp_path, **profile)}"])


def test_one_temperature_keeps_the_rows_of_others_and_removes_records_that_it_does_not_make(tmp_path, capsys):
    small = [*SMALL, f"results_dir={tmp_path}", f"temperatures_dir={tmp_path}", f"profile={given(tmp_path)}"]
    small += ["evaluate=false", "tune.limit=2", "samples=1"]
    folder = tmp_path / "calibrate"
    assert calibrate.main([*small, "sampling.temperature=0.7"]) == 0
    assert "25% of the machine was busy with something else" in capsys.readouterr().out
    before = read_summary(folder / "summary.json")
    (folder / "T0.5").mkdir()
    (folder / "T0.5" / "run.json").write_text("{}")  # of an earlier call that measured
    assert calibrate.main([*small, "sampling.temperature=0.5"]) == 0
    assert not (folder / "T0.5" / "run.json").exists()
    both = read_summary(folder / "summary.json")
    assert [p.rsplit("/", 2)[-2] for p in both.runs] == ["T0.5", "T0.7"]
    assert [r for r in both.rows if r.name.startswith("T0.7")] == before.rows
    assert any(r.name.startswith("T0.5") for r in both.rows)
    assert calibrate.main([*small, "sampling.temperature=0.5", "refine=1"]) == 0  # other settings
    assert "T0.7: its rows leave the summary" in capsys.readouterr().out
    assert not any(r.name.startswith("T0.7") for r in read_summary(folder / "summary.json").rows)

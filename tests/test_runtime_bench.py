"""The comparison of runtimes: what it runs, what its rows and sentences say, and what it makes of a wrong output."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from experiments import runtime_bench
from experiments.runtime_bench_config import AR, FAST, PLAIN, TF_AR, RuntimeBench, method, read_bench
from experiments.runtime_bench_cost import OneTime, cost_rows
from experiments.runtime_bench_findings import changed, findings, told, verdict
from experiments.runtime_bench_rows import over, over_plain, over_transformers, parting_rows, pass_rows, speed_rows
from ssd.bench import loading
from ssd.bench.json_files import read_json
from ssd.bench.loading import Loader
from ssd.bench.memory import ChainMemory, LevelMemory
from ssd.bench.pass_grid import PassCell
from ssd.bench.random_weights import RandomWeights, random_config
from ssd.bench.records import read_run
from ssd.bench.summary import Row, Summary, read_summary
from ssd.runtime.packing import can_pack
from tests.scripted_records import record

CONFIG = Path(__file__).resolve().parent.parent / "conf" / "runtime_bench.yaml"
SMALL = ("measure.limit=2", "measure.max_new_tokens=6", "passes={widths: [1, 3], repeats: 2, context: 8}")
CHAIN, PAIR, LOOK_UP = "L0→L1→L2", "L0→L2", "n-gram→L2"
LEVEL = "random:llama?hidden=32&layers=2&heads=2&vocab=256&positions=4096&range=0.3"


def chain_file(folder: Path, dtype: str, source: str = LEVEL) -> str:
    levels = "".join(f'  - {{source: "{source}&seed={seed}", dtype: {dtype}}}\n' for seed in (1, 2, 3))
    path = folder / f"{dtype}.yaml"
    path.write_text(f"levels:\n{levels}edges: [{{gamma: 2}}, {{gamma: 2}}]\n")
    return str(path)


def arguments(folder: Path, dtype: str) -> list[str]:
    return [f"chain={chain_file(folder, dtype)}", f"target_dtype={dtype}", *SMALL]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The folder of the finished command in a dtype."""
    made: dict[str, Path] = {}

    def run(dtype: str) -> Path:
        if dtype not in made:
            folder = tmp_path_factory.mktemp(dtype)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(runtime_bench, "ROOT", folder)
                assert runtime_bench.main(arguments(folder, dtype)) == 0
            made[dtype] = folder / "results" / "runtime"
        return made[dtype]

    return run


def test_the_file_as_it_is() -> None:
    bench = read_bench(CONFIG, [], Path("somewhere"))
    spec = bench.spec
    assert list(spec.methods) == [TF_AR, *(f"{name} {r}" for name in (AR, PAIR, CHAIN, LOOK_UP) for r in (PLAIN, FAST))]
    assert [m.runtime for m in spec.methods.values()] == [None, *(PLAIN, FAST) * 4]
    assert {level.dtype for level in spec.chain.levels} == {"bfloat16"}
    assert [e.gamma for e in spec.methods[method(CHAIN, FAST)].edges] == [1, 2]
    assert (spec.prompts.split, spec.prompts.limit, spec.max_new_tokens, spec.sampling.temperature) == (
        "measure",
        12,
        40,
        0.0,
    )
    assert (bench.passes.widths, bench.results) == ((1, 2, 4, 8), Path("somewhere/results/runtime"))
    assert bench.versus == [(PAIR, AR), (CHAIN, AR), (LOOK_UP, AR), (CHAIN, PAIR), (CHAIN, LOOK_UP)]


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("passes={widths: [], repeats: 3, context: 8}", r"passes: widths: expected at least one"),
        ("passes={widths: [1, 0], repeats: 3, context: 8}", r"passes: widths: expected at least 1, got 0"),
        ("passes={widths: [1], repeats: 0, context: 8}", r"passes: repeats: expected at least 1, got 0"),
        ("passes={widths: [1]}", r"passes\.repeats: missing"),
        ("families={}", r"families: expected at least one by name, got \{\}"),
        ("families={a: {levels: [2], edges: [[]]}}", r"families\.a\.levels: \[2\] has no draft"),
        ("families={ar: {levels: [0, 2], edges: [[{gamma: 1}]]}}", r"families\.ar: the name of the target alone"),
        (
            "families={a: {levels: [0, 2], edges: [[{gamma: 1}], [{gamma: 2}]]}}",
            r"families\.a\.edges: expected one choice of edges, got 2",
        ),
        ("families={a: {levels: [0, 1], edges: [[{gamma: 1}]]}}", r"methods\.a eager\.levels: .* with the target"),
        ("measure.split=tune", r"measure: dataset bundled, split tune: this data is for 'calibrate'"),
        ("speed=1", r"speed: unknown key"),
    ],
)
def test_a_wrong_argument_is_named_before_weights_are_read(
    argument: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "load_module", lambda *a: pytest.fail("weights were read"))
    with pytest.raises(ValueError, match=rf"^{words}"):
        runtime_bench.main([argument])


def test_a_level_that_a_runtime_cannot_compute_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "load_module", lambda *a: pytest.fail("weights were read"))
    config = random_config(RandomWeights("llama"))
    config.hidden_act = "gelu"
    config.save_pretrained(tmp_path / "odd")
    path = tmp_path / "odd.yaml"
    path.write_text(
        f"levels: [{{source: 'folder:{tmp_path / 'odd'}'}}, {{source: '{LEVEL}'}}]\nedges: [{{gamma: 1}}]\n"
    )
    family = "families={a: {levels: [0, 1], edges: [[{gamma: 1}]]}}"
    with pytest.raises(ValueError, match=r"^methods\.a graph: chain\.levels\[0\]\.hidden_act: 'gelu'; runtime 'graph'"):
        runtime_bench.main([f"chain={path}", family])


def test_in_32_bits_every_output_is_the_same(results: Any) -> None:
    folder = results("float32")
    summary = read_summary(folder / "summary.json")
    for name in (AR, PAIR, CHAIN, LOOK_UP):
        assert summary.row(f"outputs equal to eager's: {name}").value == 1.0
        assert summary.row(f"outputs that part by no rounding tie: {name}").met is True
        assert (summary.row(over_plain(name)).value or 0) > 0
    assert read_json(folder / "partings.json")["partings"] == []
    assert all(summary.row(f"packed copy: L{k}").value == 0 for k in range(3))
    assert summary.row(over_transformers(FAST)).goal == 1.3
    assert summary.row(over_transformers(PLAIN)).goal is None


def test_the_records_are_published_and_hold_every_method(results: Any) -> None:
    folder = results("float32")
    run = read_run(folder / "measure")
    assert len(run.records) == 2 * 9
    assert {r["method"] for r in run.records} == {TF_AR} | {
        method(name, runtime) for name in (AR, PAIR, CHAIN, LOOK_UP) for runtime in (PLAIN, FAST)
    }
    assert all(len(r["output_ids"]) <= 6 for r in run.records)
    said = (folder / "findings.txt").read_text(encoding="utf-8").splitlines()
    assert len(said) == 3 + 5 + 1
    assert said[0].startswith("Our AR under graph makes ")
    assert said[-1].endswith(" MB of copies lie beside 0 MB of weights.")


@pytest.mark.skipif(not can_pack(torch.device("cpu"), torch.bfloat16), reason="oneDNN has no bfloat16 here")
def test_packed_copies_of_16_bits_are_stated(results: Any) -> None:
    folder = results("bfloat16")
    summary = read_summary(folder / "summary.json")
    for k in range(3):
        packed, weights = (summary.row(f"{name}: L{k}").value for name in ("packed copy", "weights"))
        assert packed is not None
        assert weights is not None
        assert 0 < packed < weights
    told_of = read_run(folder / "measure").run["memory"]["methods"]
    assert told_of[method(CHAIN, FAST)]["packed_bytes"] == sum(
        summary.row(f"packed copy: L{k}").value or 0 for k in range(3)
    )
    assert told_of[method(CHAIN, PLAIN)]["packed_bytes"] == 0


def test_an_output_that_no_rounding_explains_is_a_fault(results: Any, tmp_path: Path) -> None:
    """Negative control: one token of one output replaced by one that the target finds unlikely."""
    records: dict[str, list[dict[str, Any]]] = {}
    for r in read_run(results("float32") / "measure").records:
        records.setdefault(r["method"], []).append(dict(r))
    bench = read_bench(CONFIG, arguments(tmp_path, "float32"), tmp_path)
    loader = Loader()
    apart, epsilon = runtime_bench.compared(bench, loader, records)
    assert (apart, epsilon >= 0) == ([], True)
    wrong = records[method(CHAIN, FAST)][0]
    wrong["output_ids"] = [*wrong["output_ids"][:2], (wrong["output_ids"][2] + 1) % 256, *wrong["output_ids"][3:]]
    apart, again = runtime_bench.compared(bench, loader, records)
    (found,) = apart
    assert (found.method, found.position, found.is_tie, again) == (method(CHAIN, FAST), 2, False, epsilon)
    by = {row.name: row for row in parting_rows(bench, records, apart, epsilon)}
    assert by[f"outputs equal to eager's: {CHAIN}"].value == 0.5
    assert by[f"outputs that part from eager's: {CHAIN}"].value == 1
    assert (by["largest gap of two logits where outputs part"].value or 0) > 2 * epsilon
    assert by[f"outputs that part by no rounding tie: {CHAIN}"].met is False
    assert by[f"outputs that part by no rounding tie: {PAIR}"].met is True


# --- rows and sentences of made-up times ------------------------------------------------------------------------------


def scripted_bench() -> RuntimeBench:
    return read_bench(CONFIG, [], Path())


def times(**seconds: float) -> dict[str, list[dict]]:
    """Eight prompts of nine tokens per method: ``ar_eager=2.0`` is the decode time of one."""
    names = {"ar": AR, "pair": PAIR, "chain": CHAIN, "lookup": LOOK_UP}
    found = {TF_AR: [record(f"p{i}", TF_AR, seconds=(0.0, seconds["theirs"])) for i in range(8)]}
    for key, name in names.items():
        for runtime in (PLAIN, FAST):
            own = method(name, runtime)
            found[own] = [record(f"p{i}", own, seconds=(0.0, seconds[f"{key}_{runtime}"])) for i in range(8)]
    return found


TIMES = times(
    theirs=8.0, ar_eager=8.0, ar_graph=4.0, pair_eager=4.0, pair_graph=2.0, chain_eager=10.0, chain_graph=1.0,
    lookup_eager=5.0, lookup_graph=4.0,
)  # fmt: skip
CELLS = {
    f"L{k}": {PLAIN: [PassCell(w, 1, 0.4, 0.4, 0.4, 5) for w in (1, 2, 4, 8)],
              FAST: [PassCell(w, 1, 0.1 * (k + 1), 0.1, 0.1, 5) for w in (1, 2, 4, 8)]}
    for k in range(3)
}  # fmt: skip
COSTS = {"L0": OneTime(0.1, 0.2), "L2": OneTime(0.3, 0.4)}
MEMORY = ChainMemory(
    (
        LevelMemory("L0", 90_000_000, 0, None, {}, 20_000_000),
        LevelMemory("ngram", 0, 0, None, {}, 0),
        LevelMemory("L2", 270_000_000, 0, None, {"L0": 60_000_000}, 250_000_000),
    ),
    300_000_000,
    0,
    270_000_000,
)


def test_ratios_are_of_one_runtime_and_of_the_two() -> None:
    rows = {row.name: row for row in speed_rows(scripted_bench(), TIMES)}
    assert rows[over_transformers(FAST)].value == pytest.approx(2.0)
    assert rows[over_transformers(FAST)].met is True
    assert rows[over_transformers(PLAIN)].value == pytest.approx(1.0)
    assert rows[over_plain(CHAIN)].value == pytest.approx(10.0)
    assert rows[over(CHAIN, AR, PLAIN)].value == pytest.approx(0.8)
    assert rows[over(CHAIN, AR, FAST)].value == pytest.approx(4.0)
    assert rows[over(CHAIN, PAIR, FAST)].value == pytest.approx(2.0)
    assert rows[over(CHAIN, LOOK_UP, PLAIN)].value == pytest.approx(0.5)
    assert rows[f"tokens per second: {method(PAIR, FAST)}"].value == pytest.approx(4.5)
    slow = {**TIMES, TF_AR: [record(f"p{i}", TF_AR, seconds=(0.0, 5.0)) for i in range(8)]}
    assert {row.name: row for row in speed_rows(scripted_bench(), slow)}[over_transformers(FAST)].met is False


def test_pass_times_are_divided_level_by_level_and_width_by_width() -> None:
    rows = {row.name: row for row in pass_rows(CELLS)}
    assert len(rows) == 3 * 4 * 3
    assert rows["pass: L1 graph, 4 tokens"].value == pytest.approx(0.2)
    assert rows["pass time: L1 eager / graph, 4 tokens"].value == pytest.approx(2.0)
    assert rows["pass time: L0 eager / graph, 1 tokens"].value == pytest.approx(4.0)


def test_costs_are_those_of_each_level_and_of_all() -> None:
    rows = {row.name: row.value for row in cost_rows(COSTS, MEMORY)}
    assert (rows["once: L2, joining matrices"], rows["once: L2, packing them and making the model"]) == (0.3, 0.4)
    assert (rows["packed copy: L2"], rows["weights: L2"]) == (250_000_000, 270_000_000)
    assert rows["once: all levels"] == pytest.approx(1.0)
    assert rows["weights: all levels"] == 300_000_000  # less than the sum, which holds shared memory twice


def test_sentences_come_from_the_rows() -> None:
    bench = scripted_bench()
    rows = [*speed_rows(bench, TIMES), *pass_rows(CELLS), *cost_rows(COSTS, MEMORY)]
    said = findings(bench, rows, COSTS)
    assert said[0] == (
        "Our AR under graph makes 2.00 [2.00, 2.00] times the tokens per second of transformers' AR, which meets the "
        "goal of 1.3; under eager it makes 1.00 [1.00, 1.00] times as many."
    )
    assert said[1].startswith("graph over eager: ar 2.00 [2.00, 2.00], L0→L2 2.00 [2.00, 2.00], L0→L1→L2 10.00")
    assert "L0 4.00 / 4.00 / 4.00 / 4.00, L2 1.33 / " in said[2]
    assert said[4] == (
        "Faster passes change the verdict on L0→L1→L2 against ar from a loss to a gain "
        "(0.80 [0.80, 0.80] under eager, 4.00 [4.00, 4.00] under graph)."
    )
    assert said[3].startswith("Faster passes do not change the verdict on L0→L2 against ar, a gain (")
    assert said[-1] == "Once, loading takes 1.00 s more under graph, and 270 MB of copies lie beside 300 MB of weights."
    lost = [Row(r.name, 1.29, "x", goal=1.3) if r.name == over_transformers(FAST) else r for r in rows]
    assert "which misses the goal" in findings(bench, lost, COSTS)[0]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (1.01, 1.2, "a gain"),
        (0.8, 0.99, "a loss"),
        (0.99, 1.01, "no difference that the interval shows"),
        (None, None, "no difference that the interval shows"),
    ],
)
def test_a_verdict_needs_the_whole_interval(low: float | None, high: float | None, expected: str) -> None:
    row = Row("r", 1.1, "x", low, high)
    assert verdict(row) == expected
    assert changed("a", "b", row, row).startswith(f"Faster passes do not change the verdict on a against b, {expected}")
    assert told(Row("r", None, "x")) == "an unknown number of"


def test_a_summary_has_one_row_of_each_name(results: Any) -> None:
    summary: Summary = read_summary(results("float32") / "summary.json")
    names = [row.name for row in summary.rows]
    assert len(set(names)) == len(names)
    assert summary.runs[0].endswith("results/runtime/measure/run.json")

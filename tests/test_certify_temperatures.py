"""A certificate of a chain with calibrated temperatures: which rung uses them, and where it stands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")
from experiments import certify
from experiments.certify_config import read_config
from ssd.bench.json_files import read_json
from ssd.calibrate.saved import Temperatures, write_temperatures
from ssd.certify import law
from ssd.core.requests import Override, Sampling
from tests.test_report import Page

CONF = Path(__file__).resolve().parent.parent / "conf" / "certify.yaml"


def test_temperatures_from_a_file_are_certified_in_a_folder_of_their_own(tmp_path, monkeypatch):
    """Rung 4 tests the very temperatures of the file, in rows at the file's. False alarm: its 1 in 1000, seed fixed."""
    seen = []
    check_law = law.check_law
    monkeypatch.setattr(law, "check_law", lambda **given: seen.append(given) or check_law(**given))
    path = tmp_path / "mine_T0.7.yaml"
    write_temperatures(path, Temperatures((1.4, 0.5, None), (), 0.7), [])
    arguments = [
        "chain=tiny_triple", f"temperatures={path}", "rungs=0,4", "matrix=false", f"results_dir={tmp_path}",
        "bookkeeping={prompts: 2, prompt_tokens: 6, tokens: 6, rows: 4}",
        "law={prompts: 2, prompt_tokens: 6, length: 3, batch: 32, repeats: 2}",
    ]  # fmt: skip
    assert certify.main(arguments) == 0
    folder = tmp_path / "certify" / "tiny_triple_mine_T0.7"
    told = read_json(folder / "certificate.json")
    assert [r["outcome"] for r in told["rungs"]] == ["passed", "passed"]
    assert [level["temperature"] for level in told["spec"]["levels"]] == [1.4, 0.5, None]
    assert told["config"]["temperatures"] == str(path)
    (given,) = seen
    assert given["overrides"] == [Override(temperature=1.4), Override(temperature=0.5)]
    assert given["settings"] == (Sampling(0.7), Sampling(0.7, top_p=0.9))
    page = Page((folder / "certificate.html").read_text(encoding="utf-8")).text
    assert f"Temperatures: L0 1.4, L1 0.5, L2 that of the row, from {path}." in page
    assert not (tmp_path / "certify" / "tiny_triple").exists()


def test_rung_4_mixes_temperatures_only_where_a_chain_has_none(tmp_path):
    def given(*arguments):
        spec, chain, saved = read_config(CONF, ["law.prompts=1", *arguments])
        found = certify.Material(spec, chain, saved).law()
        return found.get("overrides"), found.get("settings")

    path = tmp_path / "chain.yaml"
    level = "random:llama?hidden=16&layers=1&heads=2&vocab=256&positions=4096&range=0.1&seed="
    first, second = ({"source": f"{level}{seed}"} for seed in (1, 2))
    path.write_text(json.dumps({"levels": [{**first, "temperature": 0.5}, second], "edges": [{"gamma": 2}]}))
    assert given("chain=tiny_pair") == (None, None)
    assert given(f"chain={path}") == ([Override(temperature=0.5)], None)


@pytest.mark.parametrize(
    ("saved", "words"),
    [
        (Temperatures((0.5, None), (), 0.7), "temperatures.levels: [0.5, None] are 2, the chain has 3 levels"),
        (Temperatures((0.5, 0.5, None), ("a", "b", "c"), 0.7), "temperatures.sources: made for ['a', 'b', 'c']"),
        (Temperatures((None, None, None), (), 0.0), "temperatures: "),
    ],
)
def test_temperatures_that_do_not_fit_are_refused_before_loading(tmp_path, saved, words, monkeypatch, capsys):
    monkeypatch.setattr(certify, "Loader", None)
    path = tmp_path / "x.yaml"
    write_temperatures(path, saved, [])
    assert certify.main(["chain=tiny_triple", f"temperatures={path}", f"results_dir={tmp_path}"]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"error: {words}")
    assert saved.target or "is for a row at 0, which makes every level greedy" in told
    assert certify.main(["temperatures=nowhere.yaml"]) == 2
    assert "nowhere.yaml: cannot be read" in capsys.readouterr().err

"""The certificate's command: arguments, the ladder that no rung ends, the file after every rung, the page, the exit."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")
from analysis.certificate import build, percent
from analysis.certificate_html import render
from experiments import certify
from experiments.certify_config import read_config
from ssd.bench.json_files import read_json
from ssd.bench.spec import PromptSpec, read_chain
from ssd.certify import ladder
from ssd.certify.certificate import Certificate, matrix_of, outcome, uncaught, verdict_of
from ssd.certify.ladder import RUNGS, InconclusiveError, NotApplicableError, Step, climb_all, steps
from ssd.certify.result import Check, Rung
from tests.test_report import Page

ROOT = Path(__file__).resolve().parent.parent
CONF = ROOT / "conf" / "certify.yaml"
GOOD = Check("counts agree", True, 0.001, 1234, "12 of 12", 0.25)
BAD = Check("tails <b>agree</b>", False, 0.002, 7, "p = 1e-9 & falling", 1e-9)
ROWS = [
    {
        "fault": "residual not subtracted", "what": "The whole law is drawn from.", "patches": "ssd.core.x.y",
        "caught": {1: True, 3: False}, "by": "two drafts",
    },
    {"fault": "stale slot visible", "patches": "ssd.core.x.z", "caught": {1: None, 3: True}, "by": "chain, 1 row"},
]  # fmt: skip


def rung(number, *checks, skipped=None):
    return Rung(number, RUNGS[number].title, checks, 1.5, skipped)


def certificate(folder, *rungs, asked=None, matrix=None):
    numbers = [r.number for r in rungs] if asked is None else asked
    made = Certificate(folder, "tiny", read_chain("tiny_triple"), numbers, {"seed": 0}, "python -m experiments.certify")
    for each in rungs:
        made.add(each)
    made.describe(matrix=matrix)
    made.end()
    return made


def test_the_file_as_it_is():
    spec, chain, saved = read_config(CONF, [])
    assert (spec.temperatures, saved) == (None, None)
    assert (spec.chain, spec.rungs, spec.matrix) == ("smollm2", (0, 1, 2, 3, 4, 5, 6), True)
    assert spec.quality.prompts == PromptSpec(None, limit=36)
    assert len(chain.levels) == 3
    assert spec.twin.cases == 300


def test_arguments_set_what_is_there():
    arguments = ["chain=tiny_pair", "rungs=0,3", "matrix=false", "law.batch=16", "quality.margins={BLEU: 3}"]
    spec, chain, _ = read_config(CONF, [*arguments, "prompts.tasks=[math]", "quality.temperature=1e-1"])
    assert (spec.rungs, spec.matrix, spec.law.batch, spec.quality.margins) == ((0, 3), False, 16, {"BLEU": 3.0})
    assert (spec.prompts.tasks, spec.quality.temperature, len(chain.levels)) == (("math",), 0.1, 2)
    assert read_config(CONF, ["rungs=4"])[0].rungs == (4,)
    assert read_config(CONF, ["rungs=[0, 1]"])[0].rungs == (0, 1)
    assert str(read_config(CONF, ["chain=tiny_pair", "results_dir=x"])[0].folder) == "x/certify/tiny_pair"


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("rungs", "'rungs': expected key=value"),
        ("rungs=[0", "'rungs=[0': not valid YAML"),
        ("rungs=0,9", "rungs: 9 is not one of 0, 1, 2, 3, 4, 5, 6"),
        ("rungs=[]", "rungs: expected some of 0"),
        ("rungs=x", "rungs: expected a list, got 'x'"),
        ("rung=1", "rung: unknown key; known are chain, temperatures, rungs"),
        ("law.size=1", "law.size: unknown key; known are prompts, prompt_tokens, length, batch, repeats"),
        ("law.repeats=1", "law: repeats: expected at least 2, got 1"),
        ("identity.prompt_tokens=3", "identity: prompt_tokens: expected at least 4, got 3"),
        ("twin.cases=0", "twin: cases: expected at least 1, got 0"),
        ("twin.cases=many", "twin.cases: expected int, got 'many'"),
        ("chain=none", "chain: 'none' is neither a YAML file nor one of"),
        ("prompts.split=tune", "prompts: dataset bundled, split tune: this data is for 'calibrate'"),
        ("quality.prompts.limit=0", "quality.prompts: limit: expected an integer >= 1, got 0"),
        ("quality.temperature=-1", "quality: sampling.temperature: -1.0 is outside"),
        ("quality.margins.bleu=1", "quality.margins.bleu: unknown key; known are log-probability"),
        ("quality.margins.BLEU=0", "quality: margins.BLEU: expected a number above 0, got 0.0"),
    ],
)
def test_a_wrong_argument_is_named_before_anything_is_loaded(argument, words, monkeypatch, capsys):
    monkeypatch.setattr(certify, "Loader", None)
    assert certify.main([argument]) == 2
    assert capsys.readouterr().err.startswith(f"error: {words}")


def test_a_chain_without_a_draft_or_that_does_not_fit_is_refused(tmp_path, capsys):
    path = tmp_path / "alone.yaml"
    path.write_text('levels: [{source: "random:llama?hidden=16&layers=1&heads=2&vocab=256"}]\n')
    assert certify.main([f"chain={path}", f"results_dir={tmp_path}"]) == 2
    assert "has no draft, so there is nothing to certify" in capsys.readouterr().err
    path.write_text('levels: [{source: ngram}, {source: "nonsense:x"}]\nedges: [{gamma: 2}]\n')
    assert certify.main([f"chain={path}", f"results_dir={tmp_path}"]) == 2
    assert "nonsense" in capsys.readouterr().err
    assert not (tmp_path / "certify").exists()


def test_a_rung_that_raises_fails_and_the_next_are_climbed():
    def raises():
        raise RuntimeError("out of\nmemory on level L2")

    def skips():
        raise NotApplicableError("no 16-bit level")

    def wavers():
        raise InconclusiveError("no control")

    ladder_of = [(0, raises), (1, lambda: [GOOD]), (2, lambda: [GOOD, BAD]), (3, skips), (4, wavers), (5, list)]
    seen = []
    found = climb_all([Step(n, RUNGS[n].title, f) for n, f in ladder_of], after=seen.append)
    assert seen == found
    assert [outcome(r) for r in found] == ["failed", "passed", "failed", "skipped", "inconclusive", "inconclusive"]
    assert found[0].checks[0].detail == "RuntimeError: out of memory on level L2"
    assert found[3].skipped == "no 16-bit level"
    assert found[5].skipped == "inconclusive: the rung returned no check"
    assert not any(r.passed for r in found if r.skipped)
    assert all(r.seconds >= 0 for r in found)


def test_every_rung_of_the_table_exists():
    for number, place in RUNGS.items():
        module, _, name = place.function.partition(":")
        assert callable(getattr(__import__(module, fromlist=[name]), name)), number
    with pytest.raises(ValueError, match=r"^rungs: 7 is not one of 0, 1, 2, 3, 4, 5, 6"):
        steps([7], {})


def test_what_loads_when_a_rung_is_climbed_fails_that_rung_alone(monkeypatch):
    def load():
        raise OSError("no weights")

    monkeypatch.setitem(ladder.RUNGS, 3, ladder.Place("identity", "tests.test_certify_command:certificate"))
    (found,) = climb_all(steps([3], {3: load}))
    assert (outcome(found), found.checks[0].detail) == ("failed", "OSError: no weights")


def test_verdicts(tmp_path):
    def verdict(*rungs, asked=None, matrix=None):
        return certificate(tmp_path, *rungs, asked=asked, matrix=matrix).data["verdict"]

    no_leave, unsure = rung(5, skipped="no 16-bit level"), rung(6, skipped="inconclusive: no control")
    assert verdict(rung(0, GOOD), rung(1, GOOD), no_leave, matrix=matrix_of(ROWS, 1.0)) == "passed"
    assert verdict(rung(0, GOOD), rung(1, GOOD, BAD)) == "failed"
    assert verdict(rung(0, GOOD), unsure) == "inconclusive"
    assert verdict(rung(0, BAD), unsure) == "failed"
    assert verdict(no_leave) == "inconclusive"
    assert verdict(rung(0, GOOD), asked=[0, 1]) == "inconclusive"
    empty = [*ROWS, {"fault": "unseen", "patches": "ssd.core.x.w", "caught": {1: False, 3: None}, "by": None}]
    assert uncaught(matrix_of(empty, 1.0)) == ["unseen"]
    assert verdict(rung(0, GOOD), matrix=matrix_of(empty, 1.0)) == "failed"
    assert verdict(rung(0, GOOD), matrix=matrix_of([], 1.0, "RuntimeError: x")) == "failed"
    assert verdict_of({"rungs": [], "asked": [], "matrix": None}) == "inconclusive"


def test_the_file_is_whole_after_every_rung(tmp_path):
    made = Certificate(tmp_path, "tiny", read_chain("tiny_pair"), [0, 1], {}, "c")
    path = tmp_path / "certificate.json"
    assert (read_json(path)["status"], read_json(path)["verdict"]) == ("running", None)
    made.add(rung(0, GOOD, Check("not a number", True, 0.0, 1, "", float("nan"))))
    told = read_json(path)
    assert [r["outcome"] for r in told["rungs"]] == ["passed"]
    assert told["rungs"][0]["checks"][1]["value"] is None
    assert told["false_alarm"] == 0.001
    made.add(rung(1, BAD))
    made.end("interrupted")
    told = read_json(path)
    assert (told["status"], told["verdict"], told["false_alarm"]) == ("interrupted", None, 0.003)
    assert {"git", "versions", "device", "command", "config", "started", "finished", "seconds"} <= told.keys()
    assert "not climbed to its end" in build(told).title
    with pytest.raises(ValueError, match="'verdict'"):
        made.describe(verdict="passed")


def test_the_page(tmp_path):
    made = certificate(
        tmp_path, rung(1, GOOD, BAD), rung(5, skipped="no 16-bit level"), matrix=matrix_of(ROWS, 12.0), asked=[1, 5, 6]
    )
    page = render(made.data)
    read = Page(page)
    for words in (
        "tiny fails on rung 1", "Not climbed: 6.", "probability at most 0.30%", "2 of 2 faults planted",
        "counts agree", "1,234", "12 of 12", "tails <b>agree</b>", "p = 1e-9 & falling", "No 16-bit level.",
        "residual not subtracted", "The whole law is drawn from.", "ssd.core.x.y", "two drafts",
        "not tried", "No row is empty",
        "python -m experiments.certify", "random:llama", " 3, at_least, token", "L2",
    ):  # fmt: skip
        assert words in read.text, words
    assert "<b>agree" not in page
    assert not {"script", "link", "img", "iframe", "object"} & {tag for tag, _ in read.tags}
    assert not re.search(r"url\((?!#)|https?:", page)
    assert "prefers-color-scheme: dark" in page
    links = [a["href"][1:] for t, a in read.tags if t == "a"]
    assert len(read.ids) == len(set(read.ids))
    assert links == ["rung-1"]  # rung 3 of the matrix was not climbed here
    assert set(links) <= set(read.ids)
    assert ("html", {"lang": "en"}) in read.tags
    assert all("scope" in a for t, a in read.tags if t == "th")
    assert render(json.loads(json.dumps(made.data))) == page


def test_empty_rows_are_shown_as_such(tmp_path):
    rows = [{"fault": "unseen", "patches": "f", "caught": {"0": False, "2": None}, "by": None}]
    page = build(certificate(tmp_path, rung(0, GOOD), matrix=matrix_of(rows, 1.0)).data)
    assert page.title == "A fault was planted and no rung caught it"
    assert page.matrix_note == "Nothing caught: unseen."
    assert [c.kind for c in page.faults[0].cells] == ["missed", "untried"]


def test_small_probabilities_keep_a_digit():
    assert [percent(x) for x in (0.0, 0.0123, 0.00004)] == ["0", "1.23%", "4e-05"]


def test_the_command_on_a_tiny_chain(tmp_path, capsys):
    """Rungs 5 and 6 of a chain of random weights: nothing in 16 bit, and a law too flat for a warmer one to show."""
    arguments = [
        "chain=tiny_pair", "rungs=5,6", "matrix=false", f"results_dir={tmp_path}", "quality.max_new_tokens=4",
        "quality.prompts.limit=6", "quality.samples=2",
    ]  # fmt: skip
    assert certify.main(arguments) == 3
    folder = tmp_path / "certify" / "tiny_pair"
    told = read_json(folder / "certificate.json")
    assert [r["outcome"] for r in told["rungs"]] == ["skipped", "inconclusive"]
    assert {row["verdict"] for row in told["quality"]} == {"inconclusive"}
    assert {row["measure"] for row in told["quality"]} >= {"log-probability", "BLEU", "ROUGE-L"}
    assert all(row["control"]["n"] for row in told["quality"] if row["measure"] == "log-probability")
    assert "inconclusive" in (folder / "certificate.html").read_text(encoding="utf-8")
    assert "inconclusive: tiny_pair: rung 6 could not tell" in capsys.readouterr().out
    runs = sorted((tmp_path / "raw" / "certify" / "tiny_pair").iterdir())
    assert [read_json(run / "run.json")["config"]["sampling"]["temperature"] for run in runs] == [0.7, 1.0]
    again = [*arguments, f"quality.results={tmp_path / 'raw' / 'certify'}", "rungs=6"]
    assert certify.main(again) == 3
    assert read_json(folder / "certificate.json")["quality"] == told["quality"]


def test_the_matrix_is_in_the_file_row_by_row(tmp_path, monkeypatch, capsys):
    def half_a_matrix(after):
        for row in ROWS:
            after(row)
            seen.append(len(read_json(path)["matrix"]["rows"]))
        raise RuntimeError("without a planted fault\nrung 3 fails")

    seen, path = [], tmp_path / "certify" / "tiny_pair" / "certificate.json"
    monkeypatch.setattr(certify, "matrix", half_a_matrix)
    assert certify.main(["chain=tiny_pair", "rungs=5", f"results_dir={tmp_path}"]) == 1
    assert seen == [1, 2]
    told = read_json(path)["matrix"]
    assert told["error"] == "RuntimeError: without a planted fault rung 3 fails"
    assert [row["caught"] for row in told["rows"]] == [{"1": True, "3": False}, {"1": None, "3": True}]
    assert "failed: RuntimeError: without a planted fault rung 3 fails" in capsys.readouterr().out


def test_a_folder_without_runs_fails_the_rung(tmp_path, capsys):
    arguments = ["chain=tiny_pair", "rungs=6", "matrix=false", f"results_dir={tmp_path}"]
    assert certify.main([*arguments, f"quality.results={tmp_path / 'nothing'}"]) == 1
    assert "ValueError: quality.results: no complete run below" in capsys.readouterr().out

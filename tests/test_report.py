"""The page: the same bytes twice, everything in it, nothing from outside, bad runs listed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")
from analysis.figure_style import COLORS
from analysis.html_page import TEMPLATES
from analysis.report import build
from analysis.report_html import render, write
from experiments import report as entry
from ssd.bench.json_files import read_json, write_json
from tests.scripted_records import record
from tests.simulated_runs import METHODS, config, simulated, write_example, write_run

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "tests" / "fixtures" / "results" / "raw" / "example"
VOID = {"meta", "link", "br", "img", "input", "hr"}


class Page(HTMLParser):
    """Tags and text of a page; refuses one that is not well nested."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.stack, self.words, self.ids = [], [], [], []
        self.feed(text)
        assert self.stack == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.ids += [value for name, value in attrs if name == "id"]

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag, (tag, self.getpos())

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


@pytest.fixture
def no_figures(monkeypatch):
    """For tests of what else is there: drawing takes most of the time."""
    monkeypatch.setattr("analysis.report.blocks", lambda *settings: [])


@pytest.fixture(scope="module")
def report():
    return build(EXAMPLE)


@pytest.fixture(scope="module")
def example(report):
    return render(report)


def test_the_example_is_what_its_script_makes(tmp_path):
    made = write_example(tmp_path / "example")
    files = {p.relative_to(made): p.read_bytes() for p in made.rglob("*") if p.is_file()}
    assert files == {p.relative_to(EXAMPLE): p.read_bytes() for p in EXAMPLE.rglob("*") if p.is_file()}
    assert sum(map(len, files.values())) < 250_000


def test_byte_identical_wherever_and_whenever(example, tmp_path):
    """Another process, another hash seed, another place."""
    shutil.copytree(EXAMPLE, tmp_path / "results" / "raw" / "example")
    command = [sys.executable, "-m", "experiments.report", "experiment=example", f"results_dir={tmp_path / 'results'}"]
    env = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "results" / "example" / "report.html").read_bytes() == example.encode()
    assert "not reported: example-failed: status failed" in done.stderr


def test_it_needs_nothing_from_outside_and_no_script(example):
    page = Page(example)
    assert not {"script", "link", "img", "iframe", "object"} & {tag for tag, _ in page.tags}
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    links = [v for _, a in page.tags for n, v in a.items() if n in ("src", "href", "xlink:href", "data")]
    assert links
    assert all(link.startswith("#") for link in links)
    assert "@import" not in example
    assert not re.search(r"url\((?!#)", example)
    assert len(page.ids) == len(set(page.ids))
    assert {link[1:] for link in links} <= set(page.ids)
    assert str(ROOT) not in example


def test_what_is_on_it(example):
    page = Page(example)
    assert page.text.count("A draft for the draft pays in") == 1
    rows = [a["class"] for t, a in page.tags if t == "tr" and "class" in a]
    assert rows.count("setting") == 2
    assert len(rows) == 2 + 2 * len(METHODS)
    figures = [a["id"] for t, a in page.tags if t == "figure"]
    kinds = ("speedup", "time", "draft-position", "output-position", "output-length", "fate-1")
    assert figures == ["overview", *(f"s{n}-{kind}" for n in (1, 2) for kind in kinds)]
    assert sum(t == "svg" for t, _ in page.tags) == len(figures)
    assert all(a["role"] == "img" and a["aria-label"] for t, a in page.tags if t == "svg")
    for words in (
        "busy machine (1 of 2 settings)",
        "python -m experiments.run experiment=example",
        "python -m experiments.report experiment=example",
        "simulated:135M",
        "2" * 64,
        "0" * 40,
        "torch 2.13.0+cpu",
        "status failed: RuntimeError: simulated: out of memory on level L2",
        "line 3 is half-written",
        "accepted minus recovered".capitalize(),
    ):
        assert words in page.text, words
    assert "nan" not in re.sub(r"<svg.*?</svg>", "", example, flags=re.DOTALL).lower().split()
    assert "None" not in page.text
    assert "wandb" not in page.text  # no version of what was not there


def test_numbers_on_the_page_are_those_of_the_report(report, example):
    text = Page(example).text
    for section in report.sections:
        for row in section.speed.rows:
            assert f"{row['tokens_per_second']:.1f}" in text
            assert f"{row['speedup']:.2f} [{row['speedup_low']:.2f}, {row['speedup_high']:.2f}]" in text
            assert all(f"{value:.2f}" in text for value in (*row["alpha"], *row["tau"]))
            assert f"{row['outside_passes']:.1%}" in text
            assert row["exact_match"] in text


def test_failed_empty_and_broken_runs_are_listed(tmp_path, no_figures):
    """B44: none of them is fatal."""
    root = tmp_path / "sweep"
    told = config("sweep", 0.0, 8, "float32")
    write_run(root / "good", simulated("good", 0.0, 2, 8), told)
    write_run(root / "failed", [], told, status="failed", error="ValueError: <script>alert(1)</script>")
    write_run(root / "silent", [], told)
    (root / "died").mkdir()
    half = write_run(root / "half", simulated("half", 0.0, 1, 8), told, status="running")
    (half / "records.jsonl").write_bytes((half / "records.jsonl").read_bytes()[:-40])
    write_run(root / "short", simulated("short", 0.0, 1, 8)[:3], told, records=6)
    (write_run(root / "torn", [], told) / "run.json").write_text('{"run_id": NaN')
    unpaired = [record("a", "ar"), record("b", "ar"), record("a", "spec")]
    write_run(root / "unpaired", unpaired, told)
    report = build(root)
    problems = dict(report.problems)
    assert set(problems) == {"failed", "silent", "died", "half", "short", "torn", "unpaired"}
    assert problems["silent"] == "complete, but without a record"
    assert "half-written" in problems["half"]
    assert "cannot be reported: methods are not paired" in problems["unpaired"]
    assert not any(str(tmp_path) in text for pair in report.problems for text in pair)
    assert [s.setting.title for s in report.sections] == ["good"]
    page = render(report)
    assert "&lt;script&gt;alert(1)" in page
    assert "<script" not in page
    assert all(name in Page(page).text for name in problems)


def test_marks_of_a_run(tmp_path, no_figures):
    told = config("marked", 0.0, 8, "float32")
    write_run(
        tmp_path / "m" / "run", simulated("run", 0.0, 2, 8), told,
        timing="shared", busy=True, busy_elsewhere=0.31, git={"commit": "1" * 40, "dirty": True},
        resumed=[{"status": "running", "git": {}}],
    )  # fmt: skip
    (section,) = build(tmp_path / "m").sections
    kinds = [mark.partition(":")[0] for mark in section.marks]
    assert kinds[:3] == ["shared timing", "busy machine", "uncommitted changes"]
    assert "31% of it" in section.marks[1]
    text = Page(render(build(tmp_path / "m"))).text
    assert all(mark[1:] in text for mark in section.marks)
    assert "1" * 40 + " with uncommitted changes" in text


def test_a_run_that_says_little_about_itself(tmp_path):
    """Records of another hand: no configuration, versions, models or baseline."""
    folder = write_run(
        tmp_path / "m" / "run", [record("a", "spec", 9, (0.1, 1.0))], {"chain": {"levels": []}, "name": "x"}
    )
    kept = ("run_id", "schema", "status", "records")
    write_json(folder / "run.json", {k: v for k, v in read_json(folder / "run.json").items() if k in kept})
    text = Page(render(build(tmp_path / "m"))).text
    assert "spec: 10.0 tokens per second" in text
    assert "load unknown" in text


def test_an_experiment_without_a_finished_run(tmp_path):
    (tmp_path / "raw" / "none").mkdir(parents=True)
    assert entry.main(["experiment=none", f"results_dir={tmp_path}"]) == 1
    assert "No run has completed" in (tmp_path / "none" / "report.html").read_text(encoding="utf-8")
    assert entry.main(["experiment=absent", f"results_dir={tmp_path}"]) == 1
    assert not (tmp_path / "absent").exists()


@pytest.mark.parametrize("argument", ["demo", "experment=demo", "experiment=", "experiment=../x"])
def test_wrong_arguments(argument, capsys):
    assert entry.main([argument]) == 2
    assert "error: " in capsys.readouterr().err


def test_quality_is_against_references_where_there_are_any_and_against_ar_always(tmp_path, no_figures):
    pytest.importorskip("sacrebleu")
    pytest.importorskip("rouge_score")
    root = tmp_path / "m"
    write_run(root / "run", simulated("run", 0.0, 2, 8), config("m", 0.0, 8, "float32"))
    prompts = {r["prompt_id"]: "w1 w2 w3" for r in simulated("run", 0.0, 2, 8)}
    (section,) = build(root, lambda run: prompts).sections
    assert section.tables[0].title == "Quality"
    assert {row["against"] for row in section.tables[0].rows} == {"reference", "ar"}
    assert "nrefs:1" in section.tables[0].note
    for nothing in (None, lambda run: None, lambda run: dict.fromkeys(prompts)):
        (section,) = build(root, nothing).sections
        assert section.tables[0].title == "Quality"
        assert {row["against"] for row in section.tables[0].rows} == {"ar"}
        assert all(row["n"] for row in section.tables[0].rows)
        assert "nrefs:1" in section.tables[0].note


def test_references_are_those_the_run_was_made_with(capsys):
    from ssd.bench.datasets import DatasetSpec, read
    from ssd.bench.records import Run

    prompts = {"name": "bundled", "split": "measure", "limit": 6}
    data = read(DatasetSpec(**prompts)).describe()
    found = entry.references(Run({"run_id": "r", "config": {"prompts": prompts}, "data": data}, []))
    assert len(found) == 6
    assert any(found.values())
    assert entry.references(Run({"run_id": "r", "config": {"prompts": prompts}, "data": {}}, [])) is None
    assert "another version" in capsys.readouterr().err
    lost = {"name": "gsm8k", "path": "nowhere.jsonl"}
    assert entry.references(Run({"run_id": "r", "config": {"prompts": lost}, "data": {}}, [])) is None
    assert "nowhere.jsonl" in capsys.readouterr().err


def test_the_style_sheet_has_a_dark_face_for_every_colour():
    style = (TEMPLATES / "report.css").read_text(encoding="utf-8")
    dark = style[style.index("prefers-color-scheme: dark") :]
    assert set(re.findall(r"--fig-([\w-]+): #", dark)) == set(COLORS)
    assert len(set(COLORS.values())) == len(COLORS)


def test_the_page_is_replaced_in_one_step(report, tmp_path):
    path = tmp_path / "new" / "report.html"
    write(path, report)
    assert [p.name for p in path.parent.iterdir()] == ["report.html"]


def test_the_headline_is_not_about_the_prompts_that_choices_were_made_on(tmp_path, no_figures):
    for split in ("measure", "tune"):
        told = config("x", 0.0, 8, "float32") | {"prompts": {"name": "bundled", "split": split}}
        write_run(tmp_path / "x" / split, simulated(split, 0.0, 3, 16 if split == "tune" else 8), told, label=split)
    report = build(tmp_path / "x")
    assert [s.setting.title for s in report.sections] == ["measure", "tune"]
    assert "settings" not in report.title
    assert report.lead.startswith("In measure: ")
    assert [m.partition(":")[0] for m in report.sections[1].marks] == ["tuning prompts"]
    shutil.rmtree(tmp_path / "x" / "measure")
    assert build(tmp_path / "x").lead.startswith("In tune: ")

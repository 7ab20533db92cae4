"""Hub data sets: from a local stand-in, from the cache, from a hub that is scripted, and from none at all."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from ssd.bench import hub_datasets
from ssd.bench.datasets import DatasetSpec, describe, load, read_spec
from ssd.bench.hub_datasets import CONVERTED, hub_info, split_on_disk
from ssd.bench.hub_layout import has_all_shards, split_files

CONF = Path(__file__).parent.parent / "conf" / "dataset"
FIELDS = {"turns": "Translate: {translation.de}", "reference": "{translation.en}", "task": "translation"}
ROWS = [{"translation": {"de": f"Hund {n}", "en": f"dog {n}"}} for n in range(3)]
CARD = "---\nconfigs:\n- config_name: de-en\n  data_files:\n  - split: test\n    path: de-en/test-*\n---\n# Card\n"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def spec(**changes) -> DatasetSpec:
    usual = {"repo": "org/set", "config": "de-en", "split": "test", "fields": FIELDS}
    return DatasetSpec("hub", **{**usual, **changes})


def repository(folder: Path, rows=ROWS, card: str = CARD, name: str = "de-en/test-00000-of-00001.jsonl") -> Path:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    if card:
        (folder / "README.md").write_text(card)
    return folder


@pytest.fixture
def library(tmp_path, monkeypatch):
    """The reading library with a cache of its own; it may not use the network."""
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "arrow")
    monkeypatch.setattr(socket.socket, "connect", lambda *a: pytest.fail("the network was used"))
    return datasets


def test_a_local_folder_is_read_like_the_repository(tmp_path, library):
    here = spec(path=str(repository(tmp_path / "set")))
    prompts = load(here)
    assert [(p.id, p.task, p.split, p.turns, p.reference) for p in prompts] == [
        (str(n), "translation", "test", (f"Translate: Hund {n}",), f"dog {n}") for n in range(3)
    ]
    noted = describe(here)
    assert (noted["name"], noted["revision"]) == ("org/set/de-en/test", None)
    repository(tmp_path / "set", ROWS[:2])
    assert describe(here)["sha256"] != noted["sha256"]
    assert re.fullmatch("[0-9a-f]{64}", noted["sha256"])


def test_parquet_and_the_conversations_of_mt_bench(tmp_path, library):
    rows = [
        {"prompt": ["Write.", "Again."], "reference": [], "category": "writing", "prompt_id": 1},
        {"prompt": ["Write more.", "Again."], "reference": [], "category": "writing", "prompt_id": 2},
        {"prompt": ["2+2?", "3+3?"], "reference": ["4", "6"], "category": "math", "prompt_id": 3},
    ]
    (tmp_path / "data").mkdir()
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "question.jsonl").write_text("{}\n")
    library.Dataset.from_list(rows).to_parquet(tmp_path / "data" / "train-00000-of-00001-abc.parquet")
    own = read_spec(CONF / "mt_bench.yaml")
    prompts = load(DatasetSpec("hub", str(tmp_path), own.repo, split=own.split, fields=own.fields))
    assert [(p.id, p.task) for p in prompts] == [("1", "long_form"), ("3", "math"), ("2", "long_form")]
    assert prompts[0].turns == ("Write.", "Again.")
    assert prompts[0].reference is None
    assert (prompts[1].reference, prompts[1].extra["references"]) == ("4", ["4", "6"])


@pytest.mark.parametrize(
    ("name", "row", "turn"),
    [
        ("cnn_dailymail", {"article": "A.", "highlights": "B.", "id": "x1"}, "Summarize: A."),
        (
            "xsum",
            {"document": "A.", "summary": "B.", "id": "x1"},
            "Summarize the following article in one sentence.\n\nA.",
        ),
        ("wmt16_de_en", {"translation": {"de": "A.", "en": "B."}}, "Translate German to English: A."),
        (
            "mbpp",
            {"text": "A.", "code": "B.", "task_id": 11, "test_list": ["assert f(1)", "assert f(2)"]},
            "A.\nYour code should pass these tests:\n\nassert f(1)\nassert f(2)",
        ),
    ],
)
def test_the_files_fit_the_columns_of_the_sets(tmp_path, library, name, row, turn):
    own = read_spec(CONF / f"{name}.yaml")
    folder = repository(tmp_path / "set", [row], "", f"{own.config or 'default'}/test/0000.jsonl")
    [prompt] = load(DatasetSpec("hub", str(folder), own.repo, own.config, split=own.split, fields=own.fields))
    assert (prompt.turns, prompt.reference) == ((turn,), "B.")


def test_limit_and_offset_take_what_the_whole_set_has_there(tmp_path, library):
    folder = str(repository(tmp_path / "set"))
    assert load(spec(path=folder, limit=1, offset=1)) == load(spec(path=folder))[1:2]
    with pytest.raises(ValueError, match=r"org/set.*limit: 3 prompts from offset 1 asked for, 3 are there"):
        load(spec(path=folder, limit=3, offset=1))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"reference": "{translation.fr}"}, r"row 0: fields.reference: no column 'translation.fr'; there are tr"),
        ({"turns": "{text}"}, r"row 0: fields.turns: no column 'text'"),
        ({"task": "poetry"}, r"row 0: fields.task: 'poetry' is not one of"),
    ],
)
def test_a_wrong_template_is_named(tmp_path, library, fields, message):
    with pytest.raises(ValueError, match=message) as caught:
        load(spec(path=str(repository(tmp_path / "set")), fields={**FIELDS, **fields}))
    assert str(caught.value).startswith("dataset org/set, config de-en, split test")


def test_a_damaged_file_is_named(tmp_path, library):
    folder = repository(tmp_path / "set")
    (folder / "de-en" / "test-00000-of-00001.jsonl").write_text("{not json")
    with pytest.raises(ValueError, match=r"dataset org/set.*: cannot read .*test-00000-of-00001\.jsonl: "):
        load(spec(path=str(folder)))


@pytest.mark.parametrize(("split", "message"), [("train", "holds no files of this"), ("test", "is not a folder")])
def test_a_wrong_folder_is_named(tmp_path, split, message):
    folder = repository(tmp_path / "set") if split == "train" else tmp_path / "none"
    with pytest.raises(ValueError, match=message):
        load(spec(path=str(folder), split=split))


def declare(files: str) -> str:
    return f"---\nconfigs: [{{config_name: a, {files}}}]\n---\n"


LAYOUT = ["README.md", "de-en/test-0.parquet", "de-en/sub/test-0.parquet", "cs-en/test-0.parquet", "run.py"]


@pytest.mark.parametrize(
    ("names", "card", "config", "split", "found"),
    [
        (LAYOUT, CARD, "de-en", "test", ["de-en/test-0.parquet"]),
        (LAYOUT, CARD, None, "test", ["de-en/test-0.parquet"]),
        (LAYOUT, CARD, "de-en", "train", []),
        (LAYOUT, "no head", "cs-en", "test", ["cs-en/test-0.parquet"]),
        (LAYOUT, "no head", "xx", "test", []),
        (["a/b/x.csv", "y.csv"], declare("data_files: '**/*.csv'"), None, "train", ["a/b/x.csv", "y.csv"]),
        (["a.csv", "b.csv"], declare("data_files: [a.csv]"), "a", "train", ["a.csv"]),
        (["y/test.json", "x/test.json"], declare("data_dir: x"), "a", "test", ["x/test.json"]),
        (["default/test/0000.parquet", "other/test/0000.parquet"], "", None, "test", ["default/test/0000.parquet"]),
        (["data/valid-1.jsonl.gz", "data/invalid-1.jsonl"], "", None, "validation", ["data/valid-1.jsonl.gz"]),
        (["contest.csv", "latest/train.csv"], "", None, "test", []),
    ],
)
def test_the_files_of_a_split(names, card, config, split, found):
    assert split_files(names, card, config, split) == found


def test_unknown_configurations_and_mixed_files_are_errors():
    with pytest.raises(ValueError, match=r"config: 'fr-en' is not one of de-en"):
        split_files(LAYOUT, CARD, "fr-en", "test")
    two = "---\nconfigs: [{config_name: a, data_files: a}, {config_name: b, data_files: b}]\n---\n"
    with pytest.raises(ValueError, match=r"config: None is not one of a, b"):
        split_files([], two, None, "test")
    with pytest.raises(ValueError, match="several kinds"):
        split_files(["test.csv", "test.parquet"], "", None, "test")


def test_a_missing_shard_is_noticed():
    assert has_all_shards(["a-00000-of-00002.parquet", "a-00001-of-00002.parquet", "b.parquet"])
    assert not has_all_shards(["a-00000-of-00002.parquet"])
    assert not has_all_shards([])


class Hub:
    """A hub with one repository per revision, and the cache beside it."""

    def __init__(self, root: Path, revisions: dict[str, Path]) -> None:
        self.cache, self.revisions, self.asked = root / COMMIT, revisions, []

    def info(self, repo: str, revision: str) -> SimpleNamespace:
        self.asked.append(revision)
        names = [p.relative_to(self.revisions[revision]) for p in self.revisions[revision].rglob("*") if p.is_file()]
        return SimpleNamespace(siblings=[SimpleNamespace(rfilename=name.as_posix()) for name in names])

    def snapshot(self, repo, *, repo_type, revision, allow_patterns, local_files_only=False) -> str:
        assert (repo, repo_type) == ("org/set", "dataset")
        if local_files_only and not self.cache.exists():
            raise FileNotFoundError("not cached")
        for name in [] if local_files_only else allow_patterns:
            source = self.revisions[revision] / name
            if source.exists():
                (self.cache / name).parent.mkdir(parents=True, exist_ok=True)
                (self.cache / name).write_bytes(source.read_bytes())
        return str(self.cache)


def test_only_the_split_is_fetched_and_then_used_without_asking(tmp_path):
    published = repository(repository(tmp_path / "main"), name="de-en/train-00000-of-00001.jsonl")
    hub = Hub(tmp_path, {"main": published})
    found = split_on_disk(spec(), hub.snapshot, hub.info)
    assert found.commit == COMMIT
    assert [path.relative_to(hub.cache).as_posix() for path in found.paths] == ["de-en/test-00000-of-00001.jsonl"]
    assert not (hub.cache / "de-en" / "train-00000-of-00001.jsonl").exists()
    assert split_on_disk(spec(), hub.snapshot, hub.info) == found
    assert hub.asked == ["main"]


def test_a_set_published_as_a_program_comes_from_the_conversion(tmp_path):
    (tmp_path / "main").mkdir()
    (tmp_path / "main" / "set.py").touch()
    converted = repository(tmp_path / "converted", card="", name="de-en/test/0000.jsonl")
    hub = Hub(tmp_path, {"main": tmp_path / "main", CONVERTED: converted})
    assert [p.name for p in split_on_disk(spec(), hub.snapshot, hub.info).paths] == ["0000.jsonl"]
    assert hub.asked == ["main", CONVERTED]
    pinned = Hub(tmp_path / "other", {COMMIT: tmp_path / "main"})
    with pytest.raises(ValueError, match=rf"revision {COMMIT}: no data files of this .* in {COMMIT}"):
        split_on_disk(spec(revision=COMMIT), pinned.snapshot, pinned.info)


def test_a_half_fetched_split_is_fetched_again(tmp_path):
    names = [f"de-en/test-0000{n}-of-00002.jsonl" for n in range(2)]
    for name in names:
        published = repository(tmp_path / "main", name=name)
    hub = Hub(tmp_path, {"main": published})
    repository(hub.cache, name=names[0])
    assert len(split_on_disk(spec(), hub.snapshot, hub.info).paths) == 2


def test_the_cache_of_the_hub_client_is_used_offline(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    kept = tmp_path / "datasets--org--set"
    repository(kept / "snapshots" / COMMIT)
    (kept / "refs").mkdir()
    (kept / "refs" / "main").write_text(COMMIT)
    assert split_on_disk(spec()).commit == split_on_disk(spec(revision=COMMIT)).commit == COMMIT
    with pytest.raises(ValueError, match=r"split train: not in the local cache.*HF_HUB_OFFLINE is set"):
        split_on_disk(spec(split="train"))


@pytest.mark.parametrize("variable", ["HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"])
def test_offline_and_not_cached_is_one_error_within_seconds(tmp_path, variable):
    """A process of its own, as the hub's client reads its variables when it is imported."""
    code = "import sys, pathlib, ssd.bench.datasets as d; d.load(d.read_spec(pathlib.Path(sys.argv[1])))"
    variables = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code, str(CONF / "cnn_dailymail.yaml")],
        env={**variables, "HF_HOME": str(tmp_path), variable: "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert time.perf_counter() - began < 20  # of which starting Python and the client is the most
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ValueError: dataset abisee/cnn_dailymail, config 3.0.0, split test: not in the local cache")
    assert f"(offline: {variable} is set)" in last


def test_a_hub_that_never_answers_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(hub_datasets, "REACH_SECONDS", -0.5)  # and half a second is what is left
    for name in hub_datasets.OFFLINE_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    hub = Hub(tmp_path, {})
    with pytest.raises(ValueError, match=r"org/set, config de-en.*\(offline: TimeoutError: no answer within 0.5 s\)"):
        split_on_disk(spec(), hub.snapshot, lambda repo, revision: time.sleep(3))


def test_no_network_is_told_as_offline(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    for name in hub_datasets.OFFLINE_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        nowhere = f"http://127.0.0.1:{closed.getsockname()[1]}"
        hub = Hub(tmp_path, {})
        with pytest.raises(ValueError, match=r"the hub cannot be reached \(offline: ConnectError: "):
            split_on_disk(spec(), hub.snapshot, lambda repo, revision: hub_info(repo, revision, nowhere))


def test_a_name_that_no_hub_has_is_an_error(tmp_path):
    with pytest.raises(ValueError, match=r"dataset no/such/name.*not a hub name"):
        load(spec(repo="no/such/name"))

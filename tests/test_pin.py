"""Pinning: what was read goes into the file, and nothing else changes."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from experiments.pin import main, pin
from ssd.bench.datasets import Loaded, load, read_spec

COMMIT = "12345678901234567890123456789012345678e9"  # without quotes YAML readers may see a number
TEXT = """# A set. revision: null is not here
name: hub
path: null
repo: org/set
config: null
revision: null  # the commit
split: test
tasks: []
limit: 50
offset: 3
fields:
  turns: "{q}"  # a question
  task: math
"""


class Reader:
    def __init__(self, revision: str | None = COMMIT) -> None:
        self.revision, self.specs = revision, []

    def __call__(self, spec):
        self.specs.append(spec)
        if self.revision == "unreachable":
            raise ValueError(f"{spec.label}: the hub cannot be reached")
        return Loaded([], "name", self.revision, "")


@pytest.fixture
def file(tmp_path) -> Path:
    path = tmp_path / "set.yaml"
    path.write_text(TEXT)
    return path


def test_only_the_revision_changes(file):
    reader = Reader()
    assert pin(file, False, reader) == f"pinned to {COMMIT}"
    assert file.read_text() == TEXT.replace("revision: null  # the", f'revision: "{COMMIT}"  # the')
    assert read_spec(file).revision == COMMIT
    assert [path.name for path in file.parent.iterdir()] == ["set.yaml"]
    [spec] = reader.specs
    assert (spec.revision, spec.limit, spec.offset) == (None, 1, 0)


def test_a_pinned_set_is_left_alone_unless_it_is_named(file):
    pin(file, False, Reader())
    reader = Reader("11.20220922")
    assert pin(file, False, reader) == f"pinned to {COMMIT} already"
    assert reader.specs == []
    assert pin(file, True, reader) == f"{COMMIT} replaced by 11.20220922"
    assert read_spec(file).revision == "11.20220922"
    assert pin(file, True, reader) == "still 11.20220922"


def test_a_set_without_a_version_is_left_alone(file):
    assert pin(file, False, Reader(None)) == "has no version of its own"
    assert file.read_text() == TEXT


def test_a_file_without_the_line_is_an_error(file):
    file.write_text(TEXT.replace("revision: null  # the commit\n", ""))
    with pytest.raises(ValueError, match=r"set\.yaml: expected one line 'revision"):
        pin(file, False, Reader())


def test_one_failure_does_not_stop_the_others(file, capsys):
    file.with_name("other.yaml").write_text(TEXT.replace("org/set", "org/other"))

    def reader(spec):
        return Reader("unreachable" if spec.repo == "org/other" else COMMIT)(spec)

    assert main([], file.parent, reader) == 1
    shown = capsys.readouterr()
    assert shown.out == f"set: pinned to {COMMIT}\n"
    assert shown.err == "other: error: dataset org/other, config default, split test: the hub cannot be reached\n"
    assert main(["set"], file.parent, reader) == 0
    with pytest.raises(ValueError, match="nothing: not one of other, set"):
        main(["nothing"], file.parent, reader)


def test_a_local_file_is_pinned_by_its_digest(tmp_path):
    data = tmp_path / "test.jsonl"
    data.write_text(json.dumps({"question": "1 + 1?", "answer": "#### 2"}) + "\n")
    digest = hashlib.sha256(data.read_bytes()).hexdigest()
    file = tmp_path / "gsm8k.yaml"
    file.write_text(f"name: gsm8k\npath: {data}\nrevision:\nlimit: null\n")
    assert pin(file, False) == f"pinned to sha256:{digest}"
    assert file.read_text() == f'name: gsm8k\npath: {data}\nrevision: "sha256:{digest}"\nlimit: null\n'
    assert len(load(read_spec(file))) == 1

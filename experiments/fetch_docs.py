"""Fetch the documentation packages into the cache: ``python -m experiments.fetch_docs [PACKAGE | FILE.deb ...]``.

Without arguments both packages are fetched with ``apt-get download``, which needs no rights and installs
nothing. On another system, fetch the .deb elsewhere and name it; unpacking needs ``dpkg-deb``. The texts
are under share-alike licences: they stay in the cache and are not part of this project.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from ssd.bench.docs_package import PACKAGES, docs_root, receipt, unpack

SECONDS = 600


def main(arguments: Sequence[str]) -> int:
    """Every package asked for is in the cache; one line is printed for each."""
    for argument in arguments or list(PACKAGES):
        if argument.endswith(".deb"):
            folder = unpack(Path(argument))
        elif argument in PACKAGES:
            folder = fetch(argument, apt_download)
        else:
            raise ValueError(f"{argument}: neither a .deb file nor one of {', '.join(PACKAGES)}")
        facts = receipt(folder)
        print(f"{facts['package']} {facts['version']} ({facts['licence']}): {facts['pages']} pages in {folder}")
        print(f"  sha256 {facts['sha256']}")
    return 0


def fetch(package: str, download: Callable[[str, Path], Path]) -> Path:
    """Download one package beside the cache and unpack it there; the folder."""
    root = docs_root()
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root, prefix=".download-") as folder:
        return unpack(download(package, Path(folder)), root)


def apt_download(package: str, folder: Path) -> Path:
    """The .deb of a package, put into ``folder`` by apt-get.

    Raises:
        ValueError: if there is no apt-get, or with its reason and what to do.
    """
    if shutil.which("apt-get") is None:
        raise ValueError(f"{package}: no apt-get on this system; fetch the .deb elsewhere and name the file")
    command = ["apt-get", "download", "--quiet", package]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=SECONDS)
    except subprocess.TimeoutExpired as error:
        raise ValueError(f"{package}: apt-get download took more than {SECONDS} s") from error
    found = sorted(folder.glob("*.deb"))
    if done.returncode or not found:
        reason = next((line for line in done.stderr.splitlines() if line.startswith("E:")), "no file came")
        raise ValueError(f"{package}: apt-get download failed: {reason}; apt-get update (as root) may be due")
    return found[0]


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ValueError as error:
        sys.exit(f"error: {error}")

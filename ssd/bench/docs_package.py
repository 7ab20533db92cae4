"""Debian packages of documentation as folders in the cache.

Their texts are under share-alike licences, so they are fetched and never part of this project.
``experiments.fetch_docs`` makes the folders; this module fills and finds them.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ssd.bench.json_files import read_json, write_json
from ssd.bench.wheel_target import cache_root

RECEIPT = "receipt.json"  # written last: package, version, sha256 of the .deb, number of pages


@dataclass(frozen=True)
class DocsPackage:
    """Where a package keeps its pages.

    Attributes:
        root: folder of the package below which each language has one.
        ending: of a page's file name.
        english: name of the folder of the originals.
        licence: as the package states it.
    """

    root: str
    ending: str
    english: str
    licence: str


PACKAGES = {
    "gnome-user-docs": DocsPackage("usr/share/help", ".page", "C", "CC-BY-SA-3.0"),
    "debian-handbook": DocsPackage("usr/share/doc/debian-handbook/html", ".html", "en-US", "GPL-2+ or CC-BY-SA-3.0"),
}
FETCH = "python -m experiments.fetch_docs"


def docs_root() -> Path:
    """Where the folders are, inside the cache."""
    return cache_root() / "docs"


def unpack(deb: Path, root: Path | None = None) -> Path:
    """The pages of a package file are under ``root`` in a folder named by package and version.

    A folder under its final name is complete. One that is there already is left as it is.

    Args:
        deb: the package as it is distributed.
        root: default ``docs_root()``.

    Raises:
        ValueError: if ``dpkg-deb`` is missing or refuses the file, the package is not one of ``PACKAGES``,
            or another file was unpacked as the same version.
    """
    root = docs_root() if root is None else root
    name, version = (_dpkg("-f", deb, field) for field in ("Package", "Version"))
    if name not in PACKAGES:
        raise ValueError(f"{deb}: package {name!r} is not one of {', '.join(PACKAGES)}")
    digest = hashlib.sha256(deb.read_bytes()).hexdigest()
    folder = root / f"{name}_{version.replace(':', '%3a')}"
    if folder.exists():
        if receipt(folder)["sha256"] != digest:
            raise ValueError(f"{folder}: was made from another file of version {version}; delete it to replace it")
        return folder
    partial = root / f".{folder.name}.{os.getpid()}"
    partial.mkdir(parents=True)
    try:
        _dpkg("-x", deb, partial / "all")
        pages = _keep_pages(name, partial / "all", partial / "kept")
        facts = {"package": name, "version": version, "sha256": digest, "licence": PACKAGES[name].licence}
        write_json(partial / "kept" / RECEIPT, {**facts, "pages": pages})
        (partial / "kept").rename(folder)
    finally:
        shutil.rmtree(partial)
    return folder


def find(package: str, version: str | None = None, path: str | None = None) -> tuple[Path, dict[str, Any]]:
    """(folder, its receipt) of a fetched package.

    Args:
        version: ``None`` takes the one that is there.
        path: the folder itself, instead of looking in the cache.

    Raises:
        ValueError: saying how to fetch it if it is not there, or which versions to choose from.
    """
    if package not in PACKAGES:
        raise ValueError(f"repo: {package!r} is not one of {', '.join(PACKAGES)}")
    candidates = docs_root().glob(f"{package}_*") if path is None else [Path(path).expanduser()]
    found = [(folder, receipt(folder)) for folder in sorted(candidates) if (folder / RECEIPT).is_file()]
    matching = [f for f in found if f[1]["package"] == package and version in (None, f[1]["version"])]
    if len(matching) == 1:
        return matching[0]
    there = ", ".join(f"{r['package']} {r['version']}" for _, r in found) or "none"
    where = docs_root() if path is None else path
    wanted = f"{package} {version}" if version else package
    if matching:
        raise ValueError(f"{where}: several versions of {package} are there; set revision to one of {there}")
    raise ValueError(f"{where}: {wanted} has not been fetched (there: {there}); run {FETCH} {package}")


def receipt(folder: Path) -> dict[str, Any]:
    """What a folder was made from."""
    return read_json(folder / RECEIPT)


def _keep_pages(name: str, unpacked: Path, kept: Path) -> int:
    """Copy pages and licence into ``kept``; the number of pages."""
    package = PACKAGES[name]
    source = unpacked / package.root
    pages = _copy(source, kept, sorted(source.rglob(f"*{package.ending}")))
    if not pages:
        raise ValueError(f"{name}: this version has no {package.ending} files under {package.root}")
    licence = unpacked / "usr" / "share" / "doc" / name / "copyright"
    _copy(licence.parent, kept, [licence] if licence.is_file() else [])
    return pages


def _copy(source: Path, target: Path, files: Iterable[Path]) -> int:
    """Copy files to the same place below ``target``; how many. Links are passed over."""
    count = 0
    for file in files:
        if file.is_file() and not file.is_symlink():
            place = target / file.relative_to(source)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, place)
            count += 1
    return count


def _dpkg(option: str, deb: Path, last: str | Path) -> str:
    """One call of dpkg-deb on a package file; its output."""
    if shutil.which("dpkg-deb") is None:
        raise ValueError(f"{deb}: unpacking needs dpkg-deb (package dpkg)")
    done = subprocess.run(["dpkg-deb", option, str(deb), str(last)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(f"{deb}: dpkg-deb {option} failed: {' '.join(done.stderr.split())}")
    return done.stdout.strip()

"""Documentation packages: fetching, pairs of paragraphs, summaries, and purposes page by page."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from experiments.fetch_docs import apt_download, fetch, main
from ssd.bench.dataset_splits import PURPOSES, assert_disjoint, split_of
from ssd.bench.datasets import DatasetSpec, describe, load
from ssd.bench.docs_package import find, receipt, unpack
from ssd.bench.json_files import write_json
from ssd.bench.parallel_docs import language_folder, pairs, paragraphs

GNOME, HANDBOOK = "gnome-user-docs", "debian-handbook"
PAGES = 30
FILLER = " ".join(f"word{n}" for n in range(60))
needs_dpkg = pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="no dpkg-deb")


def mallard(*texts: str, desc: str = "") -> str:
    body = "".join(f"<item><p>{text}</p></item>" for text in texts)
    return (
        f'<page xmlns="http://projectmallard.org/1.0/"><info><desc>{desc}</desc></info>'
        f"<title>A <em>title</em></title><steps>{body}</steps></page>"
    )


def handbook(*texts: str) -> str:
    paras = "".join(f'<div class="para"><a id="x" />\n\t{text}<br />\n</div>' for text in texts)
    return f"<html><head><meta name='a' /></head><body><div><p>Not this.</p>{paras}</div></body></html>"


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def english(n: int) -> str:
    return f"Open the settings and choose number {n} there."


def german(n: int) -> str:
    return f"Öffnen Sie die Einstellungen und wählen Sie dort Nummer {n}."


def make_gnome(folder: Path, *shared: str) -> Path:
    """Thirty pages, as ``fetch_docs`` leaves them: paragraphs of their own, and one that all share (two languages)."""
    files = {}
    for n in range(PAGES):
        filler = f"{FILLER} {n}"
        files[f"C/help/page{n}.page"] = mallard(english(n), *shared[:1], filler, desc=f"About {n}.")
        files[f"de/help/page{n}.page"] = mallard(german(n), *shared[1:], filler, desc=f"Zu {n}.")
    folder = write(folder, files)
    write_json(folder / "receipt.json", {"package": GNOME, "version": "43.0-2", "sha256": "f" * 64})
    return folder


@pytest.fixture
def gnome(tmp_path) -> Path:
    shared = ("This sentence stands on every single page.", "Dieser Satz steht auf jeder einzelnen Seite.")
    return make_gnome(tmp_path / "gnome", *shared)


def docs(folder: Path, kind: str, split: str, config: str | None = None) -> DatasetSpec:
    return DatasetSpec(f"docs_{kind}", path=str(folder), repo=GNOME, config=config, split=split)


def test_every_pair_has_one_purpose_whatever_the_direction(gnome):
    forth = {split: load(docs(gnome, "translation", split, "en-de")) for split in PURPOSES}
    back = {split: load(docs(gnome, "translation", split, "de-en")) for split in PURPOSES}
    assert sum(map(len, forth.values())) == PAGES + 1
    for split in PURPOSES:
        assert [p.id for p in forth[split]] == [p.id for p in back[split]]
        for other in set(PURPOSES) - {split}:
            assert_disjoint(forth[split], back[other])
        for prompt in forth[split]:
            if "every single page" not in prompt.turns[0]:
                assert split_of(f"{GNOME}/{prompt.id.partition('#')[0]}") == split
    # The paragraph that stands everywhere is kept away from training.
    assert [p.turns[0] for p in forth["evaluate"] if "every single page" in p.turns[0]] == [
        "Translate the following paragraph from English into German.\n\nThis sentence stands on every single page."
    ]
    first = next(p for p in back["train"])
    assert first.turns[0].startswith("Translate the following paragraph from German into English.\n\nÖffnen")
    assert first.reference.startswith("Open")


@pytest.mark.parametrize("shared", [(), ("Click Close.", "Klicken.")], ids=["nothing shared", "a short one"])
def test_summaries_follow_the_pages(tmp_path, shared):
    gnome = make_gnome(tmp_path / "gnome", *shared)
    parts = {split: load(docs(gnome, "summarization", split)) for split in PURPOSES}
    assert sum(map(len, parts.values())) == PAGES
    for split, prompts in parts.items():
        assert {split_of(f"{GNOME}/{p.id}") for p in prompts} == {split}
    prompt = parts["train"][0]
    n = int(prompt.id.removeprefix("help/page"))
    assert prompt.reference == f"About {n}."
    assert prompt.turns[0].startswith("Summarize the following help page in one sentence.\n\nA title\n\nOpen the")
    assert describe(docs(gnome, "summarization", "train")) == {
        "name": f"{GNOME}/summarization/train",
        "revision": "43.0-2",
        "sha256": "f" * 64,
    }


def test_no_summary_mixes_purposes(gnome):
    """Every page has the paragraph that translation is evaluated on, so only pages to evaluate are left."""
    for split in set(PURPOSES) - {"evaluate"}:
        with pytest.raises(ValueError, match="0 are there"):
            load(docs(gnome, "summarization", split))
    left = load(docs(gnome, "summarization", "evaluate"))
    assert {p.id for p in left} == {
        f"help/page{n}" for n in range(PAGES) if split_of(f"{GNOME}/help/page{n}") == "evaluate"
    }


def test_pairs_that_are_none_are_dropped(tmp_path):
    lines = [
        (english(1), german(1)),
        ("Too short for this.", "Zu kurz dafür."),
        ("This one was left as it is.", "This one was left as it is."),
        ("See the page about printers for more of it.", "See the page about printers for more of das."),
        ('See <link xref="other"/> to learn more about that.', 'Mehr steht in <link xref="other"/> zu diesem Thema.'),
        ('See <link xref="o">that</link> to learn <em>more</em> here.', 'Mehr dazu steht <link xref="o">dort</link>.'),
        (english(1), german(1)),
    ]  # fmt: skip
    folder = write(
        tmp_path,
        {
            "C/a.page": mallard(*(line[0] for line in lines)),
            "de/a.page": mallard(*(line[1] for line in lines)),
            "C/b.page": mallard(english(2), "One more."),
            "de/b.page": mallard(german(2)),
            "C/c.page": mallard(english(3)),
        },
    )
    assert [(p.page, p.number, p.english, p.translation) for p in pairs(GNOME, folder, "de")] == [
        (f"{GNOME}/a", 0, english(1), german(1)),
        (f"{GNOME}/a", 5, "See that to learn more here.", "Mehr dazu steht dort."),
    ]


def test_the_handbook_is_read(tmp_path):
    nested = f'{english(1)}<ul><li><div class="para">inside &amp; out</div></li></ul>'
    pages = {"en-US/a.html": handbook(nested, english(2)), "de-DE/a.html": handbook(german(1), german(2))}
    folder = write(tmp_path, pages)
    assert paragraphs(folder / "en-US" / "a.html") == [f"{english(1)}inside & out", english(2)]
    assert [p.translation for p in pairs(HANDBOOK, folder, "de")] == [german(1), german(2)]
    write_json(folder / "receipt.json", {"package": HANDBOOK, "version": "11", "sha256": ""})
    with pytest.raises(ValueError, match=r"repo: the pages of debian-handbook have no one-line descriptions"):
        load(DatasetSpec("docs_summarization", path=str(folder), repo=HANDBOOK))


def test_languages_and_directions_are_checked(gnome):
    for name in ("pt-BR", "de-DE", "deu"):
        (gnome / name).mkdir()
    assert [language_folder(gnome, name) for name in ("pt_BR", "de")] == ["pt-BR", "de"]
    with pytest.raises(ValueError, match=r"config: no language 'fr' in .*there are C, de, de-DE, deu, pt-BR"):
        load(docs(gnome, "translation", "evaluate", "en-fr"))
    for direction in ("de-fr", "en-en", "en", "en-xx"):
        with pytest.raises(ValueError, match=f"config: '{direction}' is not en-X or X-en"):
            load(docs(gnome, "translation", "evaluate", direction))


def test_what_was_not_fetched_says_how(tmp_path, monkeypatch):
    monkeypatch.setenv("SSD_CACHE", str(tmp_path))
    wanted = DatasetSpec("docs_summarization", repo=GNOME)
    with pytest.raises(ValueError, match=r"has not been fetched \(there: none\); run python -m experiments"):
        load(wanted)
    for version in ("1", "2"):
        write_json(tmp_path / "docs" / f"{GNOME}_{version}" / "receipt.json", {"package": GNOME, "version": version})
    with pytest.raises(ValueError, match=r"several versions .* set revision to one of gnome-user-docs 1, gn"):
        load(wanted)
    assert find(GNOME, "2")[0].name == f"{GNOME}_2"
    with pytest.raises(ValueError, match=r"gnome-user-docs 3 has not been fetched \(there: gnome-user-docs 1, "):
        find(GNOME, "3")
    with pytest.raises(ValueError, match="repo: 'coreutils' is not one of"):
        find("coreutils")


def deb(folder: Path, package: str = GNOME, version: str = "1:43.0-2", text: str = "") -> Path:
    """A package file with two pages, a picture and a licence."""
    page = mallard(english(1)) + text
    write(
        folder / "tree",
        {
            "DEBIAN/control": f"Package: {package}\nVersion: {version}\nArchitecture: all\nMaintainer: A <a@b.c>\n"
            "Description: pages\n",
            "usr/share/help/C/help/a.page": page,
            "usr/share/help/de/help/a.page": page,
            "usr/share/help/C/help/figures/a.svg": "<svg/>",
            f"usr/share/doc/{package}/copyright": "CC-BY-SA",
        },
    )
    (folder / "tree").chmod(0o755)
    (folder / "tree" / "DEBIAN").chmod(0o755)
    command = ["dpkg-deb", "--build", str(folder / "tree"), str(folder / "x.deb")]
    subprocess.run(command, check=True, capture_output=True)
    return folder / "x.deb"


@needs_dpkg
def test_a_package_becomes_a_folder_once(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SSD_CACHE", str(tmp_path / "cache"))
    file = deb(tmp_path)
    assert main([str(file)]) == 0
    folder, noted = find(GNOME)
    assert folder == tmp_path / "cache" / "docs" / f"{GNOME}_1%3a43.0-2"
    assert (noted["version"], noted["pages"], noted["licence"]) == ("1:43.0-2", 2, "CC-BY-SA-3.0")
    assert noted["sha256"] in capsys.readouterr().out
    kept = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    assert kept == ["C/help/a.page", "copyright", "de/help/a.page", "receipt.json"]
    assert unpack(file) == folder
    assert fetch(GNOME, lambda package, where: shutil.copy(file, where / "y.deb")) == folder
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    with pytest.raises(ValueError, match=r"was made from another file of version 1:43\.0-2"):
        unpack(deb(tmp_path, text="<!-- changed -->"))
    assert receipt(folder) == noted


@needs_dpkg
def test_other_files_are_refused_and_leave_nothing(tmp_path):
    with pytest.raises(ValueError, match="package 'coreutils' is not one of"):
        unpack(deb(tmp_path, "coreutils"), tmp_path / "root")
    with pytest.raises(ValueError, match=r"debian-handbook: this version has no \.html files under usr/share/doc"):
        unpack(deb(tmp_path, HANDBOOK), tmp_path / "root")
    (tmp_path / "bad.deb").write_text("no package")
    with pytest.raises(ValueError, match=r"bad\.deb: dpkg-deb -f failed"):
        unpack(tmp_path / "bad.deb", tmp_path / "root")
    assert list((tmp_path / "root").iterdir()) == []


def test_a_system_without_the_tools_is_told_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError, match=r"no apt-get on this system; fetch the \.deb elsewhere and name the file"):
        apt_download(GNOME, tmp_path)
    with pytest.raises(ValueError, match=r"x\.deb: unpacking needs dpkg-deb"):
        unpack(tmp_path / "x.deb")
    (tmp_path / "apt-get").write_text("#!/bin/sh\necho 'E: Unable to locate package' >&2\nexit 100\n")
    (tmp_path / "apt-get").chmod(0o755)
    with pytest.raises(ValueError, match="apt-get download failed: E: Unable to locate package; apt-get update"):
        apt_download(GNOME, tmp_path)
    with pytest.raises(ValueError, match=r"coreutils: neither a \.deb file nor one of gnome-user-docs"):
        main(["coreutils"])

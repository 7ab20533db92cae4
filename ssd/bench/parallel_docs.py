"""Translation pairs and summaries from documentation pages that exist in several languages.

A page and its translation are aligned if they have equally many paragraphs. Dropped are short
paragraphs, paragraphs that were never translated, and those whose words depend on a link that only a
help viewer can fill in.

All texts of an English page serve the purpose that ``split_of`` gives to the page's name, whatever the
direction; a paragraph that stands on several pages serves the strictest of theirs. A page with such a
paragraph from a stricter page gives no summary: it would be half of one purpose and half of another.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

from ssd.bench.dataset_splits import normalised, split_of, stricter
from ssd.bench.docs_package import PACKAGES
from ssd.bench.prompts import Prompt

MALLARD = "{http://projectmallard.org/1.0/}"
SHORTEST_PAIR = 6  # words of the English paragraph
SHORTEST_BODY = 60
UNTRANSLATED = 0.7  # share of a translation's letters that stand in words of the original
LANGUAGES = {
    "ca": "Catalan",
    "cs": "Czech",
    "da": "Danish",
    "de": "German",
    "el": "Greek",
    "en": "English",
    "es": "Spanish",
    "fr": "French",
    "hu": "Hungarian",
    "id": "Indonesian",
    "it": "Italian",
    "ja": "Japanese",
    "ko": "Korean",
    "nl": "Dutch",
    "pl": "Polish",
    "pt_BR": "Brazilian Portuguese",
    "ro": "Romanian",
    "ru": "Russian",
    "sv": "Swedish",
    "tr": "Turkish",
    "uk": "Ukrainian",
    "vi": "Vietnamese",
    "zh_CN": "Simplified Chinese",
}


@dataclass(frozen=True)
class Pair:
    """A paragraph and its translation.

    Attributes:
        page: name of the English page, its package first.
        number: of the paragraph on the page.
    """

    page: str
    number: int
    english: str
    translation: str


def translation_prompts(package: str, folder: Path, direction: str, purpose: str) -> list[Prompt]:
    """One prompt for each distinct pair that may serve ``purpose``, in the order of the pages.

    Args:
        direction: such as ``en-de`` or ``de-en``; one side is English.

    Raises:
        ValueError: for a direction that cannot be read, or a language that the package lacks.
    """
    source, _, target = direction.partition("-")
    if "en" not in (source, target) or source == target or not {source, target} <= set(LANGUAGES):
        raise ValueError(f"config: {direction!r} is not en-X or X-en with X one of {', '.join(LANGUAGES)}")
    prompts = []
    for pair in pairs(package, folder, target if source == "en" else source, purpose):
        text, reference = (pair.english, pair.translation)[:: 1 if source == "en" else -1]
        asked = f"Translate the following paragraph from {LANGUAGES[source]} into {LANGUAGES[target]}.\n\n{text}"
        name = f"{pair.page.partition('/')[2]}#{pair.number}"
        # The English side is what two sets must not share, whichever way they translate.
        extra = {"page": pair.page, "source": pair.english}
        prompts.append(Prompt(name, "translation", purpose, (asked,), reference, extra))
    return prompts


def summary_prompts(package: str, folder: Path, purpose: str) -> list[Prompt]:
    """One prompt for each English page that may serve ``purpose``, has a description and is long enough.

    Left out are pages with a paragraph that serves a stricter purpose, so that no summary shows in training
    what is evaluated in translation, and none is evaluated on what translation was trained on.

    Raises:
        ValueError: if the package's pages have no descriptions.
    """
    if PACKAGES[package].ending != ".page":
        raise ValueError(f"repo: the pages of {package} have no one-line descriptions")
    prompts = []
    purposes = _purposes(package, folder)
    for name, file in _pages(package, folder, PACKAGES[package].english):
        page = ElementTree.parse(file).getroot()
        title, summary = _first(page, "title"), _first(page, f"info/{MALLARD}desc")
        texts = _usable(paragraphs(file))
        body = "\n".join(texts)
        # Shorter paragraphs are in no pair, and on pages of all purposes.
        serves = {split_of(name), *(purposes[normalised(text)] for text in filter(_is_long_enough, texts))}
        if serves == {purpose} and summary and len(body.split()) >= SHORTEST_BODY:
            asked = f"Summarize the following help page in one sentence.\n\n{title}\n\n{body}"
            short = name.partition("/")[2]
            prompts.append(Prompt(short, "summarization", purpose, (asked,), summary, {"source": body}))
    return prompts


def pairs(package: str, folder: Path, language: str, purpose: str | None = None) -> list[Pair]:
    """Distinct aligned pairs of English and ``language``; only those for ``purpose`` if it is given."""
    found: dict[tuple[str, str], Pair] = {}
    purposes = _purposes(package, folder)
    translated = dict(_pages(package, folder, language_folder(folder, language)))
    for name, file in _pages(package, folder, PACKAGES[package].english):
        original = paragraphs(file)
        other = paragraphs(translated[name]) if name in translated else []
        for number, (english, translation) in enumerate(zip(original, other, strict=False)):
            if len(original) == len(other) and english and translation and _is_pair(english, translation):
                found.setdefault((english, translation), Pair(name, number, english, translation))
    return [pair for pair in found.values() if purpose in (None, purposes[normalised(pair.english)])]


def _purposes(package: str, folder: Path) -> dict[str, str]:
    """What each English paragraph, by its words, may be used for: the strictest purpose of the pages it is on."""
    found: dict[str, str] = {}
    for name, file in _pages(package, folder, PACKAGES[package].english):
        for text in _usable(paragraphs(file)):
            key = normalised(text)
            found[key] = stricter(found.get(key, "train"), split_of(name))
    return found


def language_folder(folder: Path, language: str) -> str:
    """Name of a language's folder: ``pt_BR`` may be ``pt-BR``, and ``de`` may be ``de-DE``.

    Raises:
        ValueError: if there is none.
    """
    wanted = language.replace("_", "-")
    names = sorted(path.name for path in folder.iterdir() if path.is_dir())
    for name in names:
        if name.replace("_", "-") == wanted:
            return name
    for name in names:
        if name.startswith(f"{wanted}-"):
            return name
    raise ValueError(f"config: no language {language!r} in {folder}; there are {', '.join(names)}")


def paragraphs(file: Path) -> list[str | None]:
    """Text of every paragraph of a page, in order; ``None`` where a link without words stands for some."""
    if file.suffix == ".page":
        page = ElementTree.parse(file).getroot()
        return [None if _has_empty_link(node) else _text(node) for node in page.iter(f"{MALLARD}p")]
    parser = _Paragraphs()
    parser.feed(file.read_text(encoding="utf-8"))
    parser.close()
    return [" ".join(text.split()) for text in parser.found]


def _pages(package: str, folder: Path, language: str) -> Iterator[tuple[str, Path]]:
    """(name without language, file) of every page of a language, ordered by name."""
    root = folder / language
    for file in sorted(root.rglob(f"*{PACKAGES[package].ending}")):
        yield f"{package}/{file.relative_to(root).with_suffix('').as_posix()}", file


def _usable(texts: list[str | None]) -> list[str]:
    """Paragraphs that can be read on their own."""
    return [text for text in texts if text]


def _is_pair(english: str, translation: str) -> bool:
    """Long enough, and translated."""
    return _is_long_enough(english) and _overlap(english, translation) <= UNTRANSLATED


def _is_long_enough(english: str) -> bool:
    """Whether a paragraph says enough to be translated by itself."""
    return len(english.split()) >= SHORTEST_PAIR


def _overlap(english: str, translation: str) -> float:
    """Share of the translation's letters in words that the original has too."""
    known = set(normalised(english).split())
    words = re.findall(r"\w+", translation.casefold())
    return sum(len(word) for word in words if word in known) / max(1, sum(map(len, words)))


def _text(node: ElementTree.Element) -> str:
    """All text below a node, with single spaces."""
    return " ".join("".join(node.itertext()).split())


def _first(page: ElementTree.Element, path: str) -> str:
    """Text of the first node at a path, empty if there is none."""
    node = page.find(f"{MALLARD}{path}")
    return "" if node is None else _text(node)


def _has_empty_link(node: ElementTree.Element) -> bool:
    """Whether a viewer would put a page's title where the file has nothing."""
    return any(not _text(link) for link in node.iter(f"{MALLARD}link"))


class _Paragraphs(HTMLParser):
    """Collects the text of each outermost ``<div class="para">``; the pages are XHTML, so tags are balanced."""

    VOID = frozenset(("br", "col", "hr", "img", "input", "link", "meta"))

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._open = 0  # tags
        self._began: int | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in self.VOID:
            return
        self._open += 1
        if self._began is None and tag == "div" and ("class", "para") in attrs:
            self._began = self._open
            self.found.append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """``<a />`` opens nothing."""

    def handle_endtag(self, tag: str) -> None:
        if tag in self.VOID:
            return
        if self._began == self._open:
            self._began = None
        self._open -= 1

    def handle_data(self, data: str) -> None:
        if self._began is not None:
            self.found[-1] += data

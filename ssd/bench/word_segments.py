"""Words of a text in any script, for scores that compare words."""

from __future__ import annotations

import unicodedata
from functools import lru_cache

# Scripts that write no spaces between words: a token is one character with the marks it carries.
_UNSPACED = (
    "CJK UNIFIED IDEOGRAPH",
    "CJK COMPATIBILITY IDEOGRAPH",
    "IDEOGRAPHIC",
    "HIRAGANA",
    "KATAKANA",
    "BOPOMOFO",
    "THAI",
    "LAO",
    "KHMER",
    "MYANMAR",
)
_ZERO_WIDTH_SPACE = "\u200b"  # the one invisible character that does end a word


class WordSegments:
    """Tokenizer of rouge-score's interface: lower-cased runs of letters, marks and digits.

    Compatibility forms are unified first (full-width Latin, ligatures, composed and decomposed
    accents). Chinese, Japanese, Thai, Lao, Khmer and Burmese are split into characters. Punctuation,
    symbols and underscores separate and vanish. On ASCII text the tokens are those of rouge-score's own
    tokenizer without stemming, which drops every letter outside a-z.
    """

    signature = "unicode-words"

    def tokenize(self, text: str) -> list[str]:
        """Tokens in order; empty for a text without letters and digits."""
        tokens: list[str] = []
        before = "gap"
        for char in unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()):
            kind = _kind(char)
            if kind == "invisible":
                continue
            if kind == "mark" and before != "gap":
                tokens[-1] += char
                continue
            kind = "word" if kind == "mark" else kind
            if kind == "word" and before == "word":
                tokens[-1] += char
            elif kind != "gap":
                tokens.append(char)
            before = kind
        return tokens


@lru_cache(maxsize=4096)
def _kind(char: str) -> str:
    """``word``, ``alone`` (a token of its own), ``mark`` (belongs to what precedes), ``invisible`` or ``gap``."""
    category = unicodedata.category(char)
    if category == "Cf":
        return "gap" if char == _ZERO_WIDTH_SPACE else "invisible"
    if category[0] == "M":
        return "mark"
    if category[0] not in "LN":
        return "gap"
    return "alone" if unicodedata.name(char, "").startswith(_UNSPACED) else "word"

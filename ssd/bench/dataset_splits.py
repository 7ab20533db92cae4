"""What data may be used for: text that measures anything never trains or calibrates anything.

Sets that come with splits keep them: train is for training, validation for calibration, test for
evaluation; public benchmarks without splits are for evaluation as a whole. Everything else is divided
by ``split_of``. A text has one purpose for good: the rule depends on the text alone.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ssd.bench.prompts import Prompt

if TYPE_CHECKING:
    from ssd.bench.dataset_spec import DatasetSpec

PURPOSES = ("train", "calibrate", "evaluate")  # from the loosest to the strictest
SHARES = (7, 1, 2)  # tenths


def normalised(text: str) -> str:
    """Lower-case words joined by single spaces: what spacing, punctuation or case cannot change.

    A text without any word, such as a formula of symbols, keeps its symbols.
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(re.findall(r"\w+", folded)) or " ".join(folded.split())


def split_of(text: str) -> str:
    """``train``, ``calibrate`` or ``evaluate``, about 70, 10 and 20 in a hundred, by a hash of ``text``."""
    tenth = int.from_bytes(hashlib.sha256(normalised(text).encode()).digest()[:8], "big") % 10
    return PURPOSES[sum(tenth >= bound for bound in (SHARES[0], SHARES[0] + SHARES[1]))]


def stricter(first: str, second: str) -> str:
    """Of two purposes the one that keeps a text away from more uses."""
    return max(first, second, key=PURPOSES.index)


def check_use(spec: DatasetSpec, purpose: str) -> None:
    """Nothing happens if ``spec`` may be used for ``purpose``, which programs say before they read it.

    Raises:
        ValueError: naming set, split and both purposes if it is for something else.
    """
    if purpose not in PURPOSES:
        raise ValueError(f"purpose: {purpose!r} is not one of {', '.join(PURPOSES)}")
    if spec.purpose != purpose:
        raise ValueError(f"{spec.label}: this data is for {spec.purpose!r} and must not be used for {purpose!r}")


def key(prompt: Prompt) -> str:
    """The text that two sets must not share: the passage asked about where it is known, else the first turn."""
    return normalised(str(prompt.extra.get("source") or prompt.turns[0]))


def assert_disjoint(first: Iterable[Prompt], second: Iterable[Prompt]) -> None:
    """Nothing happens if no text occurs in both; how a task is worded around a known passage does not count.

    Raises:
        ValueError: with the ids of up to three pairs and the number of all.
    """
    seen = {key(prompt): prompt.id for prompt in first}
    shared = [(seen[key(prompt)], prompt.id) for prompt in second if key(prompt) in seen]
    if shared:
        some = "; ".join(f"{a} and {b}" for a, b in shared[:3])
        raise ValueError(f"splits: {len(shared)} texts are in both sets: {some}{' ...' if len(shared) > 3 else ''}")

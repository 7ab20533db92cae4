"""What the numbers say, as sentences: does a draft for the draft pay, and by how much?

The comparison is between the fastest chain of at least two drafts and the fastest method of ours with one,
each chosen by its speedup in the same setting; the ratio of the two is paired by prompt like any speedup.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.settings import BASELINE, Setting
from analysis.speed_rows import best, gain
from ssd.bench.statistics import Estimate

NOBODY = Estimate(None, None, None, 0)
OUTCOMES = ("pays", "costs", "level", "unknown", "absent")


@dataclass(frozen=True)
class Verdict:
    """One setting's answer.

    Attributes:
        outcome: ``pays``, ``costs``, ``level`` (the interval holds 1), ``unknown`` (no interval), ``absent`` (no
            chain of two drafts, or no single draft, took part).
        chain, draft, fastest: rows of ``speed_rows``; None where there is none.
        gain: speedup of ``chain`` over ``draft``.
    """

    setting: Setting
    outcome: str
    chain: Mapping[str, Any] | None
    draft: Mapping[str, Any] | None
    fastest: Mapping[str, Any] | None
    gain: Estimate


def verdict(setting: Setting, rows: Sequence[dict[str, Any]]) -> Verdict:
    """The answer of a setting, from its ``speed_rows``."""
    chain, draft = best(rows, "chain"), best(rows, "draft")
    fastest = best(rows, "baseline", "other", "draft", "chain")
    if chain is None or draft is None:
        return Verdict(setting, "absent", chain, draft, fastest, NOBODY)
    ours, other = setting.method(chain["method"]), setting.method(draft["method"])
    assert ours is not None
    assert other is not None
    ratio = gain(setting, ours, other)
    if ratio.low is None or ratio.high is None:
        outcome = "unknown"
    else:
        outcome = "pays" if ratio.low > 1 else "costs" if ratio.high < 1 else "level"
    return Verdict(setting, outcome, chain, draft, fastest, ratio)


def title(verdicts: Sequence[Verdict]) -> str:
    """The headline over all settings."""
    if not verdicts:
        return "No run has completed"
    if all(v.setting.is_synthetic for v in verdicts):
        return "Acceptance was imposed: times of made-up outputs"
    answered = [v for v in verdicts if v.outcome in ("pays", "costs", "level")]
    if not answered:
        return _fastest(verdicts)
    if len(answered) > 1:
        count = sum(v.outcome == "pays" for v in answered)
        return f"A draft for the draft pays in {count or 'none'} of {len(answered)} settings"
    (only,) = answered
    chain, draft, ratio = (_name(only.chain), _name(only.draft), only.gain.value)
    return {
        "pays": f"A draft for the draft pays: {chain} is {_times(ratio)} as fast as {draft}",
        "costs": f"A draft for the draft does not pay: {chain} is {_times(ratio)} as fast as {draft}",
        "level": f"A draft for the draft changes little: {chain} is {_times(ratio)} as fast as {draft}",
    }[only.outcome]


def lead(verdicts: Sequence[Verdict]) -> str:
    """The sentence under the headline: the numbers of the setting in which the chain gains most."""
    top = _top(verdicts)
    if top is None:
        return "The complete runs hold no output." if verdicts else "What was tried is listed below."
    if top.gain.value is None:
        return sentence(top)
    return f"{'At best, in' if len(verdicts) > 1 else 'In'} {top.setting.title}: {sentence(top)}"


def sentence(found: Verdict) -> str:
    """One setting in words; every number stands in the tables too."""
    if found.chain is None or found.draft is None:
        if found.fastest is None:
            return "nothing was decoded."
        return f"{_rate(found.fastest)}, the fastest of its setting."
    text = f"{_rate(found.chain)}; the best with a single draft is {_rate(found.draft, is_clause=True)}. "
    text += f"The ratio of the two is {_interval(found.gain)}: {_meaning(found.outcome)}."
    row = found.fastest
    if row is not None and row["method"] not in (_name(found.chain), _name(found.draft)):
        text += f" Fastest of all is {_rate(row, is_clause=True)}."
    return text


def _meaning(outcome: str) -> str:
    return {
        "pays": "the second draft pays",
        "costs": "the second draft costs more than it saves",
        "level": "no difference can be told",
        "unknown": "too few prompts for an interval",
    }[outcome]


def _fastest(verdicts: Sequence[Verdict]) -> str:
    """The headline where no chain can be compared with a single draft."""
    known = [v.fastest for v in verdicts if v.fastest is not None]
    if not known:
        return "The runs are complete and hold no output"
    top = max(known, key=lambda row: row["speedup"] or 0.0)
    if top["speedup"] is None:
        return f"{_name(top)}: {top['tokens_per_second']:.1f} tokens per second"
    if top["method"] == BASELINE:
        return "Nothing is faster than plain decoding here"
    return f"{_name(top)} decodes {_times(top['speedup'])} as fast as plain decoding"


def _rate(row: Mapping[str, Any], is_clause: bool = False) -> str:
    """``L1→L2 decodes 18.7 tokens/s, 1.36× plain decoding [1.30, 1.44]``, as a clause with ``with``."""
    text = f"{row['method']} {'with' if is_clause else 'decodes'} {row['tokens_per_second']:.1f} tokens/s"
    if row["speedup"] is None or row["method"] == BASELINE:
        return text
    return (
        f"{text}, {_interval(Estimate(row['speedup'], row['speedup_low'], row['speedup_high'], 0), ' plain decoding')}"
    )


def _interval(found: Estimate, of: str = "") -> str:
    text = _times(found.value) + of
    return text if found.low is None else f"{text} [{found.low:.2f}, {found.high:.2f}]"


def _times(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2f}\N{MULTIPLICATION SIGN}"


def _name(row: Mapping[str, Any] | None) -> str:
    return "" if row is None else str(row["method"])


def tiles(verdicts: Sequence[Verdict]) -> list[tuple[str, str, str]]:
    """(value, what it is, its interval or context): a few numbers of the setting that ``lead`` tells of."""
    top = _top(verdicts)
    row = None if top is None else top.chain if top.chain is not None and top.draft is not None else top.fastest
    if top is None or row is None:
        return []
    name, found = _name(row), []
    if row["speedup"] is not None and name != BASELINE:
        found.append(
            (_times(row["speedup"]), f"{name} over plain decoding", _span(row["speedup_low"], row["speedup_high"]))
        )
    if top.gain.value is not None:
        found.append((_times(top.gain.value), f"{name} over {_name(top.draft)}", _span(top.gain.low, top.gain.high)))
    found.append((f"{row['tokens_per_second']:.1f}", "tokens per second", name))
    if row["tau"]:
        found.append((f"{row['tau'][-1]:.2f}", "tokens per pass of the target", f"τ of {name}'s last edge"))
    if row["exact_match"] is not None and row["temperature"] == 0 and name != BASELINE:
        found.append((str(row["exact_match"]), "outputs equal to AR's", "at temperature 0"))
    return found


def _span(low: float | None, high: float | None) -> str:
    """An interval under a number."""
    return "no interval" if low is None or high is None else f"{low:.2f} to {high:.2f}, 95% interval"


def _top(verdicts: Sequence[Verdict]) -> Verdict | None:
    """The setting in which the chain gains most; without one, the first in which anything was decoded."""
    answered = [v for v in verdicts if v.gain.value is not None]
    if answered:
        return max(answered, key=lambda v: v.gain.value or 0.0)
    return next((v for v in verdicts if v.fastest is not None), None)

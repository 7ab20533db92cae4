"""What to use, in words: every number in the sentences comes from the plans they compare."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from ssd.plan.candidates import Plan, drawn_at, lengths
from ssd.plan.inputs import Pair, pair_name
from ssd.plan.published_speeds import AR, SPEEDS
from ssd.plan.sensitivity import Comparison, flip_by_alpha, flip_by_latency
from ssd.plan.temperature_grid import Chosen


@dataclass(frozen=True)
class Ranking:
    """Plans in order.

    Attributes:
        plans: those that fit, fastest first; AR is among them where it fits.
        too_large: those that do not.
        unknown: pairs that are missing, by chains that could not be planned for want of them.
        idle: chains left out because one of their levels never drafts anything.
    """

    plans: tuple[Plan, ...]
    too_large: tuple[Plan, ...]
    unknown: dict[tuple[str, ...], list[str]]
    idle: tuple[tuple[str, ...], ...] = ()


def recommend(found: Ranking, comparison: Comparison, chosen: Chosen | None = None) -> str:
    """One paragraph: the best plan, and why it is not a shorter or a longer one.

    Args:
        chosen: how the best plan's temperatures were chosen, if there was a choice.
    """
    top, target = found.plans[0], found.plans[0].names[-1]
    if not top.edges:
        sentences = [f"Use {target} alone.", *_why_alone(found, comparison)]
    else:
        sentences = [
            f"Use {name(top)}: predicted {_x(top)} the speed of {target} alone.",
            _pipelined(top),
            _at_the_limit(top, comparison.largest),
            _tempered(top, chosen),
            _above_print(top),
            *_why_not_longer(found, comparison),
            *(_why_level(found, comparison, level) for level in reversed(top.names[:-1])),
        ]
    if found.too_large and found.too_large[0].speedup > top.speedup:
        rival = found.too_large[0]
        sentences.append(f"{name(rival)} is predicted at {_x(rival)}, but its weights exceed the memory limit.")
    if found.unknown:
        chains = ", ".join("→".join(names) for names in found.unknown)
        sentences.append(f"Not planned, because an acceptance is unknown: {chains}.")
    if found.idle:
        chains = ", ".join("→".join(names) for names in found.idle)
        sentences.append(f"Not planned, because one of its levels would never draft anything: {chains}.")
    return " ".join(s for s in sentences if s)


def name(plan: Plan) -> str:
    """Levels, draft lengths under the faster schedule, windows and temperatures, as in its label but in words."""
    if not plan.edges:
        return f"{plan.names[0]} alone"
    own = drawn_at(plan)
    at = f" at temperatures {own}" if own else ""
    return f"{'→'.join(plan.names)} with gamma {lengths(plan, _gammas(plan))}{at}"


def _gammas(plan: Plan) -> tuple[int, ...]:
    """Draft lengths under the faster schedule."""
    own = plan.pipelined
    return own.gammas if own is not None and plan.schedule == "pipelined" else plan.gammas


def _at_the_limit(top: Plan, largest: int) -> str:
    """A remark where a longer draft was not tried and might be better."""
    if largest not in _gammas(top):
        return ""
    return f"A draft length stands at the limit, {largest}: longer ones were not tried."


def _pipelined(top: Plan) -> str:
    """What the pipelined schedule is said to bring, where it is the faster one."""
    if top.pipelined is None or top.schedule != "pipelined":
        return ""
    own = top.pipelined
    return (
        f"That is the pipelined schedule on {own.devices} devices with {own.budget} rows drafted ahead; the serial one "
        f"is at {top.prediction.speedup:.2f}x with gamma {lengths(top, top.gammas)}."
    )


def _tempered(top: Plan, chosen: Chosen | None) -> str:
    """Which temperatures the draft levels get, where they are not their own."""
    if chosen is None or chosen.gain == 1.0:
        return ""
    own = ", ".join(f"{n} at {t:g}" for n, t in zip(top.names[:-1], chosen.vector, strict=False) if t is not None)
    return f"Its draft levels draw at temperatures of their own ({own}), which adds {chosen.gain - 1:.1%}."


def _above_print(top: Plan) -> str:
    """A warning where the prediction exceeds every published speedup over AR of exact output that is not in doubt."""
    most = max((s for s in SPEEDS if s.over == AR and s.exact and s.doubt is None), key=lambda s: s.high)
    if top.speedup <= most.high:
        return ""
    return (
        f"That is above anything published for exact output and not in doubt, at most {most.high:.2f}x "
        f"({most.system}, {most.models}, {most.source}): check the profile."
    )


def _why_alone(found: Ranking, comparison: Comparison) -> list[str]:
    """Why no draft pays: the best rival, and what a draft of one token would need."""
    rivals = [p for p in found.plans if p.edges]
    if not rivals:
        return ["There is no draft to compare with."]
    rival = rivals[0]
    out = [f"No draft pays: the best chain, {name(rival)}, is predicted at {_x(rival)}."]
    pair = next((p for p in rivals if len(p.edges) == 1), None)
    if pair is None:
        return out
    draft, target = comparison.profile.select(pair.names).levels
    own = target.at(1, comparison.batch)
    cost, wider = draft.at(1, comparison.batch) / own, target.at(2, comparison.batch) / own - 1
    wider = max(0.0, wider)  # two timed passes may differ the other way by noise
    need, has = cost + wider, pair.acceptance[0].at(0, "plain")
    reason = (
        f"A draft token of {draft.name} costs {cost:.2f} of a pass of {target.name} and {wider:.2f} more to check it"
    )
    if draft.look_up:
        return [*out, f"{reason}, and {draft.name} proposes only {draft.coverage:.0%} of the time."]
    if need >= 1:
        return [*out, f"{reason}, so that one would not pay at any acceptance."]
    return [*out, f"{reason}, so that one pays from acceptance {need:.2f} on; it has {has:.2f}."]


def _why_not_longer(found: Ranking, comparison: Comparison) -> list[str]:
    """Why one more level does not pay: the best chain that has all of the top's levels and another."""
    top = found.plans[0]
    rival = next((p for p in found.plans if set(p.names) > set(top.names)), None)
    if rival is None:
        return []
    extra = [n for n in rival.names if n not in top.names]
    where = "the middle level" if rival.names.index(extra[-1]) > 0 else "another level below"
    lost = 1 - rival.speedup / top.speedup
    return [
        f"{where.capitalize()} ({', '.join(extra)}) does not pay because {name(rival)} is predicted at {_x(rival)}, "
        f"{lost:.0%} less{_would_change(comparison, top, rival, extra)}."
    ]


def _why_level(found: Ranking, comparison: Comparison, level: str) -> str:
    """Why a level of the top plan is there: the best plan without it, and what would end that."""
    top = found.plans[0]
    rival = next((p for p in found.plans if level not in p.names), None)
    if rival is None:
        return ""
    gain = top.speedup / rival.speedup - 1
    what = f"{level} as the middle level" if top.names.index(level) > 0 else f"{level} as the lowest level"
    return (
        f"{what} pays because the best plan without it, {name(rival)}, is predicted at {_x(rival)}, so it adds "
        f"{gain:.0%}{_would_change(comparison, top, rival, [level])}."
    )


def _would_change(comparison: Comparison, top: Plan, rival: Plan, levels: Sequence[str]) -> str:
    """Which acceptance or pass time of these levels would put the rival first in the serial predictions."""
    serial = ""
    if "pipelined" in (top.schedule, rival.schedule):
        serial = "under the serial schedule, "
        if comparison.seconds(top) >= comparison.seconds(rival):
            return "; under the serial schedule the order is the other one"
    ways = []
    pairs: list[Pair] = list(dict.fromkeys([*itertools.pairwise(top.names), *itertools.pairwise(rival.names)]))
    for pair in pairs:
        if not set(pair) & set(levels):
            continue
        change = flip_by_alpha(comparison, top, rival, pair)
        model = top.model(pair) or rival.model(pair)
        if change is not None and model is not None:
            now, then = model.at(0, "plain"), model.shifted(change).at(0, "plain")
            ways.append(f"an acceptance of {pair_name(pair)} of {then:.2f} instead of {now:.2f}")
    for level in levels:
        factor = flip_by_latency(comparison, top, rival, level)
        if factor is not None:
            ways.append(f"passes of {level} {factor:.2f} times as long")
    if not ways:
        return f"; {serial}no change of one acceptance or pass time of it alone would reverse that"
    return f"; {serial}{', or '.join(ways)} would reverse that"


def _x(plan: Plan) -> str:
    return f"{plan.speedup:.2f}x"

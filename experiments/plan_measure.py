"""The top plan beside runner-up and AR, and the adaptive window beside the best fixed draft length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from experiments.console import ProgressLine
from experiments.plan_config import AR
from ssd.bench.experiment import BASELINE, run_pass
from ssd.bench.loading import Loader
from ssd.bench.method_spec import EdgeSpec, MethodSpec
from ssd.bench.metrics import speedup
from ssd.bench.records import Run, group_by
from ssd.bench.spec import ChainSpec, LevelSpec, RunSpec
from ssd.bench.summary import Row
from ssd.plan.candidates import Plan, label
from ssd.plan.inputs import pair_name
from ssd.plan.recommendation import Ranking


@dataclass(frozen=True)
class Contest:
    """What is measured.

    Attributes:
        methods: AR first.
        chain: the levels they name: the chain's draft levels, once more at the temperatures of each plan that changes
            them, and the target.
        plans: by method, those that are plans.
        top, second: methods of the top plan and of the runner-up; ``second`` is ``None`` for a lone plan.
        fixed, adaptive: methods of the best fixed draft length and of the adaptive window of one pair, or ``None``.
        largest_gain: what an oracle would gain over ``fixed``, on the tuning prompts.
    """

    methods: dict[str, MethodSpec]
    chain: ChainSpec
    plans: dict[str, Plan]
    top: str
    second: str | None
    fixed: str | None = None
    adaptive: str | None = None
    largest_gain: float | None = None


def contest(
    found: Ranking,
    windows: Mapping[str, Mapping[str, Any]],
    names: Mapping[str, int | str],
    chain: ChainSpec,
) -> Contest:
    """AR, the first two plans, and of the best pair of models its fixed and its adaptive draft length.

    All run under the serial schedule, and the first two are those that it is predicted to make fastest.

    Args:
        windows: calibrated windows by pair, as in a profile file; they are of the levels' own temperatures.
        names: how a method names each level.
        chain: whose levels these are.
    """
    methods, plans, placed = {BASELINE: AR}, {}, []
    drafts = list(chain.levels[:-1])
    for plan in sorted(found.plans, key=lambda p: p.prediction.seconds_per_token)[:2]:
        title = label(plan) if plan.edges else BASELINE
        edges = tuple(EdgeSpec(e.gamma, e.window, verification=e.verification) for e in plan.edges)
        methods.setdefault(title, MethodSpec(levels=_levels(plan, names, chain, drafts), edges=edges))
        plans[title] = plan
        placed.append(title)
    top, second = placed[0], placed[1] if len(placed) > 1 else None
    pair = next((p for p in found.plans if len(p.names) == 2 and pair_name((p.names[0], p.names[1])) in windows), None)
    wide = ChainSpec((*drafts, chain.levels[-1]), (EdgeSpec(1),) * len(drafts))  # every method has edges of its own
    if pair is None:
        return Contest(methods, wide, plans, top, second)
    own = windows[pair_name((pair.names[0], pair.names[1]))]
    levels, title = (names[pair.names[0]], -1), "→".join(pair.names)
    fixed = f"{title} [{own['fixed_gamma']}]"
    adaptive = f"{title} [{own['gamma']} confidence({own['threshold']:.3g})]"
    methods.setdefault(fixed, MethodSpec(levels=levels, edges=(EdgeSpec(own["fixed_gamma"]),)))
    methods[adaptive] = MethodSpec(levels=levels, edges=(EdgeSpec(own["gamma"], "confidence", own["threshold"]),))
    return Contest(methods, wide, plans, top, second, fixed, adaptive, own["largest_gain"])


def _levels(
    plan: Plan, names: Mapping[str, int | str], chain: ChainSpec, drafts: list[LevelSpec]
) -> tuple[int | str, ...]:
    """How a method names the levels of ``plan``; draft models at other temperatures are added to ``drafts``."""
    levels = [names[name] for name in plan.names[:-1]]
    for at, k in enumerate(levels) if plan.temperatures else ():
        t = plan.temperatures[at] if plan.temperatures else None
        if isinstance(k, int) and t is not None:
            levels[at] = len(drafts)
            drafts.append(replace(chain.levels[k], temperature=t))
    return (*levels, -1)


def run_methods(spec: RunSpec, folder: Path, loader: Loader, command: str, name: str) -> Run:
    """One alternating run of all methods of ``spec`` into ``folder``."""
    return run_pass(spec, folder, loader, ProgressLine(name), command=command, timing="paper", label=name)


def contest_rows(records: Sequence[Mapping[str, Any]], who: Contest) -> list[Row]:
    """Paired ratios with their intervals, and how far the predictions were off."""
    by = {method: list(own) for (method,), own in group_by(records, "method").items()}
    rows = []
    for place, method in (("top", who.top), ("runner-up", who.second)):
        if method is None or method == BASELINE:
            continue
        gained, predicted = speedup(by[method], by[BASELINE]), who.plans[method].prediction.speedup
        rows.append(Row.of(f"speedup: {place} ({method}) / ar", gained, "x"))
        rows.append(Row(f"predicted speedup: {place} ({method}) / ar", predicted, "x"))
        if gained.value is not None:
            error = abs(predicted / gained.value - 1)
            rows.append(Row(f"prediction error: {place} ({method})", error, "share", n=gained.n))
    if who.second is not None:
        ratio = speedup(by[who.top], by[who.second])
        rows.append(Row.of(f"speedup: top ({who.top}) / runner-up ({who.second})", ratio, "x", goal=0.95))
    if who.adaptive is not None and who.fixed is not None:
        ratio = speedup(by[who.adaptive], by[who.fixed])
        title = f"speedup: adaptive ({who.adaptive}) / best fixed ({who.fixed})"
        rows.append(Row.of(title, ratio, "x", goal=1.0, bound=who.largest_gain))
        rows.append(Row.of(f"speedup: adaptive ({who.adaptive}) / ar", speedup(by[who.adaptive], by[BASELINE]), "x"))
    return rows


def raw_folder(results: Path, name: str) -> Path:
    """Where the run ``name`` of a command that writes ``results`` is kept whole."""
    return results.parent / "raw" / results.name / name

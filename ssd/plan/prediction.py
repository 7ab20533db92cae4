"""From pass times, draft lengths and acceptance to seconds per token: the prediction of one chain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ssd.plan.acceptance import Acceptance
from ssd.plan.chain_recursion import Array, ChainRecursion, Memo
from ssd.plan.edge_plan import EdgePlan
from ssd.plan.pass_counts import batch_passes, budget_work, level_work
from ssd.plan.pass_times import Profile


@dataclass(frozen=True)
class Bound:
    """What limits a chain: the level that takes the most time.

    Attributes:
        level: its name.
        share: of the time of a token.
        speedup: over AR if every other level cost nothing; with a device per level and perfect overlap
            this is what is reached.
    """

    level: str
    share: float
    speedup: float


@dataclass(frozen=True)
class Prediction:
    """Expectations of a chain under the serial schedule; end of text is left out.

    Attributes:
        names: of the levels.
        seconds_per_token: of the batch: seconds of a round divided by the tokens of all its rows.
        speedup: AR's seconds per token, at the same batch size, divided by ours.
        tau: mean emitted tokens per verification of the last edge; 1 for AR.
        taus: the same per edge; None for an edge that never verifies anything.
        alphas: accepted ÷ tested that counting would find, per edge; None where nothing is tested.
        passes_per_token: per level, passes of the batch per token of one row (proposals, for a look-up).
        seconds: per level, seconds per token; they add up to ``seconds_per_token``.
        passes: per level, expected passes per target round by width.
        bound: what limits it.
        bytes: weights of all levels; None if one is unknown.
        devices: number of devices.
    """

    names: tuple[str, ...]
    seconds_per_token: float
    speedup: float
    tau: float
    taus: tuple[float | None, ...]
    alphas: tuple[float | None, ...]
    passes_per_token: tuple[float, ...]
    seconds: tuple[float, ...]
    passes: tuple[Array, ...]
    bound: Bound
    bytes: int | None
    devices: int

    @property
    def speedup_per_device(self) -> float:
        """Speedup divided by the number of devices it occupies; AR is taken to occupy one."""
        return self.speedup / self.devices


def predict(
    profile: Profile,
    edges: Sequence[EdgePlan],
    acceptance: Sequence[Acceptance],
    batch: int = 1,
    memo: Memo | None = None,
    new_tokens: int | None = None,
) -> Prediction:
    """The prediction for one chain.

    Seconds per token = sum over levels and widths of passes per token x seconds of a pass: the identity of
    arXiv 2510.26527 (time = sum of passes x pass time), with the passes from ``ssd.plan.chain_recursion``
    in place of measured acceptance lengths.

    Args:
        profile: pass times of the levels.
        edges: one per pair of neighbours, from the lowest up; none for AR.
        acceptance: one model per edge.
        batch: rows decoded together.
        memo: block laws to share between predictions with equal lower edges.
        new_tokens: length of the outputs, whose last drafts are cut short; None for outputs without end. One row only.

    Raises:
        ValueError: if the numbers of levels, edges and models do not fit, a rule does not match its model,
            or a pass time that is needed was not measured.
    """
    if len(edges) != len(profile.levels) - 1:
        raise ValueError(f"edges: {len(profile.levels)} levels need {len(profile.levels) - 1}, got {len(edges)}")
    chain = ChainRecursion(edges, acceptance, profile.levels[0].coverage, memo)
    if new_tokens is not None and batch > 1:
        raise ValueError(f"new_tokens: {new_tokens} with batch {batch}; rows of a batch end at different times")
    levels = range(chain.top + 1)
    if new_tokens is None:
        works = [level_work(chain, level) for level in levels]
    else:
        works = [budget_work(chain, level, new_tokens) for level in levels]
    passes = batch_passes(chain, batch, works)
    if profile.levels[0].look_up:  # it is asked once per round of the level above and makes no pass
        passes[0] = np.array([0.0, float(passes[1].sum())])
    tau = works[-1].tokens
    seconds = [level.total(n, batch) / (tau * batch) for level, n in zip(profile.levels, passes, strict=True)]
    per_token, ar = sum(seconds), profile.ar_seconds(batch)
    slowest = max(range(len(seconds)), key=lambda k: seconds[k])
    return Prediction(
        names=profile.names,
        seconds_per_token=per_token,
        speedup=ar / per_token,
        tau=tau,
        taus=tuple(_ratio(work.tokens, float(work.widths.sum())) for work in works[1:]),
        alphas=tuple(_ratio(work.accepted, work.tested) for work in works[1:]),
        passes_per_token=tuple(float(n.sum()) / tau for n in passes),
        seconds=tuple(seconds),
        passes=tuple(passes),
        bound=Bound(profile.names[slowest], seconds[slowest] / per_token, ar / seconds[slowest]),
        bytes=_total_bytes(profile),
        devices=len({level.device for level in profile.levels}),
    )


def _ratio(top: float, bottom: float) -> float | None:
    return top / bottom if bottom > 1e-12 else None


def _total_bytes(profile: Profile) -> int | None:
    known = [level.bytes for level in profile.levels if level.bytes is not None]
    return sum(known) if len(known) == len(profile.levels) else None

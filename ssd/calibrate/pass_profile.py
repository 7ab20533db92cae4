"""The pass times that a prediction of speed needs, timed in a few seconds."""

from __future__ import annotations

from collections.abc import Sequence

from ssd.bench.pass_grid import pass_grid
from ssd.core.chain import Chain
from ssd.core.generate import generate
from ssd.core.model import CachedModel
from ssd.core.requests import Request, Sampling
from ssd.plan.pass_times import PassTimes, Profile

STEPS = 16  # tokens decoded for the time outside passes


def measured_profile(
    chain: Chain,
    names: Sequence[str],
    ids: Sequence[int],
    sampling: Sampling,
    widths: Sequence[int],
    repeats: int,
    context: int,
) -> Profile:
    """Median pass times of every level at batch 1, and the target's time outside passes as every pass's overhead.

    Args:
        chain: of models only.
        names: of the levels in the profile.
        ids: a prompt.
        sampling: of the row.
        widths: tokens of the timed passes; beyond the widest the line through the last two goes on.
        repeats: timed passes per level and width.
        context: tokens before each, fewer where a level's position limit asks for it.

    Raises:
        ValueError: naming the level that is no model of transformers.
    """
    models: dict[str, CachedModel] = {}
    for name, level in zip(names, chain.levels, strict=True):
        if not isinstance(level.model, CachedModel):
            raise ValueError(f"{name}: passes of a {type(level.model).__name__} cannot be timed here")
        models[name] = level.model
    limits = [m.max_positions for m in models.values() if m.max_positions is not None]
    room = max(1, min([context, *(limit - widths[-1] for limit in limits)]))
    cells = pass_grid(models, widths, [1], repeats, room)
    outside = seconds_outside(Chain(chain.levels[-1:]), ids, sampling)
    return Profile(
        tuple(
            PassTimes(name, {(c.width, c.batch): c.seconds for c in own}, overhead=outside, extrapolate=True)
            for name, own in cells.items()
        )
    )


def seconds_outside(target: Chain, ids: Sequence[int], sampling: Sampling) -> float:
    """Decode seconds outside passes per pass of the target alone, after a first call that warms up."""
    request = Request(tuple(ids), sampling, max_new_tokens=STEPS, ignore_eos=True)
    for _ in range(2):
        (done,) = generate(target, [request])
    return max(0.0, done.seconds.rest / max(1, len(done.ids) - done.first_pass_tokens))

"""What the clock shows beyond model passes: three overheads, fitted on measured configurations.

    seconds per token = passes at their profiled times
                      + pass overhead x passes of models
                      + verification overhead x verified drafts
                      + row overhead x rows of laws that are sampled from (none at temperature 0)

All per emitted token of the batch. Overheads are at least 0 and the same for every level and chain; they are
fitted by least squares of relative errors. AR is a configuration like any other.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ssd.plan.chain_recursion import Array
from ssd.plan.prediction import Prediction

NAMES = ("pass", "verification", "sampled_row")


@dataclass(frozen=True)
class Features:
    """What a configuration does per emitted token of the batch.

    Attributes:
        profiled: seconds of model passes and look-ups by the profile.
        counts: passes of models, verified drafts, rows of laws sampled from.
    """

    profiled: float
    counts: tuple[float, float, float]

    @staticmethod
    def of(prediction: Prediction, batch: int, look_up: bool, sampled: bool) -> Features:
        """The features of a predicted chain.

        Args:
            look_up: level 0 is an n-gram look-up, which makes no passes.
            sampled: the temperature is above 0.
        """
        per_token = 1 / (prediction.tau * batch)
        own = prediction.passes[1:] if look_up else prediction.passes
        passes = sum(float(n.sum()) for n in own)
        verified = sum(float(n.sum()) for n in prediction.passes[1:])
        rows = batch * sum(float(n @ np.arange(len(n))) for n in own) if sampled else 0.0
        return Features(prediction.seconds_per_token, (passes * per_token, verified * per_token, rows * per_token))

    def longer(self, factor: float) -> Features:
        """The same per token where everything is done ``factor`` times as often."""
        first, second, third = (factor * n for n in self.counts)
        return Features(factor * self.profiled, (first, second, third))


@dataclass(frozen=True)
class Overheads:
    """Seconds per pass, per verified draft and per sampled row."""

    seconds: tuple[float, float, float] = (0.0, 0.0, 0.0)

    def seconds_per_token(self, features: Features) -> float:
        """Predicted seconds per token of the batch, overheads included."""
        return features.profiled + sum(o * n for o, n in zip(self.seconds, features.counts, strict=True))


def fit(features: Sequence[Features], measured: Sequence[float]) -> Overheads:
    """The overheads with the least sum of squared relative errors.

    Args:
        features: of the configurations to fit on.
        measured: their seconds per token of the batch.

    Raises:
        ValueError: if there are fewer configurations than overheads.
    """
    if len(features) != len(measured) or len(features) < len(NAMES):
        raise ValueError(f"overheads: {len(features)} configurations and {len(measured)} times; at least 3 of each")
    seconds = np.array(measured)
    counts = np.array([f.counts for f in features]) / seconds[:, None]
    residual = 1 - np.array([f.profiled for f in features]) / seconds
    best, least = np.zeros(len(NAMES)), float(residual @ residual)
    for size in range(1, len(NAMES) + 1):  # so few that every set of those above 0 can be tried
        for chosen in itertools.combinations(range(len(NAMES)), size):
            found = _solve(counts[:, chosen], residual)
            error = float(np.sum((counts[:, chosen] @ found - residual) ** 2))
            if (found >= 0).all() and error < least:
                best, least = np.zeros(len(NAMES)), error
                best[list(chosen)] = found
    return Overheads((float(best[0]), float(best[1]), float(best[2])))


def _solve(counts: Array, residual: Array) -> Array:
    return np.asarray(np.linalg.lstsq(counts, residual, rcond=None)[0], dtype=np.float64)

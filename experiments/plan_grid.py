"""What a profile says of other temperatures of the draft levels, and of guesses made ahead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ssd.bench.target_texts import TargetTexts, look_up_rates
from ssd.calibrate.contexts import Context
from ssd.calibrate.guess_shares import guess_shares
from ssd.calibrate.overlap_grid import level_rows, overlap_grid
from ssd.calibrate.overlap_table import Cell
from ssd.core.chain import Chain
from ssd.core.ngram import Ngram
from ssd.core.requests import Sampling
from ssd.plan.inputs import pair_name
from ssd.plan.temperature_grid import TemperatureGrid, Vector


def temperature_grid(
    chain: Chain,
    names: Mapping[str, int | str],
    ngram: Ngram | None,
    texts: TargetTexts,
    sampling: Sampling,
    factors: Sequence[float],
) -> TemperatureGrid:
    """Rates by text of every pair at every two of their levels' temperatures.

    Args:
        names: how plans call the levels, smallest first, see ``plan_config.level_names``.
        ngram: the look-up that is called by the first of them, if there is one.
        factors: temperatures of a draft level without one of its own, in units of the row's.
    """
    models = _models(chain)
    rows = level_rows(chain, sampling)
    own: dict[int, Vector] = {len(chain.levels) - 1: (sampling.temperature,)}
    for k in models[:-1]:
        fixed = chain.levels[k].sampling.temperature is not None
        tried = [] if fixed else [round(factor * sampling.temperature, 4) for factor in factors]
        own[k] = tuple(dict.fromkeys([rows[k].temperature, *tried]))
    by = {k: name for name, k in names.items()}
    found = {(by[a], by[b]): rates for (a, b), rates in _between(chain, models, texts, sampling, own)}
    levels = {by[k]: own[k] for k in models}
    if ngram is not None:
        lowest = next(iter(names))
        levels = {lowest: (None,), **levels}
        looked_up = dict(_looked_up(chain, ngram, models, texts, sampling, own))
        # A look-up that proposed nothing has no rate, and the chains above it no choice.
        found |= {(lowest, by[k]): rates for k, rates in looked_up.items() if rates[None, own[k][0]][:, 1].any()}
    return TemperatureGrid(sampling.temperature, levels, found)


def next_guesses(
    chain: Chain, names: Mapping[str, int | str], texts: TargetTexts, sampling: Sampling
) -> dict[str, dict[str, list[float]]]:
    """By pair of models the section ``next_guesses`` of a profile."""
    models, by = _models(chain), {k: name for name, k in names.items()}
    shares = guess_shares(_of_models(chain), _contexts(texts), sampling)
    return {
        pair_name((by[models[a]], by[models[b]])): {"recovered": recovered, "bonus": bonus}
        for (a, b), (recovered, bonus) in shares.items()
    }


Rates = dict[tuple[float | None, float | None], Any]


def _between(
    chain: Chain, models: Sequence[int], texts: TargetTexts, sampling: Sampling, own: Mapping[int, Vector]
) -> Iterator[tuple[tuple[int, int], Rates]]:
    """By pair of models, [texts, 2] at every two temperatures."""
    tried = [[t for t in own[k] if t is not None] for k in models]
    table = overlap_grid(_of_models(chain), _contexts(texts), sampling, tried, (0,))
    for b in range(1, len(models)):
        for a in range(b):
            rates: Rates = {(s, t): table.rows(Cell(a, b, s, t)) for s in tried[a] for t in tried[b]}
            yield (models[a], models[b]), rates


def _looked_up(
    chain: Chain,
    ngram: Ngram,
    models: Sequence[int],
    texts: TargetTexts,
    sampling: Sampling,
    own: Mapping[int, Vector],
) -> Iterator[tuple[int, Rates]]:
    """By verifying model, [texts, 2] of a look-up's proposals at every temperature of the model."""
    rates: dict[int, Rates] = {k: {} for k in models}
    for t in dict.fromkeys(t for k in models for t in own[k]):
        levels = [k for k in models if t in own[k]]
        seen = look_up_rates(chain, ngram, texts, sampling, levels, t)
        for k in levels:
            rates[k][None, t] = np.array(seen.by_text[k])
    yield from rates.items()


def _models(chain: Chain) -> list[int]:
    return [k for k, level in enumerate(chain.levels) if not level.is_ngram]


def _of_models(chain: Chain) -> Chain:
    """``chain`` without a look-up at its bottom."""
    first = _models(chain)[0]
    names = chain.names[first:] if chain.names else chain.names
    return Chain(chain.levels[first:], chain.edges[first:], chain.tokenizer, names) if first else chain


def _contexts(texts: TargetTexts) -> list[Context]:
    """Each text for itself."""
    return [Context(f"text {i}", "", t, new) for i, (t, new) in enumerate(zip(texts.texts, texts.new, strict=True))]

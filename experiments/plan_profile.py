"""Measures what a plan is made from: the content of ``profile.json``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import mean
from typing import Any

import torch

from experiments.plan_grid import next_guesses, temperature_grid
from ssd.bench.end_of_text import end_ids, stated_end_ids
from ssd.bench.environment import BusyMeter, device, git_state, versions
from ssd.bench.experiment import accelerators
from ssd.bench.loading import Loader
from ssd.bench.memory import chain_memory
from ssd.bench.pass_grid import PassCell, look_up_seconds, pass_grid
from ssd.bench.prompts import Prompt, encode
from ssd.bench.sources import parse_source
from ssd.bench.spec import ChainSpec
from ssd.bench.target_texts import PLACES, TargetTexts, look_up_rates, rates_along, target_texts
from ssd.core.chain import Chain
from ssd.core.model import CachedModel
from ssd.core.ngram import Ngram
from ssd.core.requests import Sampling
from ssd.plan.inputs import SCHEMA, pair_name, read_inputs
from ssd.plan.marginal_window import marginal_window
from ssd.plan.replay import TextRates, mean_rate, rates_by_place, text_shifts

LARGEST_CONTEXT = 512  # tokens before a timed pass, at most


def measure(
    spec: ChainSpec,
    names: Mapping[str, int | str],
    loader: Loader,
    prompts: Sequence[Prompt],
    config: Mapping[str, Any],
) -> dict[str, Any]:
    """A profile file's content, with the settings and the machine it was measured under.

    Args:
        names: how plans call the levels, smallest first, see ``plan_config.level_names``.
        config: ``temperature``, ``batches`` (the first is that of the texts and the adaptive window), ``tokens``,
            ``ignore_eos``, ``profiling``, ``adaptive_gamma`` (``None``: no adaptive window), ``temperature_factors``
            (none: no other temperatures), ``draft_batches`` (further ones, of the draft models alone) and ``guesses``
            (whether to count them).
    """
    chain = loader.chain(spec)
    sampling = Sampling(config["temperature"])
    ids = [encode(prompt, chain.tokenizer) for prompt in prompts]
    with BusyMeter() as meter:
        ends = end_ids(stated_end_ids(parse_source(spec.levels[-1].source), chain.tokenizer))
        texts = target_texts(chain, ids, sampling, config["tokens"], config["batches"][0], config["ignore_eos"], ends)
        context = min(LARGEST_CONTEXT, round(mean(len(t) - n / 2 for t, n in zip(texts.texts, texts.new, strict=True))))
        models = {n: m for n, k in names.items() if isinstance(m := _model(chain, k), CachedModel)}
        cells = timed_passes(models, config, context)
    data: dict[str, Any] = {
        "schema": SCHEMA,
        "git": git_state(),
        "versions": versions(),
        "device": device(accelerators(chain), torch.get_num_threads()),
        "models": loader.describe(),
        "busy_elsewhere": meter.busy_elsewhere,
        "busy": meter.busy,
        "temperature": config["temperature"],
        "batch": config["batches"][0],
        "context": context,
        "texts": {"prompts": [prompt.id for prompt in prompts], **texts_in_file(texts)},
    }
    data["levels"] = levels(chain, spec, names, cells, texts)
    rates = {(_name(names, a), _name(names, b)): found for (a, b), found in rates_along(chain, texts, sampling).items()}
    data["acceptance"] = {pair_name(pair): acceptance(found) for pair, found in rates.items()}
    ngram = look_up_of(chain, names)
    if ngram is not None:
        _add_look_up(data, chain, names, ngram, texts, sampling, [*config["batches"], *config["draft_batches"]])
    if config["temperature_factors"] and sampling.temperature > 0:
        grid = temperature_grid(chain, names, ngram, texts, sampling, config["temperature_factors"])
        data["temperature_grid"] = grid.as_dict()
    if config["guesses"]:
        data["next_guesses"] = next_guesses(chain, names, texts, sampling)
    if config["adaptive_gamma"] is not None:
        data["adaptive"] = adaptive(data, rates, config["batches"][0], config["adaptive_gamma"])
    return data


def timed_passes(
    models: Mapping[str, CachedModel], config: Mapping[str, Any], context: int
) -> dict[str, list[PassCell]]:
    """Passes of every model at ``batches``, and of all but the target at ``draft_batches``."""
    widths, repeats = config["profiling"]["widths"], config["profiling"]["repeats"]
    cells = pass_grid(models, widths, config["batches"], repeats, context)
    *drafts, _ = models
    for name, own in pass_grid(
        {n: models[n] for n in drafts}, widths, config["draft_batches"], repeats, context
    ).items():
        cells[name] += own
    return cells


def texts_in_file(texts: TargetTexts) -> dict[str, Any]:
    """What the target took for its texts."""
    return {
        "new_tokens": sum(texts.new),
        "decode_passes": texts.passes,
        "seconds_inside_a_pass": texts.pass_seconds,
        "seconds_outside_a_pass": texts.rest_seconds,
    }


def levels(
    chain: Chain,
    spec: ChainSpec,
    names: Mapping[str, int | str],
    cells: Mapping[str, Sequence[PassCell]],
    texts: TargetTexts,
) -> list[dict[str, Any]]:
    """One entry per model, with the target's time outside passes as every pass's overhead."""
    weights = [level.weight_bytes for level in chain_memory(chain).levels]
    out = []
    for name, own in cells.items():
        k = names[name]
        assert isinstance(k, int)
        level = spec.levels[k]
        out.append(
            {
                "name": name,
                "source": level.source,
                "dtype": level.dtype,
                "device": level.device,
                "temperature": level.temperature,
                "bytes": weights[k],
                "overhead": max(0.0, texts.rest_seconds),
                "look_up": False,
                "coverage": 1.0,
                "seconds": [asdict(cell) for cell in own],
            }
        )
    return out


def acceptance(found: Sequence[TextRates]) -> dict[str, Any]:
    """What one pair's rates come to."""
    alpha, stderr, n = mean_rate(found)
    by = {"by_position": rates_by_place(found), "text_shifts": text_shifts(found)}
    return {"alpha": alpha, "stderr": stderr, "n": n, "texts": len(found)} | by


def adaptive(
    data: Mapping[str, Any], rates: Mapping[tuple[str, str], Sequence[TextRates]], batch: int, gamma: int
) -> dict[str, Any]:
    """The calibrated window of every draft of the target, by pair."""
    profile = read_inputs(data, "profile").profile
    target = profile.levels[-1]
    out = {}
    for (draft, verifier), found in rates.items():
        if verifier == target.name:
            cost = profile.select([draft, verifier]).levels[0].at(1, batch)
            window = marginal_window(found, cost, lambda width: target.at(width, batch), gamma)
            gains = {"predicted_gain": window.predicted_gain, "largest_gain": window.largest_gain}
            out[pair_name((draft, verifier))] = asdict(window) | gains
    return out


def look_up_of(chain: Chain, names: Mapping[str, int | str]) -> Ngram | None:
    """The look-up that the chain has or gets, if any."""
    lowest = next(iter(names.values()))
    ngram = Ngram() if lowest == "ngram" else _model(chain, lowest)
    return ngram if isinstance(ngram, Ngram) else None


def _add_look_up(
    data: dict[str, Any],
    chain: Chain,
    names: Mapping[str, int | str],
    ngram: Ngram,
    texts: TargetTexts,
    sampling: Sampling,
    batches: Sequence[int],
) -> None:
    """The look-up's level and acceptance."""
    lowest = next(iter(names))
    spent = look_up_seconds(ngram, texts.texts, PLACES)
    found = look_up_rates(chain, ngram, texts, sampling)
    entry = {
        "name": lowest,
        "source": "ngram",
        "device": "cpu",
        "temperature": None,
        "bytes": 0,
        "overhead": 0.0,
        "look_up": True,
        "coverage": found.coverage,
        "seconds": [{"width": 1, "batch": b, "seconds": spent * b} for b in batches],
    }
    data["levels"].insert(0, entry)
    for k, places in found.by_place.items():
        data["acceptance"][pair_name((lowest, _name(names, k)))] = {
            "alpha": places[0],
            "stderr": None,
            "n": found.proposals,
            "texts": len(texts.texts),
            "by_position": list(places),
        }


def _model(chain: Chain, k: int | str) -> object:
    return chain.levels[k].model if isinstance(k, int) else None


def _name(names: Mapping[str, int | str], k: int) -> str:
    return next(name for name, own in names.items() if own == k)

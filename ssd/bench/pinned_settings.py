"""The settings of one call of transformers' generate: all stated, none inherited, none left behind."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList, PreTrainedModel

from ssd.bench.shared_weights import input_rows, output_rows
from ssd.core.processors import process
from ssd.core.requests import Request, Sampling


def generation_config(request: Request, **entries: Any) -> GenerationConfig:
    """Every setting of a call, none left to a default of the model or of transformers.

    ``entries`` are added. A row that samples states temperature, top-k, top-p and min-p; the pad id
    is an end-of-text id or nothing, since any other pad id would be masked where a prompt has it.
    """
    eos = [] if request.ignore_eos else list(request.eos_ids)
    sampling = request.sampling
    bias = {(token,): value for token, value in sampling.logit_bias}
    if sampling.temperature > 0:
        entries |= {
            "temperature": float(sampling.temperature),
            "top_k": sampling.top_k,
            "top_p": float(sampling.top_p),
            "min_p": sampling.min_p or None,
        }
    return GenerationConfig(
        max_new_tokens=request.max_new_tokens,
        do_sample=sampling.temperature > 0,
        num_beams=1,
        repetition_penalty=float(sampling.repetition_penalty),
        min_new_tokens=sampling.min_new_tokens or None,
        bad_words_ids=[list(word) for word in sampling.bad_words_ids] or None,
        sequence_bias=bias or None,
        use_cache=True,
        disable_compile=True,
        eos_token_id=eos or None,
        pad_token_id=eos[0] if eos else None,
        **entries,
    )


def own_processors(request: Request) -> LogitsProcessorList:
    """What a request asks for and ``GenerationConfig`` has no entry for."""
    sampling = request.sampling
    chosen: list[Any] = list(request.processors)
    if sampling.frequency_penalty or sampling.presence_penalty:
        counted = Sampling(frequency_penalty=sampling.frequency_penalty, presence_penalty=sampling.presence_penalty)
        chosen.insert(0, OccurrencePenalty(replace(request, sampling=counted, processors=())))
    return LogitsProcessorList(chosen)


class OccurrencePenalty(LogitsProcessor):
    """Frequency and presence penalties, which transformers lacks, as our decoder applies them."""

    def __init__(self, request: Request) -> None:
        self._request = request

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Scores [B, V] after the penalties of the tokens in ``input_ids`` [B, n] that follow the prompt."""
        return torch.stack(
            [process(row.clone(), ids, self._request) for ids, row in zip(input_ids, scores, strict=True)]
        )


@contextmanager
def own_randomness(seed: int, modules: Sequence[PreTrainedModel]) -> Iterator[None]:
    """Inside, torch's generators start from ``seed``; on leaving they are as they were."""
    gpus = sorted({torch.device(m.device).index or 0 for m in modules if m.device.type == "cuda"})
    with torch.random.fork_rng(devices=gpus):
        torch.default_generator.manual_seed(seed)
        for gpu in gpus:
            torch.cuda.default_generators[gpu].manual_seed(seed)
        yield


@contextmanager
def without_advice_to_itself() -> Iterator[None]:
    """Inside, transformers keeps to itself how its assistant calls its own ``generate`` (5.24 advises against it)."""
    logger = logging.getLogger("transformers.generation.utils")

    def is_for_callers(record: logging.LogRecord) -> bool:
        return not record.getMessage().startswith("Passing `generation_config` together with")

    logger.addFilter(is_for_callers)
    try:
        yield
    finally:
        logger.removeFilter(is_for_callers)


def check_module(level: str, module: PreTrainedModel) -> None:
    """Raise ValueError unless ``module`` is in eval mode and its rows are as long as its config says."""
    if module.training:
        raise ValueError(f"{level}.model: {type(module).__name__} is in training mode; call eval() first")
    rows, vocabulary = output_rows(module), module.config.get_text_config().vocab_size
    if rows != vocabulary:
        raise ValueError(f"{level}.model: logits of {rows} ids, config.vocab_size {vocabulary}; see full_vocabulary()")


def check_fits(name: str, level: str, module: PreTrainedModel, request: Request, unfed: int) -> None:
    """Raise ValueError for ids ``module`` cannot be fed or a request that reaches past its positions.

    ``unfed`` is how many of the last tokens ``module`` is never fed.
    """
    embeddings = input_rows(module)
    outside = [token for token in request.ids if not 0 <= token < embeddings]
    if outside:
        raise ValueError(f"{name}: request.ids: {outside[0]} is not one of the {embeddings} ids of the {level}")
    limit = getattr(module.config.get_text_config(), "max_position_embeddings", None)
    fed = len(request.ids) + max(request.max_new_tokens - unfed, 0)
    if limit is not None and fed > limit:
        raise ValueError(
            f"{name}: {level}.max_position_embeddings: the limit is {limit} positions, but "
            f"{len(request.ids)} prompt tokens and max_new_tokens {request.max_new_tokens} need {fed}"
        )


def at_least_one(field: str, value: int) -> int:
    """``value``, or a ValueError that names ``field``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{field}: expected an integer >= 1, got {value!r}")
    return value

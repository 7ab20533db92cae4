"""Baselines: transformers' own generate, assisted generation and prompt look-up, pinned.

Nothing of a model's stored generation config, of an earlier call or of the process's random state
reaches a call, and a call leaves none behind: each one builds its settings from scratch and runs on
throw-away copies that share the models' weights. Batch size is 1, requests run one after another.

Where transformers departs from its own settings, the setting wins:

* Its assistant applies temperature and filters twice (at 0.7 it drafts at 0.49), because it both
  inherits the target's processors and builds them again. Here they are applied once, so the draft
  has the same law as a draft of ours, and that law is the one in the ratio test.
* Its look-up may propose more tokens than may still be emitted; the surplus is cut off before the
  target sees it. Under top-p it refuses to propose some ids whatever the text; here it does not. It
  proposes what followed the *earliest* match (our look-up takes the latest), which is left as it is.
* It misses a stop string that ends inside a block; here the text is searched after every pass.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import GenerationConfig, PreTrainedModel, StoppingCriteria, StoppingCriteriaList

from ssd.bench.draft_log import DraftLog
from ssd.bench.forward_clock import ForwardClock
from ssd.bench.pinned_settings import (
    at_least_one,
    check_fits,
    check_module,
    generation_config,
    own_processors,
    own_randomness,
    without_advice_to_itself,
)
from ssd.bench.shared_weights import library_attention, sharing_weights
from ssd.core.randomness import root_int
from ssd.core.requests import Generation, Passes, Request, Round, Seconds


class TransformersAR:
    """``generate`` of the target alone: argmax at temperature 0, else sampling.

    Args:
        name: how tables call it.
        module: the target, in eval mode.
        tokenizer: needed only for requests with stop strings.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        name: str,
        module: PreTrainedModel,
        *,
        tokenizer: Any = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.name = name
        self._target = module
        self._draft: PreTrainedModel | None = None
        self._levels = 1
        self._tokenizer = tokenizer
        self._clock = clock
        check_module("target", module)

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        """One Generation per request, each with passes and seconds of its own.

        ``rounds`` has a round per target pass, without overlaps; ``origins`` is empty.

        Raises:
            ValueError: before anything is decoded, for ids outside the vocabulary, a position limit
                that binds, or stop strings without a tokenizer.
        """
        for request in requests:
            self._check(request)
        return [self._one(request, index) for index, request in enumerate(requests)]

    def _pinned(self, request: Request) -> dict[str, Any]:
        """Generation config entries of this method."""
        return {}

    def _draft_config(self) -> GenerationConfig:
        return GenerationConfig()

    def _check(self, request: Request) -> None:
        if request.stop and self._tokenizer is None:
            raise ValueError(f"{self.name}: request.stop: stop strings {request.stop} need a tokenizer")
        # The last token is never fed back; a draft is not fed the one before it either.
        check_fits(self.name, "target", self._target, request, unfed=1)
        if self._draft is not None and request.max_new_tokens > 1:
            check_fits(self.name, "draft", self._draft, request, unfed=2)

    def _one(self, request: Request, index: int) -> Generation:
        if request.max_new_tokens == 0:
            nothing = (0.0,) * self._levels
            passes = (Passes(0, 0),) * self._levels
            return Generation((), "length", (), (), passes, Seconds(0.0, nothing, 0.0, 0.0), 0)
        target, log = sharing_weights(self._target), DraftLog()
        extra: dict[str, Any] = {}
        models: list[Any] = [None] * (self._levels - 1) + [target]
        if self._draft is not None:
            extra["assistant_model"] = models[0] = sharing_weights(self._draft, self._draft_config())
        if self._levels > 1:
            log.watch(target, len(request.ids) + request.max_new_tokens - 1)
        config = generation_config(request, **self._pinned(request))
        seed = root_int(request.seed, index if request.request is None else request.request, request.sample)
        clock = ForwardClock(models, self._clock)
        progress = _Progress(clock, request, self._tokenizer)
        used = [m for m in (self._draft, self._target) if m is not None]
        with library_attention(used), own_randomness(seed, used), without_advice_to_itself(), clock:
            prompt = torch.tensor([request.ids], device=target.device)  # [1, T]
            output = target.generate(
                prompt,
                attention_mask=torch.ones_like(prompt),  # said, not guessed from a pad id
                generation_config=config,
                logits_processor=own_processors(request),
                stopping_criteria=StoppingCriteriaList([progress]),
                **extra,
            )
            ids = output[0, len(request.ids) :].tolist()
            spent = clock.finish()
        if self._levels > 1 and len(log) != clock.target_passes:
            seen = f"{len(log)} drafts in {clock.target_passes} passes"
            raise RuntimeError(f"{self.name}: transformers {transformers.__version__} showed {seen}")
        return _generation(request, ids, progress.cut, log, clock.arrivals, spent)


class TransformersAssisted(TransformersAR):
    """Assisted generation (speculative sampling at temperature > 0) with one draft model.

    The draft length is ``gamma`` in every round (less only where the budget ends or the draft proposes
    an end-of-text id), with a constant schedule and no confidence threshold. Levels: draft, target.

    Args:
        name, target, tokenizer, clock: as in ``TransformersAR``.
        draft: a model with rows over the target's vocabulary (``shared_weights.full_vocabulary``).
        gamma: draft tokens per target pass, at least 1.
    """

    def __init__(
        self,
        name: str,
        target: PreTrainedModel,
        draft: PreTrainedModel,
        gamma: int,
        *,
        tokenizer: Any = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        super().__init__(name, target, tokenizer=tokenizer, clock=clock)
        check_module("draft", draft)
        vocabularies = target.config.get_text_config().vocab_size, draft.config.get_text_config().vocab_size
        if vocabularies[0] != vocabularies[1]:
            raise ValueError(
                f"draft.vocab_size: {vocabularies[1]} is not the target's {vocabularies[0]}, which assisted "
                "generation needs; full_vocabulary() spreads a draft vocabulary over the target's"
            )
        self._draft = draft
        self._levels = 2
        self._gamma = at_least_one("gamma", gamma)

    def _draft_config(self) -> GenerationConfig:
        return GenerationConfig(
            num_assistant_tokens=self._gamma,
            num_assistant_tokens_schedule="constant",
            assistant_confidence_threshold=0.0,
        )


class TransformersPromptLookup(TransformersAR):
    """Prompt look-up: the draft is what followed an earlier match of the last tokens.

    Levels: the look-up (no model, so no passes; its time is in ``seconds.rest``), target.

    Args:
        name, target, tokenizer, clock: as in ``TransformersAR``.
        gamma: draft tokens per target pass at most, at least 1.
        largest: longest suffix matched; shorter ones down to 1 are tried after it.
    """

    def __init__(
        self,
        name: str,
        target: PreTrainedModel,
        gamma: int,
        largest: int = 3,
        *,
        tokenizer: Any = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        super().__init__(name, target, tokenizer=tokenizer, clock=clock)
        self._levels = 2
        self._gamma = at_least_one("gamma", gamma)
        self._largest = at_least_one("largest", largest)

    def _pinned(self, request: Request) -> dict[str, Any]:
        return {"prompt_lookup_num_tokens": self._gamma, "max_matching_ngram_size": self._largest}


class _Progress(StoppingCriteria):
    """Sees the ids after every target pass: notes arrivals, and ends the call on a stop string.

    ``cut`` is the number of new tokens up to the one that completes a stop string, else ``None``.
    """

    def __init__(self, clock: ForwardClock, request: Request, tokenizer: Any) -> None:
        self.cut: int | None = None
        self._clock = clock
        self._prompt = len(request.ids)
        self._stop = () if request.ignore_eos else request.stop  # the length is fixed then
        self._tokenizer = tokenizer
        self._passes = self._known = 0

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Tensor:
        """Whether to stop, [1] bool; without stop strings never."""
        # Some releases also ask about a draft before the target has seen it.
        if self._clock.target_passes > self._passes:
            self._passes = self._clock.target_passes
            before, self._known = self._known, input_ids.shape[1] - self._prompt
            self._clock.arrived(self._known)
            if self._stop:
                self.cut = self._first_stop(input_ids[0, self._prompt :].tolist(), before)
        return torch.full((1,), self.cut is not None, device=input_ids.device)

    def _first_stop(self, ids: list[int], before: int) -> int | None:
        if not self._has_stop(ids):
            return None
        return next(n for n in range(before + 1, len(ids) + 1) if self._has_stop(ids[:n]))

    def _has_stop(self, ids: list[int]) -> bool:
        text = self._tokenizer.decode(ids)
        return any(stop in text for stop in self._stop)


def _generation(
    request: Request,
    ids: list[int],
    cut: int | None,
    log: DraftLog,
    arrivals: Sequence[tuple[float, int]],
    spent: tuple[Seconds, tuple[Passes, ...]],
) -> Generation:
    """What one call came to; ``ids`` end at the first end-of-text id or after ``cut`` tokens."""
    ends = set() if request.ignore_eos else set(request.eos_ids)
    length = min(cut or len(ids), next((i + 1 for i, token in enumerate(ids) if token in ends), len(ids)))
    ids = ids[:length]
    reason = "stop" if cut == length else "eos" if ids[-1] in ends else "length"
    known = tuple((moment, min(tokens, length)) for moment, tokens in arrivals)
    whole, prompt = (*request.ids, *ids), len(request.ids)
    steps = (Round(-1, at, at, 0, 0, 0, 1, "plain", ()) for at in range(prompt, len(whole)))
    rounds = log.rounds(whole) if log else tuple(steps)
    seconds, passes = spent
    return Generation(tuple(ids), reason, rounds, (), passes, seconds, known[0][1], known)

"""What goes into a decoder and what comes out: plain data, no torch.

Shape letters used throughout ``ssd.core``: B rows of a batch, T tokens of a pass, W draft tokens
of a block, V entries of a level's output vocabulary, S key/value slots.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ssd.core.request_checks import check_penalties, check_sampling, items, stop_strings, token_ids, whole_number


@dataclass(frozen=True)
class Sampling:
    """A row's sampling settings, applied in the order of ``ssd.core.processors``, temperature, top-k, top-p, min-p.

    ``temperature`` 0 is argmax (lowest id on ties). ``top_k`` 0, ``top_p`` 1 and ``min_p`` 0
    switch a filter off.

    Attributes:
        repetition_penalty: logits of tokens in prompt or output are divided by it, multiplied where
            negative (arXiv 1909.05858); 1 is off.
        frequency_penalty: is subtracted from a token's logit once for each time it occurs in the output.
        presence_penalty: is subtracted from the logit of every token that occurs in the output.
        min_new_tokens: end-of-text ids are forbidden until the output has this many tokens.
        bad_words_ids: token sequences that must not be completed, in prompt and output together.
        logit_bias: (token id, value added to its logit) pairs.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    min_new_tokens: int = 0
    bad_words_ids: tuple[tuple[int, ...], ...] = ()
    logit_bias: tuple[tuple[int, float], ...] = ()

    def __post_init__(self) -> None:
        check_sampling("sampling", self)
        words, biases = check_penalties(self)
        object.__setattr__(self, "bad_words_ids", words)
        object.__setattr__(self, "logit_bias", biases)

    def overridden_by(self, override: Override) -> Sampling:
        """These settings with every field that ``override`` sets; a greedy row stays greedy."""
        if self.temperature == 0:
            return self
        chosen = {f.name: getattr(override, f.name) for f in fields(override)}
        return replace(self, **{name: value for name, value in chosen.items() if value is not None})


@dataclass(frozen=True)
class Override:
    """A draft level's own settings; ``None`` inherits the row's."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None

    def __post_init__(self) -> None:
        check_sampling("level sampling", self, optional=True)


@dataclass(frozen=True)
class Request:
    """One sequence to continue.

    Attributes:
        ids: prompt token ids of the target, at least one.
        seed: root of this row's randomness, together with ``request`` and ``sample``.
        request: integer identity of the request; ``None`` takes its index in the caller's list.
        sample: repeat number, so that several continuations of one prompt differ.
        eos_ids: any of these ends the row (the end token is kept in the output).
        stop: strings; the row ends with the token that completes the first of them.
        ignore_eos: go on to ``max_new_tokens`` whatever is drawn (fixed-length timing).
        processors: transformers' ``LogitsProcessor`` objects or functions of (ids [1, n], scores [1, V])
            without memory of earlier calls, applied after those of ``sampling``.
    """

    ids: tuple[int, ...]
    sampling: Sampling = field(default_factory=Sampling)
    seed: int = 0
    request: int | None = None
    sample: int = 0
    max_new_tokens: int = 128
    eos_ids: tuple[int, ...] = ()
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    processors: tuple[Callable[[Any, Any], Any], ...] = ()

    def __post_init__(self) -> None:
        def keep(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        if not isinstance(self.sampling, Sampling):
            raise ValueError(f"request.sampling: expected Sampling, got {self.sampling!r}")
        keep("ids", token_ids("request.ids", self.ids))
        keep("eos_ids", token_ids("request.eos_ids", self.eos_ids))
        keep("stop", stop_strings("request.stop", self.stop))
        keep("processors", items("request.processors", self.processors))
        if not self.ids:
            raise ValueError("request.ids: the prompt is empty; at least one token is needed")
        for name in ("seed", "sample", "max_new_tokens"):
            keep(name, whole_number(f"request.{name}", getattr(self, name)))
        if self.request is not None:
            keep("request", whole_number("request.request", self.request))


@dataclass(frozen=True)
class Round:
    """One draft and one verification on one edge, as integers.

    Attributes:
        edge: index of the level that drafted; -1 for a depth-0 chain, which has no edge.
        block_start: position at which the verifying level's current block began.
        start: position of the first token of this round.
        drafted: draft tokens handed to the verifier.
        tested: draft tokens the acceptance test was applied to (accepted, or the first rejected);
            ``None`` under block verification of a row that samples, where no single token is tested.
        accepted: draft tokens kept.
        emitted: accepted plus the recovered, bonus or plain token (absent when ``end`` is stopped).
        end: ``recovered`` | ``bonus`` | ``plain`` (nothing was drafted) | ``stopped`` (an
            end-of-text id or stop string fell on an accepted token, so the rest was cut off).
        overlap: sum over the vocabulary of min(target, draft) at each tested position; at each
            drafted one where ``tested`` is ``None``.
    """

    edge: int
    block_start: int
    start: int
    drafted: int
    tested: int | None
    accepted: int
    emitted: int
    end: str
    overlap: tuple[float, ...]


@dataclass(frozen=True)
class Passes:
    """How often a level's model ran for a batch and how many tokens a row was fed in all."""

    count: int
    tokens: int


@dataclass(frozen=True)
class Seconds:
    """Where a batch's time went, in seconds.

    Attributes:
        prefill: from the call to the end of the first target pass (drafts of that round included).
        passes: per level, time inside model passes after ``prefill``; levels that run elsewhere may
            overlap with the others, and their passes count whether their work was used or not.
        rest: what is left of ``total - prefill`` without the passes of the levels that run where the target
            does; under the serial schedule these are all levels.
        total: the whole call.
    """

    prefill: float
    passes: tuple[float, ...]
    rest: float
    total: float


@dataclass(frozen=True)
class Generation:
    """What one request came to.

    Attributes:
        ids: new token ids, prompt excluded.
        stop_reason: ``eos`` | ``stop`` | ``length``.
        rounds: every round of this row in order of execution, all edges.
        origins: ``origins[level][i]`` is the fate of token i at that level: ``draft`` (accepted
            from the level below), ``recovered``, ``bonus``, ``plain``, or ``None`` when that level
            did not emit the token.
        passes, seconds: per level; they belong to the batch and are repeated on each of its rows.
        first_pass_tokens: tokens emitted by the first target pass, which no decode rate counts.
        arrivals: seconds from the call to the moment each target round's tokens were known,
            as (seconds, tokens known so far).
        ahead: per edge, rounds of the batch whose draft had been made ahead and rounds whose had not though it
            could have been; empty under the serial schedule.
        synthetic: drafts were accepted at imposed rates, so the tokens are no output of any model.
    """

    ids: tuple[int, ...]
    stop_reason: str
    rounds: tuple[Round, ...]
    origins: tuple[tuple[str | None, ...], ...]
    passes: tuple[Passes, ...]
    seconds: Seconds
    first_pass_tokens: int
    arrivals: tuple[tuple[float, int], ...] = ()
    synthetic: bool = False
    ahead: tuple[tuple[int, int], ...] = ()

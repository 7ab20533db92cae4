"""The target's own texts, and what every level says along them: acceptance before any draft is run."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ssd.bench.teacher_forced import CHUNK, fed_tokens, own_logits
from ssd.core.chain import Chain
from ssd.core.generate import generate
from ssd.core.ngram import Ngram
from ssd.core.requests import Request, Sampling
from ssd.core.sampling import Law, LevelSampling, law
from ssd.core.verification import overlaps, translate
from ssd.plan.replay import REFERENCE_GAMMA, TextRates, pooled_rates

PLACES = 8  # tokens of a look-up that are replayed
WARM_UP = 4  # tokens of an untimed first call


@dataclass(frozen=True)
class TargetTexts:
    """Continuations by the target alone, and what they took.

    Attributes:
        texts: prompt and continuation.
        new: tokens of each continuation, end of text included.
        rest_seconds: decode seconds outside passes, per pass of a batch.
        pass_seconds: decode seconds inside passes, per pass of a batch.
        passes: decode passes behind the two.
    """

    texts: tuple[tuple[int, ...], ...]
    new: tuple[int, ...]
    rest_seconds: float
    pass_seconds: float
    passes: int


def target_texts(
    chain: Chain,
    prompts: Sequence[Sequence[int]],
    sampling: Sampling,
    tokens: int,
    batch: int,
    ignore_eos: bool,
    eos_ids: Sequence[int] = (),
) -> TargetTexts:
    """Every prompt continued by the target alone, ``batch`` at a time; texts of fewer than 2 tokens are left out.

    Args:
        tokens: new tokens of each at most.
        ignore_eos: go on behind an end of text.
        eos_ids: any of these ends a text, as in a run (``ssd.bench.end_of_text``).

    Raises:
        ValueError: if no text is left.
    """
    alone = Chain(chain.levels[-1:], tokenizer=chain.tokenizer)
    requests = [
        Request(
            tuple(p),
            sampling,
            request=i,
            max_new_tokens=tokens,
            eos_ids=tuple(eos_ids),
            ignore_eos=ignore_eos,
        )
        for i, p in enumerate(prompts)
    ]
    texts, new, rest, inside, passes = [], [], 0.0, 0.0, 0
    generate(alone, [replace(requests[0], max_new_tokens=min(tokens, WARM_UP))])
    for first in range(0, len(requests), batch):
        group = requests[first : first + batch]
        done = generate(alone, group)
        rest += done[0].seconds.rest
        inside += done[0].seconds.passes[0]
        passes += max(len(g.ids) - g.first_pass_tokens for g in done)
        for request, g in zip(group, done, strict=True):
            if len(g.ids) >= 2:
                texts.append((*request.ids, *g.ids))
                new.append(len(g.ids))
    if not texts or not passes:
        raise ValueError("tuning prompts: the target ends every text at once, so nothing can be measured on them")
    return TargetTexts(tuple(texts), tuple(new), rest / passes, inside / passes, passes)


@torch.inference_mode()
def rates_along(chain: Chain, found: TargetTexts, sampling: Sampling) -> dict[tuple[int, int], list[TextRates]]:
    """For every pair of models (a below b): chance that a's token passes b at each new position, text by text.

    The chance is the sum over the vocabulary of min(b, a), each level at its own settings, along the target's
    text; at temperature 0 it is 0 or 1. ``maxima`` are of level a.
    """
    models = [k for k, level in enumerate(chain.levels) if not level.is_ngram]
    pairs = list(itertools.combinations(models, 2))
    between = {(a, b): (chain.ids_between(a, b), chain.ids_between(b, a)) for a, b in pairs}
    out: dict[tuple[int, int], list[TextRates]] = {pair: [] for pair in pairs}
    for laws in _laws(chain, found, sampling, models):
        for a, b in pairs:
            rates, maxima = [], []
            for law_a, law_b in zip(laws[a], laws[b], strict=True):
                assert law_a.confidence is not None
                rates.append(_pass_chance(law_a, law_b, between[a, b]))
                maxima.append(law_a.confidence[0].double())
            out[a, b].append(TextRates(torch.cat(rates).numpy(), torch.cat(maxima).numpy()))
    return out


@dataclass(frozen=True)
class LookUpRates:
    """What a look-up's proposals are worth along the target's texts.

    Attributes:
        coverage: share of rounds in which it proposes anything.
        by_place: per verifying level, chance that token i of a proposal passes, those before it being right;
            rare places share the last entry.
        n: rounds; proposals: those with a proposal.
        by_text: per verifying level and text, chances that the first token of a proposal passes added up, and
            proposals.
    """

    coverage: float
    by_place: Mapping[int, tuple[float, ...]]
    n: int
    proposals: int
    by_text: Mapping[int, tuple[tuple[float, float], ...]]


@torch.inference_mode()
def look_up_rates(
    chain: Chain,
    ngram: Ngram,
    found: TargetTexts,
    sampling: Sampling,
    levels: Sequence[int] | None = None,
    temperature: float | None = None,
) -> LookUpRates:
    """Look-ups where rounds of ``REFERENCE_GAMMA`` tokens start; token i > 0 counts if those before it are the text's.

    A look-up's law is a point mass, so its token passes with the verifier's probability of it. For the same reason
    the target emits the proposed token exactly if it accepts it: the text itself says where every round ends.

    Args:
        levels: verifying levels to look at; ``None``: every model.
        temperature: of these levels, in the place of their own.
    """
    models = [k for k, level in enumerate(chain.levels) if not level.is_ngram] if levels is None else list(levels)
    passed = {k: torch.zeros(PLACES, dtype=torch.float64) for k in models}
    reached = torch.zeros(PLACES, dtype=torch.float64)
    by_text: dict[int, list[tuple[float, float]]] = {k: [] for k in models}
    n = proposals = 0
    for (text, new), laws in zip(
        zip(found.texts, found.new, strict=True), _laws(chain, found, sampling, models, temperature), strict=True
    ):
        guesses, rounds, own = replayed_look_ups(ngram, text, new)
        n, proposals = n + rounds, proposals + own
        known = guesses >= 0
        reached += known.sum(0)
        for k in models:
            chance = torch.cat([_chance_of(chain, k, x, g) for x, g in _chunks(laws[k], guesses)])
            sums = torch.where(known, chance, 0.0).sum(0)
            passed[k] += sums
            by_text[k].append((float(sums[0]), float(known[:, 0].sum())))
    rates = {k: tuple(pooled_rates(passed[k].numpy(), reached.numpy())) for k in models}
    return LookUpRates(proposals / n, rates, n, proposals, {k: tuple(own) for k, own in by_text.items()})


def replayed_look_ups(
    ngram: Ngram, text: Sequence[int], new: int, gamma: int = REFERENCE_GAMMA
) -> tuple[Tensor, int, int]:
    """Proposals of the rounds in which a look-up of ``gamma`` tokens makes the last ``new`` tokens of ``text``.

    A round starts where the last one ended: behind its accepted prefix and one token more.

    Returns:
        [new, PLACES] token i of the proposal made i positions before, -1 for none; rounds; those with a proposal.
    """
    first, rounds, proposals, t = len(text) - new, 0, 0, 0
    table = torch.full((new, PLACES), -1)
    while t < new:
        proposal = ngram.look_up(text[: first + t], PLACES)
        rounds, proposals, accepted = rounds + 1, proposals + bool(proposal), 0
        for i, token in enumerate(proposal[: new - t]):
            table[t + i, i] = token
            if token != text[first + t + i]:
                break
            accepted = i + 1
        t += min(accepted, gamma) + 1
    return table, rounds, proposals


def _laws(
    chain: Chain, found: TargetTexts, sampling: Sampling, models: Sequence[int], temperature: float | None = None
) -> Iterator[dict[int, list[Law]]]:
    """Text by text, each level's laws of the new tokens in chunks; every level scores the text once."""
    last = len(chain.levels) - 1
    rows = {k: sampling if k == last else sampling.overridden_by(chain.levels[k].sampling) for k in models}
    if temperature is not None:
        rows = {k: replace(row, temperature=temperature) for k, row in rows.items()}
    settings = {k: LevelSampling([row], torch.device("cpu"), confidence=k < last) for k, row in rows.items()}
    for text, new in zip(found.texts, found.new, strict=True):
        tokens = torch.tensor(text[:-1])[None]  # the last token is predicted, never fed
        laws: dict[int, list[Law]] = {}
        for k in models:
            level = chain.scorer(k)
            if level.max_positions is not None and tokens.shape[1] > level.max_positions:
                raise ValueError(
                    f"{chain.names[k]}: a tuning text of {tokens.shape[1]} tokens exceeds its position limit "
                    f"{level.max_positions}; choose shorter prompts or fewer new tokens"
                )
            level.allocate(1, tokens.shape[1])
            level.owner = found
            first = tokens.shape[1] - new
            if first:
                level.fill(fed_tokens(level, tokens[:, :first]), torch.tensor([0], device=level.device))
            laws[k] = []
            for start in range(first, tokens.shape[1], CHUNK):
                own = own_logits(chain, k, tokens[:, start : start + CHUNK], start).cpu()
                laws[k].append(law(own, settings[k]))
        yield laws


def _pass_chance(draft: Law, verifier: Law, between: tuple[Tensor | None, Tensor | None]) -> Tensor:
    """[T] chance that a token of ``draft`` passes ``verifier``; ids of one in the other in ``between``."""
    there, back = between
    if draft.probs is not None and verifier.probs is not None:
        return overlaps(draft.probs, verifier.probs, there)[0].double()
    if draft.probs is not None:
        return _share(draft.probs, translate(verifier.argmax, back))
    token = translate(draft.argmax, there)
    if verifier.probs is None:
        return torch.eq(token, verifier.argmax)[0].double()
    return _share(verifier.probs, token)


def _share(probs: Tensor, token: Tensor) -> Tensor:
    """[T] probability of ``token`` [1, T], 0 where it is -1."""
    found = probs.gather(-1, token.clamp(min=0)[..., None])[0, :, 0].double()
    return found * (token[0] >= 0)


def _chance_of(chain: Chain, k: int, rows: Law, tokens: Tensor) -> Tensor:
    """[T, PLACES] level k's probability of target ids ``tokens`` [T, PLACES]; anything where they are -1."""
    ids = chain.output_ids(k)
    own = tokens.clamp(min=0)
    if ids is not None:
        table = torch.full((chain.vocab_size,), -1, dtype=torch.int64)
        table[ids] = torch.arange(len(ids))
        own = table[own]
    if rows.probs is None:
        return torch.eq(own, rows.argmax[0][:, None]).double()
    return rows.probs[0].gather(1, own.clamp(min=0)).double() * (own >= 0)


def _chunks(laws: Sequence[Law], guesses: Tensor) -> Iterator[tuple[Law, Tensor]]:
    """Each chunk of laws with its rows of ``guesses``."""
    begin = 0
    for rows in laws:
        size = rows.argmax.shape[1] if rows.probs is None else rows.probs.shape[1]
        yield rows, guesses[begin : begin + size]
        begin += size

"""Rung 0: what the decoder says of its own rounds is true, and its caches hold what they should.

A draft with the verifier's own weights is always accepted; draft tokens pass as often as the overlap of the
two laws says; nothing of probability zero is emitted even where every uniform is 0; every proposal is the one
that whole passes make.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from ssd.bench.acceptance import acceptance_check, tested_tokens
from ssd.certify.cache_free import compare_proposals
from ssd.certify.consistency import contradictions
from ssd.certify.goodness_of_fit import poisson_binomial_p
from ssd.certify.result import Check
from ssd.certify.schedules import with_target
from ssd.certify.subchains import alone, check_drafts, check_wide, self_draft, tempered, verified
from ssd.certify.whole_pass import SLACK, level_law, rounding, whole_logits
from ssd.core import randomness as rng
from ssd.core.chain import Chain
from ssd.core.generate import Schedule, generate
from ssd.core.requests import Generation, Override, Request, Round, Sampling

Prompts = Sequence[Sequence[int]]
GREEDY, PLAIN = Sampling(0.0), Sampling(1.0)
NARROW = Sampling(1.0, top_p=0.5)
UNFILTERED = Override(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
ACCEPTANCE_ALARM = 1e-4
"""False-alarm rate of each comparison of accepted tokens with their overlaps: the exact two-sided tail, in which the
overlaps recorded are taken as if they did not depend on which of the tokens before had passed."""
TIE_RATE = 1e-5
"""Bound on how often rounding turns one draw or test, in float32: laws of two passes are measured 3e-6 apart."""
NEARLY_ONE = 1 - 1e-4
"""Overlap above which a draft's law counts as the verifier's up to rounding."""


def check_bookkeeping(
    chain: Chain,
    prompts: Prompts,
    *,
    tokens: int = 20,
    gammas: Sequence[int] = (4,),
    rows: int = 16,
    seed: int = 0,
    schedule: str | Schedule = "serial",
) -> list[Check]:
    """Checks of the rounds and caches of ``chain``, held in float32 or wider.

    Args:
        prompts: token ids, of unequal lengths, so that rows of a batch are ragged.
        tokens: new tokens of each run.
        gammas: draft lengths of the self-drafts.
        rows: sequences behind the comparison of accepted tokens with their overlaps.
        seed: of all draws.
        schedule: of the chains with a draft. Were its workers processes, uniforms of 0 would be the target's alone.
    """
    check_wide(chain, "bookkeeping")
    check_drafts(chain, "bookkeeping")
    books = _Books(schedule)
    checks = [*_self_drafts(chain, prompts, tokens, gammas, seed, books)]
    checks += _acceptance(chain, prompts, tokens, rows, seed, books)
    checks += [_zero_uniforms(chain, prompts, tokens, seed, schedule)]
    checks += [*_cache_free(chain, prompts, tokens, seed, books)]
    return [*checks, books.check()]


class _Books:
    """Whether everything the generations of this rung say agrees with itself."""

    def __init__(self, schedule: str | Schedule) -> None:
        self.schedule = schedule
        self.n = 0
        self.wrong: list[str] = []

    def run(self, chain: Chain, requests: Sequence[Request]) -> list[Generation]:
        """``generate``, audited."""
        results = generate(chain, requests, self.schedule)
        self.n += len(results)
        together = with_target(chain, self.schedule)
        for request, result in zip(requests, results, strict=True):
            self.wrong += contradictions(chain, request, result, together)
        return results

    def check(self) -> Check:
        detail = f"{len(self.wrong)} contradictions in {self.n} generations"
        return Check("the books agree", not self.wrong, 0.0, self.n, _with_first(detail, self.wrong), len(self.wrong))


def _requests(prompts: Prompts, sampling: Sampling, tokens: int, seed: int, rows: int = 0) -> list[Request]:
    """One request a prompt, or ``rows`` of them in turn with sample numbers that differ."""
    return [
        Request(
            tuple(prompts[i % len(prompts)]),
            sampling,
            seed,
            i % len(prompts),
            i // len(prompts),
            tokens,
            ignore_eos=True,
        )
        for i in range(rows or len(prompts))
    ]


def _with_first(detail: str, found: Sequence[str]) -> str:
    """The figures, and the first of what was found."""
    return f"{detail}; first: {found[0]}" if found else detail


def _self_drafts(
    chain: Chain, prompts: Prompts, tokens: int, gammas: Sequence[int], seed: int, books: _Books
) -> Iterator[Check]:
    """Every level as a draft for itself, at temperature 0 and above, under both verifications."""
    kinds = (("temperature 0", GREEDY, "token"), ("by token", PLAIN, "token"), ("by block", PLAIN, "block"))
    for k, level in enumerate(chain.levels):
        if level.is_ngram:
            continue
        own = _readable(chain, k, prompts)
        count = _fitting(chain, k, own, tokens)
        for words, sampling, verification in kinds:
            found: list[tuple[Round, Generation, Request]] = []
            for gamma in gammas:
                requests = _requests(own, sampling, count, seed)
                results = books.run(self_draft(chain, k, gamma, verification), requests)
                found += [(r, g, q) for q, g in zip(requests, results, strict=True) for r in g.rounds]
            yield _self_draft_check(chain, k, f"L{k} drafts for itself, {words}", found)


def _readable(chain: Chain, k: int, prompts: Prompts) -> list[tuple[int, ...]]:
    """The prompts with ids level k cannot embed replaced, as the decoder does."""
    most = chain.scorer(k).embeddings
    return [tuple(t if t < most else 0 for t in prompt) for prompt in prompts]


def _fitting(chain: Chain, k: int, prompts: Prompts, tokens: int) -> int:
    """``tokens``, or as many as level k has positions for; ValueError if there are fewer than 2."""
    limit = chain.scorer(k).max_positions
    longest = max(map(len, prompts))
    count = tokens if limit is None else min(tokens, limit + 1 - longest)
    if count < 2:
        raise ValueError(f"prompts: {longest} tokens leave no room in the {limit} positions of chain.levels[{k}]")
    return count


def _self_draft_check(chain: Chain, k: int, name: str, found: Sequence[tuple[Round, Generation, Request]]) -> Check:
    """All draft tokens accepted and one more emitted in every round, up to rounding ties."""
    drafted = sum(r.drafted for r, _, _ in found)
    accepted = sum(r.accepted for r, _, _ in found)
    ties, faults = 0, []
    for r, g, request in found:
        if r.accepted == r.drafted and r.emitted == r.drafted + 1:
            continue
        if _is_tie(chain, k, r, g, request):
            ties += 1
        else:
            faults.append(f"{r.accepted} of {r.drafted} accepted, {r.emitted} emitted at position {r.start}")
    greedy = found[0][2].sampling.temperature == 0
    alarm = 0.0 if greedy else two_ties(drafted)  # one is let pass
    detail = f"{accepted} of {drafted} draft tokens accepted in {len(found)} rounds, {ties} rounding ties"
    passed = not faults and (greedy or ties <= 1)
    return Check(name, passed, alarm, drafted, _with_first(detail, faults), accepted / drafted)


def two_ties(n: int) -> float:
    """Probability of two or more rounding ties in ``n`` draws and tests, each turned with ``TIE_RATE``."""
    none = n * math.log1p(-TIE_RATE)
    return max(0.0, -math.expm1(none) - n * TIE_RATE * math.exp(none) / (1 - TIE_RATE))


def _is_tie(chain: Chain, k: int, r: Round, g: Generation, request: Request) -> bool:
    """Whether rounding explains a self-draft's rejection: equal laws, or two logits as good as equal."""
    if r.emitted != r.accepted + 1:
        return False
    if request.sampling.temperature > 0:
        return bool(r.overlap) and min(r.overlap) >= NEARLY_ONE
    model = chain.scorer(k)
    before = [*request.ids, *g.ids][: r.start + r.accepted]
    row = whole_logits(model, torch.tensor([before]), 1)[0, 0]
    best = row.topk(2).values
    return float(best[0] - best[1]) <= 2 * rounding(row, model.dtype)


def _acceptance(chain: Chain, prompts: Prompts, tokens: int, rows: int, seed: int, books: _Books) -> list[Check]:
    """Accepted tokens against the sum of their overlaps on each edge, at temperature 0 and above."""
    checks = []
    for sampling in (GREEDY, PLAIN):
        requests = _requests(prompts, sampling, tokens, seed, 0 if sampling is GREEDY else rows)
        results = books.run(verified(chain, "token"), requests)
        records = [{"method": "chain", "rounds": [asdict(r) for r in g.rounds]} for g in results]
        checks += [_edge_check(records, edge, sampling) for edge in range(chain.depth)]
    return checks


def _edge_check(records: Sequence[dict[str, Any]], edge: int, sampling: Sampling) -> Check:
    greedy = sampling.temperature == 0
    name = f"accepted = overlap on edge {edge}, temperature {sampling.temperature:g}"
    found = acceptance_check(records, edge)
    if found is None:
        drafted = sum(r["drafted"] for record in records for r in record["rounds"] if r["edge"] == edge)
        detail = f"no draft token was tested, {drafted} were drafted"
        return Check(name, False, 0.0, 1, detail)
    figures = f"{found.accepted} of {found.tested} tested tokens accepted, overlaps add up to {found.overlap:.2f}"
    if greedy or found.z is None:
        return Check(name, found.is_equal, 0.0, found.tested, figures, found.largest_difference)
    tested = [token for record in records for r in record["rounds"] if r["edge"] == edge for token in tested_tokens(r)]
    p = poisson_binomial_p(found.accepted, [min(max(overlap or 0.0, 0.0), 1.0) for _, overlap in tested])
    figures += f", z = {found.z:.2f}, p = {p:.2g}"
    return Check(name, p >= ACCEPTANCE_ALARM, ACCEPTANCE_ALARM, found.tested, figures, p)


@contextmanager
def zero_uniforms() -> Iterator[None]:
    """Every uniform of the decoder is 0 inside this context."""

    def zeros(key: Tensor, level: int, purpose: int, position: Tensor) -> Tensor:
        shape = torch.broadcast_shapes(key.shape, position.shape)
        return torch.zeros(shape, dtype=torch.float64, device=key.device)

    with patch.object(rng, "uniform", zeros):
        yield


def _zero_uniforms(chain: Chain, prompts: Prompts, tokens: int, seed: int, schedule: str | Schedule) -> Check:
    """With every uniform 0, each test passes that can and each draw takes the lowest id it can.

    Drafts are unfiltered and the target keeps half its mass, so it must turn down what they propose.
    """
    open_drafts = tempered(chain, [UNFILTERED])
    requests = _requests(prompts, NARROW, tokens, seed)
    impossible, n = [], 0
    for words, each in (
        ("AR", alone(chain)),
        ("by token", verified(open_drafts, "token")),
        ("by block", verified(open_drafts, "block")),
    ):
        with zero_uniforms():
            results = generate(each, requests, schedule)
        for request, result in zip(requests, results, strict=True):
            n += len(result.ids)
            impossible += [f"{words}: {text}" for text in _impossible(chain, request, result.ids)]
    detail = _with_first(f"{len(impossible)} of {n} tokens have probability 0 under the target", impossible)
    return Check("no token of probability 0 at u = 0", not impossible, 0.0, n, detail, len(impossible))


def _impossible(chain: Chain, request: Request, ids: Sequence[int]) -> list[str]:
    """Tokens the target's filters exclude beyond what rounding could, by a whole pass over the text."""
    text = torch.tensor([[*request.ids, *ids[:-1]]])
    loose = replace(request.sampling, top_p=min(1.0, request.sampling.top_p + SLACK))
    law = level_law(chain, chain.depth, text, len(ids), [loose])[0]
    return [f"token {t} at position {i} of the output" for i, t in enumerate(ids) if law[i, t] == 0]


def _cache_free(chain: Chain, prompts: Prompts, tokens: int, seed: int, books: _Books) -> Iterator[Check]:
    """Proposals with caches against whole passes. Filters are off: at their edge a rounding moves a law visibly."""
    off = [Override(level.sampling.temperature, 0, 1.0, 0.0) for level in chain.levels[:-1]]
    bare = tempered(chain, off)
    for words, sampling, verification in (
        ("temperature 0", GREEDY, "token"),
        ("by token", PLAIN, "token"),
        ("by block", PLAIN, "block"),
    ):
        each, requests = verified(bare, verification), _requests(prompts, sampling, tokens, seed + 1)
        found = compare_proposals(each, requests, books.schedule)
        n = max(found.proposals, 1)
        passed = not found.faults and found.proposals > 0 and (sampling is GREEDY or len(found.ties) <= 1)
        # Every proposed token is drawn or tested on its own level, and tested at most once on the next: 2 a token.
        alarm = 0.0 if sampling is GREEDY else two_ties(2 * _drafted(books.run(each, requests)))
        detail = f"{found.proposals} proposals made twice, {len(found.faults)} differ, {len(found.ties)} rounding ties"
        detail += "" if sampling is GREEDY else f", laws at most {found.distance:.1e} apart"
        detail = _with_first(detail, [*found.faults, *found.ties])
        yield Check(f"proposals are those of whole passes, {words}", passed, alarm, n, detail, len(found.faults))


def _drafted(results: Sequence[Generation]) -> int:
    """Tokens proposed on all edges."""
    return sum(r.drafted for g in results for r in g.rounds)

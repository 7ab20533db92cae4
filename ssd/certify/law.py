"""Rung 4: above temperature 0 each token has the target's law given the tokens before it.

The first tokens of many continuations, by AR, by a pair and by the whole chain, under both verifications, are
held against rows of whole passes over each prefix that occurred. Draft levels have temperatures of their own
and rows of a batch have different settings, one of them with top-p.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ssd.certify.goodness_of_fit import LEAST, chi_square_tail, g_statistic, kolmogorov_p, uniform_p
from ssd.certify.result import Check
from ssd.certify.subchains import alone, check_drafts, check_wide, pair, tempered, verified
from ssd.certify.transform import by_ratio, uniforms
from ssd.certify.whole_pass import SLACK, drawn_law, level_law, whole_logits
from ssd.core.chain import Chain
from ssd.core.generate import Schedule, generate
from ssd.core.requests import Override, Request, Sampling

ALARM = 1e-3
"""False-alarm rate of the rung, shared equally by its tests."""
SETTINGS = (Sampling(1.0), Sampling(0.8, top_p=0.9))
"""Settings of the rows of a batch, in turn."""
MIXED = (Override(temperature=1.3), Override(temperature=0.8))
"""Settings of the draft levels, in turn from level 0 on; temperatures only, so that every draft is a whole law."""
BINS, FEW_BINS = 16, 8
ROWS = 6_000_000  # probabilities a level holds at a time
Context = tuple[int, int, tuple[int, ...]]  # prompt, setting, all tokens but the last


@dataclass(frozen=True)
class Draw:
    """One continuation.

    Attributes:
        variant: which decoder made it.
        repeat: which of the repeats, whose seeds are disjoint.
        prompt, setting: indices.
        ids: its tokens.
    """

    variant: str
    repeat: int
    prompt: int
    setting: int
    ids: tuple[int, ...]


@dataclass
class Evidence:
    """What the draws of one variant came to.

    Attributes:
        transforms: by order of the vocabulary, uniforms per repeat.
        first: counts of first tokens by (prompt, setting).
        impossible: tokens outside the target's filters.
        tokens: how many were looked at.
    """

    transforms: dict[str, dict[int, list[float]]] = field(default_factory=dict)
    first: dict[tuple[int, int], dict[int, int]] = field(default_factory=dict)
    impossible: list[str] = field(default_factory=list)
    tokens: int = 0

    def add(self, order: str, repeat: int, values: Sequence[float]) -> None:
        """More uniforms of one order and repeat."""
        self.transforms.setdefault(order, {}).setdefault(repeat, []).extend(values)

    def count(self, draw: Draw) -> None:
        """One more continuation."""
        self.tokens += len(draw.ids)
        counts = self.first.setdefault((draw.prompt, draw.setting), {})
        counts[draw.ids[0]] = counts.get(draw.ids[0], 0) + 1

    def pooled(self, order: str) -> list[float]:
        """Uniforms of all repeats."""
        return [u for values in self.transforms[order].values() for u in values]


def check_law(
    chain: Chain,
    prompts: Sequence[Sequence[int]],
    *,
    length: int = 4,
    batch: int = 64,
    repeats: int = 4,
    settings: Sequence[Sampling] = SETTINGS,
    overrides: Sequence[Override] = MIXED,
    seed: int = 0,
    schedule: str | Schedule = "serial",
) -> list[Check]:
    """Tests of the law of ``chain``, held in float32 or wider; together they fail a correct one at rate ``ALARM``.

    Args:
        prompts: token ids, short ones for speed; each needs the same chance, so ``batch`` is best a multiple of
            prompts x settings.
        length: tokens of a continuation.
        batch: continuations made at once.
        repeats: batches per variant, each with seeds of its own, at least 2.
        settings: of the rows, in turn; temperature, top-k, top-p and min-p only, temperature above 0.
        overrides: of the draft levels, in turn from level 0 on.
        seed: of the first repeat.
        schedule: of the chains with a draft.
    """
    check_wide(chain, "the law")
    check_drafts(chain, "the law")
    _check_settings(settings)
    if batch * length < FEW_BINS * LEAST or repeats < 2:
        raise ValueError(f"batch, length, repeats: {batch}, {length}, {repeats} are too few draws for {FEW_BINS} bins")
    chains = variants(chain, overrides)
    made = [
        each
        for place, (name, variant) in enumerate(chains.items())
        for each in _draws(name, variant, prompts, length, batch, repeats, settings, seed + place * repeats, schedule)
    ]
    evidence = gather(tempered(chain, overrides), prompts, settings, made)
    return [*_support_checks(evidence), *_law_checks(tempered(chain, overrides), prompts, settings, evidence)]


def variants(chain: Chain, overrides: Sequence[Override]) -> dict[str, Chain]:
    """AR, the pair below the target and the whole chain, under both verifications, by name."""
    mixed = tempered(chain, overrides)
    found = {"AR": alone(chain)}
    for verification in ("token", "block"):
        found[f"depth 1 by {verification}"] = verified(pair(mixed), verification)
        if chain.depth > 1:
            found[f"depth {chain.depth} by {verification}"] = verified(mixed, verification)
    return found


def _check_settings(settings: Sequence[Sampling]) -> None:
    for i, s in enumerate(settings):
        plain = Sampling(s.temperature, s.top_k, s.top_p, s.min_p)
        if s != plain or s.temperature == 0:
            raise ValueError(f"settings[{i}]: {s!r}; the exact law is taken at temperature > 0 without penalties")


def _draws(
    name: str,
    chain: Chain,
    prompts: Sequence[Sequence[int]],
    length: int,
    batch: int,
    repeats: int,
    settings: Sequence[Sampling],
    seed: int,
    schedule: str | Schedule,
) -> Iterator[Draw]:
    """The continuations of one variant; rows take prompts in turn, and settings in turn for each prompt."""
    for repeat in range(repeats):
        places = [(i % len(prompts), i // len(prompts) % len(settings)) for i in range(batch)]
        requests = [
            Request(tuple(prompts[p]), settings[s], seed + repeat, p, i, length, ignore_eos=True)
            for i, (p, s) in enumerate(places)
        ]
        for (p, s), result in zip(places, generate(chain, requests, schedule), strict=True):
            yield Draw(name, repeat, p, s, result.ids)


def gather(
    chain: Chain, prompts: Sequence[Sequence[int]], settings: Sequence[Sampling], draws: Sequence[Draw]
) -> dict[str, Evidence]:
    """Every draw transformed by the exact rows of its own prefixes, which are computed once each."""
    found: dict[str, Evidence] = {}
    contexts: dict[Context, list[Draw]] = {}
    for draw in draws:
        contexts.setdefault((draw.prompt, draw.setting, draw.ids[:-1]), []).append(draw)
    by_length: dict[int, list[Context]] = {}
    for key in contexts:
        by_length.setdefault(len(prompts[key[0]]), []).append(key)
    v = torch.Generator().manual_seed(0)
    for keys in by_length.values():
        size = max(1, ROWS // (chain.vocab_size * (len(keys[0][2]) + 1)))
        for begin in range(0, len(keys), size):
            _transform(chain, prompts, settings, keys[begin : begin + size], contexts, found, v)
    return found


def _transform(
    chain: Chain,
    prompts: Sequence[Sequence[int]],
    settings: Sequence[Sampling],
    keys: Sequence[Context],
    contexts: Mapping[Context, Sequence[Draw]],
    found: dict[str, Evidence],
    v: torch.Generator,
) -> None:
    """Add to the evidence all draws whose prefixes are ``keys``, texts of one length."""
    texts = torch.tensor([[*prompts[p], *ids] for p, _, ids in keys])  # [N, T]
    keep = len(keys[0][2]) + 1
    own = [settings[s] for _, s, _ in keys]
    laws = [level_law(chain, k, texts, keep, own).cpu() for k in range(len(chain.levels))]  # [N, keep, V] each
    law = laws[-1]
    orders = {"id": torch.arange(law.shape[-1], dtype=torch.float64).expand_as(law), "probability": law}
    orders |= {f"target / L{k}": by_ratio(law, draft) for k, draft in enumerate(laws[:-1])}
    pairs = [(row, draw) for row, key in enumerate(keys) for draw in contexts[key]]
    for begin in range(0, len(pairs), len(keys)):
        some = pairs[begin : begin + len(keys)]
        rows = torch.tensor([row for row, _ in some])
        tokens = torch.tensor([draw.ids for _, draw in some])  # [D, keep]
        noise = torch.rand(tokens.shape, generator=v, dtype=torch.float64)
        possible = (law[rows].gather(2, tokens[..., None]).squeeze(2) > 0).tolist()
        values = {name: uniforms(law[rows], order[rows], tokens, noise).tolist() for name, order in orders.items()}
        for i, (row, draw) in enumerate(some):
            one = found.setdefault(draw.variant, Evidence())
            one.count(draw)
            for name, own_values in values.items():
                one.add(name, draw.repeat, [u for u, known in zip(own_values[i], possible[i], strict=True) if known])
            if not all(possible[i]):
                one.impossible += _impossible(chain, texts[row], own[row], draw)


def _impossible(chain: Chain, text: Tensor, sampling: Sampling, draw: Draw) -> list[str]:
    """Tokens the filters exclude even where their thresholds are moved by more than rounding could."""
    logits = whole_logits(chain.scorer(chain.depth), text[None], len(draw.ids))[0].cpu()
    loose = drawn_law(logits, sampling, SLACK)
    return [f"token {t} at position {i} of prompt {draw.prompt}" for i, t in enumerate(draw.ids) if loose[i, t] == 0]


def _support_checks(evidence: Mapping[str, Evidence]) -> list[Check]:
    """Nothing the target's filters exclude was emitted; certain, so without a false-alarm rate."""
    checks = []
    for name, e in evidence.items():
        detail = f"{len(e.impossible)} of {e.tokens} tokens lie outside the target's filters"
        detail += f"; first: {e.impossible[0]}" if e.impossible else ""
        checks.append(Check(f"{name}: within the filters", not e.impossible, 0.0, e.tokens, detail, len(e.impossible)))
    return checks


def _law_checks(
    chain: Chain,
    prompts: Sequence[Sequence[int]],
    settings: Sequence[Sampling],
    evidence: Mapping[str, Evidence],
) -> list[Check]:
    """G-tests of each variant, and one test that the p-values of the repeats are uniform."""
    found: list[tuple[str, float, int, str]] = []
    repeated: list[float] = []
    first = _first_laws(chain, prompts, settings)
    for name, e in evidence.items():
        for order in e.transforms:
            values = e.pooled(order)
            words = f"{len(values)} tokens ordered by {order} in {BINS} bins of equal probability"
            found.append((f"{name}: law by {order}", uniform_p(values, BINS), len(values), words))
        tested = _first_test(e, first)
        if tested is not None:
            found.append((f"{name}: law of first tokens", *tested))
        best = next(reversed(e.transforms))
        repeated += [uniform_p(values, FEW_BINS) for values in e.transforms[best].values()]
    words = f"p-values of {len(repeated)} repeats against uniform, Kolmogorov-Smirnov"
    found.append(("p-values over repeats", kolmogorov_p(repeated), len(repeated), words))
    alarm = ALARM / len(found)
    return [Check(name, p >= alarm, alarm, n, f"{words}, p = {p:.3g}", p) for name, p, n, words in found]


def _first_laws(
    chain: Chain, prompts: Sequence[Sequence[int]], settings: Sequence[Sampling]
) -> dict[tuple[int, int], Tensor]:
    """The target's law [V] of the first token by (prompt, setting)."""
    found: dict[tuple[int, int], Tensor] = {}
    for p, prompt in enumerate(prompts):
        logits = whole_logits(chain.scorer(chain.depth), torch.tensor([list(prompt)]), 1)[0, 0].cpu()
        found |= {(p, s): drawn_law(logits, sampling) for s, sampling in enumerate(settings)}
    return found


def _first_test(e: Evidence, laws: Mapping[tuple[int, int], Tensor]) -> tuple[float, int, str] | None:
    """(p, first tokens, words) of a G-test of first tokens, added up over prompts and settings.

    ``None`` where too few were drawn for any to be expected five times; the transformed tokens are tested all the same.
    """
    g, freedom, n = 0.0, 0, 0
    for key, counts in e.first.items():
        law = laws[key]
        total = sum(count for token, count in counts.items() if law[token] > 0)
        observed = torch.zeros_like(law)
        for token, count in counts.items():
            if law[token] > 0:
                observed[token] = count
        value, df = g_statistic(observed.numpy(), (law / law.sum() * total).numpy())
        g, freedom, n = g + value, freedom + df, n + total
    if freedom == 0:
        return None
    words = f"{n} first tokens of {len(laws)} prompts and settings, {freedom} degrees of freedom"
    return chi_square_tail(g, freedom), n, words

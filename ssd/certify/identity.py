"""Rung 3: at temperature 0 the chain gives the target's own text, whatever the batch.

AR is held against whole passes first, then the chain against AR: alone, and in a batch of rows of unequal
lengths that end in different rounds or stand beside rows that sample. Only a rounding tie may part them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ssd.bench.divergence import Parting, Rescorer, partings
from ssd.certify.result import Check
from ssd.certify.subchains import alone, check_drafts, check_wide, verified
from ssd.certify.whole_pass import ROUNDING, whole_logits
from ssd.core.chain import Chain
from ssd.core.generate import Schedule, generate
from ssd.core.requests import Request, Sampling

Ids = tuple[int, ...]


@dataclass(frozen=True)
class Outputs:
    """Greedy outputs of some rows, and what they should be.

    Attributes:
        name: how they were made.
        ours: by row.
        theirs: AR's, by row.
    """

    name: str
    ours: dict[str, Ids]
    theirs: dict[str, Ids]


def check_identity(
    chain: Chain,
    prompts: Sequence[Sequence[int]],
    *,
    tokens: int = 24,
    batch: int = 8,
    seed: int = 0,
    schedule: str | Schedule = "serial",
) -> list[Check]:
    """Checks that greedy outputs of ``chain``, held in float32 or wider, are AR's.

    Args:
        prompts: token ids, used in turn until there are ``batch`` rows.
        tokens: new tokens a row.
        batch: rows decoded together, at least 2.
        seed: of the rows that sample beside the others.
        schedule: of the chain; AR has none.
    """
    check_wide(chain, "identity")
    check_drafts(chain, "identity")
    rows = ragged(prompts, batch)
    own = {name: greedy(alone(chain), [ids], tokens)[0] for name, ids in rows.items()}
    noise, whole = whole_pass_checks(chain, rows, own)
    runs = [
        Outputs("chain, 1 row", one_by_one(chain, rows, tokens, schedule), own),
        Outputs(f"AR, {batch} rows", together(alone(chain), rows, tokens), own),
        _with_ends(verified(chain, "token"), rows, own, tokens, schedule),
        _beside_sampling(verified(chain, "block"), rows, own, tokens, seed, schedule),
    ]
    return [noise, whole, *(identity_check(chain, rows, run) for run in runs)]


def ragged(prompts: Sequence[Sequence[int]], batch: int) -> dict[str, Ids]:
    """``batch`` prompts by name, the given ones in turn, shortened by 0, 1 or 2 tokens so that lengths differ."""
    if batch < 2 or not prompts or min(map(len, prompts)) < 3:
        raise ValueError(f"prompts: {len(prompts)} in batches of {batch}; prompts of 3 tokens and 2 rows are needed")
    chosen = [tuple(prompts[i % len(prompts)]) for i in range(batch)]
    return {f"row {i}": ids[: len(ids) - i % 3] for i, ids in enumerate(chosen)}


def greedy(chain: Chain, prompts: Sequence[Ids], tokens: int, schedule: str | Schedule = "serial") -> list[Ids]:
    """Outputs at temperature 0, all prompts in one batch."""
    requests = [Request(ids, Sampling(0.0), max_new_tokens=tokens) for ids in prompts]
    return [g.ids for g in generate(chain, requests, schedule)]


def one_by_one(chain: Chain, rows: dict[str, Ids], tokens: int, schedule: str | Schedule = "serial") -> dict[str, Ids]:
    """Greedy outputs of all rows, each in a batch of its own."""
    return {name: greedy(chain, [ids], tokens, schedule)[0] for name, ids in rows.items()}


def together(chain: Chain, rows: dict[str, Ids], tokens: int) -> dict[str, Ids]:
    """Greedy outputs of all rows in one batch."""
    return dict(zip(rows, greedy(chain, list(rows.values()), tokens), strict=True))


def _with_ends(
    chain: Chain, rows: dict[str, Ids], own: dict[str, Ids], tokens: int, schedule: str | Schedule
) -> Outputs:
    """Every second row is told that a token AR gave half-way ends a text."""
    requests, wanted = [], {}
    for i, (name, ids) in enumerate(rows.items()):
        ends = own[name][len(own[name]) // 2 :][:1] if i % 2 else ()
        requests.append(Request(ids, Sampling(0.0), max_new_tokens=tokens, eos_ids=ends))
        wanted[name] = own[name][: own[name].index(ends[0]) + 1] if ends else own[name]
    found = {name: g.ids for name, g in zip(rows, generate(chain, requests, schedule), strict=True)}
    return Outputs(f"chain, {len(rows)} rows that end in turn, by token", found, wanted)


def _beside_sampling(
    chain: Chain, rows: dict[str, Ids], own: dict[str, Ids], tokens: int, seed: int, schedule: str | Schedule
) -> Outputs:
    """Every second row samples, the first of all included, so that no rule for greedy batches applies."""
    settings = [Sampling(float(i % 2 == 0)) for i in range(len(rows))]
    requests = [
        Request(ids, sampling, seed, max_new_tokens=tokens, ignore_eos=True)
        for ids, sampling in zip(rows.values(), settings, strict=True)
    ]
    found = zip(rows, settings, generate(chain, requests, schedule), strict=True)
    kept = {name: g.ids for name, sampling, g in found if sampling.temperature == 0}
    return Outputs(f"chain, {len(kept)} rows beside others that sample, by block", kept, {x: own[x] for x in kept})


def whole_pass_checks(chain: Chain, rows: dict[str, Ids], own: dict[str, Ids]) -> tuple[Check, Check]:
    """Cached passes against whole ones on AR's outputs, and AR's tokens against the argmax of whole passes."""
    target = chain.scorer(chain.depth)
    rescorer = Rescorer(target, block_width(chain))
    distance, largest, n = 0.0, 0.0, 0
    short: list[tuple[float, str]] = []
    for name, ids in rows.items():
        output = own[name]
        whole = whole_logits(target, torch.tensor([[*ids, *output[:-1]]]), len(output))[0].float().cpu()
        distance = max(distance, float((whole - rescorer.logits(ids, output, rescorer.width).cpu()).abs().max()))
        largest = max(largest, float(whole.abs().max()))
        lacking = whole.amax(-1) - whole.gather(1, torch.tensor(output)[:, None]).squeeze(1)
        short += [(gap, f"{name}, token {i}") for i, gap in enumerate(lacking.tolist()) if gap > 0]
        n += len(output)
    bound = ROUNDING[target.dtype] * largest
    words = f"logits of blocks differ from those of whole passes by at most {distance:.2g}, rounding by {bound:.2g}"
    noise = Check("cached passes equal whole passes", distance <= bound, 0.0, n, words, distance)
    worst = max(short, default=(0.0, ""))
    words = f"{len(short)} of {n} tokens of AR are not the argmax of a whole pass, by at most {worst[0]:.2g} {worst[1]}"
    return noise, Check("AR is the argmax of whole passes", worst[0] <= 2 * bound, 0.0, n, words.strip(), worst[0])


def block_width(chain: Chain) -> int:
    """Tokens of a verification by the target when every draft is as long as its edge asks for."""
    return sum(edge.gamma for edge in chain.edges) + 1


def found_partings(chain: Chain, rows: dict[str, Ids], run: Outputs) -> list[Parting]:
    """First differences of a run's outputs from what they should be."""
    target = chain.scorer(chain.depth)

    def records(outputs: dict[str, Ids]) -> list[dict[str, object]]:
        return [
            {"prompt_id": name, "sample": 0, "method": run.name, "output_ids": list(ids)}
            for name, ids in outputs.items()
        ]

    return partings(records(run.ours), records(run.theirs), rows, Rescorer(target, block_width(chain)))


def identity_check(chain: Chain, rows: dict[str, Ids], run: Outputs, shown: int = 3) -> Check:
    """Passes where every difference is a rounding tie; ``shown`` of them are told in detail."""
    apart = found_partings(chain, rows, run)
    ties, structural = [p for p in apart if p.is_tie], [p for p in apart if not p.is_tie]
    n = len(run.ours)
    detail = f"{n} outputs, {len(ties)} part by a rounding tie, {len(structural)} otherwise"
    if apart:
        detail += "; " + "; ".join(map(parting_words, (structural + ties)[:shown]))
    return Check(f"{run.name}: AR's text", not structural, 0.0, n, detail, float(len(structural)))


def parting_words(p: Parting) -> str:
    """Where an output parts, the two tokens and the gaps."""
    if p.gap is None:
        return f"{p.prompt_id} ends differently at token {p.position} ({p.ours} for {p.theirs})"
    return (
        f"{p.prompt_id} token {p.position}: {p.ours} for {p.theirs}, gap {p.gap:.2g} by one token and "
        f"{p.block_gap:.2g} by block, epsilon {p.epsilon:.2g}"
    )

"""Records made by hand: every number in them is an argument."""

from __future__ import annotations

from ssd.bench.records import record_line
from ssd.core.requests import Generation, Round, Sampling, Seconds

PROMPT = 10


def scripted(drafted, accepted, edge=0, overlap=None, start=PROMPT) -> tuple[Round, ...]:
    """Rounds of one edge that follow one another, each draft ``drafted`` long."""
    rounds = []
    for kept in accepted:
        end = "plain" if not drafted else "bonus" if kept == drafted else "recovered"
        tested = kept + (kept < drafted)
        told = () if overlap is None else (overlap,) * tested
        rounds.append(Round(edge, start, start, drafted, tested, kept, kept + 1, end, told))
        start += kept + 1
    return tuple(rounds)


def record(
    prompt="p0",
    method="spec",
    tokens=9,
    seconds=(0.0, 1.0),
    passes=(),
    ids=None,
    rounds=(),
    first=0,
    batch=None,
    sample=0,
    counts=(),
    arrivals=(),
    temperature=0.0,
    prompt_tokens=PROMPT,
    text="",
) -> dict:
    prefill, total = seconds
    ids = tuple(range(tokens)) if ids is None else tuple(ids)
    spent = Seconds(prefill, passes, total - prefill - sum(passes), total)
    generation = Generation(ids, "length", rounds, (), counts, spent, first, arrivals)
    return record_line(
        "run",
        batch or f"{prompt}-{sample}",
        method,
        prompt,
        "math",
        generation,
        prompt_tokens,
        text,
        Sampling(temperature=temperature),
        max_new_tokens=max(1, len(ids)),
        sample=sample,
    )

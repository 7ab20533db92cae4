"""The benchmark loop: warm up, then every turn of every prompt through every method, alternating, one line each.

All methods of a run see the same prompt ids, and they take turns prompt by prompt with the order
rotated, so that a drift of the machine falls on all of them alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ssd.bench.memory import CachePeaks, process_peaks
from ssd.bench.methods import ChainMethod, Method
from ssd.bench.prompts import Prompt
from ssd.bench.records import RunFolder, record_line
from ssd.bench.spec import RunSpec
from ssd.bench.traces import keep_trace
from ssd.bench.turns import Turn, turn_ids
from ssd.core.requests import Generation, Request

WARMUP_TOKENS = 8
Progress = Callable[[str, int, int], None]


class Requests:
    """Turns as requests of a run, the same for every method."""

    def __init__(self, spec: RunSpec, turns: Sequence[Turn], eos_ids: Sequence[int]) -> None:
        self.turns = {turn.prompt_id: turn for turn in turns}
        self.requests = [
            (
                turn.prompt_id,
                Request(
                    turn.ids,
                    spec.sampling,
                    spec.seed,
                    request=turn.number,
                    sample=sample,
                    max_new_tokens=spec.max_new_tokens,
                    eos_ids=tuple(eos_ids),
                    stop=spec.stop,
                    ignore_eos=spec.ignore_eos,
                ),
            )
            for turn in turns
            for sample in range(spec.samples)
        ]


def run(
    spec: RunSpec,
    methods: Sequence[Method],
    turns: Sequence[Turn],
    tokenizer: Any,
    folder: RunFolder,
    progress: Progress = lambda name, done, total: None,
    eos_ids: Sequence[int] = (),
) -> None:
    """Append one record per method, turn and sample to ``folder``, which the caller finishes.

    Any of ``eos_ids`` ends an output.

    Groups of requests whose records the folder kept from an earlier attempt are not decoded again; all
    others run in the place of the rotation that they have without an interruption.
    """
    work = Requests(spec, turns, eos_ids)
    steps = list(schedule(methods, work.requests, spec.batch))
    have = {(r["method"], r["prompt_id"], r["sample"]) for r in folder.kept}
    left = [(m, group) for m, group in steps if (m.name, group[0][0], group[0][1].sample) not in have]
    if left:
        folder.describe(warmup_seconds=warm_up(methods, work.requests[0][1]))
    total = len(steps)
    peaks = {m.name: CachePeaks(m.chain) for m in methods if isinstance(m, ChainMethod)}
    for done, (method, group) in enumerate(left, start=total - len(left)):
        progress(method.name, done, total)
        generations = method.generate([request for _, request in group])
        if method.name in peaks:
            peaks[method.name].note()
        if isinstance(method, ChainMethod) and done // len(methods) < spec.traced:
            keep_trace(folder.path, f"{method.name}, {group[0][0]}-{group[0][1].sample}", method.trace())
        for (prompt_id, request), generation in zip(group, generations, strict=True):
            first = group[0]
            batch_id = (
                f"{first[0]}-{first[1].sample}" if isinstance(method, ChainMethod) else f"{prompt_id}-{request.sample}"
            )
            line = record(spec, method.name, batch_id, work.turns[prompt_id], request, generation, tokenizer, folder)
            folder.append(line)
    if left:  # an attempt that only had to be finished knows nothing new
        folder.describe(memory={"methods": {name: p.memory() for name, p in peaks.items()}, **process_peaks()})
    progress("done", total, total)


def whole_groups(
    spec: RunSpec, prompts: Sequence[Prompt], records: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """The records of every group of requests that all methods have finished: what an interrupted run keeps.

    Methods are compared on a group they all met under like conditions, so a group in flight starts over.
    """
    keys = [(name, sample) for prompt in prompts for name in turn_ids(prompt) for sample in range(spec.samples)]
    have = {(r["method"], r["prompt_id"], r["sample"]) for r in records}
    whole = set()
    for i in range(0, len(keys), spec.batch):
        group = keys[i : i + spec.batch]
        if all((method, *key) in have for method in spec.methods for key in group):
            whole.update(group)
    return [r for r in records if (r["prompt_id"], r["sample"]) in whole]


def schedule(
    methods: Sequence[Method], requests: Sequence[tuple[str, Request]], batch: int
) -> Iterator[tuple[Method, tuple[tuple[str, Request], ...]]]:
    """(method, requests decoded together) in the order they run: rotated by one per group."""
    for shift, group in enumerate(grouped(requests, batch)):
        for i in range(len(methods)):
            yield methods[(shift + i) % len(methods)], group


def grouped(requests: Sequence[tuple[str, Request]], size: int) -> list[tuple[tuple[str, Request], ...]]:
    """Requests in groups of at most ``size``."""
    return [tuple(requests[i : i + size]) for i in range(0, len(requests), size)]


def warm_up(methods: Sequence[Method], request: Request) -> dict[str, float]:
    """Each method's first call, on a few tokens; seconds per method, counted nowhere else."""
    seconds = {}
    short = replace(request, max_new_tokens=min(WARMUP_TOKENS, request.max_new_tokens), ignore_eos=True)
    for method in methods:
        began = time.perf_counter()
        method.generate([short])
        seconds[method.name] = time.perf_counter() - began
    return seconds


def record(
    spec: RunSpec,
    method: str,
    batch_id: str,
    turn: Turn,
    request: Request,
    generation: Generation,
    tokenizer: Any,
    folder: RunFolder,
) -> dict[str, Any]:
    """The line of one generation."""
    return record_line(
        folder.run["run_id"],
        batch_id,
        method,
        turn.prompt_id,
        turn.task,
        generation,
        len(request.ids),
        tokenizer.decode(generation.ids, skip_special_tokens=True),
        spec.sampling,
        max_new_tokens=spec.max_new_tokens,
        sample=request.sample,
        prompt_ids=request.ids,
    )

"""The pipelined schedule gives the serial schedule's tokens and rounds, whatever is predicted and whoever is slow."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ssd.certify.tiny_models import P, near, tiny_llama
from ssd.core.chain import Chain, Edge, Level
from ssd.core.generate import generate
from ssd.core.model import CachedModel
from ssd.core.ngram import Ngram
from ssd.core.requests import Generation, Request, Sampling
from ssd.pipeline.pipeline import Pipeline
from ssd.pipeline.settings import PipelineSettings

TARGET = tiny_llama(0)
MIDDLE, SMALL, LEAST = near(TARGET, 0.02, 1), near(TARGET, 0.04, 2), near(TARGET, 0.06, 3)
THREADS = PipelineSettings(kind="thread")


def chain(modules: list[Any], edges: list[Edge]) -> Chain:
    return Chain(tuple(Level(m if isinstance(m, Ngram) else CachedModel(m)) for m in modules), tuple(edges))


def three(window: str = "at_least", verification: str = "token") -> Chain:
    value = 0.4 if window == "confidence" else None
    return chain([SMALL, MIDDLE, TARGET], [Edge(2, window, value, verification), Edge(3, window, value, verification)])


def requests(temperature: float, n: int = 30) -> list[Request]:
    prompts = (P, (7,), (3, 8, 2, 9))
    return [Request(p, Sampling(temperature), seed=4, max_new_tokens=n - 5 * i) for i, p in enumerate(prompts)]


def told(g: Generation) -> tuple[Any, ...]:
    return g.ids, g.stop_reason, g.origins, [replace(r, overlap=()) for r in g.rounds]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("workers", [((0, 1), (2,)), ((0,), (1, 2)), ((0,), (1,), (2,))])
@pytest.mark.parametrize("force", [None, "hits", "misses"])
def test_pipelined_is_serial(force: str | None, workers: Any, temperature: float) -> None:
    serial = generate(three(), requests(temperature))
    c = three()
    slow = (*(0.0,) * (len(workers) - 1), 0.02 if force is None else 0.0)  # time to work ahead
    with Pipeline(c, replace(THREADS, workers=workers, force=force, delays=slow)) as pipeline:
        for _ in range(2):
            got = generate(c, requests(temperature), schedule=pipeline)
            assert [told(g) for g in got] == [told(g) for g in serial]
            hits, misses = map(sum, zip(*got[0].ahead, strict=True))
            assert hits + misses > 10
            assert hits == {"hits": hits + misses, "misses": 0}.get(str(force), hits)

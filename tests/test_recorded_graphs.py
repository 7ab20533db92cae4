"""Passes and whole rounds recorded once and run again on the same memory, as CUDA graphs do, without a GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest
import recorded_graphs
import torch
from recorded_graphs import Graph

from experiments.gpu_bench_cases import TINY
from experiments.gpu_bench_machine import Machine
from experiments.gpu_bench_passes import single_pass
from experiments.gpu_bench_streams import drafting
from ssd.certify.tiny_models import chain_of, near, tiny_llama
from ssd.core import sampling
from ssd.core.chain import Chain, Edge, Level
from ssd.core.generate import generate
from ssd.core.model import CachedModel
from ssd.core.requests import Request, Sampling
from ssd.plan.acceptance import Constant
from ssd.runtime.choose import with_runtime
from ssd.runtime.device_rounds import DeviceRounds
from ssd.runtime.graphs import Graphs
from ssd.runtime.imposed import generate_imposed
from ssd.runtime.static_chain import longest_block

EDGES = (Edge(3, "rounds"), Edge(2, "rounds"))
RATES = (Constant(0.7), Constant(0.8))
PROMPTS = [(7,), (1, 2, 3, 4, 5, 6, 7, 8, 9), (4, 4, 2)]


@pytest.fixture(autouse=True)
def recorder(monkeypatch):
    """CUDA graphs of our own, and the search for the largest logit that is not numpy's."""
    recorded_graphs.install(monkeypatch)
    monkeypatch.setattr(sampling, "argmax", lambda logits: logits.argmax(-1))


class Recorded(DeviceRounds):
    """Rounds as on a GPU: recorded once per bucket, then only replayed."""

    @torch.inference_mode()
    def advance(self, rounds=1):
        for _ in range(rounds):
            bucket = self._next_bucket()
            if bucket not in self._recorded:
                self._recorded[bucket] = self._record(bucket)
            self._recorded[bucket].replay()


def recorded_model(module):
    model = with_runtime(CachedModel(module), "graph")
    model.graphs = Graphs(model.score_static)
    return model


def modules(depth):
    target = tiny_llama(7, layers=1)
    return [*(near(target, 0.15, s, layers=1) for s in range(depth)), target]


def asked(temperature, tokens):
    return [Request(p, Sampling(temperature), seed=5, max_new_tokens=tokens) for p in PROMPTS]


@pytest.mark.parametrize(
    ("temperature", "rates", "widths"),
    [(1.0, None, ()), (0.0, RATES, ()), (1.0, RATES, (4, 16))],
)
def test_rounds_that_are_replayed_write_the_same_tokens(temperature, rates, widths):
    """Three ragged rows, two levels of drafts, several buckets, then another repeat from the same recordings."""
    models = modules(2)
    eager = chain_of(models, EDGES)
    static = Chain(tuple(Level(recorded_model(m)) for m in models), EDGES)
    runner = Recorded(static, asked(temperature, 48), rates, widths)
    for sample in (0, 3):
        runner.restart(sample)
        while not runner.is_done():
            runner.advance(2)
        longer = [replace(r, sample=sample) for r in asked(temperature, 48 + longest_block(static) + 1)]
        results = generate_imposed(eager, longer, rates) if rates else generate(eager, longer)
        assert runner.outputs() == [r.ids[:48] for r in results]
        target_rounds = [[r for r in row if r.edge == 1] for row in runner.history()]
        for own, theirs in zip(target_rounds, results, strict=True):
            others = [r for r in theirs.rounds if r.edge == 1]
            assert [r.accepted for r in own][:-3] == [r.accepted for r in others][: len(own) - 3]
    assert len(runner._recorded) == 2
    assert sum(graph.replays for graph in runner._recorded.values()) > 16


def test_passes_that_are_replayed_write_the_same_tokens():
    """Twice with as many rows, once with more slots: recordings last as long as what they read."""
    models = modules(1)
    eager = chain_of(models, [Edge(3)])
    static = Chain(tuple(Level(recorded_model(m)) for m in models), (Edge(3),))
    counts = []
    for tokens in (40, 40, 120):
        ours, theirs = (generate(chain, asked(1.0, tokens)) for chain in (static, eager))
        assert [r.ids for r in ours] == [r.ids for r in theirs]
        counts.append([len(level.model.graphs) for level in static.levels])
    assert counts[0] == counts[1] > [2, 1]


def test_what_the_bench_replays_holds_what_it_reads():
    """Tokens and positions of a pass belong to the work that was recorded, whose caller has forgotten them."""
    machine = Machine("cpu", "graph", True, TINY)
    machine.is_cuda = True  # so far as recording goes
    with torch.inference_mode():
        works = [single_pass(machine, "7B", 4, 2), drafting(machine, 3, 1, "ahead")]
    for work in works:
        work()
        assert work.args[0].replays == 1
    model = machine.level("7B")
    assert bool(model.cache.buffers()[0][:, :, TINY.prompt : TINY.prompt + 4].any())
    works[0] = works[0].args[0]  # the graph alone
    with pytest.raises(RuntimeError, match="memory that was given back"):
        works[0].replay()


def test_what_is_replaced_is_found_out():
    """Negative control: row numbers made anew, at another address."""
    static = Chain((Level(recorded_model(modules(0)[0])),))
    generate(static, asked(1.0, 4))
    with torch.inference_mode():
        model = static.levels[0].model
        model._rows = model._rows.clone()
    with pytest.raises(RuntimeError, match="memory that was given back"):
        generate(static, asked(1.0, 4))


def test_memory_that_was_given_back_is_found_out():
    """The recorder's own negative control."""
    graph, total, step = Graph(), torch.zeros(2), torch.ones(2)
    with torch.inference_mode(), recorded_graphs.recording(graph):
        total.add_(step[:1] * 2)
    graph.replay()
    del step
    with pytest.raises(RuntimeError, match="memory that was given back"):
        graph.replay()


def test_recording_changes_nothing_and_a_replay_reads_the_same_memory():
    """The recorder itself: a number of the host is the old one, a tensor is read anew."""
    graph, total, step, number = Graph(), torch.zeros(2), torch.ones(2), 1
    with torch.inference_mode(), recorded_graphs.recording(graph):
        total.add_(step * 2 + number)
    assert total.tolist() == [0, 0]
    number = 100
    graph.replay()
    step.fill_(5)
    graph.replay()
    assert total.tolist() == [3 + 11, 3 + 11]

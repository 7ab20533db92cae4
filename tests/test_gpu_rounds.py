"""On a GPU: recorded rounds give the tokens of unrecorded passes, in ragged rows, and use their buffers again."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from experiments import gpu_bench
from ssd.certify.tiny_models import near, tiny_llama
from ssd.core.chain import Chain, Edge, Level
from ssd.core.generate import generate
from ssd.core.model import CachedModel
from ssd.core.requests import Request, Sampling
from ssd.plan.acceptance import Constant
from ssd.runtime.choose import with_runtime
from ssd.runtime.device_rounds import DeviceRounds
from ssd.runtime.imposed import generate_imposed
from ssd.runtime.static_chain import longest_block

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch.*"),
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores:UserWarning"),  # the compiler would like them
]
EDGES = (Edge(3), Edge(2, "rounds"))
PROMPTS = [(7,), (1, 2, 3, 4, 5, 6, 7, 8, 9), (4, 4, 2)]


@pytest.fixture(scope="module")
def modules():
    """Three levels in float64, where no rounding of a kernel flips a token."""
    target = tiny_llama(7)
    return [x.cuda() for x in (near(target, 0.15, 1), near(target, 0.1, 2), target)]


def chain_of(modules, runtime):
    return Chain(tuple(Level(with_runtime(CachedModel(m), runtime)) for m in modules), EDGES)


def asked(temperature, tokens=40):
    return [Request(p, Sampling(temperature), seed=5, max_new_tokens=tokens) for p in PROMPTS]


def finished(runner):
    while not runner.is_done():
        runner.advance(3)
    return runner.outputs()


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("rates", [None, (Constant(0.7), Constant(0.8))])
def test_recorded_rounds_equal_eager_ones(modules, temperature, rates):
    static, eager = chain_of(modules, "graph"), chain_of(modules, "eager")
    longer = asked(temperature, 40 + longest_block(static) + 1)
    results = generate_imposed(eager, longer, rates) if rates else generate(eager, longer)
    runner = DeviceRounds(static, asked(temperature), rates)
    assert finished(runner) == [r.ids[:40] for r in results]
    assert runner._recorded, "rounds were not recorded"


def test_compiled_rounds_equal_eager_ones(modules):
    """Layers and hashes by torch's compiler, passes of few widths, coins and draws of three ragged rows."""
    rates = (Constant(0.7), Constant(0.8))
    static, eager = chain_of(modules, "compiled"), chain_of(modules, "eager")
    results = generate_imposed(eager, asked(1.0, 24 + longest_block(static) + 1), rates)
    runner = DeviceRounds(static, asked(1.0, 24), rates, widths=(4, 16))
    assert finished(runner) == [r.ids[:24] for r in results]


def test_buffers_are_used_again(modules):
    static = chain_of(modules, "graph")
    first = finished(DeviceRounds(static, asked(1.0)))
    other = finished(DeviceRounds(static, [replace(r, sample=1) for r in asked(1.0)]))
    assert other != first
    runner = DeviceRounds(static, asked(1.0))
    assert finished(runner) == first
    runner.restart(1)
    assert finished(runner) == other


def test_a_round_waits_for_nothing(modules):
    runner = DeviceRounds(chain_of(modules, "graph"), asked(1.0))
    runner.advance(1)
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        runner.advance(3)
    finally:
        torch.cuda.set_sync_debug_mode(before)


def test_the_bench_runs_on_tiny_shapes(tmp_path):
    assert gpu_bench.main(["--tiny", "--out", str(tmp_path), "--runtime", "graph"]) == 0
    assert (tmp_path / "summary.json").exists()

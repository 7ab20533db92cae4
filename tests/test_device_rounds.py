"""Target rounds without the host: the tokens and rounds of ``generate``, and nothing read back on the way."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from bigram_chains import bigram_chain, random_logits
from static_tables import static_chain
from torch.utils._python_dispatch import TorchDispatchMode

from ssd.certify.tiny_models import chain_of, near, tiny_llama
from ssd.core import sampling
from ssd.core.chain import Chain, Edge, Level
from ssd.core.generate import generate
from ssd.core.model import CachedModel
from ssd.core.ngram import Ngram
from ssd.core.requests import Request, Sampling
from ssd.plan.acceptance import ByFate, Constant
from ssd.runtime.buckets import rounded
from ssd.runtime.choose import with_runtime
from ssd.runtime.device_rounds import DeviceRounds
from ssd.runtime.imposed import generate_imposed
from ssd.runtime.static_chain import longest_block

VOCAB = 11
PROMPTS = {1: [(1, 2, 3, 4, 5)], 3: [(7,), (1, 2, 3, 4, 5, 6, 7, 8, 9), (4, 4, 2)]}
GAMMAS = {0: (), 1: (4,), 2: (3, 2), 3: (2, 2, 2)}
RATES = [Constant(0.7), ByFate(0.8, 0.5, 0.6, 0.7), ByFate(0.6, 0.9, 0.7, 0.8)]


def tables(depth, noise=0.7):
    """Logits of levels that agree half the time."""
    target = random_logits(99, VOCAB)
    return [target + noise * (depth - k) * random_logits(k, VOCAB) for k in range(depth + 1)]


def requests(batch, temperature, tokens):
    return [Request(p, Sampling(temperature, top_k=6 if temperature else 0), seed=3, max_new_tokens=tokens)
            for p in PROMPTS[batch]]  # fmt: skip


def on_device(chain, asked, rates=None, widths=()):
    runner = DeviceRounds(chain, asked, rates, widths)
    while not runner.is_done():
        runner.advance()
    return runner


def uncut(chain, rounds, end):
    """Rounds of a row up to the last target round that no budget can have shortened."""
    margin = end - longest_block(chain) - 1
    last = max((i for i, r in enumerate(rounds) if r.edge == chain.depth - 1 and r.start <= margin), default=-1)
    return rounds[: last + 1]


def assert_same(chain, asked, runner, results, length):
    """Tokens and rounds agree as far as the outputs of ``generate``, which end, are not cut short."""
    for i, (request, output, rounds, result) in enumerate(
        zip(asked, runner.outputs(), runner.history(), results, strict=True)
    ):
        assert len(output) == request.max_new_tokens, i
        assert output == result.ids[: len(output)], i
        end = len(request.ids) + length
        ours, theirs = uncut(chain, rounds, end), uncut(chain, result.rounds, end)
        assert len(ours) > 3
        for a, b in zip(ours, theirs, strict=False):
            assert replace(a, overlap=()) == replace(b, overlap=()), i
            assert a.overlap == pytest.approx(b.overlap, abs=1e-5), i


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("depth", [0, 1, 2, 3])
@pytest.mark.parametrize("imposed", [False, True])
def test_same_tokens_and_rounds_on_tables(imposed, depth, batch, temperature):
    rates = RATES[:depth] if imposed else None
    chain = static_chain(tables(depth), GAMMAS[depth])
    slack = longest_block(chain) + 1
    asked = requests(batch, temperature, 60)
    longer = [replace(r, max_new_tokens=60 + slack) for r in asked]
    results = generate_imposed(chain, longer, rates) if imposed else generate(chain, longer)
    runner = on_device(chain, asked, rates)
    assert runner.synthetic is imposed
    assert_same(chain, asked, runner, results, 60 + slack)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("depth", [0, 1, 2, 3])
def test_same_tokens_and_rounds_on_llamas(depth, batch, temperature):
    """float32, real keys and values, drafts that are noisy copies of the target."""
    target = tiny_llama(7, layers=1, dtype=torch.float32)
    modules = [*(near(target, 0.15, s, layers=1, dtype=torch.float32) for s in range(depth)), target]
    eager = chain_of(modules, [Edge(g, "rounds") for g in GAMMAS[depth]])
    static = Chain(tuple(Level(with_runtime(CachedModel(m), "graph")) for m in modules), eager.edges)
    slack = longest_block(static) + 1
    asked = [replace(r, sampling=Sampling(temperature)) for r in requests(batch, temperature, 24)]
    results = generate(eager, [replace(r, max_new_tokens=24 + slack) for r in asked])
    assert_same(static, asked, on_device(static, asked), results, 24 + slack)


@pytest.mark.parametrize("widths", [(2, 4, 8, 16), (5,), (1,)])
def test_passes_of_few_widths_give_the_same(widths):
    chain = static_chain(tables(2), GAMMAS[2])
    asked = requests(3, 1.0, 40)
    runner = on_device(chain, asked, widths=widths)
    seen = {w for level in chain.levels for w, _ in level.model.passes[len(level.model.passes) // 2 :]}
    assert all(w in widths or w > max(widths) for w in seen)
    assert runner.outputs() == on_device(chain, asked).outputs()


def test_block_verification_runs_too():
    chain = static_chain(tables(2), GAMMAS[2], "block")
    asked = requests(3, 1.0, 40)
    longer = [replace(r, max_new_tokens=40 + longest_block(chain) + 1) for r in asked]
    assert_same(chain, asked, on_device(chain, asked), generate(chain, longer), 40 + longest_block(chain) + 1)


def test_a_row_that_was_fed_too_little_is_found_out(monkeypatch):
    """Negative control of the tables: one token less to catch up on, and the outputs differ."""
    chain = static_chain(tables(2, noise=0.2), GAMMAS[2])
    asked = requests(3, 1.0, 60)
    right = on_device(chain, asked).outputs()
    inner = DeviceRounds._laws

    def short(self, k, start, draft, before, bucket, going):
        return inner(self, k, start, draft, max(before - 1, k), bucket, going)

    monkeypatch.setattr(DeviceRounds, "_laws", short)
    assert on_device(chain, asked).outputs() != right


class Unread(TorchDispatchMode):
    """Refuses every operation that hands a value to the host or whose shape depends on one."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        reads = ("_local_scalar_dense", "item", "nonzero", "masked_select", "is_nonzero", "equal", "unique", "_unique2")
        if name in (*reads, "lift_fresh"):  # the latter makes a tensor of numbers on the host
            raise AssertionError(f"{name} waits for the device")
        indices = args[1] if name in ("index", "index_put", "index_put_") else ()
        if any(i is not None and i.dtype == torch.bool for i in indices):
            raise AssertionError(f"{name} by a mask waits for the device")
        return func(*args, **(kwargs or {}))


def forbid(*arguments):
    raise AssertionError("a value was read on the host")


@pytest.fixture
def unread(monkeypatch):
    """Inside ``with unread():`` nothing may be read."""

    def enter():
        for name in ("item", "tolist", "__bool__", "__int__", "__float__", "__index__"):
            monkeypatch.setattr(torch.Tensor, name, forbid)
        monkeypatch.setattr(sampling, "argmax", lambda logits: logits.argmax(-1))  # as elsewhere than on a CPU
        return Unread()

    yield enter
    monkeypatch.undo()


@pytest.mark.parametrize("imposed", [False, True])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("model", ["tables", "llama"])
def test_rounds_read_nothing(unread, monkeypatch, model, temperature, imposed):
    if model == "tables":
        chain = static_chain(tables(2), GAMMAS[2])
    else:
        modules = [tiny_llama(s, layers=1, vocab=VOCAB, dtype=torch.float32) for s in range(3)]
        levels = tuple(Level(with_runtime(CachedModel(m), "graph")) for m in modules)
        chain = Chain(levels, tuple(Edge(g, "rounds") for g in GAMMAS[2]))
    runner = DeviceRounds(chain, requests(3, temperature, 30), RATES[:2] if imposed else None)
    with unread():
        runner.advance(2)
    monkeypatch.undo()
    assert runner.reads == 0
    assert min(map(len, runner.outputs())) >= 2


def test_reading_is_noticed(unread):
    """Negative control: the decoder that waits for the device does not pass."""
    chain = bigram_chain(tables(1), [Edge(2, "rounds")])
    asked = requests(1, 0.0, 8)
    with pytest.raises(AssertionError, match=r"was read on the host|waits for the device"), unread():
        generate(chain, asked)
    x = torch.arange(4)
    for read in (lambda: x[x > 1], lambda: torch.nonzero(x), lambda: torch.tensor([1, 2])):
        with pytest.raises(AssertionError, match="waits for the device"), Unread():
            read()


def test_the_host_waits_once_per_bucket():
    """Buckets grow with the text, and rows are read only where they may have outgrown one."""
    chain = static_chain(tables(1), (4,))
    runner = DeviceRounds(chain, requests(3, 0.0, 300))
    runner.advance(80)
    buckets = sorted({b for _, b in chain.levels[1].model.passes})
    assert buckets[0] == 64
    assert runner.reads < 20
    while not runner.is_done():
        runner.advance(20)
    used = [b for _, b in chain.levels[1].model.passes if b < 10_000]
    assert used == sorted(used)
    assert 64 <= used[-1] <= rounded(runner.limits[1])


def test_rows_that_are_done_stand_still():
    chain = static_chain(tables(2), GAMMAS[2])
    asked = [replace(r, max_new_tokens=n) for r, n in zip(requests(3, 1.0, 1), (3, 50, 20), strict=True)]
    runner = on_device(chain, asked)
    lengths, outputs, rounds = runner.length.tolist(), runner.outputs(), runner.history()
    runner.advance(5)
    assert runner.length.tolist() == lengths
    assert runner.outputs() == outputs
    assert [len(x) for x in outputs] == [3, 50, 20]
    for own, request, length in zip(rounds, asked, lengths, strict=True):
        assert sum(r.emitted for r in own if r.edge == 1) == length - len(request.ids)


@pytest.mark.parametrize("imposed", [False, True])
def test_a_restart_is_another_repeat(imposed):
    chain, rates = static_chain(tables(2), GAMMAS[2]), RATES[:2] if imposed else None
    asked = requests(3, 1.0, 40)
    again = [replace(r, sample=5) for r in asked]
    fresh = on_device(chain, again, rates)
    expected = fresh.outputs(), fresh.history()
    runner = on_device(chain, asked, rates)
    assert runner.outputs() != expected[0]
    runner.restart(5)
    while not runner.is_done():
        runner.advance()
    assert (runner.outputs(), runner.history()) == expected


def test_another_generation_takes_the_cache_over():
    chain = static_chain(tables(1), (2,))
    runner = DeviceRounds(chain, requests(1, 0.0, 8))
    generate(chain, requests(1, 0.0, 8))
    with pytest.raises(RuntimeError, match="L0: its cache was taken over"):
        runner.advance()


def test_logits_that_are_not_finite_are_told():
    bad = tables(1)
    bad[1][3] = float("nan")
    runner = DeviceRounds(static_chain(bad, (2,)), requests(1, 1.0, 30))
    runner.advance(25)
    with pytest.raises(FloatingPointError, match="L0 → L1: logits of one of these levels are not finite"):
        runner.outputs()


def test_more_rounds_than_are_kept():
    chain = static_chain(tables(0), ())
    runner = DeviceRounds(chain, requests(1, 0.0, 4))
    runner.advance(5)
    with pytest.raises(ValueError, match="rounds: 5 were run, 4 are kept"):
        runner.history()


def eager_level():
    return Chain((Level(CachedModel(tiny_llama(1, layers=1))),), ())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: (eager_level(), requests(1, 0.0, 4)), "L0.runtime: 'eager' waits for the device"),
        (lambda: (Chain((Level(Ngram()), static_chain(tables(0), ()).levels[0]), (Edge(2),)), requests(1, 0.0, 4)),
         "L0.model: an n-gram look-up"),
        (lambda: (replace(static_chain(tables(2), (2, 2)), edges=(Edge(2), Edge(2))), requests(1, 0.0, 4)),
         r"edges\[1\].window: 'at_least' looks at tokens"),
        (lambda: (static_chain(tables(0), ()), []), "requests: at least one"),
        (lambda: (static_chain(tables(0), ()), [Request((1,), eos_ids=(2,))]), r"requests\[0\].ignore_eos: False"),
        (lambda: (static_chain(tables(0), ()), [Request((1,), max_new_tokens=0)]), "new_tokens: expected at least 1"),
        (lambda: (static_chain(tables(0), ()), [Request((1,), Sampling(repetition_penalty=1.5))]),
         "requests: .* processors"),
    ],
)  # fmt: skip
def test_what_cannot_run_is_refused(make, message):
    chain, asked = make()
    with pytest.raises(ValueError, match=message):
        DeviceRounds(chain, asked)

"""What a static model holds: buffers that stay, joined weights that are the module's own, packed copies."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from ssd.bench.memory import chain_memory, weight_spans
from ssd.bench.random_weights import RandomWeights, random_module
from ssd.certify.tiny_models import tiny_llama
from ssd.core.cache import Slots
from ssd.core.chain import Chain, Level
from ssd.core.model import CachedModel
from ssd.runtime.buckets import bucket_of, rounded
from ssd.runtime.choose import with_runtime
from ssd.runtime.layer import Pass, write
from ssd.runtime.lean import LeanModel
from ssd.runtime.packing import can_pack, packed, packed_bytes
from ssd.runtime.static import StaticModel
from ssd.runtime.weights import joined, read_weights

TOKENS = torch.tensor([[1, 5, 9, 5]])
ZERO = torch.tensor([0])


def lean(dtype: torch.dtype = torch.float32, **shape: Any) -> LeanModel:
    model = with_runtime(CachedModel(tiny_llama(0, dtype=dtype, **shape)), "graph")
    assert isinstance(model, LeanModel)
    return model


def static() -> StaticModel:
    model = with_runtime(CachedModel(random_module(RandomWeights("gpt2"))), "graph")
    assert isinstance(model, StaticModel)
    return model


@pytest.mark.parametrize(
    ("reach", "capacity", "bucket"),
    [(1, 1024, 64), (64, 1024, 64), (65, 1024, 128), (600, 1024, 1024), (600, 832, 832), (3, 64, 64)],
)
def test_buckets_are_powers_of_two_up_to_the_buffers(reach: int, capacity: int, bucket: int) -> None:
    assert bucket_of(reach, capacity) == bucket


def test_a_bucket_always_holds_what_is_reached() -> None:
    for slots in range(1, 700, 13):
        assert 0 <= rounded(slots) - slots < 64
        assert all(reach <= bucket_of(reach, rounded(slots)) for reach in range(1, slots + 1))


def test_row_numbers_stay_for_as_many_rows() -> None:
    """Recordings of several rows read them at every replay."""
    model = lean()
    model.allocate(3, 100)
    rows = model._rows
    model.allocate(3, 60)
    assert model._rows is rows
    assert rows[:, 0].tolist() == [0, 1, 2]
    model.allocate(2, 60)
    assert model._rows[:, 0].tolist() == [0, 1]


@pytest.mark.parametrize("make", [lean, static])
def test_buffers_stay_for_texts_that_fit(make: Any) -> None:
    """Recordings read addresses, so a shorter text of as many rows must not move them; contents are zero again."""
    model = make()
    model.allocate(1, 100)
    model.score(TOKENS, ZERO, 1)
    before = [t.data_ptr() for t in model.cache.buffers()]
    assert len(before) == 4
    assert any(bool(t.any()) for t in model.cache.buffers())
    model.allocate(1, 128)
    assert (model.slots, model.capacity) == (128, 128)
    model.allocate(1, 20)
    model.owner = None
    assert [t.data_ptr() for t in model.cache.buffers()] == before
    assert not any(bool(t.any()) for t in model.cache.buffers())
    model.score(TOKENS, ZERO, 1)
    model.allocate(2, 20)
    assert model.capacity == 64
    model.score(TOKENS.expand(2, 4), torch.tensor([0, 3]), 1)
    assert {t.shape[0] for t in model.cache.buffers()} == {2}


@pytest.mark.parametrize("make", [lean, static])
@pytest.mark.parametrize("start", [[-1], [17]])
def test_positions_without_a_slot_are_refused_as_by_the_core(make: Any, start: list[int]) -> None:
    """20 slots, though the buffers have 64."""
    slots = Slots()
    slots.size = 20
    with pytest.raises(ValueError, match="do not fit its 20 slots") as theirs:
        slots.place(torch.tensor(start)[:, None] + torch.arange(4), start)
    model = make()
    model.allocate(1, 20)
    with pytest.raises(ValueError) as ours:
        model.score(TOKENS, torch.tensor(start), 1)
    assert str(ours.value) == str(theirs.value)
    with pytest.raises(ValueError, match=r"^model: a bucket of 128 slots exceeds the 64 of its buffers"):
        model.score_static(TOKENS, ZERO, 128)


@pytest.mark.parametrize("make", [lean, static])
@pytest.mark.parametrize("bucket", [64, 128, 100])
def test_a_static_pass_is_the_same_pass_whatever_its_bucket(make: Any, bucket: int) -> None:
    model = make()
    model.allocate(1, 128)
    right = model.score(TOKENS, ZERO, 4)
    torch.testing.assert_close(model.score_static(TOKENS, ZERO, bucket), right, atol=1e-5, rtol=0)
    torch.testing.assert_close(model.score(TOKENS, ZERO, 2), right[:, 2:], atol=1e-5, rtol=0)


@pytest.mark.parametrize("make", [lean, static])
def test_a_static_pass_reads_nothing_on_the_host(make: Any) -> None:
    """Tensors of the meta device have no values to read; ``score``, which looks at ``start``, fails there."""
    module = make().module.to("meta")
    model = type(make())(module)
    model.allocate(2, 100)
    tokens, start = (torch.zeros(shape, dtype=torch.int64, device="meta") for shape in ((2, 3), (2,)))
    assert model.score_static(tokens, start, 64).shape == (2, 3, model.vocab_size)
    with pytest.raises((NotImplementedError, RuntimeError), match="meta"):
        model.score(tokens, start, 3)


def test_joined_matrices_are_the_modules_own() -> None:
    module = tiny_llama(0)
    size, spans = sum(p.numel() for p in module.parameters()), weight_spans(module)
    before = {name: p.detach().clone() for name, p in module.named_parameters()}
    text = module(TOKENS).logits
    weights = read_weights(module)
    assert torch.equal(module(TOKENS).logits, text)
    assert all(torch.equal(p, before[name]) for name, p in module.named_parameters())
    assert sum(p.numel() for p in module.parameters()) == size
    total = {device: sum(b - a for a, b in own) for device, own in spans.items()}
    assert {device: sum(b - a for a, b in own) for device, own in weight_spans(module).items()} == total
    assert weights.layers[0].qkv.shape == (64, 32)
    assert weights.layers[0].gate_up.data_ptr() == module.model.layers[0].mlp.gate_proj.weight.data_ptr()
    module.model.layers[0].mlp.up_proj.weight.data.fill_(7)
    assert bool((weights.layers[0].gate_up[64:] == 7).all())


def test_weights_joined_before_are_not_joined_again() -> None:
    module = tiny_llama(0)
    first, again = read_weights(module), read_weights(module)
    for a, b in zip(first.layers, again.layers, strict=True):
        assert (a.qkv.data_ptr(), a.gate_up.data_ptr()) == (b.qkv.data_ptr(), b.gate_up.data_ptr())
        assert torch.equal(a.qkv, b.qkv)


def test_matrices_that_only_look_adjacent_are_joined_by_copying() -> None:
    """Parts in the wrong order, with a gap, or transposed in memory."""
    block = torch.arange(24.0).view(6, 4)
    for parts in ([block[3:], block[:3]], [block[:2], block[3:]], [block[:4].T, block[4:, :4].T.contiguous().T]):
        own = [nn.Parameter(p, requires_grad=False) for p in parts]
        expected = torch.cat(parts)
        whole = joined(own)
        assert torch.equal(whole, expected)
        assert own[0].data_ptr() == whole.data_ptr()
        assert torch.equal(own[1], expected[len(parts[0]) :])


def test_the_bytes_of_a_chain_are_those_of_its_buffers() -> None:
    """Key and value slots of the buffers, which are rounded up to 64; weights are counted once."""
    model = lean(layers=3)
    eager = CachedModel(model.module)
    chain = Chain((Level(model),))
    model.allocate(2, 10)
    assert model.cache.bytes() == 2 * 3 * 2 * 2 * 64 * 8 * 4  # K and V, layers, rows, KV heads, slots, width, bytes
    found = chain_memory(chain).levels[0]
    assert found.cache_bytes_per_slot == 2 * 3 * 2 * 8 * 4
    assert found.weight_bytes == chain_memory(Chain((Level(eager),))).levels[0].weight_bytes


@pytest.mark.skipif(not can_pack(torch.device("cpu"), torch.bfloat16), reason="oneDNN has no bfloat16 here")
def test_packed_weights_score_what_plain_ones_do() -> None:
    """Bfloat16 on a CPU; two levels of one module share the copy. Logits reach 9, a rounding step there is 0.03."""
    model = lean(torch.bfloat16)
    plain = copy.copy(model)
    plain.weights = read_weights(model.module)
    matrices = [w for x in plain.weights.layers for w in (x.qkv, x.out, x.gate_up, x.down)]
    assert model.weights.head.is_mkldnn
    assert model.packed_bytes == sum(2 * w.numel() for w in (*matrices, plain.weights.head))
    assert LeanModel(model.module).weights is model.weights
    results = []
    for each in (model, plain):
        each.allocate(1, 8)
        results.append(each.score(TOKENS, ZERO, 4))
    torch.testing.assert_close(results[0], results[1], atol=0.15, rtol=0)


@pytest.mark.skipif(not can_pack(torch.device("cpu"), torch.bfloat16), reason="oneDNN has no bfloat16 here")
def test_layers_of_the_same_weights_share_a_packed_copy() -> None:
    module = tiny_llama(0, dtype=torch.bfloat16)
    apart = packed_bytes(packed(read_weights(module)))
    first, second = module.model.layers
    for name, _ in first.named_parameters():
        owner, _, leaf = name.rpartition(".")
        setattr(second.get_submodule(owner), leaf, first.get_parameter(name))
    weights = packed(read_weights(module))
    head = 2 * module.lm_head.weight.numel()
    assert packed_bytes(weights) - head == (apart - head) // 2
    assert weights.layers[0].down is weights.layers[1].down


def test_only_bfloat16_on_a_cpu_is_packed() -> None:
    for dtype in (torch.float64, torch.float32, torch.float16):
        assert lean(dtype).packed_bytes == 0
    assert not can_pack(torch.device("cuda"), torch.bfloat16)
    assert packed_bytes(packed(read_weights(tiny_llama(0, dtype=torch.float32)))) > 0


@pytest.mark.parametrize("rows", [1, 2])
def test_what_overflows_in_float16_is_written_as_a_number(rows: int) -> None:
    """A rejected token's infinity times the weight zero would be no number for every later token."""
    buffer = torch.zeros(rows, 1, 4, 2, dtype=torch.float16)
    new = torch.tensor([[[[float("inf"), float("nan")]]]], dtype=torch.float16).expand(rows, 1, 1, 2)
    at = Pass(torch.full((rows, 1), 2), torch.arange(rows)[:, None], torch.empty(0))
    write(buffer, new, at)
    assert bool(buffer.isfinite().all())
    assert bool((buffer[:, 0, 2, 0] == 65504).all())
    assert int((buffer != 0).sum()) == rows
    wide = torch.zeros(rows, 1, 4, 2)
    write(wide, new.float(), at)
    assert not bool(wide.isfinite().all())

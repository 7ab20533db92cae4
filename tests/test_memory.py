"""Bytes counted on tiny models whose sizes are known, and peaks read from what the system says."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from ssd.bench.json_files import plain
from ssd.bench.memory import (
    CachePeaks,
    chain_memory,
    peak_accelerator,
    peak_resident,
    process_peaks,
    weight_spans,
)
from ssd.certify.tiny_models import VOCAB, P, chain_of, tiny_llama
from ssd.core.chain import Edge
from ssd.core.generate import generate
from ssd.core.ngram import Ngram
from ssd.core.requests import Request, Sampling


def weighed(module):
    return sum(end - begin for own in weight_spans(module).values() for begin, end in own)


def expected(module):
    tensors = [*module.parameters(), *module.buffers()]  # each object once
    return sum(t.numel() * t.element_size() for t in tensors)


def test_weights_are_parameters_and_buffers_of_each_level():
    draft, target = tiny_llama(1, layers=1), tiny_llama(0, dtype=torch.float32)
    memory = chain_memory(chain_of([draft, target], [Edge(2)]))
    assert [x.level for x in memory.levels] == ["L0", "L1"]
    assert [x.weight_bytes for x in memory.levels] == [expected(draft), expected(target)]
    assert memory.weight_bytes == expected(draft) + expected(target)
    assert all(x.shared_bytes == {} for x in memory.levels)
    assert [x.cache_bytes_per_slot for x in memory.levels] == [None, None]


def test_memory_used_twice_counts_once():
    module = nn.Linear(8, 4, bias=False)
    twice = nn.ModuleList([module, nn.Linear(8, 4, bias=False)])
    twice[1].weight = module.weight  # tied: one parameter object
    assert weighed(twice) == 8 * 4 * 4
    viewed = nn.Module()
    viewed.whole, viewed.part = module.weight, nn.Parameter(module.weight.detach()[1:3])
    assert weighed(viewed) == 8 * 4 * 4  # a view is another object in the same memory
    assert weighed(nn.Linear(8, 4, bias=False, device="meta")) == 8 * 4 * 4
    assert weighed(None) == 0


def test_embeddings_shared_between_levels_are_noted():
    target, draft = tiny_llama(0), tiny_llama(1, layers=1)
    draft.model.embed_tokens.weight = nn.Parameter(target.model.embed_tokens.weight.detach())
    memory = chain_memory(chain_of([draft, target], [Edge(2)]))
    shared = VOCAB * 32 * 8
    assert [x.weight_bytes for x in memory.levels] == [expected(draft), expected(target)]
    assert memory.levels[1].shared_bytes == {"L0": shared}
    assert memory.weight_bytes == expected(draft) + expected(target) - shared


def test_packed_copies_come_on_top_of_weights_and_are_shared_by_levels_of_one_module():
    """Sizes as a runtime states them; what they are of a real one is counted in the tests of the runtimes."""
    draft, target = tiny_llama(1, layers=1), tiny_llama(0)
    chain = chain_of([draft, target, target], [Edge(2), Edge(2)])
    plain = chain_memory(chain)
    assert (plain.packed_bytes, [x.packed_bytes for x in plain.levels]) == (0, [0, 0, 0])
    for level, size in zip(chain.levels, (100, 7000, 7000), strict=True):
        level.model.packed_bytes = size
    memory = chain_memory(chain)
    assert [x.packed_bytes for x in memory.levels] == [100, 7000, 7000]
    assert memory.packed_bytes == 7100
    assert memory.weight_bytes == plain.weight_bytes
    assert CachePeaks(chain).memory().packed_bytes == 7100


def test_cache_bytes_follow_from_slots_and_their_peaks_are_kept():
    chain = chain_of([Ngram(), tiny_llama(1, layers=1), tiny_llama(0)], [Edge(2), Edge(2)])
    peaks = CachePeaks(chain)
    sizes = []
    for rows, tokens in ((1, 4), (2, 8), (1, 4)):
        generate(chain, [Request(P, Sampling(0.0), max_new_tokens=tokens)] * rows)
        peaks.note()
        sizes.append(chain_memory(chain))
    per_slot = [2 * layers * 2 * 8 * 8 for layers in (1, 2)]  # keys and values, layers, KV heads, dims, float64
    for memory in sizes:
        look_up, *models = memory.levels
        assert (look_up.weight_bytes, look_up.cache_bytes, look_up.cache_bytes_per_slot) == (0, 0, None)
        assert [x.cache_bytes_per_slot for x in models] == per_slot
        assert memory.cache_bytes == sum(x.cache_bytes for x in models)
    cache = chain.scorer(2).cache
    assert sizes[-1].levels[2].cache_bytes == per_slot[1] * cache.slots.batch * cache.slots.size
    assert sizes[1].cache_bytes > sizes[0].cache_bytes
    assert peaks.memory() == sizes[1]
    assert plain(peaks.memory())["levels"][0]["level"] == "L0"  # goes into run.json as it is


class Packed:
    """Like a quantised weight: a wrapper around tensors of its own."""

    def __init__(self):
        self.data, self.scale = torch.zeros(6, dtype=torch.int8), torch.zeros(2)

    def __tensor_flatten__(self):
        return ["data", "scale"], None


def test_quantised_weights_count_what_they_are_stored_in():
    module = SimpleNamespace(parameters=lambda: [Packed()], buffers=list)
    assert weighed(module) == 6 + 8


def test_peaks_of_the_process(tmp_path):
    status = tmp_path / "status"
    status.write_text("Name:\tpython\nVmPeak:\t  900 kB\nVmHWM:\t   123 kB\n")
    assert peak_resident(status) == 123 * 1024
    assert process_peaks(status) == {"resident_bytes": 123 * 1024, "accelerator_bytes": peak_accelerator()}
    pytest.importorskip("resource")
    assert peak_resident(tmp_path / "none") > 1 << 20


def test_counting_needs_no_torch_of_its_own():
    """The module neither imports torch nor wakes an accelerator."""
    code = (
        "import sys; from ssd.bench.memory import process_peaks; peaks = process_peaks(); "
        "assert 'torch' not in sys.modules; assert peaks['accelerator_bytes'] == {}, peaks"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_accelerator_peaks_are_read_only_if_one_was_used(monkeypatch):
    cuda = SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: True,
        device_count=lambda: 2,
        max_memory_allocated=lambda i: (5, 0)[i],
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    assert peak_accelerator() == {"cuda:0": 5}
    cuda.is_initialized = lambda: False
    assert peak_accelerator() == {}

"""Published shapes: sizes as published, weights shared where asked, bytes as counted, nothing drawn in float32."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from transformers import LlamaForCausalLM

from ssd.bench.published_shapes import SHAPES, Shape, shape_bytes, shape_of, shaped_module, weight_bytes
from ssd.certify.tiny_models import chain_of
from ssd.core.chain import Edge
from ssd.core.generate import generate
from ssd.core.model import CachedModel
from ssd.core.requests import Request, Sampling
from ssd.runtime.choose import with_runtime

SMALL = Shape(64, 96, 6, 4, 2, vocab=50, positions=64)

# Parameters as their authors state them, and gigabytes of a bfloat16 pass.
PUBLISHED = {
    "llama2-70b": (68.98e9, 137.0),
    "llama2-7b": (6.74e9, 13.2),
    "tinyllama-1b": (1.10e9, 2.07),
    "160m": (0.162e9, 0.28),
    "68m": (0.068e9, 0.09),
}


@pytest.mark.parametrize("name", SHAPES)
def test_sizes_are_the_published_ones(name):
    parameters, gigabytes = PUBLISHED[name]
    bytes_ = shape_bytes(SHAPES[name])
    assert bytes_.stored / 2 == pytest.approx(parameters, rel=0.005)
    assert bytes_.streamed / 1e9 == pytest.approx(gigabytes, abs=0.6 if gigabytes > 100 else 0.06)
    with torch.device("meta"):
        module = LlamaForCausalLM(SHAPES[name].config)
    assert sum(p.numel() for p in module.parameters()) == bytes_.stored // 2


def test_half_the_sets_store_half_and_stream_all():
    whole, shared = shape_bytes(SHAPES["llama2-70b"]), shape_bytes(SHAPES["llama2-70b"], distinct=40)
    assert shared.streamed == whole.streamed
    assert shared.stored / 1e9 == pytest.approx(69.6, abs=0.5)


@pytest.mark.parametrize("distinct", [None, 1, 4, 6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_layers_share_their_weights_and_bytes_are_counted(distinct, dtype):
    module = shaped_module(SMALL, "cpu", dtype, distinct)
    sets = distinct or SMALL.layers
    layers = module.model.layers
    for i, layer in enumerate(layers):
        for (name, ours), theirs in zip(layer.named_parameters(), layers[i % sets].parameters(), strict=True):
            assert ours is theirs, name
            assert ours.dtype == dtype
    assert len({id(layer.mlp.down_proj.weight) for layer in layers}) == sets
    assert weight_bytes(module) == shape_bytes(SMALL, distinct, dtype.itemsize)
    assert len({layer.self_attn.layer_idx for layer in layers}) == SMALL.layers


@pytest.mark.parametrize("runtime", ["eager", "graph"])
def test_shared_weights_compute_what_copies_of_them_would(runtime):
    """Each layer keeps keys and values of its own, whoever shares its weights."""
    shared = shaped_module(SMALL, "cpu", torch.float32, distinct=2)
    copies = shaped_module(SMALL, "cpu", torch.float32, seed=9)
    copies.load_state_dict(shared.state_dict())
    request = Request((3, 1, 4), Sampling(1.0), max_new_tokens=24)
    chain = chain_of([copies], [])
    assert weight_bytes(copies).stored > weight_bytes(shared).stored
    expected = generate(chain, [request])[0].ids
    level = replace(chain.levels[0], model=with_runtime(CachedModel(shared), runtime))
    assert generate(replace(chain, levels=(level,)), [request])[0].ids == expected
    assert weight_bytes(shared) == shape_bytes(SMALL, 2, 4), "a runtime holds shared weights once"


def test_weights_are_drawn_and_repeat():
    a, b, c = (shaped_module(SMALL, "cpu", seed=seed) for seed in (1, 1, 2))
    weight = a.model.layers[0].mlp.up_proj.weight.float()
    assert weight.std() == pytest.approx(0.02, rel=0.05)
    assert torch.equal(a.lm_head.weight, b.lm_head.weight)
    assert not torch.equal(a.lm_head.weight, c.lm_head.weight)
    assert not torch.equal(a.model.layers[0].mlp.up_proj.weight, a.model.layers[1].mlp.up_proj.weight)
    assert (a.model.norm.weight == 1).all()


def test_the_global_random_state_is_left_alone():
    before = torch.get_rng_state()
    shaped_module(SMALL, "cpu")
    assert torch.equal(before, torch.get_rng_state())


def test_a_chain_of_them_decodes():
    chain = chain_of([shaped_module(SMALL, "cpu", seed=s) for s in (1, 2)], [Edge(3)])
    assert len(generate(chain, [Request((1, 2), Sampling(0.0), max_new_tokens=9)])[0].ids) == 9


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: shape_of("13b"), "shape: '13b' is not one of llama2-70b"),
        (lambda: Shape(64, 96, 0, 4, 2), "shape.layers: expected an integer >= 1, got 0"),
        (lambda: Shape(64, 96, 2, 5, 5), "shape.heads: 5 heads"),
        (lambda: Shape(64, 96, 2, 4, 3), "3 of them with keys"),
        (lambda: shaped_module(SMALL, "cpu", distinct=7), "distinct: expected 1 to 6 sets of layer weights, got 7"),
    ],
)
def test_wrong_sizes_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()

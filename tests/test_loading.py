"""Chains from specs: what is refused says where it stands, before weights are read; models are shared, caches not."""

from __future__ import annotations

import pytest

from ssd.bench import loading
from ssd.bench.loading import Loader, load_chain
from ssd.bench.method_spec import EdgeSpec
from ssd.bench.spec import ChainSpec, LevelSpec
from ssd.core.generate import generate
from ssd.core.requests import Request, Sampling

TINY = LevelSpec("random:llama?seed=3", dtype="float64")


@pytest.mark.parametrize(
    ("levels", "edges", "message"),
    [
        ((LevelSpec("nope"), TINY), (EdgeSpec(1),), r"chain\.levels\[0\]: source 'nope'"),
        ((TINY, LevelSpec("nope")), (EdgeSpec(1),), r"chain\.levels\[1\]: source 'nope'"),
        ((LevelSpec("random:llama", temperature=-1.0), TINY), (EdgeSpec(1),), r"levels\[0\]: .*temperature: -1\.0"),
        ((LevelSpec("random:llama", device="cuda:7"), TINY), (EdgeSpec(1),), r"levels\[0\]: .*cuda:7"),
        ((TINY, TINY), (EdgeSpec(0),), r"chain\.edges\[0\]: edge\.gamma: .*0"),
        ((TINY, LevelSpec("random:llama", top_k=5)), (EdgeSpec(1),), r"levels\[1\]: .*top_k=5.*the row's settings"),
        ((TINY, LevelSpec("ngram")), (EdgeSpec(1),), r"level 1 \(ngram"),
    ],
)
def test_a_refusal_names_its_place_before_weights_are_read(levels, edges, message, monkeypatch):
    monkeypatch.setattr(loading, "load_module", lambda *a: pytest.fail("weights were read"))
    with pytest.raises(ValueError, match=message):
        load_chain(ChainSpec(levels, edges))


def test_a_model_may_draft_for_itself():
    chain = load_chain(ChainSpec((TINY, TINY, TINY), (EdgeSpec(2), EdgeSpec(3))))
    assert len({id(chain.scorer(k).module) for k in range(3)}) == 1
    (result,) = generate(chain, [Request((1, 5, 9), Sampling(1.0), max_new_tokens=20)])
    assert all(r.accepted == r.tested for r in result.rounds)


def test_chains_of_one_loader_share_models_of_equal_place():
    loader = Loader()
    pair = loader.chain(ChainSpec((TINY, TINY), (EdgeSpec(2),)))
    again = loader.chain(ChainSpec((TINY, TINY), (EdgeSpec(4),)))
    assert pair.scorer(1) is again.scorer(1)
    assert pair.scorer(0) is not pair.scorer(1)

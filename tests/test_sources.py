"""Sources: text forms, random weights, folders and the hub behind one interface."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
from safetensors.torch import load_file, save_file

from ssd.bench import hub
from ssd.bench.bundled_drafts import DRAFT_FOLDER, DRAFT_SHA256
from ssd.bench.random_weights import FAMILIES, RandomWeights, random_module
from ssd.bench.sources import (
    BundledDraft,
    Folder,
    Hub,
    NgramSource,
    Wheel,
    describe,
    load_module,
    parse_source,
    read_config,
    read_tokenizer,
)


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("hub:org/name@abc123", Hub("org/name", "abc123")),
        ("hub:org/name", Hub("org/name", "main")),
        ("folder:/models/a b", Folder(Path("/models/a b"))),
        ("wheel:smollm2", Wheel()),
        ("bundled:smollm2-l1", BundledDraft("l1")),
        ("random:llama", RandomWeights("llama")),
        (
            "random:gpt2?hidden=64&layers=3&seed=7&range=0.02",
            RandomWeights("gpt2", 64, 3, seed=7, initializer_range=0.02),
        ),
        ("ngram", NgramSource(3, 1)),
        ("ngram:4-2", NgramSource(4, 2)),
    ],
)
def test_text_forms_round_trip(text: str, source: Any) -> None:
    assert parse_source(text) == source
    assert parse_source(str(source)) == source


@pytest.mark.parametrize("text", ["", "smollm2", "hub:", "hub:a@", "folder:", "wheel:llama", "bundled:l1", "ngram:3"])
def test_unknown_text_lists_the_allowed_forms(text: str) -> None:
    with pytest.raises(ValueError, match="is none of: hub:NAME") as caught:
        parse_source(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("random:bert", "random.family: 'bert' is not one of llama"),
        ("random:llama?width=3", "'width' is unknown"),
        ("random:llama?layers=x", "layers needs a number, got 'x'"),
        ("random:llama?layers=0", "random.layers: expected an integer >= 1, got 0"),
        ("random:llama?heads=5", "random.heads: 5"),
        ("random:llama?window=8", "random.window: llama has no sliding window"),
        ("random:gpt2?kv_heads=2", "random.kv_heads: gpt2"),
        ("random:llama?range=nan", "random.range"),
        ("ngram:1-3", "ngram: sizes"),
    ],
)
def test_values_out_of_range_are_named(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_source(text)


@pytest.mark.parametrize("family", FAMILIES)
def test_random_weights_depend_on_the_seed_alone(family: str) -> None:
    before = torch.random.get_rng_state()
    first, again = random_module(RandomWeights(family)), random_module(RandomWeights(family))
    other = random_module(RandomWeights(family, seed=1))
    assert torch.equal(torch.random.get_rng_state(), before)
    state = first.state_dict()
    assert all(torch.equal(tensor, state[name]) for name, tensor in again.state_dict().items())
    assert any(not torch.equal(tensor, state[name]) for name, tensor in other.state_dict().items())
    logits = first(torch.tensor([[1, 5, 9]]), use_cache=False).logits
    assert logits.shape == (1, 3, 64)
    assert logits.softmax(-1).amax() > 0.2  # 1/64 everywhere would be flat


def test_random_source_loads_in_the_dtype_asked_for() -> None:
    source = parse_source("random:llama?seed=3")
    module, ids = load_module(source, torch.float64, "cpu")
    assert ids is None
    assert module is not None
    assert {p.dtype for p in module.parameters()} == {torch.float64}
    assert module.config.dtype == torch.float64
    config = read_config(source)
    assert config is not None
    assert config.vocab_size == 64
    assert read_tokenizer(source) is None
    assert describe(source) == {"source": "random:llama?seed=3", "revision": None, "sha256": {}, "bytes": 0}


def test_casting_keeps_position_tables_in_float32() -> None:
    module, ids = load_module(BundledDraft("l0"), torch.bfloat16, "cpu")
    assert module is not None
    assert ids is not None
    assert {p.dtype for p in module.parameters()} == {torch.bfloat16}
    assert {b.dtype for b in module.buffers()} == {torch.float32}


def test_bundled_l1_needs_the_targets_embedding() -> None:
    with pytest.raises(ValueError, match=r"bundled:smollm2-l1: needs the embedding of its target, wheel:smollm2"):
        load_module(BundledDraft("l1"), torch.float32, "cpu")


def test_bundled_draft_is_described_by_its_files() -> None:
    said = describe(BundledDraft("l0"))
    names = ["l0-emb.safetensors", "l0-rest.safetensors"]
    assert said["sha256"] == {name: DRAFT_SHA256[name] for name in names}
    assert said["bytes"] == sum((DRAFT_FOLDER / name).stat().st_size for name in names)


def test_ngram_has_no_module() -> None:
    assert load_module(NgramSource(), torch.float32, "cpu") == (None, None)
    assert read_config(NgramSource()) is None


def test_a_device_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match="device cuda:99 is not there"):
        load_module(RandomWeights("llama"), torch.float32, "cuda:99")


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    random_module(RandomWeights("llama", seed=4)).save_pretrained(tmp_path / "m")
    return tmp_path / "m"


def test_folder_gives_the_saved_model(saved: Path) -> None:
    source = Folder(saved)
    module, _ = load_module(source, torch.float32, "cpu")
    assert module is not None
    ids = torch.tensor([[1, 2, 3]])
    assert torch.equal(module(ids).logits, random_module(RandomWeights("llama", seed=4))(ids).logits)
    assert read_tokenizer(source) is None
    assert list(describe(source)["sha256"]) == ["model.safetensors"]


def test_folder_with_a_missing_tensor_is_refused(saved: Path) -> None:
    tensors = load_file(saved / "model.safetensors")
    (saved / "model.safetensors").unlink()
    save_file(
        {name: tensor for name, tensor in tensors.items() if name != "model.norm.weight"},
        saved / "model.safetensors",
        metadata={"format": "pt"},
    )
    with pytest.raises(ValueError, match=r"missing keys in .*: model\.norm\.weight \(1 in all\)"):
        load_module(Folder(saved), torch.float32, "cpu")


def test_folder_with_a_missing_shard_is_refused(saved: Path) -> None:
    (saved / "model.safetensors").unlink()
    index = {"weight_map": {"a": "model-1.safetensors"}}
    (saved / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match="no complete weights"):
        load_module(Folder(saved), torch.float32, "cpu")


def test_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no config\.json there"):
        read_config(Folder(tmp_path / "nothing"))


def test_offline_hub_name_gives_one_clear_error_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ValueError, match=r"hub:org/name@v1: not in the local cache, .*offline: HF_HUB_OFFLINE is set"):
        read_config(Hub("org/name", "v1"))


def test_a_hub_name_that_is_none() -> None:
    with pytest.raises(ValueError, match="not a hub name"):
        read_config(Hub("a/b/c"))


def test_cached_hub_model_needs_no_network(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    root = tmp_path / "models--org--name"
    (root / "refs").mkdir(parents=True)
    (root / "refs" / "main").write_text(commit)
    (root / "snapshots").mkdir()
    saved.rename(root / "snapshots" / commit)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(hub, "_unreachable", lambda name, revision: pytest.fail("asked the hub"))
    source = Hub("org/name")
    assert load_module(source, torch.float32, "cpu")[0] is not None
    assert describe(source)["revision"] == commit


def test_hub_download_asks_for_weights_only_when_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "_unreachable", lambda name, revision: None)
    asked: list[list[str]] = []

    def snapshot(name: str, revision: str, allow_patterns: list[str], local_files_only: bool = False) -> str:
        if local_files_only:
            raise FileNotFoundError("not in the cache")
        asked.append(allow_patterns)
        if allow_patterns == ["pytorch_model*.bin"]:
            (tmp_path / "pytorch_model.bin").touch()
        return str(tmp_path)

    assert hub.hub_folder("org/name", "main", False, snapshot) == tmp_path
    assert asked == [hub.DESCRIPTIONS]
    assert hub.hub_folder("org/name", "main", True, snapshot) == tmp_path
    assert asked[1:] == [hub.DESCRIPTIONS, ["model*.safetensors"], ["pytorch_model*.bin"]]

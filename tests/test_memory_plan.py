"""Bytes known from configurations are those of the loaded chain."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch

from ssd.bench import loading, memory_plan
from ssd.bench.chain_check import inspect_levels
from ssd.bench.loading import Loader
from ssd.bench.memory import chain_memory
from ssd.bench.memory_plan import DevicePlan, LevelPlan, cache_bytes, plan_devices, plan_level, room_for_copy
from ssd.bench.random_weights import FAMILIES, RandomWeights, parse_random, random_config, random_module
from ssd.bench.sources import BundledDraft, Folder
from ssd.bench.spec import LevelSpec
from ssd.runtime.packing import can_pack


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_planned_bytes_are_those_of_the_loaded_chain(family, dtype):
    source = f"random:{family}?layers=2"
    found = inspect_levels([LevelSpec(source, dtype)], [])
    plan = plan_level(parse_random(f"{family}?layers=2"), found.levels[0].config, getattr(torch, dtype), "it")
    chain = Loader().chain(found.spec)
    model = chain.scorer(0)
    model.allocate(3, 20)
    model.score(torch.ones(3, 5, dtype=torch.int64), torch.zeros(3, dtype=torch.int64), 1)
    assert plan.weight_bytes == chain_memory(chain).weight_bytes
    assert cache_bytes(plan, 3, 20, None) == model.cache.bytes()
    assert plan.outputs == model.vocab_size
    assert (plan.problem, plan.unknown) == (None, None)


@pytest.mark.parametrize("family", ["llama", "qwen3", "mistral", "gpt2"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("runtime", ["eager", "graph", "compiled"])
def test_planned_copies_are_those_of_the_loaded_chain(family, dtype, runtime):
    if (family, runtime) == ("gpt2", "compiled"):
        return  # refused, tests/test_runtime_choice.py
    found = inspect_levels([LevelSpec(f"random:{family}?layers=2", dtype, runtime=runtime)], [])
    source, config = parse_random(f"{family}?layers=2"), found.levels[0].config
    plan = plan_level(source, config, getattr(torch, dtype), "it", runtime)
    memory = chain_memory(Loader().chain(found.spec))
    assert plan.packed_bytes == memory.packed_bytes
    assert plan.weight_bytes == memory.weight_bytes
    packs = runtime == "graph" and family != "gpt2" and can_pack(torch.device("cpu"), getattr(torch, dtype))
    assert (plan.packed_bytes > 0) is packs
    assert plan_level(source, config, getattr(torch, dtype), "it", runtime, "cuda:0").packed_bytes == 0


def test_copies_count_for_what_a_device_needs_once_per_model():
    lean, other = LevelPlan(10, 1.0, packed_bytes=4), LevelPlan(20, 1.0, packed_bytes=5)
    levels = [("cpu", "a", replace(lean, packed_bytes=0), 2), ("cpu", "a", lean, 2), ("cpu", "b", other, 2)]
    (plan,) = plan_devices(levels)
    assert (plan.weight_bytes, plan.packed_bytes, plan.cache_bytes, plan.needed_bytes) == (30, 9, 6, 45)
    assert DevicePlan("cpu", 30, 6, 45, True, 9).fits
    assert not DevicePlan("cpu", 30, 6, 44, True, 9).fits
    assert room_for_copy(DevicePlan("cpu", 10, 5, 44, True, 4))
    assert not room_for_copy(DevicePlan("cpu", 10, 5, 43, True, 4))


@pytest.mark.parametrize("family", ["gemma3_text", "gpt2"])
def test_planned_bytes_of_a_folder_are_those_loaded_from_it(family, tmp_path):
    random_module(RandomWeights(family)).save_pretrained(tmp_path / "model")
    found = inspect_levels([LevelSpec(f"folder:{tmp_path / 'model'}", "bfloat16")], [])
    (level,) = found.levels
    plan = plan_level(level.source, level.config, torch.bfloat16, "it")
    assert plan.weight_bytes == chain_memory(Loader().chain(found.spec)).weight_bytes


def test_a_bundled_draft_is_planned_with_its_draft_vocabulary():
    module, ids = loading.load_module(BundledDraft("l0"), torch.float32, "cpu")
    assert module is not None
    assert ids is not None
    plan = plan_level(BundledDraft("l0"), module.config, torch.float32, "it")
    held = (*module.parameters(), *module.buffers())
    assert plan.weight_bytes == sum(t.numel() * t.element_size() for t in held)
    assert plan.outputs == len(ids)


def test_a_model_that_cannot_be_built_without_weights_is_said_to_be_unknown(tmp_path):
    config = random_config(RandomWeights("llama"))
    odd = copy.deepcopy(config)
    odd.hidden_act = "no such function"
    plan = plan_level(Folder(tmp_path), odd, torch.float32, "it")
    assert (plan.weight_bytes, plan.problem) == (None, None)
    assert plan.unknown
    assert plan.unknown.startswith("it: cannot be built without weights (KeyError")
    config.quantization_config = {"quant_method": "x"}
    assert "quantised" in (plan_level(Folder(tmp_path), config, torch.float32, "it").unknown or "")


def test_what_is_free_is_the_least_of_machine_and_group(tmp_path, monkeypatch):
    info, limit = tmp_path / "meminfo", tmp_path / "max"
    info.write_text("MemTotal: 9 kB\nMemAvailable:    8 kB\n")
    monkeypatch.setattr(memory_plan, "MEMINFO", info)
    monkeypatch.setattr(memory_plan, "GROUP_LIMIT", limit)
    for text, free in (("max\n", 8192), ("5000\n", 5000), ("50000\n", 8192)):
        limit.write_text(text)
        assert memory_plan.free_bytes("cpu") == free
    assert memory_plan.free_bytes("cuda:99") is None


def test_a_copy_in_32_bits_needs_room_for_both():
    assert room_for_copy(DevicePlan("cpu", 10, 5, 40, True))
    assert not room_for_copy(DevicePlan("cpu", 10, 5, 39, True))
    assert not room_for_copy(DevicePlan("cpu", 10, 5, None, False))

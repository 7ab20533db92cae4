"""Bytes a chain will take, known from configurations: a pass of the engine through models without memory.

Modules are built on torch's ``meta`` device, where tensors have shapes and no contents. What the engine would
refuse of a model's attention shows in that pass too, before any weight is read.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import safe_open
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedConfig

from ssd.bench.bundled_drafts import DRAFT_FOLDER, VOCABULARY, VOCABULARY_FILE
from ssd.bench.memory import weight_spans
from ssd.bench.sources import BundledDraft, Folder, Hub, Source, Wheel
from ssd.core.model import CachedModel
from ssd.runtime.packing import can_pack
from ssd.runtime.weights import FAMILIES, read_weights

WIDTH = 2  # tokens of the pass without memory
MEMINFO, GROUP_LIMIT = Path("/proc/meminfo"), Path("/sys/fs/cgroup/memory.max")


@dataclass(frozen=True)
class LevelPlan:
    """What a level will take and emit, before its weights are read.

    Attributes:
        weight_bytes: parameters and buffers, tied ones once; 0 for a look-up; ``None`` if not known.
        cache_bytes_per_token: keys and values of one token in one row; 0 for a look-up; ``None`` if not known.
        outputs: ids it can emit; ``None`` for a look-up or if not known.
        problem: why the engine cannot run the model.
        unknown: why something is not known before loading.
        packed_bytes: copies of the weights that the level's runtime keeps beside them; 0 while weights are not known.
    """

    weight_bytes: int | None = None
    cache_bytes_per_token: float | None = None
    outputs: int | None = None
    problem: str | None = None
    unknown: str | None = None
    packed_bytes: int = 0


LOOK_UP = LevelPlan(0, 0.0)


def plan_level(
    source: Source,
    config: PreTrainedConfig,
    dtype: torch.dtype,
    label: str,
    runtime: str = "eager",
    device: str = "cpu",
) -> LevelPlan:
    """What a level of this source and configuration takes in ``dtype``; ``label`` begins a problem."""
    if getattr(config, "quantization_config", None) is not None:
        return LevelPlan(unknown=f"{label}: quantised, its size is known after loading")
    try:
        module = _without_memory(source, config, dtype)
    except Exception as error:  # model code of any family, given any configuration
        return LevelPlan(unknown=f"{label}: cannot be built without weights ({type(error).__name__}: {error})")
    weights = sum(end - begin for own in weight_spans(module).values() for begin, end in own)
    outputs = int(module.get_output_embeddings().weight.shape[0])
    try:
        cache = _cache_bytes(module, label)
        return LevelPlan(weights, cache, outputs, packed_bytes=_packed_bytes(module, dtype, runtime, device))
    except ValueError as error:
        text = str(error)
        return LevelPlan(weights, None, outputs, problem=text if text.startswith(label) else f"{label}: {text}")
    except Exception as error:  # code that looks at values, which are not there
        reason = f"{label}: keys and values are known after loading ({type(error).__name__})"
        return LevelPlan(weights, None, outputs, unknown=reason)


def _without_memory(source: Source, config: PreTrainedConfig, dtype: torch.dtype) -> Any:
    """The module on the meta device, its tensors of the types that loading gives them."""
    stored = isinstance(source, Hub | Folder | Wheel)
    with torch.device("meta"):
        start = dtype if stored else torch.float32
        module: Any = AutoModelForCausalLM.from_config(copy.deepcopy(config), dtype=start)
        if isinstance(source, BundledDraft):  # its output layer is cut down to the draft vocabulary
            with safe_open(DRAFT_FOLDER / VOCABULARY_FILE, "pt") as file:
                (outputs,) = file.get_slice(VOCABULARY).get_shape()
            module.lm_head = nn.Linear(config.hidden_size, outputs, bias=False)
        for parameter in module.parameters() if not stored else ():
            parameter.data = parameter.data.to(dtype)  # buffers keep theirs
    return module


class _AtZero:
    """Start positions [1] of a pass without memory: the engine reads them as a list, where meta tensors have none."""

    def __getitem__(self, key: Any) -> Tensor:
        return torch.zeros(1, 1, dtype=torch.int64, device="meta")

    def tolist(self) -> list[int]:
        return [0]


def _cache_bytes(module: Any, label: str) -> float:
    """Bytes of keys and values that the engine's cache keeps for a token; ValueError for what it refuses."""
    model = CachedModel(module, label)
    model.allocate(1, WIDTH)
    tokens = torch.zeros(1, WIDTH, dtype=torch.int64, device="meta")
    model.score(tokens, cast(Tensor, _AtZero()), WIDTH)
    return model.cache.bytes() / WIDTH


def _packed_bytes(module: Any, dtype: torch.dtype, runtime: str, device: str) -> int:
    """Bytes of the copies that ``LeanModel`` makes of a module in the order in which the processor reads them."""
    if runtime != "graph" or module.config.model_type not in FAMILIES or device.partition(":")[0] != "cpu":
        return 0
    if not can_pack(torch.device("cpu"), dtype):
        return 0
    weights = read_weights(module)
    matrices = [weights.head, *(m for x in weights.layers for m in (x.qkv, x.out, x.gate_up, x.down))]
    return sum(m.numel() * m.element_size() for m in matrices)


@dataclass(frozen=True)
class DevicePlan:
    """What one device has to hold.

    Attributes:
        weight_bytes: of the levels on it, a model that several levels use counted once.
        cache_bytes: keys and values at the planned batch and length.
        limit_bytes: what is free there now; ``None`` if the system does not tell.
        complete: whether every level on it is known; if not, it takes more than these.
        packed_bytes: copies of weights that runtimes keep, those of one model counted once.
    """

    device: str
    weight_bytes: int
    cache_bytes: int
    limit_bytes: int | None
    complete: bool
    packed_bytes: int = 0

    @property
    def needed_bytes(self) -> int:
        """What is known to be needed."""
        return self.weight_bytes + self.packed_bytes + self.cache_bytes

    @property
    def fits(self) -> bool:
        """Whether what is known fits what is free."""
        return self.limit_bytes is None or self.needed_bytes <= self.limit_bytes


def room_for_copy(device: DevicePlan) -> bool:
    """Whether a copy of the levels in 32 bits fits beside them; they may be held in 16."""
    needed = 3 * device.weight_bytes + device.packed_bytes + 2 * device.cache_bytes
    return device.complete and (device.limit_bytes is None or needed <= device.limit_bytes)


def cache_bytes(plan: LevelPlan, batch: int, length: int, limit: int | None) -> int | None:
    """Keys and values of ``batch`` rows of ``length`` tokens, at most ``limit`` of them each."""
    if plan.cache_bytes_per_token is None:
        return None
    return round(plan.cache_bytes_per_token * batch * (length if limit is None else min(length, limit)))


def plan_devices(levels: Sequence[tuple[str, str, LevelPlan, int | None]]) -> list[DevicePlan]:
    """Sums per device, in order of appearance.

    Args:
        levels: (device, what identifies the weights, plan, cache bytes) of each level.
    """
    plans = []
    for device in dict.fromkeys(device for device, *_ in levels):
        own = [(key, plan, cache) for where, key, plan, cache in levels if where == device]
        weights = {key: plan.weight_bytes for key, plan, _ in own}
        complete = None not in weights.values() and all(cache is not None for *_, cache in own)
        total = sum(size or 0 for size in weights.values())
        caches = sum(cache or 0 for *_, cache in own)
        packed = {key: plan.packed_bytes for key, plan, _ in own if plan.packed_bytes}
        plans.append(DevicePlan(device, total, caches, free_bytes(device), complete, sum(packed.values())))
    return plans


def free_bytes(device: str) -> int | None:
    """Memory free now: of the machine and of the group this process is in, or of a CUDA device; ``None``: not known."""
    kind, _, index = device.partition(":")
    if kind == "cuda":
        number = int(index or 0)
        return int(torch.cuda.mem_get_info(number)[0]) if number < torch.cuda.device_count() else None
    if kind != "cpu":
        return None
    return min(filter(None, (_available(MEMINFO), _group_limit(GROUP_LIMIT))), default=None)


def _available(meminfo: Path) -> int | None:
    """What the kernel says can be had without swapping; all memory where it does not say."""
    try:
        lines = meminfo.read_text(encoding="ascii").splitlines()
    except OSError:
        lines = []
    found: Mapping[str, str] = dict(line.split(":", 1) for line in lines if ":" in line)
    if "MemAvailable" in found:
        return int(found["MemAvailable"].split()[0]) * 1024
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


def _group_limit(path: Path) -> int | None:
    """The limit of this process's control group; ``None`` if it has none."""
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None

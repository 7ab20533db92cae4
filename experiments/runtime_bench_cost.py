"""What a runtime takes once: joining a module's matrices, packing them, and the bytes of the packed copies."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from experiments.runtime_bench_config import FAST
from ssd.bench.loading import Loader
from ssd.bench.memory import ChainMemory, chain_memory
from ssd.bench.method_spec import MethodSpec
from ssd.bench.spec import ChainSpec
from ssd.bench.suite import sub_chain
from ssd.bench.summary import Row
from ssd.runtime.weights import FAMILIES, read_weights

SECONDS, COPIES, WEIGHTS = "once: all levels", "packed copies: all levels", "weights: all levels"


@dataclass(frozen=True)
class OneTime:
    """Seconds that a level's runtime takes when it is loaded.

    Attributes:
        join: to lay matrices below each other; next to nothing for a family that keeps its module's passes.
        make: to make the model afterwards, packing included where the processor packs.
    """

    join: float
    make: float


def one_time(chain: ChainSpec, loader: Loader) -> tuple[dict[str, OneTime], ChainMemory]:
    """Seconds of ``FAST`` by level that has a model, in a loader that has not made one yet, and the chain's bytes.

    Reading a module is not counted. Levels of one module after the first find its matrices joined and packed, as in
    any chain.
    """
    found = {}
    for k, spec in enumerate(chain.levels):
        if spec.is_ngram:
            continue
        module: Any = loader.module(spec)[0]
        began = time.perf_counter()
        if module.config.model_type in FAMILIES:
            read_weights(module)
        joined = time.perf_counter()
        loader.level(replace(spec, runtime=FAST), f"L{k}")
        found[f"L{k}"] = OneTime(joined - began, time.perf_counter() - joined)
    return found, chain_memory(loader.chain(sub_chain(chain, MethodSpec(runtime=FAST))))


def cost_rows(costs: Mapping[str, OneTime], memory: ChainMemory) -> list[Row]:
    """Seconds and bytes of each level and of all together, shared memory counted once."""
    rows = []
    for level, cost in costs.items():
        own = memory.levels[int(level[1:])]
        rows += [
            Row(f"once: {level}, joining matrices", cost.join, "s", n=1),
            Row(f"once: {level}, packing them and making the model", cost.make, "s", n=1),
            Row(f"packed copy: {level}", own.packed_bytes, "bytes"),
            Row(f"weights: {level}", own.weight_bytes, "bytes"),
        ]
    seconds = sum(cost.join + cost.make for cost in costs.values())
    rows.append(Row(SECONDS, seconds, "s", n=1))
    return [*rows, Row(COPIES, memory.packed_bytes, "bytes"), Row(WEIGHTS, memory.weight_bytes, "bytes")]

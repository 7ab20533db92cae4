"""The device of the GPU bench: its models, made when first asked for, and its clock."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from experiments.gpu_bench_cases import DISTINCT, LEVELS, Sizes
from ssd.bench.published_shapes import Shape, WeightBytes, shape_of, shaped_module, weight_bytes
from ssd.core.model import CachedModel
from ssd.runtime.choose import with_runtime
from ssd.runtime.static import StaticModel

Work = Callable[[], object]


class Machine:
    """One device.

    Args:
        device: ``cuda`` or ``cpu``.
        runtime: of every level, ``graph`` or ``compiled``.
        tiny: levels with few small layers, in float32.
        sizes: how much is measured.
    """

    def __init__(self, device: str, runtime: str, tiny: bool, sizes: Sizes) -> None:
        self.device = torch.device(device)
        self.runtime, self.tiny, self.sizes = runtime, tiny, sizes
        self.is_cuda = self.device.type == "cuda"
        self._modules: dict[str, Any] = {}
        self._levels: dict[tuple[str, str], StaticModel] = {}

    @property
    def accelerator(self) -> str | None:
        """Name of the GPU."""
        return torch.cuda.get_device_name(self.device) if self.is_cuda else None

    def shape(self, level: str) -> Shape:
        """Sizes of a level."""
        shape = shape_of(LEVELS[level])
        if not self.tiny:
            return shape
        return replace(
            shape, hidden=32, intermediate=64, layers=max(1, shape.layers // 20), heads=4, kv_heads=2, vocab=128
        )

    def module(self, level: str) -> Any:
        """The level's model; the same one at every call."""
        if level not in self._modules:
            shape, dtype = self.shape(level), torch.float32 if self.tiny else torch.bfloat16
            distinct = min(DISTINCT.get(level, shape.layers), shape.layers)
            made = shaped_module(shape, self.device, dtype, distinct, seed=list(LEVELS).index(level))
            self._modules[level] = made
        return self._modules[level]

    def level(self, level: str, role: str = "chain") -> StaticModel:
        """The model under the runtime; the same one for the same role, so that each shape is compiled once.

        Roles share weights and have keys and values of their own.
        """
        if (level, role) not in self._levels:
            model = with_runtime(CachedModel(self.module(level), level), self.runtime)
            assert isinstance(model, StaticModel)
            self._levels[level, role] = model
        return self._levels[level, role]

    def bytes_of(self, level: str) -> WeightBytes:
        """Bytes of its weights."""
        return weight_bytes(self.module(level))

    def wait(self) -> None:
        """Everything queued is over."""
        if self.is_cuda:
            torch.cuda.synchronize(self.device)

    def forget(self) -> None:
        """Memory of what is no longer used on a GPU is free again."""
        if self.is_cuda:
            gc.collect()
            torch.cuda.empty_cache()

    def recorded(self, work: Work) -> Work:
        """The same work as one CUDA graph; elsewhere the work itself."""
        if not self.is_cuda:
            return work
        side = torch.cuda.Stream(self.device)
        side.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(side):
            for _ in range(2):  # kernels are chosen and compiled, libraries take their workspaces
                work()
        torch.cuda.current_stream(self.device).wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        # Recorded on a stream of its own, because graphs that run side by side must not share a workspace.
        with torch.cuda.graph(graph, stream=side):
            work()
        return partial(_replay, graph, work)

    def clocked(self, work: Work) -> float:
        """Seconds until the work, and all it queued, is over."""
        self.wait()
        began = time.perf_counter()
        work()
        self.wait()
        return time.perf_counter() - began

    def seconds(self, work: Work) -> list[float]:
        """Seconds per call, by groups of calls that are queued without waiting."""
        self.clocked(work)
        once = max(self.clocked(work), 1e-6)
        calls = max(1, min(500, round(self.sizes.seconds / once)))

        def group() -> None:
            for _ in range(calls):
                work()

        return [self.clocked(group) / calls for _ in range(self.sizes.groups)]

    def beside(self, first: Work, second: Work) -> Work:
        """Both at the same time: on two streams of a GPU, in two threads elsewhere; over when both are."""
        if not self.is_cuda:
            pool = ThreadPoolExecutor(2)

            def both() -> None:
                for done in [pool.submit(first), pool.submit(second)]:
                    done.result()

            return both
        streams = [torch.cuda.Stream(self.device) for _ in range(2)]

        def queue() -> None:
            here = torch.cuda.current_stream(self.device)
            for stream, work in zip(streams, (first, second), strict=True):
                stream.wait_stream(here)
                with torch.cuda.stream(stream):
                    work()
            for stream in streams:
                here.wait_stream(stream)

        return queue


def _replay(graph: Any, work: Work) -> None:
    """Run a graph; ``work`` is held because it owns the tensors whose addresses the graph reads."""
    graph.replay()

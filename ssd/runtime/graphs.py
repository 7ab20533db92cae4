"""CUDA graphs of a pass: recorded once per (rows, tokens, slot bucket), replayed from buffers that never move."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

WIDEST = 32  # tokens a row; wider passes are prompts, whose widths hardly ever come back
WARM_UP = 2  # runs before a recording: kernels are chosen and compiled, libraries take their workspaces

StaticPass = Callable[[Tensor, Tensor, int], Tensor]  # tokens [B, T], start [B], bucket -> logits [B, T, V]


class _Recording(NamedTuple):
    graph: Any
    tokens: Tensor
    start: Tensor
    logits: Tensor


class Graphs:
    """Recordings of one model's passes, which share a pool of memory and the stream they are recorded on.

    Args:
        compute: reads no value on the host, and may run again with the same tokens without a trace.
    """

    def __init__(self, compute: StaticPass) -> None:
        self._compute = compute
        self._recordings: dict[tuple[int, int, int], _Recording] = {}
        self._pool: Any = None
        self._side: Any = None

    def __len__(self) -> int:
        return len(self._recordings)

    def forget(self) -> None:
        """Recordings end with the buffers they read."""
        self._recordings.clear()
        self._pool = None  # a pool whose recordings are all gone cannot be recorded into again

    def run(self, tokens: Tensor, start: Tensor, bucket: int) -> Tensor:
        """What ``compute`` returns, in memory of its own; records the pass if its shape is new."""
        key = (*tokens.shape, bucket)
        found = self._recordings.get(key)
        if found is None:
            found = self._recordings[key] = self._record(tokens, start, bucket)
        found.tokens.copy_(tokens)
        found.start.copy_(start)
        found.graph.replay()
        return found.logits.clone()  # the next replay overwrites it

    def _record(self, tokens: Tensor, start: Tensor, bucket: int) -> _Recording:
        tokens, start = tokens.clone(), start.clone()
        device = tokens.device
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        if self._side is None:
            self._side = torch.cuda.Stream(device)
        self._side.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.device(device), torch.cuda.stream(self._side):
            for _ in range(WARM_UP):
                self._compute(tokens, start, bucket)
        torch.cuda.current_stream(device).wait_stream(self._side)
        graph = torch.cuda.CUDAGraph()
        # On the stream of the warm-up, whose workspaces lie outside the pool.
        with torch.cuda.device(device), torch.cuda.graph(graph, pool=self._pool, stream=self._side):
            logits = self._compute(tokens, start, bucket)
        return _Recording(graph, tokens, start, logits)

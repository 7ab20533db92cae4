"""The layer function through torch's compiler: compiled once per shape and called for every layer."""

from __future__ import annotations

import types
from itertools import count
from typing import Any

import torch

from ssd.runtime.layer import LayerFunction, layer

SHAPES = 256  # compiled versions of one function that are kept; torch's own limit of 8 is less than a chain has widths

_numbers = count()


def compiled_layer(device: torch.device) -> LayerFunction:
    """``layer`` compiled by inductor, for one model.

    Weights and buffers are arguments, so all layers of a model share one version per shape. On a GPU every shape
    gets kernels of its own; on a CPU, where that gains nothing, widths and buckets become variable after the first.
    Torch's limits on compiled versions are raised for the whole process.
    """
    import torch._dynamo  # takes a second, which only those who compile should spend

    config: Any = torch._dynamo.config
    config.recompile_limit = max(config.recompile_limit, SHAPES)
    config.accumulated_recompile_limit = max(config.accumulated_recompile_limit, 16 * SHAPES)
    # Code of its own for each model: shapes of one do not turn those of another into variables.
    code = layer.__code__.replace(co_name=f"layer_{next(_numbers)}")
    own = types.FunctionType(code, layer.__globals__, layer.__name__, layer.__defaults__, layer.__closure__)
    compiled: Any = torch.compile(own, fullgraph=True, dynamic=False if device.type == "cuda" else None)
    function: LayerFunction = compiled
    return function

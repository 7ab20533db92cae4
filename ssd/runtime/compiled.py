"""Functions through torch's compiler: the layer, compiled once per shape and called for every layer, and the hashes."""

from __future__ import annotations

import types
from functools import cache
from itertools import count
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from ssd.core import randomness
from ssd.runtime.layer import LayerFunction, layer

SHAPES = 256  # compiled versions of one function that are kept; torch's own limit of 8 is less than a chain has widths

_numbers = count()


class Uniform(Protocol):
    """``ssd.core.randomness.uniform``, whose level may be a tensor without dimensions."""

    def __call__(self, key: Tensor, level: Any, purpose: int, position: Tensor) -> Tensor:
        """See there."""


class RoundKey(Protocol):
    """``ssd.core.randomness.round_key``."""

    def __call__(self, key: Tensor, start: Tensor) -> Tensor:
        """See there."""


class Hashes(NamedTuple):
    """The two functions that make all randomness of a round."""

    uniform: Uniform
    round_key: RoundKey


PLAIN = Hashes(randomness.uniform, randomness.round_key)


@cache
def compiled_hashes() -> Hashes:
    """``PLAIN`` with one kernel for each of the two, which are some thirty integer operations otherwise.

    Levels should be tensors of their own memory: a number would be compiled anew for each level.
    """
    _raise_limits()
    return Hashes(*(torch.compile(function, fullgraph=True) for function in PLAIN))


def compiled_layer(device: torch.device) -> LayerFunction:
    """``layer`` compiled by inductor, for one model.

    Weights and buffers are arguments, so all layers of a model share one version per shape. On a GPU every shape
    gets kernels of its own; on a CPU, where that gains nothing, widths and buckets become variable after the first.
    Torch's limits on compiled versions are raised for the whole process.
    """
    _raise_limits()
    # Code of its own for each model: shapes of one do not turn those of another into variables.
    code = layer.__code__.replace(co_name=f"layer_{next(_numbers)}")
    own = types.FunctionType(code, layer.__globals__, layer.__name__, layer.__defaults__, layer.__closure__)
    compiled: Any = torch.compile(own, fullgraph=True, dynamic=False if device.type == "cuda" else None)
    function: LayerFunction = compiled
    return function


def _raise_limits() -> None:
    import torch._dynamo  # takes a second, which only those who compile should spend

    config: Any = torch._dynamo.config
    config.recompile_limit = max(config.recompile_limit, SHAPES)
    config.accumulated_recompile_limit = max(config.accumulated_recompile_limit, 16 * SHAPES)

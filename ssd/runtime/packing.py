"""Weights in the order in which a CPU reads them: bfloat16 matrices repacked once by oneDNN.

A plain bfloat16 matrix is rearranged inside every product; a packed one is not. The packed copy lies beside the
module's own weights, which other users of the module still need.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ssd.runtime.weights import ModelWeights

WIDTH = 8  # tokens a pass that the order is chosen for; other widths are computed as well


def can_pack(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether this build of torch packs weights of that type for this processor."""
    return (
        device.type == "cpu"
        and dtype == torch.bfloat16
        and torch.backends.mkldnn.is_available()
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
        and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    )


def packed(weights: ModelWeights) -> ModelWeights:
    """The same weights with every matrix of the layers and the head packed; layers that share one share its copy."""
    found: dict[tuple[int, torch.Size], Tensor] = {}

    def pack(weight: Tensor) -> Tensor:
        key = (weight.data_ptr(), weight.shape)
        if key not in found:
            found[key] = torch.ops.mkldnn._reorder_linear_weight(weight, WIDTH)
        return found[key]

    layers = tuple(
        w._replace(qkv=pack(w.qkv), out=pack(w.out), gate_up=pack(w.gate_up), down=pack(w.down)) for w in weights.layers
    )
    return weights._replace(layers=layers, head=pack(weights.head))


def packed_bytes(weights: ModelWeights) -> int:
    """Bytes of the packed copies."""
    matrices = [weights.head, *(m for x in weights.layers for m in (x.qkv, x.out, x.gate_up, x.down))]
    distinct = {id(m): m for m in matrices if m.is_mkldnn}
    return sum(m.numel() * m.element_size() for m in distinct.values())

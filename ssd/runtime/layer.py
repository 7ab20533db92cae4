"""One transformer layer of the LLaMA family as one function: every weight and every buffer is an argument.

Letters: B rows, T tokens of the pass, E width of the model, H query heads, K key heads, D width of a head,
S slots in use (the bucket).
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn.functional import linear, scaled_dot_product_attention, silu
from torch.nn.functional import rms_norm as normalised

from ssd.runtime.weights import LayerWeights


class Pass(NamedTuple):
    """What all layers of one pass share.

    Attributes:
        positions: [B, T] where the tokens go.
        rows: [B, 1] row numbers, the other index of a write.
        rope: [B, T, 2, D] cosines and signed sines (see ``weights.rope_table``).
    """

    positions: Tensor
    rows: Tensor
    rope: Tensor


class LayerFunction(Protocol):
    """``layer``, or what a compiler made of it."""

    def __call__(
        self, x: Tensor, w: LayerWeights, keys: Tensor, values: Tensor, at: Pass, mask: Tensor, eps: float
    ) -> Tensor:
        """See ``layer``."""


def layer(x: Tensor, w: LayerWeights, keys: Tensor, values: Tensor, at: Pass, mask: Tensor, eps: float) -> Tensor:
    """States [B, T, E] after one layer; keys and values of the T tokens are in their slots afterwards.

    Args:
        x: [B, T, E].
        w: the layer's weights.
        keys: [B or more, K, slots, D], of which the first B rows are written at ``at.positions``; so is ``values``.
        values: as ``keys``.
        at: positions and rotations.
        mask: additive, [B, 1, (H / K) T, S]; the layer sees the first S slots through it.
        eps: of the norms.
    """
    batch, width, _ = x.shape
    kv_heads, dim = keys.shape[1], keys.shape[3]
    keys, values = keys[:batch], values[:batch]
    qkv = project(rms_norm(x, w.input_norm, eps), w.qkv, w.qkv_bias).view(batch, width, -1, dim)  # [B, T, H + 2K, D]
    heads = qkv.shape[2] - 2 * kv_heads
    turned, new_values = qkv[:, :, : heads + kv_heads], qkv[:, :, heads + kv_heads :]
    if w.q_norm is not None and w.k_norm is not None:
        query, new_keys = turned[:, :, :heads], turned[:, :, heads:]
        turned = torch.cat([rms_norm(query, w.q_norm, eps), rms_norm(new_keys, w.k_norm, eps)], 2)
    turned = torch.addcmul(turned * at.rope[:, :, :1], turned.roll(dim // 2, -1), at.rope[:, :, 1:])
    query, new_keys = turned[:, :, :heads], turned[:, :, heads:]
    write(keys, new_keys, at)
    write(values, new_values, at)
    mixed = attend(query, keys[:, :, : mask.shape[-1]], values[:, :, : mask.shape[-1]], mask)
    x = x + project(mixed, w.out, w.out_bias)
    gate, up = project(rms_norm(x, w.post_norm, eps), w.gate_up, w.gate_up_bias).chunk(2, -1)
    return x + project(silu(gate) * up, w.down, w.down_bias)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """``x`` over its root mean square, in float32 as these families define it, times ``weight``."""
    own = x.float() if x.dtype == torch.float64 else x  # torch itself computes 16 bit in float32
    return weight * normalised(own, own.shape[-1:], eps=eps).to(x.dtype)


def project(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``x`` times the transposed weight, which may be packed (see ``packing``)."""
    if weight.is_mkldnn:
        packed: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
        return packed
    return linear(x, weight, bias)


def write(buffer: Tensor, new: Tensor, at: Pass) -> None:
    """Put new [B, T, K, D] into the buffer [B, K, slots, D] at the pass's positions."""
    if new.dtype == torch.float16:
        # What overflows in a rejected token would reach later ones: 0 times infinity is no number.
        new = new.nan_to_num()
    if len(buffer) == 1:
        buffer.index_copy_(2, at.positions[0], new.transpose(1, 2))
    else:
        buffer[at.rows, :, at.positions] = new


def attend(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """Attention [B, T, H D] of query [B, T, H, D] over [B, K, S, D]: heads that share keys become query rows."""
    batch, width, heads, dim = query.shape
    kv_heads = keys.shape[1]
    folded = query.transpose(1, 2).reshape(batch, kv_heads, heads // kv_heads * width, dim)
    out = scaled_dot_product_attention(folded, keys, values, attn_mask=mask)
    return out.reshape(batch, heads, width, dim).transpose(1, 2).reshape(batch, width, heads * dim)

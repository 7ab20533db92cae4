"""Which chains and requests can run whole target rounds without the host, and how wide their blocks are."""

from __future__ import annotations

from collections.abc import Sequence

from ssd.core.chain import Chain
from ssd.core.requests import Request

STATIC = ("rounds", "at_least", "exactly", "until_correction")  # windows under which level 0 takes gamma steps


def longest_block(chain: Chain, edges: int | None = None) -> int:
    """Most tokens the block below edge ``edges`` holds: W_0 = gamma_0, W_k = gamma_k (W_{k-1} + 1); 0 without edges."""
    width = 0
    for k, edge in enumerate(chain.edges[:edges]):
        width = edge.gamma * (width + 1) if k else edge.gamma
    return width


def slack(chain: Chain, widths: Sequence[int] = ()) -> int:
    """Slots that device rounds need behind the longest output.

    A row's last round may overshoot by a block, and standing still it drafts one more behind that; the widest pass fits
    in front of a row's first tokens.
    """
    return 2 * (longest_block(chain) + 1) + max(chain.depth + 1, *widths, 1)


def check_chain(chain: Chain) -> None:
    """Raise ValueError naming the level or edge that cannot run without the host."""
    for k, (level, name) in enumerate(zip(chain.levels, chain.names, strict=True)):
        if level.is_ngram:
            raise ValueError(f"{name}.model: an n-gram look-up reads its text on the host")
        if not hasattr(level.model, "score_static"):
            raise ValueError(f"{name}.runtime: 'eager' waits for the device in every pass; graph and compiled do not")
        if chain.devices[k] != chain.devices[-1]:
            raise ValueError(f"{name}.device: {chain.devices[k]}, but the target is on {chain.devices[-1]}")
    for k, edge in enumerate(chain.edges):
        if edge.window != "rounds" and (k > 0 or edge.window not in STATIC):
            raise ValueError(f"edges[{k}].window: {edge.window!r} looks at tokens; 'rounds' does not")


def check_requests(requests: Sequence[Request]) -> None:
    """Raise ValueError naming the request whose end or law depends on its tokens."""
    if not requests:
        raise ValueError("requests: at least one is needed")
    for i, r in enumerate(requests):
        if not r.ignore_eos and (r.eos_ids or r.stop):
            raise ValueError(f"requests[{i}].ignore_eos: False, but only outputs of a fixed length run on the device")
        if r.max_new_tokens < 1:
            raise ValueError(f"requests[{i}].max_new_tokens: expected at least 1, got {r.max_new_tokens}")

"""The formulas of chains of drafts, by one name: see the modules for their sources."""

from __future__ import annotations

from ssd.plan.acceptance import ByFate, ByPosition, Constant
from ssd.plan.block_bounds import (
    accepted_at_most,
    accepted_by_block,
    accepted_by_token,
    block_verification_range,
)
from ssd.plan.chain_recursion import ChainRecursion
from ssd.plan.depth import RatioAlpha, depth_gains, optimal_depth
from ssd.plan.edge_plan import EdgePlan, longest_block
from ssd.plan.expected_tokens import (
    arithmetic_factor,
    best_gamma,
    emitted_law,
    expected_tokens,
    expected_tokens_by_position,
    guaranteed_speedup,
    improves,
    oracle_tokens,
    pays_to_draft,
    standard_speedup,
)
from ssd.plan.insertion import cost_per_token, draft_below_pays, insertion, triple_speedup, vertical_cascade_speedup
from ssd.plan.overlap import (
    best_fan_out,
    hit_rate,
    overlap_speedup_bound,
    pipelined_seconds,
    presumed_speedup,
    schedule_bounds,
    speedup_per_device,
)
from ssd.plan.pass_counts import batch_passes, level_work

__all__ = [
    "ByFate",
    "ByPosition",
    "ChainRecursion",
    "Constant",
    "EdgePlan",
    "RatioAlpha",
    "accepted_at_most",
    "accepted_by_block",
    "accepted_by_token",
    "arithmetic_factor",
    "batch_passes",
    "best_fan_out",
    "best_gamma",
    "block_verification_range",
    "cost_per_token",
    "depth_gains",
    "draft_below_pays",
    "emitted_law",
    "expected_tokens",
    "expected_tokens_by_position",
    "guaranteed_speedup",
    "hit_rate",
    "improves",
    "insertion",
    "level_work",
    "longest_block",
    "optimal_depth",
    "oracle_tokens",
    "overlap_speedup_bound",
    "pays_to_draft",
    "pipelined_seconds",
    "presumed_speedup",
    "schedule_bounds",
    "speedup_per_device",
    "standard_speedup",
    "triple_speedup",
    "vertical_cascade_speedup",
]

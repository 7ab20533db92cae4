"""What drafting during verification can gain: bounds, hit rates, and speedup per device."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ssd.plan.expected_tokens import check, check_cost, expected_tokens
from ssd.plan.lookahead import Ahead, PowerMiss, allocate, outcome_chances


@dataclass(frozen=True)
class Bounds:
    """Seconds per token no schedule of the same work beats, and those of the serial schedule."""

    least: float
    most: float


def schedule_bounds(seconds: Sequence[float], devices: Sequence[str]) -> Bounds:
    """Bounds of the seconds per token of any schedule that does exactly this work.

    Least: the busiest device's time, since a device does one thing at a time. Most: the sum, which is the serial
    schedule. A schedule that drafts for outcomes that do not happen does more work and is bounded with
    that work counted. Source: derived here; two-model forms in PEARL (arXiv 2408.11850) and DSI (arXiv 2405.14105).

    Args:
        seconds: per level, seconds per token (``Prediction.seconds``).
        devices: per level, where it runs.
    """
    busy: dict[str, float] = {}
    for spent, device in zip(seconds, devices, strict=True):
        busy[device] = busy.get(device, 0.0) + spent
    return Bounds(max(busy.values()), sum(seconds))


def overlap_speedup_bound(alpha: float, gamma: int, c: float) -> float:
    """Upper bound when every draft token is ready for free or the draft is what limits: E / max(1, gamma c).

    Tends to 1 / (1 - alpha) for a fast draft and long gamma. Source: Theorem 3.8 of arXiv 2211.17192 with
    max in the place of the sum; the case p_hit = 1 of ``presumed_speedup``.
    """
    check_cost(c)
    return expected_tokens(alpha, gamma) / max(1.0, gamma * c)


def outcome_law(alpha: float, gamma: int) -> list[float]:
    """P(exactly k of gamma draft tokens are accepted), k = 0 .. gamma. Source: arXiv 2211.17192, section 3.1."""
    check(alpha, gamma)
    return outcome_chances([alpha] * gamma)


def power_law_cover(fan_out: int, exponent: float) -> float:
    """Chance that the next token is among the ``fan_out`` most likely ones: 1 - F^-r, 0 for F = 0.

    Source: the miss law fitted in arXiv 2603.03251; the exponent r is measured. It gives 0 for F = 1: measured
    covers, where there are any, go to ``hit_rate`` directly.
    """
    if fan_out < 0 or exponent <= 0:
        raise ValueError(f"cover: fan-out {fan_out!r} must be >= 0 and exponent {exponent!r} > 0")
    return 0.0 if fan_out == 0 else 1 - fan_out**-exponent


def hit_rate(outcomes: Sequence[float], fan_out: Sequence[int], cover: Mapping[int, float] | float) -> float:
    """Chance that the verification's outcome (tokens accepted, next token) was drafted for beforehand.

    Sum over k of P(k accepted) x P(next token among the F_k candidates kept for it). Source: arXiv 2603.03251.

    Args:
        outcomes: P(k accepted), k = 0 .. gamma.
        fan_out: F_k, how many next tokens are covered after k accepted; 0 covers none.
        cover: fan-out -> chance that the next token is among that many, or the exponent of ``power_law_cover``.

    Raises:
        ValueError: if a fan-out has no measured cover.
    """
    total = 0.0
    for p, f in zip(outcomes, fan_out, strict=True):
        if isinstance(cover, Mapping):
            if f and f not in cover:
                raise ValueError(f"cover: nothing is known about a fan-out of {f}")
            total += p * (cover[f] if f else 0.0)
        else:
            total += p * power_law_cover(f, cover)
    return total


def best_fan_out(outcomes: Sequence[float], budget: int, exponent: float) -> list[int]:
    """Fan-outs F_k with the highest hit rate among those with sum F_k <= ``budget``, under the power law.

    Exact (``ssd.plan.lookahead.allocate``). For large budgets F_k is proportional to p_k^(1/(1+r)), the geometric
    fan-out of arXiv 2603.03251.
    """
    if isinstance(budget, bool) or not isinstance(budget, int) or budget < 0:
        raise ValueError(f"budget: expected an integer >= 0, got {budget!r}")
    if budget == 0:
        return [0] * len(outcomes)
    return allocate(Ahead(PowerMiss(0.0, 0.0, exponent), budget), outcomes, [True] * len(outcomes))


def presumed_speedup(
    hit: float, tokens_hit: float, tokens_miss: float, draft_seconds: float, backup_seconds: float
) -> float:
    """Speedup over AR of drafting for presumed outcomes on a device of its own.

    (p E_hit + (1-p) E_miss) / (p max(1, T_p) + (1-p)(1 + T_b)), times in verifications. Source: arXiv 2603.03251.

    Args:
        hit: p, chance that the outcome was drafted for.
        tokens_hit, tokens_miss: mean emitted tokens per round then.
        draft_seconds: T_p, time to draft for all presumed outcomes during a verification.
        backup_seconds: T_b, time to draft after a miss.
    """
    check(hit, 0)
    for c in (draft_seconds, backup_seconds):
        check_cost(c)
    tokens = hit * tokens_hit + (1 - hit) * tokens_miss
    return tokens / (hit * max(1.0, draft_seconds) + (1 - hit) * (1 + backup_seconds))


def pipelined_seconds(hit: float, draft_seconds: float, verify_seconds: float) -> float:
    """Seconds of a round whose draft is ready with probability ``hit``: a hit costs the longer of the two, a miss both.

    Between the longer and the sum, so within ``schedule_bounds`` of two devices. Source: ``presumed_speedup`` (arXiv
    2603.03251) with the same draft length on a hit and on a miss.
    """
    check(hit, 0)
    if min(draft_seconds, verify_seconds) < 0 or math.isinf(draft_seconds + verify_seconds):
        raise ValueError(f"seconds: {draft_seconds!r} to draft, {verify_seconds!r} to verify must be >= 0 and finite")
    both = draft_seconds + verify_seconds
    return hit * max(draft_seconds, verify_seconds) + (1 - hit) * both


def speedup_per_device(speedup: float, devices: float, baseline_devices: float = 1) -> float:
    """Speedup ÷ (devices used ÷ devices AR uses): the speedup of equal hardware kept busy by copies of AR.

    Source: derived here; arXiv 2603.03251 states its speedups with one device more than AR's.
    """
    if devices <= 0 or baseline_devices <= 0:
        raise ValueError(f"devices: {devices!r} and {baseline_devices!r} must be > 0")
    return speedup * baseline_devices / devices

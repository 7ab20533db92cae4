"""Synthetic profile files whose best plan is known."""

from __future__ import annotations

import json

WIDTHS = (1, 2, 4, 8, 16, 32)


def profile(costs, acceptance, bytes_=(10, 20, 100)):
    """L0, L1, L2 with passes that take ``costs`` seconds at any width, batch 1."""
    levels = [
        {
            "name": f"L{k}",
            "bytes": size,
            "device": "cpu",
            "seconds": [{"width": w, "batch": 1, "seconds": cost} for w in WIDTHS],
        }
        for k, (cost, size) in enumerate(zip(costs, bytes_, strict=True))
    ]
    return {
        "schema": 1,
        "temperature": 0.0,
        "levels": levels,
        "acceptance": {pair: {"alpha": alpha} for pair, alpha in acceptance.items()},
    }


def rates(a01, a12, a02):
    return {"L0→L1": a01, "L1→L2": a12, "L0→L2": a02}


ALONE = profile((0.6, 0.8, 1.0), rates(0.5, 0.4, 0.3))
PAIR = profile((0.05, 0.5, 1.0), rates(0.72, 0.75, 0.7))
TRIPLE = profile((0.01, 0.1, 1.0), rates(0.9, 0.9, 0.5))


def write(path, data):
    path.write_text(json.dumps(data), encoding="utf-8")
    return path

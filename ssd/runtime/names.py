"""What a level's runtime may be called; no torch."""

from __future__ import annotations

RUNTIMES = ("eager", "graph", "compiled")

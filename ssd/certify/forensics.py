"""Rung 5: where outputs of a chain in 16 bit leave the target's own, rounding alone must explain it.

Equal mathematics in another order rounds differently, so a greedy output may part from AR's where two logits
are as good as equal. Each first difference is shown with its gaps; one beyond the measured noise is a fault. That
noise is epsilon, the largest over all ids and positions, and besides the noise of this row and these two tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ssd.bench.divergence import Parting, Rescorer, row_noise
from ssd.certify.identity import (
    Ids,
    Outputs,
    block_width,
    found_partings,
    greedy,
    one_by_one,
    parting_words,
    ragged,
    together,
    whole_pass_checks,
)
from ssd.certify.ladder import NotApplicableError
from ssd.certify.result import Check
from ssd.certify.subchains import WIDE, alone, check_drafts
from ssd.core.chain import Chain, Scorer
from ssd.core.model import CachedModel
from ssd.core.ngram import Ngram


def check_forensics(chain: Chain, prompts: Sequence[Sequence[int]], *, tokens: int = 24, batch: int = 8) -> list[Check]:
    """Checks that greedy outputs of ``chain`` part from AR's at rounding ties only.

    Args:
        prompts: token ids, used in turn until there are ``batch`` rows.
        tokens: new tokens a row.
        batch: rows decoded together, at least 2.

    Raises:
        NotApplicableError: every level is held in float32 or wider, where identity itself is claimed.
    """
    check_drafts(chain, "forensics")
    if not narrow_levels(chain):
        raise NotApplicableError("no level is held in 16 bit or quantised, so outputs have no leave to part")
    rows = ragged(prompts, batch)
    own = {name: greedy(alone(chain), [ids], tokens)[0] for name, ids in rows.items()}
    runs = [
        Outputs("chain, 1 row", one_by_one(chain, rows, tokens), own),
        Outputs(f"AR, {batch} rows", together(alone(chain), rows, tokens), own),
        Outputs(f"chain, {batch} rows", together(chain, rows, tokens), own),
    ]
    return [whole_pass_checks(chain, rows, own)[0], *(tie_check(chain, rows, run) for run in runs)]


def tie_check(chain: Chain, rows: dict[str, Ids], run: Outputs) -> Check:
    """Passes where every difference is a rounding tie that the noise of its own row explains; all are told."""
    rescorer = Rescorer(chain.scorer(chain.depth), block_width(chain))
    ties: list[str] = []
    structural: list[str] = []
    for parting in found_partings(chain, rows, run):
        words = parting_words(parting)
        if parting.gap is not None:
            noise = row_noise(parting, rows[parting.prompt_id], run.theirs[parting.prompt_id], rescorer)
            words += f", at this row {noise:.2g}"
        (ties if parting.gap is not None and explained(parting, noise) else structural).append(words)
    n = len(run.ours)
    detail = f"{n} outputs, {len(ties)} part by a rounding tie, {len(structural)} otherwise"
    detail = "; ".join([detail, *structural, *ties])
    return Check(f"{run.name}: AR's text", not structural, 0.0, n, detail, float(len(structural)))


def explained(parting: Parting, noise: float) -> bool:
    """Whether a parting is a tie, and one within ``row_noise`` of its row.

    Twice the noise is allowed: the passes of the run itself, wider or of more rows, were not among those measured.
    A block pass that prefers the other token, or likes both the same, puts the noise at the gap or above.
    """
    return parting.is_tie and parting.gap is not None and abs(parting.gap) <= 2 * noise


def narrow_levels(chain: Chain) -> list[int]:
    """Levels held in fewer than 32 bits, be it one weight, or quantised."""
    held = enumerate(level.model for level in chain.levels)
    return [k for k, model in held if not isinstance(model, Ngram) and _is_narrow(model)]


def _is_narrow(model: Scorer) -> bool:
    """Whether a weight is in 16 bit or packed in bytes, or the model's configuration says how it is quantised."""
    if not isinstance(model, CachedModel):
        return model.dtype not in WIDE
    module = model.module
    if getattr(module.config, "quantization_config", None) is not None:
        return True
    weights = {p.dtype for p in module.parameters()}
    floats = {t for t in weights | {b.dtype for b in module.buffers()} if t.is_floating_point}
    return bool(floats - {*WIDE} or weights & {torch.int8, torch.uint8})

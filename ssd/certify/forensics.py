"""Rung 5: where outputs of a chain in 16 bit leave the target's own, rounding alone must explain it.

Equal mathematics in another order rounds differently, so a greedy output may part from AR's where two logits
are as good as equal. Each first difference is shown with its gaps; one beyond the measured noise is a fault.
"""

from __future__ import annotations

from collections.abc import Sequence

from ssd.certify.identity import Outputs, greedy, identity_check, one_by_one, ragged, together, whole_pass_checks
from ssd.certify.ladder import NotApplicableError
from ssd.certify.result import Check
from ssd.certify.subchains import WIDE, alone, check_drafts
from ssd.core.chain import Chain
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
    return [whole_pass_checks(chain, rows, own)[0], *(identity_check(chain, rows, run, shown=batch) for run in runs)]


def narrow_levels(chain: Chain) -> list[int]:
    """Levels whose weights are held in fewer than 32 bits."""
    held = enumerate(level.model for level in chain.levels)
    return [k for k, model in held if not isinstance(model, Ngram) and model.dtype not in WIDE]

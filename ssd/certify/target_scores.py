"""Log-probability of recorded outputs under the target, kept beside the records.

The law is the target's own at temperature 1 without filters, whatever the run sampled with: it is defined for
every token, and outputs of a flatter law are less probable under it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch

from ssd.bench.equivalence_measures import LogProbabilities
from ssd.bench.json_files import read_json, write_json
from ssd.bench.records import Run, check_real
from ssd.bench.spec import LevelSpec
from ssd.core.model import CachedModel

FILE = "log_probabilities.json"


def log_probabilities(run: Run, target: CachedModel, level: LevelSpec) -> LogProbabilities:
    """(sum of natural logs, tokens) of every output of a run, by run, method, prompt and sample.

    Records that lack their prompt's ids are left out. What an earlier call found for the very same records and
    target is taken from ``log_probabilities.json`` in the run's folder, where this call leaves what it finds.

    Args:
        run: read back from its folder.
        target: the run's target.
        level: what the target was loaded from.
    """
    assert run.path is not None
    check_real(run.records, "log-probabilities")
    told = {"source": level.source, "dtype": level.dtype, "records": _digest(run)}
    path = run.path / FILE
    stored = read_json(path) if path.exists() else {}
    if stored.get("of") != told:
        values = [
            [r["method"], r["prompt_id"], r["sample"], *total_log_probability(target, r["prompt_ids"], r["output_ids"])]
            for r in run.records
            if r["prompt_ids"]
        ]
        stored = {"of": told, "values": values}
        write_json(path, stored)
    name = str(run.run["run_id"])
    return {
        (name, method, prompt, sample): (total, tokens) for method, prompt, sample, total, tokens in stored["values"]
    }


@torch.inference_mode()
def total_log_probability(target: CachedModel, prompt: Sequence[int], output: Sequence[int]) -> tuple[float, int]:
    """(sum of the log-probabilities of ``output`` after ``prompt``, its tokens), in one pass."""
    if not output:
        return 0.0, 0
    text = [*prompt, *output[:-1]]
    target.allocate(1, len(text))
    target.owner = None  # a generation in progress elsewhere must not trust this cache
    rows = target.score(
        torch.tensor([text], device=target.device), torch.tensor([0], device=target.device), len(output)
    )
    picked = torch.tensor([output], device=target.device)[..., None]
    found = rows.float().log_softmax(-1).gather(-1, picked)
    return float(found.double().sum()), len(output)


def _digest(run: Run) -> str:
    """Of what was generated: run, method, prompt, sample and ids of every record."""
    digest = hashlib.sha256()
    for r in run.records:
        told = (r["run_id"], r["method"], r["prompt_id"], r["sample"], r["prompt_ids"], r["output_ids"])
        digest.update(repr(told).encode())
    return digest.hexdigest()

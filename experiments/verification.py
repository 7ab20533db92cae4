"""Token against block verification, measured: ``python -m experiments.verification [key=value ...]``.

Every chain of ``conf/verification.yaml`` runs with each of its edges under either rule, prompt by prompt in
rotating order. Writes ``results/verification/summary.json``: block divided by token in speed, end to end
and for each edge alone, and the difference in tau on every edge.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from analysis.table import METHOD_COLUMNS, SUMMARY_COLUMNS, method_rows, print_table
from experiments.bench import ROOT
from experiments.bench_config import prompts_of, read_config
from experiments.console import ProgressLine
from experiments.publish import publish
from ssd.bench.acceptance import Record, edge_counts
from ssd.bench.experiment import BASELINE, run_pass
from ssd.bench.loading import Loader
from ssd.bench.method_spec import EdgeSpec, MethodSpec
from ssd.bench.metrics import speedup
from ssd.bench.records import Run, group_by
from ssd.bench.spec import RunSpec, read_chain
from ssd.bench.statistics import Estimate, paired_bootstrap, ratio_of_totals
from ssd.bench.summary import Row, write_summary
from ssd.bench.tuning import label, parse_families
from ssd.core.requests import Sampling

RESULTS = ROOT / "results" / "verification"
Rules = tuple[str, ...]  # one verification rule per edge, from the bottom


def main(arguments: list[str]) -> int:
    """Run, print and write; 0 whatever comes out."""
    config = read_config(ROOT / "conf" / "verification.yaml", arguments, {"measure": "evaluate"})
    families = {
        f"{name} [{label(edges)}]": (family.levels, edges)
        for name, family in parse_families(config["families"]).items()
        for edges in family.edges
    }
    run = measure(config, families, shlex.join(["python", "-m", "experiments.verification", *arguments]))
    print_table(method_rows(run.records, BASELINE), METHOD_COLUMNS)
    by = {str(method): own for (method,), own in group_by(run.records, "method").items()}
    rows = [row for name, (_, edges) in families.items() for row in gains(name, len(edges), by)]
    print_table([row.as_dict() for row in rows], SUMMARY_COLUMNS)
    write_summary(RESULTS / "summary.json", [publish(run, RESULTS)], rows)
    print(f"wrote {(RESULTS / 'summary.json').relative_to(ROOT)}")
    return 0


def measure(config: Mapping[str, Any], families: Mapping[str, tuple[Any, Sequence[EdgeSpec]]], command: str) -> Run:
    """One run of every family under every choice of rules, beside the target alone."""
    chain = read_chain(config["chain"])
    chain = replace(chain, levels=(*chain.levels[:-1], replace(chain.levels[-1], dtype=config["target_dtype"])))
    methods = {BASELINE: MethodSpec(levels=(len(chain.levels) - 1,))}
    for name, (levels, edges) in families.items():
        for rules in choices(len(edges)):
            ruled = tuple(replace(edge, verification=rule) for edge, rule in zip(edges, rules, strict=True))
            methods[method_name(name, rules)] = MethodSpec(levels=tuple(levels), edges=ruled)
    prompts, tokens = prompts_of(config, "measure")
    sampling = Sampling(float(config["temperature"]))
    spec = RunSpec("verification", chain, methods, prompts, sampling, tokens, seed=config["seed"])
    folder = ROOT / "results" / "raw" / "verification" / "measure"
    return run_pass(spec, folder, Loader(), ProgressLine("verification"), command=command, timing="paper")


def choices(edges: int) -> list[Rules]:
    """Every rule on every edge, all-token first."""
    return list(product(("token", "block"), repeat=edges))


def method_name(family: str, rules: Rules) -> str:
    """How records call a family under some rules."""
    return f"{family} {'/'.join(rules)}"


def gains(family: str, edges: int, by: Mapping[str, Sequence[Record]]) -> list[Row]:
    """Block on one edge, and on all of them, against token on all: speed, and tau of that edge."""
    token = by[method_name(family, ("token",) * edges)]
    changed = {f"edge {k}": tuple("block" if e == k else "token" for e in range(edges)) for k in range(edges)}
    if edges > 1:
        changed["all edges"] = ("block",) * edges
    rows = []
    for where, rules in changed.items():
        block = by[method_name(family, rules)]
        rows.append(Row.of(f"speedup: {family}, block / token on {where}", speedup(block, token)))
        for k in [k for k in range(edges) if rules[k] == "block"]:
            name = f"tau: {family}, block - token on {where}, measured on edge {k}"
            rows.append(Row.of(name, tau_difference(block, token, k), "tokens"))
    return rows


def tau_difference(ours: Sequence[Record], theirs: Sequence[Record], edge: int) -> Estimate:
    """Emitted tokens per verification of an edge, ours minus theirs, with the interval of prompts drawn together."""
    table = []
    theirs_of = group_by(theirs, "prompt_id")
    for prompt, own in group_by(ours, "prompt_id").items():
        counts = edge_counts(own, edge), edge_counts(theirs_of[prompt], edge)
        table.append([float(x) for c in counts for x in (c.emitted, c.rounds)])
    return paired_bootstrap(lambda t: ratio_of_totals(t[..., :2]) - ratio_of_totals(t[..., 2:]), np.array(table))


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ValueError as error:
        sys.exit(f"error: {error}")

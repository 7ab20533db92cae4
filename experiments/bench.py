"""The paired ratios of the default chain: ``python -m experiments.bench [key=value ...]``.

Stages: time passes and give each draft its faster dtype; choose every family's edges on the tuning
prompts; measure all methods at temperature 0
on the other prompts; the same at temperature 1 for the acceptance statistics; teacher-forced
overlaps against the table that came with the drafts. Writes ``results/bench/summary.json``.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from analysis.quality_rows import bleu_tokenizer
from analysis.rows import method_summary
from analysis.table import METHOD_COLUMNS, SUMMARY_COLUMNS, method_rows, print_table
from experiments.bench_config import prompts_of, read_config
from experiments.console import ProgressLine, print_partings
from experiments.publish import publish
from ssd.bench.acceptance import acceptance_check, edges
from ssd.bench.experiment import BASELINE, differences, run_pass
from ssd.bench.loading import Loader
from ssd.bench.method_spec import EdgeSpec, MethodSpec
from ssd.bench.metrics import batches, clock, pass_shares, speedup
from ssd.bench.profile import pass_seconds
from ssd.bench.records import Run, group_by
from ssd.bench.spec import ChainSpec, RunSpec, read_chain
from ssd.bench.summary import Row, write_summary
from ssd.bench.teacher_forced import teacher_forced
from ssd.bench.tuning import FamilySpec, candidates, choose, fastest, label, parse_families
from ssd.core.model import CachedModel
from ssd.core.requests import Sampling

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results" / "bench"
TF_AR, TF_ASSISTED, TF_LOOKUP = "transformers ar", "transformers assisted L0", "transformers prompt look-up"
NGRAM, PAIR0, PAIR1, CHAIN = "n-gram→L2", "L0→L2", "L1→L2", "L0→L1→L2"
PAIRS = (NGRAM, PAIR0, PAIR1)
FIXED = "L0→L2 at the same draft length"
PROFILE_WIDTHS, PROFILE_REPEATS = (1, 2, 4, 8), 21
TARGET_ALONE = MethodSpec(levels=(2,))

# Expected acceptance of the bundled drafts on held.safetensors, float32, from the run that trained them.
PUBLISHED = {
    ("L1", "L2"): {1.0: 0.5638, 0.7: 0.5679, 0.0: 0.5582},
    ("L0", "L1"): {1.0: 0.6805, 0.7: 0.6780, 0.0: 0.6591},
    ("L0", "L2"): {1.0: 0.5054, 0.7: 0.5089, 0.0: 0.4987},
}


def main(arguments: list[str]) -> int:
    """Run all stages; 0 even where a goal is not met, because that is a finding."""
    config = read_config(ROOT / "conf" / "bench.yaml", arguments)
    bench = Bench(config, shlex.join(["python", "-m", "experiments.bench", *arguments]))
    profile = bench.choose_dtypes()
    tuned = bench.stage("tune", {BASELINE: TARGET_ALONE, **candidates(bench.families)}, 0.0)
    choice = Choice.of(bench.families, tuned)
    print("\nchosen on the tuning prompts:", choice)
    methods = choice.methods(bench.families)
    greedy = bench.stage("measure", methods, 0.0)
    print_partings(differences(bench.spec("measure", methods, 0.0), greedy, bench.loader), asserted=False)
    sampled = bench.stage("sampled", {k: m for k, m in methods.items() if m.kind == "chain"}, 1.0)
    rows = profile + ratio_rows(greedy, choice) + acceptance_rows("T0", greedy) + acceptance_rows("T1", sampled)
    rows += overlap_rows(config["chain"])
    print_table([r.as_dict() for r in rows], SUMMARY_COLUMNS)
    for name, done in (("T0", greedy), ("T1", sampled)):
        rows += method_summary(name, done.records, BASELINE, tokenize=bleu_tokenizer(done))
    write_summary(RESULTS / "summary.json", [publish(r, RESULTS) for r in (tuned, greedy, sampled)], rows)
    print("wrote results/bench/summary.json")
    return 0


class Bench:
    """The bench's configuration, the command that runs it, and its loaded models."""

    def __init__(self, config: Mapping[str, Any], command: str) -> None:
        self.config, self.command, self.loader = config, command, Loader()
        self.families = parse_families(config["families"])
        chain = read_chain(config["chain"])
        self.chain = replace(
            chain, levels=(*chain.levels[:-1], replace(chain.levels[-1], dtype=config["target_dtype"]))
        )

    def choose_dtypes(self) -> list[Row]:
        """Give each draft the dtype in which a pass over one token and one over four take less in sum."""
        levels = {(k, d): replace(x, dtype=d) for k, x in enumerate(self.chain.levels) for d in ("float32", "bfloat16")}
        models = {f"L{k} {d}": self.loader.level(x, f"L{k}").model for (k, d), x in levels.items()}
        seconds = pass_seconds(
            {n: m for n, m in models.items() if isinstance(m, CachedModel)}, PROFILE_WIDTHS, PROFILE_REPEATS
        )
        print_table(profile_table(seconds), ["level", *(f"{w} tokens, ms" for w in PROFILE_WIDTHS)])

        def cost(k: int, dtype: str) -> float:
            return seconds[f"L{k} {dtype}", 1] + seconds[f"L{k} {dtype}", 4]

        drafts = tuple(
            levels[k, min(("float32", "bfloat16"), key=lambda d: cost(k, d))] for k in range(len(self.chain.levels) - 1)
        )
        self.chain = replace(self.chain, levels=(*drafts, self.chain.levels[-1]))
        self.loader.keep_only(self.chain)
        return [Row(f"pass: {name}, {w} tokens", s, "s", n=PROFILE_REPEATS) for (name, w), s in seconds.items()]

    def spec(self, name: str, methods: dict[str, MethodSpec], temperature: float) -> RunSpec:
        """The run of a stage."""
        prompts, tokens = prompts_of(self.config, name)
        return RunSpec("bench", self.chain, methods, prompts, Sampling(temperature), max_new_tokens=tokens)

    def stage(self, name: str, methods: dict[str, MethodSpec], temperature: float) -> Run:
        """Run one stage and print its table."""
        spec = self.spec(name, methods, temperature)
        folder, progress = ROOT / "results" / "raw" / "bench" / name, ProgressLine(name)
        run = run_pass(spec, folder, self.loader, progress, command=self.command, timing="paper", label=name)
        print(f"\n{name}: temperature {temperature:g}")
        print_table(method_rows(run.records, BASELINE), METHOD_COLUMNS)
        if run.run["busy"]:
            print(f"warning: {run.run['busy_elsewhere']:.0%} of the machine was busy with something else")
        return run


def profile_table(seconds: Mapping[tuple[str, int], float]) -> list[dict[str, Any]]:
    """One row per model: milliseconds at each width."""
    names = dict.fromkeys(name for name, _ in seconds)
    return [{"level": n, **{f"{w} tokens, ms": seconds[n, w] * 1e3 for w in PROFILE_WIDTHS}} for n in names]


@dataclass(frozen=True)
class Choice:
    """What the tuning prompts decided.

    Attributes:
        edges: of each family.
        fixed: draft length of L0→L2 without a confidence rule, which transformers is given too.
        best, pair: fastest family, and fastest of those with one edge.
    """

    edges: Mapping[str, tuple[EdgeSpec, ...]]
    fixed: int
    best: str
    pair: str

    @staticmethod
    def of(families: Mapping[str, FamilySpec], tuned: Run) -> Choice:
        """Fastest on the tuning prompts, by tokens per second."""
        fixed = replace(families[PAIR0], edges=tuple(e for e in families[PAIR0].edges if e[0].window == "at_least"))
        return Choice(
            choose(families, tuned.records),
            choose({PAIR0: fixed}, tuned.records)[PAIR0][0].gamma,
            fastest(families, tuned.records, list(families)),
            fastest(families, tuned.records, PAIRS),
        )

    def __str__(self) -> str:
        edges = "; ".join(f"{name} [{label(e)}]" for name, e in self.edges.items())
        return f"{edges}; fastest {self.best}, fastest pair {self.pair}"

    def methods(self, families: Mapping[str, FamilySpec]) -> dict[str, MethodSpec]:
        """AR, the baselines at our draft lengths, every family at its edges, and L0→L2 at the baselines' length."""
        return {
            BASELINE: TARGET_ALONE,
            TF_AR: MethodSpec("transformers_ar"),
            TF_ASSISTED: MethodSpec("transformers_assisted", levels=(0, 2), gamma=self.fixed),
            TF_LOOKUP: MethodSpec("transformers_lookup", gamma=self.edges[NGRAM][0].gamma),
            FIXED: MethodSpec(levels=(0, 2), edges=(EdgeSpec(self.fixed),)),
            **{name: MethodSpec(levels=family.levels, edges=self.edges[name]) for name, family in families.items()},
        }


def ratio_rows(run: Run, choice: Choice) -> list[Row]:
    """The paired ratios at temperature 0 with their goals and bounds."""
    by = {method: own for (method,), own in group_by(run.records, "method").items()}

    def ratio(name: str, ours: str, theirs: str, **goals: float) -> Row:
        bound = idle_free(by[ours]) / seconds_per_token(by[ours]) if goals else None
        value = speedup(by[ours], by[theirs])
        # With no time at all outside passes, the same passes would be this fast.
        best = None if bound is None or value.value is None else value.value / bound
        return Row.of(f"speedup: {name}", value, "x", bound=best, **goals)

    rows = [
        ratio("ar / transformers ar", BASELINE, TF_AR, goal=1.0, low_goal=0.98),
        ratio("L0→L2 / transformers assisted", FIXED, TF_ASSISTED, goal=1.03),
        ratio(f"best ({choice.best}) / ar", choice.best, BASELINE, goal=1.4),
        ratio("L0→L1→L2 / L1→L2", CHAIN, PAIR1, goal=1.0),
        ratio(f"L0→L1→L2 / best pair ({choice.pair})", CHAIN, choice.pair),
    ]
    ours, theirs = (outside_per_token(by[m]) for m in (FIXED, TF_ASSISTED))
    rows.append(
        Row("host time: L0→L2 / transformers assisted", ours / theirs, "x", n=len(by[FIXED]), goal=0.5, sense="max")
    )
    for method, own in by.items():
        goals: dict[str, Any] = {} if method.startswith("transformers") else {"goal": 0.1, "sense": "max"}
        rows.append(Row(f"outside passes: {method}", pass_shares(own)["rest"], "share", n=len(own), **goals))
    return rows


def seconds_per_token(records: Sequence[Mapping[str, Any]]) -> float:
    """Decode seconds per token.

    Raises:
        ValueError: naming the method, if a record does not state its seconds.
    """
    measured = list(map(clock, batches(records)))
    clocks = [c for c in measured if c is not None]
    if not clocks or len(clocks) < len(measured):
        raise ValueError(f"seconds: {_method(records)} does not state them for all prompts")
    return sum(c.seconds for c in clocks) / sum(c.tokens for c in clocks)


def outside_per_token(records: Sequence[Mapping[str, Any]]) -> float:
    """Decode seconds outside model passes, per token.

    Raises:
        ValueError: naming the method, if a record does not state them.
    """
    share = pass_shares(records)["rest"]
    if share is None:
        raise ValueError(f"seconds.rest: {_method(records)} does not state it for all prompts")
    return seconds_per_token(records) * share


def _method(records: Sequence[Mapping[str, Any]]) -> str:
    """How messages call the method that records are of."""
    return f"method {records[0]['method']!r}" if records else "a method without records"


def idle_free(records: Sequence[Mapping[str, Any]]) -> float:
    """Decode seconds inside model passes, per token."""
    return seconds_per_token(records) - outside_per_token(records)


def acceptance_rows(prefix: str, run: Run) -> list[Row]:
    """Accepted minus the sum of overlaps on every edge: |z| at temperature 1, the difference at 0."""
    rows = []
    for (method,), own in group_by(run.records, "method").items():
        for edge in edges(own):
            check = acceptance_check(own, edge)
            if check is None or (check.z is None and prefix != "T0"):
                continue
            if prefix == "T0":
                row = (f"{prefix} largest |accepted - overlap|: {method}, edge {edge}", check.largest_difference, 0.0)
            else:
                row = (f"{prefix} |z| of accepted - overlap: {method}, edge {edge}", abs(check.z or 0.0), 4.0)
            rows.append(
                Row(row[0], row[1], "tokens" if prefix == "T0" else "sigma", n=check.tested, goal=row[2], sense="max")
            )
    return rows


def overlap_rows(chain_name: str) -> list[Row]:
    """Teacher-forced overlaps in float32, as differences from the published table."""
    spec = read_chain(chain_name)
    chain = Loader().chain(ChainSpec(tuple(replace(x, dtype="float32") for x in spec.levels), spec.edges))
    held = load_file(ROOT / "tests" / "data" / "held.safetensors")["held"].long()
    pairs = {("L1", "L2"): (1, 2), ("L0", "L1"): (0, 1), ("L0", "L2"): (0, 2)}
    measured = teacher_forced(chain, held, list(pairs.values()), [1.0, 0.7, 0.0])
    rows = []
    for names, (a, b) in pairs.items():
        for t, published in PUBLISHED[names].items():
            got = measured[a, b, t]
            name = f"overlap {names[0]}→{names[1]} at T={t:g}"
            rows.append(
                Row(name, got.value, "share", got.value - 1.96 * got.stderr, got.value + 1.96 * got.stderr, got.n)
            )
            rows.append(
                Row(
                    f"{name}, |difference| from the table of the drafts",
                    abs(got.value - published),
                    "share",
                    n=got.n,
                    goal=0.001,
                    sense="max",
                )
            )
    return rows


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ValueError as error:
        sys.exit(f"error: {error}")

"""Stages 2 and 4: chains of device rounds at imposed acceptance against AR of the same run, beside their prediction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from experiments.gpu_bench_cases import TARGET, WIDTHS, Case, case, cases
from experiments.gpu_bench_cost import Predicted, best
from experiments.gpu_bench_machine import Machine
from experiments.gpu_bench_passes import STAGE as PASSES
from experiments.gpu_bench_passes import pass_times, time_passes
from experiments.gpu_bench_records import Records, say
from ssd.bench.statistics import paired_bootstrap, ratio_of_rates
from ssd.core.chain import Chain, Edge, Level
from ssd.core.requests import Request, Sampling
from ssd.plan.pass_times import PassTimes
from ssd.runtime.device_rounds import DeviceRounds
from ssd.runtime.imposed import EdgeRates
from ssd.runtime.static_chain import slack

STAGE, BATCHES = "rounds", "batches"
PREDICTED = "predicted "  # before a stage: what is expected of its cases, written before anything is measured
BATCH_CASES = (("1B", "7B", "70B"), ("7B", "70B"), ("1B", "70B"))


def run(machine: Machine, records: Records, temperature: float) -> None:
    """Every case at batch 1."""
    wanted = [(each, 1) for each in cases()]
    measure(machine, records, STAGE, wanted, machine.sizes.rounds, temperature)


def run_batches(machine: Machine, records: Records, temperature: float) -> None:
    """The chains of ``BATCH_CASES`` at several batch sizes, after the pass times that are needed."""
    sizes = machine.sizes
    levels = sorted({name for levels in BATCH_CASES for name in levels})
    for batch in sizes.batches:
        if batch > 1:
            time_passes(machine, records, [(name, w) for w in sizes.batch_widths for name in levels], batch)
    wanted = [(case(levels, "implied"), batch) for batch in sizes.batches[::-1] for levels in BATCH_CASES]
    measure(machine, records, BATCHES, wanted, sizes.batch_rounds, temperature)


def measure(
    machine: Machine,
    records: Records,
    stage: str,
    wanted: Sequence[tuple[Case, int]],
    rounds: int,
    temperature: float,
) -> None:
    """Predictions of all cases are written, then what is missing is measured in order."""
    expected = {}
    times = pass_times(records.of(PASSES))
    timed = {(r["level"], r["batch"]) for r in records.of(PASSES).values() if "level" in r}
    for each, batch in wanted:
        name = f"{each.name}/B{batch}"
        lacking = [level for level in each.levels if (level, batch) not in timed]
        if lacking:
            say(f"{stage} {name}: left out, no pass of {', '.join(lacking)} was timed yet")
        elif (stage, name) not in records.lines:
            expected[name] = predict(records, times, stage, each, batch)
    for each, batch in wanted:
        name = f"{each.name}/B{batch}"
        if name in expected and records.wants(stage, name):
            measured = measure_case(machine, each, expected[name], batch, rounds, temperature)
            records.add(stage, name, synthetic=True, predicted_speedup=expected[name].speedup, **measured)
            machine.forget()


def predict(records: Records, times: Mapping[str, PassTimes], stage: str, each: Case, batch: int) -> Predicted:
    """The best draft lengths by the pass times at hand; what was predicted before stays."""
    found = best(each, times, batch)
    name = f"{each.name}/B{batch}"
    if (PREDICTED + stage, name) not in records.lines:
        passes = [{"level": level, "width": width, "count": n} for (level, width), n in found.passes.items()]
        records.add(
            PREDICTED + stage, name, gammas=found.gammas, alphas=each.alphas, round_seconds=found.round_seconds,
            tau=found.tau, speedup=found.speedup, passes=passes,
        )  # fmt: skip
    said = records.lines[PREDICTED + stage, name]
    passes_said = {(p["level"], p["width"]): p["count"] for p in said["passes"]}
    return Predicted(tuple(said["gammas"]), said["round_seconds"], said["tau"], said["speedup"], passes_said)


@dataclass
class Runner:
    """Device rounds that begin again at their prompts before their room is used up.

    Attributes:
        tested, accepted: per edge, draft tokens so far.
    """

    rounds: DeviceRounds
    tokens: int

    def __post_init__(self) -> None:
        self.samples = self.run = 0
        self.tested = [0] * self.rounds.top
        self.accepted = [0] * self.rounds.top

    def prepare(self, rounds: int) -> None:
        """There is room for so many target rounds."""
        if (self.run + rounds) * (self.rounds.block + 1) > self.tokens:
            self.count()
            self.samples += 1
            self.rounds.restart(self.samples)
            self.run = 0
        self.run += rounds

    def count(self) -> None:
        """What was run since the last restart is in the counts."""
        for row in self.rounds.history():
            for r in row:
                if r.edge >= 0:
                    self.tested[r.edge] += r.tested or 0
                    self.accepted[r.edge] += r.accepted

    def length(self) -> int:
        """Tokens of all rows."""
        return int(self.rounds.length.sum())


def runner(
    machine: Machine, each: Case, gammas: Sequence[int], batch: int, temperature: float, role: str = "chain"
) -> Runner:
    """A case's chain behind its prompts, with one round done so that everything is compiled and recorded."""
    sizes = machine.sizes
    edges = tuple(Edge(g, "rounds" if k else "at_least") for k, g in enumerate(gammas))
    chain = Chain(tuple(Level(machine.level(name, role)) for name in each.levels), edges, names=each.levels)
    tokens = sizes.slots - sizes.prompt - slack(chain, WIDTHS)  # caches of one size, whatever the chain
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(chain.vocab_size, (batch, sizes.prompt), generator=generator).tolist()
    sampling = Sampling(temperature)
    asked = [Request(tuple(row), sampling, max_new_tokens=tokens, ignore_eos=True) for row in ids]
    rates = [EdgeRates.of(alpha) for alpha in each.alphas] if each.alphas else None
    own = DeviceRounds(chain, asked, rates, WIDTHS)
    own.advance(1)
    own.outputs()  # every level's logits are finite
    own.restart(0)
    return Runner(own, tokens)


def measure_case(
    machine: Machine, each: Case, expected: Predicted, batch: int, rounds: int, temperature: float
) -> dict[str, Any]:
    """Alternating chunks of the chain and of AR, and what they come to."""
    sizes = machine.sizes
    ours = runner(machine, each, expected.gammas, batch, temperature)
    ar = runner(machine, Case((TARGET,), "only", ()), (), batch, temperature, role="ar")
    chunks = []
    for _ in range(-(-rounds // sizes.chunk)):
        chunks.append([*_chunk(machine, ar, sizes.ar_chunk), *_chunk(machine, ours, sizes.chunk)])
    share = host_share(machine, ours, sizes.chunk)
    ours.count()
    found = paired_bootstrap(ratio_of_rates, chunks)
    target_rounds = len(chunks) * sizes.chunk
    seconds, tokens = (sum(c[i] for c in chunks) for i in (2, 3))
    tau = tokens / (target_rounds * batch)
    return {
        "chain": each.chain, "column": each.column, "alphas": each.alphas, "gammas": expected.gammas, "batch": batch,
        "temperature": temperature, "target_rounds": target_rounds, "tokens": tokens, "speedup": found.value,
        "low": found.low, "high": found.high, "ar_seconds_per_token": _ratio(chunks, 0), "tau": tau,
        "seconds_per_token": seconds / tokens, "round_seconds": seconds / target_rounds,
        "over_predicted": None if found.value is None else found.value / expected.speedup,
        # The coins of so many rounds are not their mean; the time of a round has no such noise.
        "rounds_over_predicted": expected.round_seconds * target_rounds / seconds,
        "speedup_at_expected_tokens": _ratio(chunks, 0) * expected.tau * batch * target_rounds / seconds,
        "alpha_counted": [a / t if t else None for a, t in zip(ours.accepted, ours.tested, strict=True)],
        "tested": ours.tested, "host_share": share, "chunks": chunks,
    }  # fmt: skip


def _ratio(chunks: Sequence[Sequence[float]], at: int) -> float:
    """Seconds per token of one side."""
    return sum(c[at] for c in chunks) / sum(c[at + 1] for c in chunks)


def _chunk(machine: Machine, own: Runner, rounds: int) -> tuple[float, int]:
    """(seconds, tokens of all rows) of some target rounds."""
    own.prepare(rounds)
    before = own.length()
    seconds = machine.clocked(lambda: own.rounds.advance(rounds))
    return seconds, own.length() - before


def host_share(machine: Machine, own: Runner, rounds: int) -> float | None:
    """Share of a target round in which the device waits for a host that reads the tokens after each round.

    One minus seconds of rounds queued at once over seconds of rounds each of which is read; None where the host is
    the device.
    """
    if not machine.is_cuda:
        return None

    def queued() -> None:
        own.rounds.advance(rounds)

    def read() -> None:
        for _ in range(rounds):
            own.rounds.advance(1)
            own.rounds.length.tolist()

    spent: dict[Callable[[], None], float] = {queued: 0.0, read: 0.0}
    for _ in range(3):
        for work in spent:
            own.prepare(rounds)
            spent[work] += machine.clocked(work)
    return max(0.0, 1 - spent[queued] / spent[read])

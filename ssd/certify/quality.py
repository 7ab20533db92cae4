"""Rung 6: outputs are as good as the target's, judged from records, with the target at T + 0.3 as positive control."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ssd.bench.environment import git_state
from ssd.bench.equivalence import FALSE_ALARM, compare
from ssd.bench.equivalence_measures import LogProbabilities, Texts, check_margins, measures
from ssd.bench.experiment import BASELINE, run_pass
from ssd.bench.loading import Loader
from ssd.bench.method_spec import MethodSpec
from ssd.bench.quality import References
from ssd.bench.records import RUN_FILE, Run, group_by, read_run, read_runs
from ssd.bench.run_id import run_id, scientific
from ssd.bench.runner import Progress
from ssd.bench.spec import ChainSpec, PromptSpec, RunSpec, parse
from ssd.certify.ladder import InconclusiveError
from ssd.certify.result import Check
from ssd.certify.target_scores import log_probabilities
from ssd.core.model import CachedModel
from ssd.core.requests import Sampling

WARMER = 0.3  # of the control above the records' temperature
METHOD = "chain"

Row = dict[str, Any]
Score = Callable[[Run], LogProbabilities]


@dataclass(frozen=True)
class QualitySpec:
    """What is compared, and how close is equal.

    Attributes:
        results: folder with runs to judge; None makes them.
        temperature, samples, max_new_tokens, batch, prompts: of the runs that are made.
        margins: by the names of ``ssd.bench.equivalence_measures.UNITS``.
    """

    results: str | None = None
    temperature: float = 1.0
    samples: int = 2
    max_new_tokens: int = 48
    batch: int = 8
    prompts: PromptSpec = field(default_factory=PromptSpec)
    margins: dict[str, float] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        Sampling(self.temperature)
        check_margins(self.margins)


def check_quality(
    chain: ChainSpec,
    quality: QualitySpec,
    seed: int,
    root: Path,
    loader: Loader,
    references: Callable[[Run], References | None],
    note: Callable[[list[Row]], None],
    progress: Progress,
    command: str,
) -> list[Check]:
    """A check per measure that could tell, and all rows handed to ``note``.

    Args:
        chain: what is certified.
        quality: which records, and how close is equal.
        seed: of the chain's outputs and the target's; the control has the next.
        root: where runs that are made have their folders.
        loader: where models come from.
        references: answers of a run's prompts, None where they cannot be had.
        note: takes all rows, inconclusive ones too.
        progress: see ``ssd.bench.experiment.run_pass``.
        command: noted in the runs that are made.

    Raises:
        InconclusiveError: no measure could tell.
        ValueError: the folder of results holds no complete run.
    """
    if quality.results is None:
        runs = make_records(run_specs(chain, quality, seed), root, loader, progress, command)
    else:
        runs, problems = read_runs(Path(quality.results).expanduser())
        if not runs:
            reason = f"; {problems[0].path}: {problems[0].reason}" if problems else ""
            raise ValueError(f"quality.results: no complete run below {quality.results}{reason}")
    level = chain.levels[-1]

    def score(run: Run) -> LogProbabilities:
        told = ((run.run.get("config") or {}).get("chain") or {}).get("levels") or [{}]
        if told[-1].get("source") != level.source or not any(r["prompt_ids"] for r in run.records):
            return {}
        target = loader.level(level, "quality").model
        assert isinstance(target, CachedModel)
        return log_probabilities(run, target, level)

    rows = quality_rows(runs, references, quality.margins, score)
    note(rows)
    if not rows:
        raise InconclusiveError("no method beside the target")
    found = checks(rows)
    if not found:
        raise InconclusiveError("; ".join([could_tell(rows), *(f"{row['measure']}: {row['reason']}" for row in rows)]))
    return found


def run_specs(chain: ChainSpec, quality: QualitySpec, seed: int) -> tuple[RunSpec, RunSpec]:
    """The target and the chain at the temperature, and the control: the target alone, warmer, by other seeds."""

    def spec(temperature: float, seed: int, methods: dict[str, MethodSpec]) -> RunSpec:
        return RunSpec(
            "certify",
            chain,
            methods,
            quality.prompts,
            Sampling(temperature),
            quality.max_new_tokens,
            quality.samples,
            seed,
            quality.batch,
        )

    alone = MethodSpec(levels=(-1,))
    own = spec(quality.temperature, seed, {BASELINE: alone, METHOD: MethodSpec()})
    return own, spec(round(quality.temperature + WARMER, 10), seed + 1, {BASELINE: alone})


def make_records(specs: Sequence[RunSpec], root: Path, loader: Loader, progress: Progress, command: str) -> list[Run]:
    """The runs of ``specs``, each in a folder of ``root`` named by its id.

    A complete run of the same spec by the same commit is taken as it is; any other is made anew, because a
    certificate speaks of this code.
    """
    runs = []
    for spec in specs:
        folder = root / run_id(spec)
        run = finished(folder, spec)
        described: dict[str, Any] = {"command": command, "timing": "shared", "label": folder.name}
        runs.append(run or run_pass(spec, folder, loader, progress, run_id=folder.name, **described))
    return runs


def finished(folder: Path, spec: RunSpec) -> Run | None:
    """The complete run of a spec that this very code made; None if the folder holds none."""
    if not (folder / RUN_FILE).exists():
        return None
    try:
        run = read_run(folder)
        same = scientific(parse(RunSpec, run.run["config"], "config")) == scientific(spec)
    except ValueError:  # of another version, or cut off: it is made again
        return None
    now = git_state()
    clean = now["commit"] is not None and not now["dirty"]
    return run if run.is_complete and same and clean and run.run["git"] == now else None


def quality_rows(
    runs: Sequence[Run],
    references: Callable[[Run], References | None],
    margins: Mapping[str, float],
    score: Score = lambda run: {},
    baseline: str = BASELINE,
) -> list[Row]:
    """One row per method, temperature and measure: ``Comparison.as_dict`` and what it is about.

    Args:
        runs: complete ones; the control of a method is the baseline of any of them at the method's temperature
            plus 0.3 on the same prompts and samples.
        references: answers of a run's prompts, None where they cannot be had.
        margins: by measure.
        score: log-probabilities of a run's outputs; empty where they cannot be had.
        baseline: the target alone.
    """
    alone = [(run, own) for run in runs for own in _settings(run).get(baseline, {}).values()]
    rows: list[Row] = []
    for run in runs:
        methods = _settings(run)
        scores: dict[Any, tuple[float, int]] = {}
        for method, settings in methods.items():
            for temperature, own in settings.items():
                other = methods.get(baseline, {}).get(temperature)
                if method == baseline or other is None:
                    continue
                control_run, control = _control(own, alone)
                scores = scores or {**score(run)}
                known = {**scores, **(score(control_run) if control_run is not None else {})}
                texts = Texts(other, references(run) or {})
                about = {
                    "run": run.run["run_id"],
                    "commit": (run.run.get("git") or {}).get("commit"),
                    "method": method,
                    "temperature": temperature,
                    "control_temperature": None if not control else control[0]["sampling"]["temperature"],
                    "outputs": len(own),
                }
                for measure in measures(texts, margins, known):
                    rows.append({**about, **compare(own, other, control, measure).as_dict()})
    return rows


def checks(rows: Sequence[Row]) -> list[Check]:
    """A check for every measure that could tell: it passes if equal, fails if different.

    Inconclusive measures give none: they stay in the rows and never count as equal. Every check says how many
    measures could tell.
    """
    several = len({row["run"] for row in rows}) > 1
    return [
        Check(
            name=f"{row['run'] + ': ' if several else ''}{row['method']} at T={row['temperature']:g}: {row['measure']}",
            passed=row["verdict"] == "equal",
            false_alarm=FALSE_ALARM,
            n=row["difference"]["n"],
            detail=f"{sentence(row)}; {could_tell(rows)}",
            value=row["difference"]["value"],
        )
        for row in rows
        if row["verdict"] != "inconclusive"
    ]


def could_tell(rows: Sequence[Row]) -> str:
    """How many measures gave a verdict, such as "1 of 5 measures could tell"."""
    return f"{sum(row['verdict'] != 'inconclusive' for row in rows)} of {len(rows)} measures could tell"


def sentence(row: Row) -> str:
    """The figures behind a row's verdict."""
    own, control, unit = row["difference"], row["control"], row["unit"]
    if own["value"] is None or own["low"] is None:
        return f"no interval from {own['n']} conversations"
    told = f"{own['ours']:.4g} {unit}, the target {own['theirs']:.4g}: {_interval(own)}, margin ±{row['margin']:g}"
    told += f", smallest detectable difference {row['smallest']:.3g}"
    if control is not None and control["low"] is not None:
        told += f"; target at T={row['control_temperature']:g}: {_interval(control)}"
    return f"{told}; {row['reason']}"


def _interval(difference: Mapping[str, float]) -> str:
    """A difference with its 90% interval."""
    return f"{difference['value']:+.3g} [{difference['low']:+.3g}, {difference['high']:+.3g}]"


def _settings(run: Run) -> dict[str, dict[float, list[Any]]]:
    """Records by method and temperature."""
    found: dict[str, dict[float, list[Any]]] = {}
    for (method, temperature), own in group_by(run.records, "method", "sampling.temperature").items():
        if temperature is not None:
            found.setdefault(method, {})[temperature] = own
    return found


def _control(own: Sequence[Any], alone: Sequence[tuple[Run, list[Any]]]) -> tuple[Run | None, list[Any] | None]:
    """The baseline's records at the temperature of ``own`` plus 0.3, of the same prompts, samples and length."""
    wanted, keys = own[0]["sampling"]["temperature"] + WARMER, _requests(own)
    for run, records in alone:
        warm = records[0]["sampling"]["temperature"]
        if math.isclose(warm, wanted, abs_tol=1e-9) and _requests(records) == keys:
            return run, records
    return None, None


def _requests(records: Sequence[Any]) -> set[tuple[str, int, int]]:
    """What was asked for, apart from the sampling."""
    return {(r["prompt_id"], r["sample"], r["max_new_tokens"]) for r in records}

"""Which sub-chain to use, predicted and then measured: ``python -m experiments.plan [key=value ...]``.

Keys are those of ``conf/plan.yaml``; what the files hold: ``docs/plan.md``.

Profiles the chain on the tuning prompts (or reads ``profile=FILE``), ranks every sub-chain at its best settings and
writes ``predictions.json`` and ``plan.json`` before anything is measured. Then, unless ``measured=false``, the top
plan, the runner-up, AR and the adaptive window run in alternation on the measure prompts, which gives
``measured.json`` and ``summary.json``.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any

from analysis.plan_html import write as write_page
from experiments.bench_config import prompts_of
from experiments.console import say
from experiments.plan_config import chain_of, check_plan, level_names, prompts_from, read_config, row_temperature
from experiments.plan_given import check_named, check_profile, check_used
from experiments.plan_measure import contest, contest_rows, raw_folder, run_methods
from experiments.plan_page import page, text
from experiments.plan_profile import measure
from experiments.plan_record import say_busy, write_measurements, write_predictions
from experiments.plan_stale import remove_measurements
from experiments.publish import publish
from ssd.bench.environment import device, git_state, versions
from ssd.bench.experiment import read_data
from ssd.bench.json_files import read_json, write_json
from ssd.bench.loading import Loader
from ssd.bench.spec import ChainSpec, RunSpec
from ssd.bench.summary import Row, write_summary
from ssd.calibrate.plan_temperatures import choose_temperatures
from ssd.core.requests import Sampling
from ssd.plan.inputs import read_inputs
from ssd.plan.planner import make_plan
from ssd.plan.recommendation import Ranking

ROOT = Path(__file__).resolve().parent.parent
CONFIG = ROOT / "conf" / "plan.yaml"
PLAN_SECONDS = 300.0  # goal, from the command's start to the plan on disk
PROVENANCE = ("git", "versions", "device", "busy_elsewhere", "busy", "context")


def main(arguments: Sequence[str]) -> int:
    """Plan, write the predictions, measure; 0 even where a prediction fails, because that is a finding."""
    began = perf_counter()
    config = read_config(CONFIG, arguments)
    search = check_plan(config)
    check_used(config, arguments)
    chain = chain_of(config["chain"], config["temperatures"])
    if config["profile"] is None:
        check_named(config, list(level_names(chain, config["ngram"])))
    command = shlex.join(["python", "-m", "experiments.plan", *arguments])
    results, loader = Path(config["results_dir"]), Loader()
    profile, where = the_profile(config, chain, loader, results)
    say_busy(where, profile)
    inputs = read_inputs(profile, where).with_devices(config["devices"] or {}).with_hit_curve(config["hit_curve"])
    inputs = inputs.with_acceptance(config["acceptance"] or {})
    found, plan = make_plan(inputs, search, choose_temperatures(inputs, search))
    plan = {"schema": 1, "command": command, "config": config, "profile": where} | plan
    plan |= {
        "temperature": profile["temperature"],
        "adaptive": profile.get("adaptive") if profile.get("batch", config["batch"]) == config["batch"] else None,
        "provenance": provenance(profile),
    }
    remove_measurements(results)
    plan["predictions_sha256"] = write_predictions(results / "predictions.json", command, plan)
    plan["predictions"] = (results / "predictions.json").as_posix()
    planned = perf_counter() - began
    plan |= {"seconds": {"plan": planned, "all": None}}
    write_json(results / "plan.json", plan)
    rows: list[Row] = []
    if config["measured"]:
        rows = measured(config, chain, found, plan, loader, results, command)
    plan |= {"seconds": {"plan": planned, "all": perf_counter() - began}}
    write_json(results / "plan.json", plan)
    summary = [row.as_dict() for row in rows]
    say(text(plan, summary))
    if config["html"]:
        lead = f"Predicted from {where}" + (", then measured." if rows else ".")
        write_page(results / "report.html", page(f"Plan of {config['chain']}", lead, plan, summary))
    say(f"wrote {results / 'plan.json'}")
    return 0


def the_profile(
    config: Mapping[str, Any], chain: ChainSpec, loader: Loader, results: Path
) -> tuple[dict[str, Any], str]:
    """A profile file's content and its path: the one that is given, else one measured now.

    Raises:
        ValueError: for a given one that is of another chain or other temperatures than asked for.
    """
    if config["profile"] is not None:
        data = read_json(Path(config["profile"]))
        check_profile(data, config, chain)
        data.setdefault("temperature", config["temperature"])
        return data, config["profile"]
    prompts, tokens = prompts_from(config, "tune", chain)
    asked = {
        "temperature": row_temperature(config["temperature"]),
        "batches": list(dict.fromkeys([config["batch"], *config["batches"]])),
        "draft_batches": draft_batches(config, chain),
        "temperature_factors": config["temperature_factors"],
        "guesses": True,
        "tokens": tokens,
        "ignore_eos": config["ignore_eos"],
        "profiling": config["profiling"],
        "adaptive_gamma": config["adaptive_gamma"],
    }
    written = {"written": datetime.now(UTC).isoformat(timespec="seconds")}
    data = measure(chain, level_names(chain, config["ngram"]), loader, prompts, asked) | written
    write_json(results / "profile.json", data)
    return data, (results / "profile.json").as_posix()


def draft_batches(config: Mapping[str, Any], chain: ChainSpec) -> list[int]:
    """Batch sizes, besides those timed anyway, at which drafting ahead on another device would run its passes."""
    own = {name: x.device for name, x in zip(level_names(chain, False), chain.levels, strict=True)}
    if len({(config["devices"] or {}).get(name, device) for name, device in own.items()}) == 1:
        return []
    known = {config["batch"], *config["batches"]}
    return sorted({budget * config["batch"] for budget in config["budgets"]} - known)


def provenance(profile: Mapping[str, Any]) -> dict[str, Any]:
    """Where the profile's numbers come from, as far as the file says, and what planned with them."""
    own = {name: profile.get(name) for name in PROVENANCE}
    return {"profile": own, "planner": {"git": git_state(), "versions": versions(), "device": device()}}


def measured(
    config: Mapping[str, Any],
    chain: ChainSpec,
    found: Ranking,
    plan: Mapping[str, Any],
    loader: Loader,
    results: Path,
    command: str,
) -> list[Row]:
    """Run the contest; its rows, which stand in ``summary.json`` and, with the hash, in ``measured.json``."""
    names = level_names(chain, config["ngram"])
    who = contest(found, plan["adaptive"] or {}, names, chain)
    spec = contest_spec(config, who.chain, who.methods)
    run = run_methods(spec, raw_folder(results, "measure"), loader, command, "measure")
    rows = contest_rows(run.records, who)
    rows.append(Row("wall seconds of plan", plan["seconds"]["plan"], "s", goal=PLAN_SECONDS, sense="max"))
    published = publish(run, results)
    write_measurements(
        results / "measured.json",
        results / "predictions.json",
        plan["predictions_sha256"],
        {"run": published.as_posix(), "rows": [row.as_dict() for row in rows]},
    )
    write_summary(results / "summary.json", published, rows)
    say_busy("measure", run.run)
    return rows


def contest_spec(config: Mapping[str, Any], chain: ChainSpec, methods: dict[str, Any]) -> RunSpec:
    """The run that measures; its prompts are read once to refuse a wrong selection early."""
    prompts, tokens = prompts_of(config, "measure")
    spec = RunSpec(
        Path(config["results_dir"]).name,
        chain,
        methods,
        prompts,
        Sampling(row_temperature(config["temperature"])),
        max_new_tokens=tokens,
        batch=config["batch"],
        ignore_eos=config["ignore_eos"],
    )
    read_data(spec)
    return spec


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ValueError as error:
        sys.exit(f"error: {error}")

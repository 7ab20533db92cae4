"""Chains of LLaMA-2 shapes on one GPU: ``python -m experiments.gpu_bench --stage passes``.

Needs torch, transformers, numpy and this library. Stages, in order: ``passes`` (copy ceiling, pass times against their
bandwidth floor), ``rounds`` (chains against AR at imposed acceptance), ``streams`` (two streams on one device),
``batches`` (where the gain ends). A stage writes a record per measurement, skips those that stand in the file, and
begins none that may not end within ``--seconds``. Method and fields: ``docs/gpu_bench.md``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from experiments import gpu_bench_passes, gpu_bench_rounds, gpu_bench_streams
from experiments.gpu_bench_cases import TINY, Sizes
from experiments.gpu_bench_machine import Machine
from experiments.gpu_bench_records import Records, made_with, say
from experiments.gpu_bench_summary import rows
from ssd.bench.summary import write_summary

STAGES = ("passes", "rounds", "streams", "batches")


def arguments(given: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m experiments.gpu_bench", description=__doc__)
    parser.add_argument("--stage", action="append", choices=STAGES, help="may be repeated; default all of them")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--runtime", choices=("graph", "compiled"), help="default compiled on a GPU, graph elsewhere")
    parser.add_argument(
        "--tune", action="store_true", help="products of one row by tuned kernels: compiling takes minutes longer"
    )
    parser.add_argument("--tiny", action="store_true", help="tiny shapes and few repeats: tries the program alone")
    parser.add_argument("--out", type=Path, help="folder, default results/h200")
    parser.add_argument("--seconds", type=float, default=220.0, help="within which a stage's measurements should end")
    parser.add_argument("--temperature", type=float, default=1.0, help="of every level; acceptance is imposed anyway")
    parser.add_argument("--commit", help="of the code, where there is no checkout to ask")
    chosen = parser.parse_args(given)
    if chosen.device == "cpu" and not chosen.tiny:
        parser.error("--device cpu: the published shapes do not fit a CPU's memory or time; add --tiny")
    if chosen.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: torch sees no GPU here; --device cpu --tiny tries the program")
    if chosen.tune and (chosen.runtime == "graph" or chosen.device == "cpu"):
        parser.error("--tune: only what is compiled for a GPU is tuned")
    if chosen.out is None and chosen.tiny:
        parser.error("--tiny: needs --out, so that tiny shapes never stand among real ones")
    return chosen


def main(given: Sequence[str]) -> int:
    """Run the stages and write their summary; 0 even where a goal is not met."""
    chosen = arguments(given)
    runtime = chosen.runtime or ("compiled" if chosen.device == "cuda" else "graph")
    machine = Machine(chosen.device, runtime, chosen.tiny, TINY if chosen.tiny else Sizes())
    if chosen.tune:
        import torch._inductor.config as compiler  # takes a second

        compiler.coordinate_descent_tuning = True
        runtime += ", tuned"
    told = made_with(machine.accelerator, torch.get_num_threads(), runtime, chosen.tiny, chosen.commit)
    out = chosen.out or Path("results/h200")
    for stage in chosen.stage or STAGES:
        records = Records(out, told, chosen.seconds)
        with torch.inference_mode():
            if stage == "passes":
                gpu_bench_passes.run(machine, records)
            elif stage == "rounds":
                gpu_bench_rounds.run(machine, records, chosen.temperature)
            elif stage == "streams":
                gpu_bench_streams.run(machine, records)
            else:
                gpu_bench_rounds.run_batches(machine, records, chosen.temperature)
        machine.forget()
    records = Records(out, told, 0.0)
    with_goals = not chosen.tiny and "H200" in (machine.accelerator or "")
    write_summary(out / "summary.json", out / "records.jsonl", rows(records, with_goals), synthetic=True)
    say(f"wrote {out / 'summary.json'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

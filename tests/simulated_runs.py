"""Run folders with simulated rounds: every number follows from a seed, nothing was measured.

``python -m tests.simulated_runs FOLDER`` writes the example that the notebook and the report's tests read:
two finished settings, a failed run and one whose last line is half-written.
"""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ssd.bench.json_files import dumps, write_json
from ssd.bench.records import RECORDS_FILE, RUN_FILE, SCHEMA, record_line
from ssd.core.requests import Generation, Passes, Round, Sampling, Seconds

TASKS = ("translation", "summarization", "math", "code", "long_form")
PASS = {"L0": 0.0017, "L1": 0.0095, "L2": 0.058, "n-gram": 0.0}  # seconds
REST = 0.0011  # seconds outside passes, per round
ALPHA = {("L0", "L1"): 0.70, ("L1", "L2"): 0.60, ("L0", "L2"): 0.50, ("n-gram", "L2"): 0.22}
AFTER = {"recovered": 0.14, "bonus": 0.05}  # a corrected token is the intermediate level's own: it passes more often
METHODS: dict[str, tuple[tuple[str, ...], tuple[int, ...]]] = {
    "ar": (("L2",), ()),
    "library assisted": (("L0", "L2"), (3,)),
    "n-gram→L2": (("n-gram", "L2"), (4,)),
    "L0→L2": (("L0", "L2"), (3,)),
    "L1→L2": (("L1", "L2"), (3,)),
    "L0→L1→L2": (("L0", "L1", "L2"), (2, 3)),
}


@dataclass
class Decoder:
    """One simulated generation."""

    levels: tuple[str, ...]
    gammas: tuple[int, ...]
    random: np.random.Generator
    prompt: int = 0
    slower: float = 1.0
    rounds: list[Round] = field(default_factory=list)
    passes: list[int] = field(default_factory=list)
    fed: list[int] = field(default_factory=list)

    def block(self, k: int, start: int, want: int, limit: int) -> list[str]:
        """Fates of the tokens that level ``k`` emits from ``start`` on: at least ``want``, at most ``limit``."""
        if k == 0 and len(self.levels) > 1:
            found = 0 if self.levels[0] == "n-gram" and self.random.random() < 0.45 else want
            self.count(0, found, 1)
            return ["plain"] * found
        begin = self.prompt if k == len(self.levels) - 1 else start  # the target's block is the whole output
        fates: list[str] = []
        while len(fates) < want:
            left = limit - len(fates)
            at = start + len(fates)
            gamma = min(self.gammas[k - 1], left - 1) if k else 0
            draft = self.block(k - 1, at, gamma, left - 1) if gamma else []
            chance = [self.chance(k, at + i, fate) for i, fate in enumerate(draft)]
            accepted = next((i for i, p in enumerate(chance) if self.random.random() >= p), len(draft))
            tested = min(accepted + 1, len(draft))
            end = "plain" if not draft else "bonus" if accepted == len(draft) else "recovered"
            told = () if self.slower > 1 else tuple(round(p, 3) for p in chance[:tested])
            self.rounds.append(Round(k - 1, begin, at, len(draft), tested, accepted, accepted + 1, end, told))
            self.count(k, 1, len(draft) + 1)
            fates += ["draft"] * accepted + [end]
        return fates

    def chance(self, k: int, at: int, fate: str) -> float:
        """Overlap of one draft token: falls a little along the text."""
        base = ALPHA[self.levels[k - 1], self.levels[k]]
        drift = 0.05 * np.sin(at / 5) - 0.0012 * at
        return float(np.clip(base + drift + AFTER.get(fate, 0.0) + self.random.normal(0, 0.1), 0.02, 0.98))

    def count(self, k: int, passes: int, tokens: int) -> None:
        """The level's model ran."""
        while len(self.passes) <= k:
            self.passes.append(0)
            self.fed.append(0)
        self.passes[k] += 0 if self.levels[k] == "n-gram" else passes
        self.fed[k] += 0 if self.levels[k] == "n-gram" else passes * tokens


def decode(name: str, tokens: int, prompt: int, random: np.random.Generator) -> Generation:
    """A whole simulated generation of ``tokens`` tokens by one of ``METHODS``."""
    levels, gammas = METHODS[name]
    own = Decoder(levels, gammas, random, prompt, 1.12 if name.startswith("library") else 1.0)
    own.count(len(levels) - 1, 0, 0)
    arrivals: list[tuple[float, int]] = []
    at, clock, prefill, before = 0, 0.0, 0.0, [0.0] * len(levels)
    top = len(levels) - 1
    while at < tokens:
        rounds, passes = len(own.rounds), list(own.passes)
        at += len(own.block(top, prompt + at, 1, tokens - at))
        now = [(a - b) * PASS[level] for a, b, level in zip(own.passes, passes, levels, strict=True)]
        now = [x * float(np.exp(random.normal(0, 0.03))) for x in now]
        clock += sum(now) * own.slower + REST * own.slower * (len(own.rounds) - rounds) + 0.04 * (not arrivals)
        arrivals.append((round(clock, 6), at))
        before = [a + b for a, b in zip(before, now, strict=True)] if len(arrivals) > 1 else before
        prefill = arrivals[0][0]
    before = [round(x, 6) for x in before]
    seconds = Seconds(prefill, tuple(before), round(clock - prefill - sum(before), 6), round(clock, 6))
    counts = tuple(Passes(c, f) for c, f in zip(own.passes, own.fed, strict=True))
    ids = tuple(int(x) for x in random.integers(5, 900, tokens))
    return Generation(ids, "length", tuple(own.rounds), (), counts, seconds, arrivals[0][1], tuple(arrivals))


def simulated(run_id: str, temperature: float, prompts: int, tokens: int, seed: int = 0) -> list[dict[str, Any]]:
    """Records of every method on every prompt; at temperature 0 all outputs are AR's but one."""
    lines = []
    for i in range(prompts):
        task = TASKS[i % len(TASKS)]
        length = max(4, tokens - 3 * (i % 4))
        theirs: tuple[int, ...] = ()
        for m, name in enumerate(METHODS):
            found = decode(name, length, 20 + i, np.random.default_rng([seed, i, m, int(10 * temperature)]))
            if temperature == 0:
                theirs = theirs or found.ids
                odd = name == "L0→L2" and i == 1
                found = replace(found, ids=(*theirs[:-1], theirs[-1] + 1) if odd else theirs)
            words = " ".join(f"w{x % 97}" for x in found.ids[:8])
            lines.append(
                record_line(
                    run_id,
                    f"{task}-{i:02}-0",
                    name,
                    f"{task}-{i:02}",
                    task,
                    found,
                    20 + i,
                    words,
                    Sampling(temperature=temperature),
                    max_new_tokens=tokens,
                )
            )
    return lines


def config(name: str, temperature: float, tokens: int, dtype: str) -> dict[str, Any]:
    """The configuration that such records would have come from."""
    edges = [{"gamma": 2, "verification": "token"}, {"gamma": 3, "verification": "token"}]
    methods: dict[str, Any] = {
        "ar": {"kind": "chain", "levels": [-1], "edges": []},
        "library assisted": {"kind": "transformers_assisted", "levels": [0, 2], "edges": [], "gamma": 3},
        "n-gram→L2": {"kind": "chain", "levels": ["ngram", 2], "edges": [{"gamma": 4}]},
        "L0→L2": {"kind": "chain", "levels": [0, 2], "edges": [{"gamma": 3}]},
        "L1→L2": {"kind": "chain", "levels": [1, 2], "edges": [{"gamma": 3}]},
        "L0→L1→L2": {"kind": "chain", "levels": [], "edges": []},
    }
    levels = [{"source": f"simulated:{size}", "dtype": dtype, "device": "cpu"} for size in ("3M", "25M", "135M")]
    return {
        "name": name, "chain": {"levels": levels, "edges": edges}, "methods": methods, "max_new_tokens": tokens,
        "sampling": {"temperature": temperature}, "samples": 1, "seed": 0, "batch": 1,
    }  # fmt: skip


def write_run(folder: Path, lines: list[dict[str, Any]], settings: dict[str, Any], **changes: Any) -> Path:
    """A run folder that says it was simulated; ``changes`` replace fields of ``run.json``."""
    levels = settings["chain"]["levels"]
    run: dict[str, Any] = {
        "run_id": folder.name, "schema": SCHEMA, "status": "complete", "error": None, "config": settings,
        "git": {"commit": "0" * 40, "dirty": False},
        "versions": {"python": "3.11.7", "ssd-bench": "0.1.0", "torch": "2.13.0+cpu", "wandb": None},
        "device": {"cpu": "no processor, simulated", "usable_cores": 2, "memory_bytes": 24e9, "accelerator": None},
        "models": {
            level["source"]: {"revision": "r1", "sha256": {"weights": str(i) * 64}, "bytes": 10**8}
            for i, level in enumerate(levels)
        },
        "data": {"name": "simulated/measure", "revision": None, "sha256": "a" * 64},
        "started": "2026-11-29T10:00:00+00:00", "finished": "2026-11-29T10:05:00+00:00", "records": len(lines),
        "busy_elsewhere": 0.011, "busy": False, "timing": "paper", "resumed": [], "label": None,
        "command": f"python -m experiments.run experiment={settings['name']}",
    }  # fmt: skip
    folder.mkdir(parents=True)
    text = "".join(dumps(record) + "\n" for record in lines)
    (folder / RECORDS_FILE).write_text(text, encoding="ascii", newline="\n")
    write_json(folder / RUN_FILE, run | changes)
    return folder


def write_example(root: Path, prompts: int = 5, tokens: int = 22) -> Path:
    """The example experiment below ``root``, which is emptied before."""
    shutil.rmtree(root, ignore_errors=True)
    for dtype, temperature in (("bfloat16", 0.0), ("bfloat16", 1.0)):
        name = f"example-{dtype}-T{temperature:g}"
        settings = config("example", temperature, tokens, dtype)
        records = simulated(name, temperature, prompts, tokens)
        marked = {"busy_elsewhere": 0.083, "busy": True} if temperature else {}
        label = f"{dtype}-T{temperature:g}"
        write_run(root / name, records, settings, label=label, **marked)
    settings = config("example", 0.7, tokens, "bfloat16")
    records = simulated("example-failed", 0.7, 1, 8)[:2]
    error = "RuntimeError: simulated: out of memory on level L2"
    write_run(root / "example-failed", records, settings, status="failed", error=error)
    half = write_run(root / "example-half", records, settings, status="running", finished=None, records=0)
    with (half / RECORDS_FILE).open("a", encoding="ascii", newline="\n") as file:
        file.write('{"run_id": "example-half", "batch_id": "transl')
    return root


if __name__ == "__main__":
    write_example(Path(sys.argv[1]))

"""One page about a chain: ``python -m experiments.check chain=NAME_OR_YAML [key=value ...]``.

Keys are those of ``conf/check.yaml``.

First what is known before any weight is read: tokenizers and vocabularies of every pair of levels, position
limits, memory, and every reason to refuse the chain at once. Then, with weights, a short profile and a
mini-certificate. Prints the page and writes ``results_dir/check/CHAIN/check.json``. Exit status: 0 if the chain
is fine, 1 if it is refused, 2 for a wrong argument.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

import torch

from experiments.arguments import overridden
from experiments.check_facts import before_weights, profile_facts
from experiments.check_page import certificate_note, first_part, heading, last_part, profile_part, rung_text
from experiments.console import say
from ssd.bench.chain_check import Inspection, inspect_chain
from ssd.bench.chain_profile import profile_chain
from ssd.bench.environment import BusyMeter, device, git_state, versions
from ssd.bench.experiment import accelerators
from ssd.bench.json_files import write_json
from ssd.bench.loading import Loader
from ssd.bench.memory import chain_memory
from ssd.bench.memory_plan import DevicePlan, room_for_copy
from ssd.bench.prompts import bundled, encode
from ssd.bench.spec import ChainSpec
from ssd.certify.certificate import outcome
from ssd.certify.mini import mini_certificate
from ssd.certify.result import Rung
from ssd.core.chain import Chain
from ssd.core.model import CachedModel

CONFIG = Path(__file__).resolve().parent.parent / "conf" / "check.yaml"
T = TypeVar("T")
SCHEMA = 1
WIDER = {"bfloat16": "float32", "float16": "float32"}
KINDS: dict[str, type | tuple[type, ...]] = {
    "chain": str,
    "results_dir": str,
    "weights": bool,
    "certificate": bool,
    "seconds": (int, float),
}


def main(arguments: Sequence[str]) -> int:
    """Print the page and write its JSON file; the exit status."""
    try:
        config = read_config(arguments)
        found = inspect_chain(config["chain"])
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    command = shlex.join(["python", "-m", "experiments.check", *arguments])
    data: dict[str, Any] = {"schema": SCHEMA, "chain": config["chain"], "command": command, "config": config}
    data |= {"git": git_state(), "versions": versions(), "device": device(None, torch.get_num_threads())}
    data |= {"profile": None, "certificate": None}
    data |= before_weights(found, config["batch"], config["length"])
    say(first_part(data))
    if config["weights"] and not data["problems"]:
        with_weights(found, config, data)
    data["verdict"] = "refused" if data["problems"] else "ok"
    data["next"] = next_step(config, data)
    path = Path(config["results_dir"]).expanduser() / "check" / Path(config["chain"]).stem / "check.json"
    write_json(path, data)
    say(f"{last_part(data)}\nwrote {path}")
    return 1 if data["problems"] else 0


def read_config(arguments: Sequence[str]) -> dict[str, Any]:
    """``conf/check.yaml`` with the values that ``arguments`` set, each ``key=value``.

    Raises:
        ValueError: naming the argument or key that is wrong.
    """
    config = overridden(CONFIG, arguments, {}, "chain=my_chain.yaml")
    for key, value in config.items():
        if key == "length" and value is None:
            continue
        kind = KINDS.get(key, int)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise ValueError(f"{key}: expected {getattr(kind, '__name__', 'a number')}, got {value!r}")
        if isinstance(value, int | float) and not isinstance(value, bool) and value <= 0:
            raise ValueError(f"{key}: expected more than 0, got {value!r}")
    return config


def with_weights(found: Inspection, config: Mapping[str, Any], data: dict[str, Any]) -> None:
    """Load the chain, profile it and certify it, each part printed when it is done; what fails is a problem."""
    loader = Loader(found.warnings)  # which the page has shown
    chain = attempt("loading", data, lambda: loader.chain(found.spec))
    if chain is None:
        return
    counted = chain_memory(chain)
    data |= {"counted_weight_bytes": counted.weight_bytes, "counted_packed_bytes": counted.packed_bytes}
    data["device"] = device(accelerators(chain), torch.get_num_threads())
    room = least_positions(chain)
    tokens = config["max_new_tokens"] if room is None else min(config["max_new_tokens"], room // 2)
    length = config["prompt_tokens"] if room is None else min(config["prompt_tokens"], room - tokens)
    prompts = attempt("prompts", data, lambda: texts(chain, config["prompts"], length))
    if prompts is None:
        return
    with BusyMeter() as meter:
        profile = attempt("profile", data, lambda: profile_chain(chain, prompts, tokens, config["seconds"]))
    if profile is None:
        return
    data["profile"] = profile_facts(profile, len(chain.levels)) | {
        "prompts": len(prompts),
        "tokens": tokens,
        "busy_elsewhere": meter.busy_elsewhere,
        "busy": meter.busy,
    }
    say(profile_part(data["profile"]))
    if config["certificate"]:
        certified(chain, prompts, found.spec, loader, data)


def certified(
    chain: Chain, prompts: Sequence[Sequence[int]], spec: ChainSpec, loader: Loader, data: dict[str, Any]
) -> None:
    """The mini-certificate stands in ``data``, and its failures among the problems."""
    copy = ChainSpec(tuple(replace(x, dtype=WIDER.get(x.dtype, x.dtype)) for x in spec.levels), spec.edges)
    room = all(room_for_copy(DevicePlan(**plan)) for plan in data["devices"])
    say(heading("mini-certificate"))
    found = attempt(
        "mini-certificate",
        data,
        lambda: mini_certificate(chain, prompts, (lambda: loader.chain(copy)) if room else None, say_rung),
    )
    if found is None:
        return
    data["certificate"] = {
        "note": found.note,
        "false_alarm": found.false_alarm,
        "rungs": [asdict(rung) | {"outcome": outcome(rung)} for rung in found.rungs],
    }
    say(certificate_note(data["certificate"]))
    data["problems"] += found.failures


def say_rung(rung: Rung) -> None:
    """Print a rung as soon as it is known."""
    say(rung_text(asdict(rung) | {"outcome": outcome(rung)}))


def attempt(stage: str, data: dict[str, Any], work: Callable[[], T]) -> T | None:
    """What ``work`` returns; ``None``, and a problem that names the stage, if it raises."""
    try:
        return work()
    except Exception as error:  # whatever a model's code raises: the page has to say so, and what was found before
        text = str(error) or "no message"
        data["problems"] += (
            text.splitlines()
            if stage == "loading" and isinstance(error, ValueError)
            else [f"{stage}: {type(error).__name__}: {text}"]
        )
        return None


def least_positions(chain: Chain) -> int | None:
    """How many tokens every level may be fed; ``None`` if none has a limit."""
    limits = [x.model.max_positions for x in chain.levels if isinstance(x.model, CachedModel)]
    return min((limit for limit in limits if limit is not None), default=None)


def texts(chain: Chain, prompts: int, length: int) -> list[list[int]]:
    """The last ``length`` ids of bundled tuning prompts; random ids for a chain without a tokenizer."""
    tokenizer = chain.tokenizer
    if tokenizer is None:
        generator = torch.Generator().manual_seed(0)
        return torch.randint(0, chain.vocab_size, (prompts, length), generator=generator).tolist()
    template = bool(getattr(tokenizer, "chat_template", None))
    return [encode(p, tokenizer, template=template)[-length:] for p in bundled("tune", limit=prompts)]


def next_step(config: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    """What to run, in a line."""
    name = shlex.quote(f"chain={config['chain']}")
    if data["problems"]:
        return f"change what is named above, then python -m experiments.check {name}"
    if not config["weights"]:
        return f"python -m experiments.check {name}"
    if data["certificate"] is None:
        return f"python -m experiments.check {name} certificate=true"
    return (
        f"python -m experiments.certify {name} (the whole certificate), then docs/experiments.md for speed on prompts"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

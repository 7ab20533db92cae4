"""Where a run's numbers come from, in words: what was run, on what, from which code, and what marks them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from analysis.settings import Setting
from ssd.bench.json_files import dumps
from ssd.bench.records import Run


@dataclass(frozen=True)
class Model:
    """A source of weights: files with their digests."""

    name: str
    revision: str
    size: str
    files: list[tuple[str, str]]


@dataclass(frozen=True)
class Source:
    """What a run's own description says.

    Attributes:
        command: that repeats it; None for runs made before commands were noted.
        facts: (name, value), device and data among them.
        versions: (package, version) of those that were there.
        config: the whole configuration as JSON text.
    """

    run_id: str
    command: str | None
    facts: list[tuple[str, str]]
    versions: list[tuple[str, str]]
    models: list[Model]
    config: str


def marks(setting: Setting) -> list[str]:
    """What speaks against a setting's times, against its choice of methods, or against finding its code again."""
    told, found = setting.run.run, []
    if setting.is_synthetic:
        found.append("synthetic: drafts were accepted at imposed rates, so only times mean anything")
    if setting.is_tuning:
        found.append(
            "tuning prompts: choices are made on these, so the headline leaves them out where there are others"
        )
    if told.get("timing") == "shared":
        found.append("shared timing: other runs used the machine at the same time, by choice")
    if told.get("busy"):
        found.append(f"busy machine: {told['busy_elsewhere']:.0%} of it was used by other processes")
    elif told.get("busy") is None:
        found.append("load unknown: nobody knows who else used the machine")
    if _mapping(told.get("git")).get("dirty"):
        found.append("uncommitted changes: the commit alone does not give this code")
    resumed = told.get("resumed") or []
    if resumed:
        found.append(f"resumed {len(resumed)} time{'s' if len(resumed) > 1 else ''} after an interruption")
    if any("git" in _mapping(entry) or "versions" in _mapping(entry) for entry in resumed):
        found.append("changed on the way: code or libraries differ between its attempts")
    return [*found, *setting.run.notes]


def facts(setting: Setting) -> list[tuple[str, str]]:
    """(name, value) in short, for the line under a setting's title."""
    config = _mapping(setting.run.run.get("config"))
    levels = _mapping(config.get("chain")).get("levels") or []
    target = _mapping(levels[-1]) if levels else {}
    data = _mapping(setting.run.run.get("data"))
    found = [
        ("target", " ".join(str(target[key]) for key in ("source", "dtype") if target.get(key))),
        ("temperature", "" if setting.temperature is None else f"{setting.temperature:g}"),
        ("data", str(data.get("name") or "")),
        ("prompts", str(setting.prompts)),
        ("tokens at most", str(config.get("max_new_tokens") or "")),
        ("samples", str(config["samples"]) if config.get("samples", 1) != 1 else ""),
        ("batch", str(config["batch"]) if config.get("batch", 1) != 1 else ""),
        ("schedule", _schedule(config)),
        ("device", _device(_mapping(setting.run.run.get("device")))),
    ]
    return [(name, value) for name, value in found if value]


def _schedule(config: Mapping[str, Any]) -> str:
    """How far drafts work ahead; nothing of levels that take turns."""
    if config.get("schedule", "serial") == "serial":
        return ""
    ahead = _mapping(config.get("pipeline"))
    where = f", workers {ahead['workers']}" if ahead.get("workers") else ""
    return f"{config['schedule']}, {ahead.get('budget')} rows ahead, {ahead.get('fan_out')} guesses{where}"


def source(run: Run) -> Source:
    """What ``run.json`` says, in words."""
    told = run.run
    git, data = _mapping(told.get("git")), _mapping(told.get("data"))
    busy = told.get("busy_elsewhere")
    found = [
        ("started", told.get("started")),
        ("finished", told.get("finished")),
        ("commit", _commit(git)),
        ("device", _device(_mapping(told.get("device")))),
        ("machine memory", _bytes(_mapping(told.get("device")).get("memory_bytes"))),
        ("system", _mapping(told.get("device")).get("system")),
        ("used by others", None if busy is None else f"{busy:.1%} of the machine"),
        ("timing", told.get("timing")),
        ("data", data.get("name")),
        ("data revision", data.get("revision")),
        ("data sha256", data.get("sha256")),
        ("records", told.get("records")),
    ]
    versions = _mapping(told.get("versions"))
    return Source(
        run_id=str(told["run_id"]),
        command=told.get("command"),
        facts=[(name, str(value)) for name, value in found if value not in (None, "")],
        versions=[(str(name), str(version)) for name, version in versions.items() if version],
        models=[_model(str(name), _mapping(model)) for name, model in _mapping(told.get("models")).items()],
        config=dumps(told.get("config"), "config", indent=1),
    )


def _model(name: str, told: Mapping[str, Any]) -> Model:
    digests = told.get("sha256")
    if isinstance(digests, Mapping):
        files = [(str(file), str(digest)) for file, digest in digests.items()]
    else:
        files = [("sha256", str(digests))] if digests else []
    return Model(name, str(told.get("revision") or ""), _bytes(told.get("bytes")) or "", files)


def _commit(git: Mapping[str, Any]) -> str | None:
    commit = git.get("commit")
    return None if commit is None else f"{commit}{' with uncommitted changes' if git.get('dirty') else ''}"


def _device(device: Mapping[str, Any]) -> str:
    """Accelerator or processor, with the cores that could be used."""
    if device.get("accelerator"):
        return str(device["accelerator"])
    cores = device.get("usable_cores") or device.get("cores")
    return f"{device.get('cpu') or 'unknown processor'}" + (f", {cores} cores" if cores else "")


def _bytes(count: Any) -> str | None:
    """A number of bytes in decimal units."""
    if not isinstance(count, int | float):
        return None
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"


def _mapping(value: Any) -> Mapping[str, Any]:
    """The value if it is a mapping: run.json may be of another version and hold anything."""
    return value if isinstance(value, Mapping) else {}

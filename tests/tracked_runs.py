"""Run folders for the tests of trackers, and a user whose surroundings stand in the way."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from ssd.bench import tracking
from ssd.bench.records import RunFolder
from ssd.bench.summary import Row
from ssd.core.requests import Passes
from tests.scripted_records import record, scripted

OFFLINE = {"mode": "offline", "project": "here", "entity": None}
ONLINE = OFFLINE | {"mode": "online"}
CONFIG = {
    "name": "experiment",
    "chain": {"levels": ({"source": "a", "temperature": None}, {"source": "b", "temperature": 0.5})},
    "sampling": {"temperature": 1e-6, "top_k": 0},
    "stop": ("a,b", "### "),
    "ignore_eos": False,
}
PLAIN = CONFIG | {"chain": {"levels": list(CONFIG["chain"]["levels"])}, "stop": ["a,b", "### "]}
ROWS = [
    Row("id/spec/speedup", 1.5, "x", 1.25, 1.75, n=2),
    Row("id/spec/edge0/alpha", 0.1, "share", n=2),
    Row("id/ar/edge0/alpha", None, "share"),
]


def records(run_id="id"):
    spec = {"rounds": scripted(4, (4, 0, 2)), "passes": (0.25, 0.5), "counts": (Passes(12, 12), Passes(3, 15))}
    told = [record("p0", **spec), record("p1", **spec), record("p0", "ar", 3), record("p1", "ar", 3)]
    return [{**each, "run_id": run_id, "text": "Grüße"} for each in told]


def write_run(folder: Path, run_id="id", **more) -> Path:
    with RunFolder(folder, run_id=run_id, config=CONFIG, **more) as run:
        for each in records(run_id)[len(run.kept) :]:
            run.append(each)
    return folder


def fail_run(folder: Path, run_id="id") -> Path:
    with suppress(RuntimeError), RunFolder(folder, run_id=run_id, config=CONFIG) as run:
        run.append(records(run_id)[0])
        raise RuntimeError("no memory\nleft")
    return folder


def figure():
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(2, 1))
    drawn.subplots().plot([1, 2])
    return drawn


def hostile_surroundings(tmp_path, monkeypatch) -> None:
    """No key, and an environment that would switch W&B off, move it, and put all runs into one."""
    for name, value in {"MODE": "disabled", "RUN_ID": "one", "DIR": "/nowhere", "RESUME": "must"}.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("WANDB_API_KEY", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(tracking, "_given_up", set())

"""Metrics of the ``evaluate`` library, chosen by name or local path.

They are an extra: BLEU and ROUGE-L of the suite need none of this (see ``ssd.bench.quality``). A metric is
a script that the library imports and runs, so a name from the hub runs code from there.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from ssd.bench.json_files import plain
from ssd.bench.quality import check_texts

REACH_SECONDS = 5.0


class EvaluateMetric:
    """A loaded metric.

    Attributes:
        source: name or path as it was asked for.
        module: what ``evaluate.load`` returned.
    """

    def __init__(self, source: str, module: Any) -> None:
        self.source, self.module = source, module

    def compute(self, hypotheses: Sequence[str], references: Sequence[str], **options: Any) -> dict[str, Any] | None:
        """The metric's own results as plain values; None without texts.

        Args:
            hypotheses: texts, handed over as ``predictions``.
            references: one text for each of them.
            options: further arguments of the metric.

        Raises:
            ValueError: if the lists do not pair up, or naming the metric if it fails on them.
        """
        check_texts(hypotheses, references)
        if not hypotheses:
            return None
        try:
            results = self.module.compute(predictions=list(hypotheses), references=list(references), **options)
        except Exception as error:  # a metric is foreign code
            raise ValueError(f"evaluate metric {self.source!r}: {_reason(error)}") from error
        return dict(plain(results, f"evaluate metric {self.source!r}"))


def load_metric(source: str) -> EvaluateMetric:
    """The metric of a local script (``path/to/x.py``, or a folder ``x`` that holds ``x.py``) or of a hub name.

    A hub name is looked up in the library's cache when the hub cannot be reached.

    Raises:
        ModuleNotFoundError: if ``evaluate`` is not installed.
        ValueError: within seconds, naming the metric and what is wrong: no such file, not to be had
            offline, or a script that does not load.
    """
    script = _local_script(source)
    evaluate = _library()
    if script is not None:
        try:
            return EvaluateMetric(source, evaluate.load(str(script), keep_in_memory=True))
        except Exception as error:  # a metric is foreign code
            raise ValueError(f"evaluate metric {source!r}: cannot load {script}: {_reason(error)}") from error
    offline = _unreachable(evaluate.config)
    try:
        with _asking_nobody(evaluate.config) if offline else nullcontext():
            return EvaluateMetric(source, evaluate.load(source, keep_in_memory=True))
    except Exception as error:
        if offline is None:
            raise ValueError(f"evaluate metric {source!r}: the hub did not deliver it: {_reason(error)}") from error
        raise ValueError(
            f"evaluate metric {source!r}: not in the local cache, and the hub cannot be reached (offline: {offline}). "
            "Give the path of a local metric script, or load the metric once where there is network and set HF_HOME"
        ) from error


def evaluate_all(
    sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str]
) -> dict[str, dict[str, Any] | None]:
    """Results by metric; every metric is loaded before the first is computed.

    Raises:
        ValueError: as ``load_metric`` and ``EvaluateMetric.compute``.
    """
    check_texts(hypotheses, references)
    metrics = [load_metric(source) for source in sources]
    return {metric.source: metric.compute(hypotheses, references) for metric in metrics}


def _local_script(source: str) -> Path | None:
    """The script that a path means; None for a hub name."""
    path = Path(source).expanduser()
    script = path.resolve() / f"{path.resolve().name}.py" if path.is_dir() else path.resolve()
    if script.is_file():
        return script
    if path.suffix == ".py" or source.startswith(("/", ".", "~")):
        reason = f"the folder has no {script.name}" if path.is_dir() else "there is no such file or folder"
        raise ValueError(f"evaluate metric {source!r}: {reason}")
    return None


def _library() -> Any:
    """The ``evaluate`` package; importing it takes seconds."""
    try:
        return importlib.import_module("evaluate")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"metrics of evaluate need the package: pip install evaluate ({error})") from error


def _unreachable(config: Any) -> str | None:
    """Why the hub cannot be asked, or None; one attempt, where the library would make many."""
    from huggingface_hub import constants
    from huggingface_hub.utils import get_session  # type: ignore[attr-defined]

    for name, on in (
        ("HF_EVALUATE_OFFLINE", config.HF_EVALUATE_OFFLINE),
        ("HF_HUB_OFFLINE", constants.HF_HUB_OFFLINE),
    ):
        if on:
            return f"{name} is set"
    try:
        get_session().head(config.HF_ENDPOINT, timeout=REACH_SECONDS)
    except Exception as error:  # whatever the client's transport raises
        return f"{type(error).__name__}: {_reason(error)}"
    return None


@contextmanager
def _asking_nobody(config: Any) -> Iterator[None]:
    """Inside, ``evaluate`` looks at its cache alone and gives up at once."""
    before, config.HF_EVALUATE_OFFLINE = config.HF_EVALUATE_OFFLINE, True
    try:
        yield
    finally:
        config.HF_EVALUATE_OFFLINE = before


def _reason(error: Exception) -> str:
    """The first line of an error, which libraries follow with advice."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]

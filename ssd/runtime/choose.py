"""Runtimes by name: the same scores from another way of computing them."""

from __future__ import annotations

from transformers import PreTrainedConfig

from ssd.core.chain import Scorer
from ssd.core.model import CachedModel
from ssd.runtime.lean import LeanModel
from ssd.runtime.names import RUNTIMES
from ssd.runtime.static import StaticModel
from ssd.runtime.weights import FAMILIES, check_family

__all__ = ["RUNTIMES", "check_runtime", "with_runtime"]


def check_runtime(config: PreTrainedConfig, runtime: str, label: str) -> None:
    """Raise ValueError, beginning with ``label``, for an unknown runtime or a model it cannot compute.

    ``eager`` and ``graph`` compute every model the decoder takes, ``compiled`` those of ``FAMILIES``.
    """
    if runtime not in RUNTIMES:
        raise ValueError(f"{label}.runtime: {runtime!r} is not one of {', '.join(RUNTIMES)}")
    if runtime == "compiled" or (runtime == "graph" and config.model_type in FAMILIES):
        check_family(config, runtime, label)


def with_runtime(model: CachedModel, runtime: str) -> Scorer:
    """The same level under another runtime, with a cache of its own; ``eager`` is the model itself.

    Raises:
        ValueError: as ``check_runtime``, with the model's name as the label.
    """
    check_runtime(model.module.config, runtime, model.name)
    if runtime == "eager":
        return model
    lean = model.module.config.model_type in FAMILIES
    return LeanModel(model.module, model.name, runtime) if lean else StaticModel(model.module, model.name)

"""Bytes of weights and cache per level, counted; peaks of the process, measured.

Torch is not imported: levels are looked at as they are (``module.parameters()``, ``cache.bytes()``), and the
accelerator is asked only if the process has used one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

Spans = dict[str, list[tuple[int, int]]]  # per device: disjoint [begin, end) addresses, ascending


@dataclass(frozen=True)
class LevelMemory:
    """What one level takes.

    Attributes:
        level: its name in the chain.
        weight_bytes: parameters and buffers, memory used twice (tied embeddings) counted once; 0 for a look-up.
        cache_bytes: key and value slots as last allocated, or at their largest (see ``CachePeaks``).
        cache_bytes_per_slot: keys and values of one token in one row; None before the first pass.
        shared_bytes: of ``weight_bytes``, how many lie in the memory of an earlier level, by its name.
        packed_bytes: copies of the weights in another order that its runtime keeps beside them.
    """

    level: str
    weight_bytes: int
    cache_bytes: int
    cache_bytes_per_slot: float | None
    shared_bytes: Mapping[str, int]
    packed_bytes: int


@dataclass(frozen=True)
class ChainMemory:
    """What a chain takes.

    Attributes:
        levels: from L0 to the target.
        weight_bytes: of all levels together; memory that levels share is counted once, so this may be
            less than the sum over levels.
        cache_bytes: sum over levels.
        packed_bytes: of all levels together; levels of one module share their copy.
    """

    levels: tuple[LevelMemory, ...]
    weight_bytes: int
    cache_bytes: int
    packed_bytes: int


def chain_memory(chain: Any) -> ChainMemory:
    """Counted bytes of a chain (``levels`` with a ``model`` each, and ``names``) as it stands now."""
    spans = [weight_spans(getattr(level.model, "module", None)) for level in chain.levels]
    levels = []
    for k, (name, level) in enumerate(zip(chain.names, chain.levels, strict=True)):
        shared = {chain.names[j]: _size(_overlap(spans[k], spans[j])) for j in range(k)}
        cache = getattr(level.model, "cache", None)
        levels.append(
            LevelMemory(
                level=name,
                weight_bytes=_size(spans[k]),
                cache_bytes=0 if cache is None else int(cache.bytes()),
                cache_bytes_per_slot=_per_slot(cache),
                shared_bytes={other: size for other, size in shared.items() if size},
                packed_bytes=_packed_bytes(level.model),
            )
        )
    together = _merged((device, span) for own in spans for device, found in own.items() for span in found)
    packed = {
        id(getattr(x.model, "module", None)): _packed_bytes(x.model) for x in chain.levels if _packed_bytes(x.model)
    }
    caches = sum(level.cache_bytes for level in levels)
    return ChainMemory(tuple(levels), _size(together), caches, sum(packed.values()))


class CachePeaks:
    """The largest cache each level of a chain has had at the moments ``note`` was called.

    A cache is sized anew for every call, so a run notes it after each of them.
    """

    def __init__(self, chain: Any) -> None:
        self._chain = chain
        self._peaks = [0] * len(chain.levels)

    def note(self) -> None:
        """The caches of this moment count."""
        now = [getattr(level.model, "cache", None) for level in self._chain.levels]
        self._peaks = [
            max(peak, 0 if cache is None else int(cache.bytes())) for peak, cache in zip(self._peaks, now, strict=True)
        ]

    def memory(self) -> ChainMemory:
        """``chain_memory`` with each level's cache at its largest."""
        counted = chain_memory(self._chain)
        levels = tuple(replace(x, cache_bytes=peak) for x, peak in zip(counted.levels, self._peaks, strict=True))
        return replace(counted, levels=levels, cache_bytes=sum(self._peaks))


def process_peaks(status: Path = Path("/proc/self/status")) -> dict[str, Any]:
    """``{"resident_bytes": ..., "accelerator_bytes": {device: ...}}``: peaks since the process began.

    They belong to the process, not to a method or level: whatever ran before in it is inside.
    """
    return {"resident_bytes": peak_resident(status), "accelerator_bytes": peak_accelerator()}


def peak_resident(status: Path = Path("/proc/self/status")) -> int | None:
    """Largest resident set of this process in bytes; None where the system does not tell.

    Linux's own counter comes first: ``getrusage`` may report the peak of the process that started this one.
    """
    try:
        lines = status.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak) if sys.platform == "darwin" else int(peak) * 1024


def peak_accelerator() -> dict[str, int]:
    """Largest number of bytes that tensors held on each CUDA device; empty if none was used."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None or not cuda.is_available() or not cuda.is_initialized():
        return {}
    peaks = {f"cuda:{i}": int(cuda.max_memory_allocated(i)) for i in range(cuda.device_count())}
    return {device: peak for device, peak in peaks.items() if peak}


def weight_spans(module: Any) -> Spans:
    """The memory of a module's parameters and buffers; empty for None.

    Addresses are compared, not tensor objects: tied weights, views and tensors cut from one file are
    counted once. A tensor without memory (``meta`` device) counts with its size.
    """
    if module is None:
        return {}
    tensors = [part for tensor in (*module.parameters(), *module.buffers()) for part in _plain_tensors(tensor)]
    return _merged((_place(tensor), _span(tensor)) for tensor in tensors)


def _plain_tensors(tensor: Any) -> Iterator[Any]:
    """The tensors that hold the data: a quantised weight is a wrapper around several."""
    flatten = getattr(tensor, "__tensor_flatten__", None)
    if flatten is None:
        yield tensor
        return
    for name in flatten()[0]:
        yield from _plain_tensors(getattr(tensor, name))


def _place(tensor: Any) -> str:
    """Where addresses of this tensor can be compared with those of others."""
    return str(tensor.device) if tensor.data_ptr() else f"{tensor.device} without memory {id(tensor)}"


def _span(tensor: Any) -> tuple[int, int]:
    """[begin, end) of a dense tensor's elements."""
    begin = int(tensor.data_ptr())
    return begin, begin + int(tensor.numel()) * int(tensor.element_size())


def _merged(found: Iterable[tuple[str, tuple[int, int]]]) -> Spans:
    """Union per device."""
    spans: Spans = {}
    for device, (begin, end) in sorted(found):
        own = spans.setdefault(device, [])
        if own and begin <= own[-1][1]:
            own[-1] = own[-1][0], max(end, own[-1][1])
        else:
            own.append((begin, end))
    return spans


def _overlap(ours: Spans, theirs: Spans) -> Spans:
    """Intersection per device."""
    return {
        device: [(max(a, c), min(b, d)) for a, b in own for c, d in theirs.get(device, ()) if max(a, c) < min(b, d)]
        for device, own in ours.items()
    }


def _size(spans: Mapping[str, Sequence[tuple[int, int]]]) -> int:
    """Bytes in all spans."""
    return sum(end - begin for own in spans.values() for begin, end in own)


def _packed_bytes(model: Any) -> int:
    """What a level's runtime keeps beside the module's weights."""
    return int(getattr(model, "packed_bytes", 0))


def _per_slot(cache: Any) -> float | None:
    """Bytes of one token of one row."""
    if cache is None:
        return None
    slots = cache.slots.batch * cache.slots.size
    return int(cache.bytes()) / slots if slots and cache.bytes() else None

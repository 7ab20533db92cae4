"""CUDA graphs without a GPU: operations are noted while a graph is recorded and run again on the same memory.

As on a GPU, recording changes nothing, and a replay sees only what lies at the recorded addresses: a number that was
on the host, or a tensor that was replaced since, is the old one. Memory that nobody else holds any more would be
somebody else's by then: replaying it is an error here.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only


class Graph:
    """Stands for ``torch.cuda.CUDAGraph``.

    Attributes:
        calls: (function, arguments, results that are no part of an argument).
        made: places of what the recording itself made.
        places: of what it uses from outside.
        outside: an alias of each tensor that any graph uses from outside.
    """

    outside = {}  # noqa: RUF012 - of all graphs, so that one's alias is no holder to another

    def __init__(self):
        self.calls, self.made, self.places = [], set(), set()
        self.replays = 0

    def replay(self):
        self.check_held()
        self.replays += 1
        with torch.inference_mode():
            for func, args, kwargs, outs in self.calls:
                for old, new in zip(outs, flat(func(*args, **kwargs)), strict=True):
                    if old is not None:
                        old.copy_(new)

    def check_held(self):
        """Every tensor from outside has a holder besides the aliases."""
        aliases = Counter(key[0] for key in self.outside)
        for key, alias in self.outside.items():
            storage, where = alias.untyped_storage(), key[0]
            if where in self.places and torch._C._storage_Use_Count(storage._cdata) <= aliases[where] + 1:
                raise RuntimeError("a recording reads memory that was given back")

    def alias(self, tensor):
        """The tensor itself if the recording made it, else another one of the same memory."""
        if place(tensor) in self.made:
            return tensor
        key = (place(tensor), tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype)
        self.places |= {key[0]} - {0}  # empty tensors have no place
        return self.outside.setdefault(key, tensor.detach())


def flat(value):
    """The tensors of arguments or of a result."""
    return [x for x in tree_leaves(value) if isinstance(x, torch.Tensor)]


def place(tensor):
    return tensor.untyped_storage().data_ptr()


class _Note(TorchDispatchMode):
    """Notes every operation, and keeps a copy of what is changed in place."""

    def __init__(self, graph):
        super().__init__()
        self.graph, self.before = graph, {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        for argument, value in zip(func._schema.arguments, args, strict=False):
            if argument.alias_info is not None and argument.alias_info.is_write:
                storage = value.untyped_storage()
                self.before.setdefault(place(value), (storage, storage.clone()))
        out = func(*args, **kwargs)
        given = {place(x) for x in flat((args, kwargs))}
        held = tree_map_only(torch.Tensor, self.graph.alias, (args, kwargs))
        # What shares memory with an argument is a view, or the argument changed in place.
        outs = [None if place(x) in given else x for x in flat(out)]
        self.graph.made |= {place(x) for x in outs if x is not None}
        self.graph.calls.append((func, *held, outs))
        return out


class Side:
    """Stands for a stream."""

    def __init__(self, device=None):
        pass

    def wait_stream(self, other):
        pass


@contextmanager
def nothing(*args):
    yield


@contextmanager
def recording(graph, pool=None, stream=None):
    """Stands for ``torch.cuda.graph``."""
    with _Note(graph) as note:
        yield
    for storage, copy in note.before.values():
        storage.copy_(copy)


def install(monkeypatch):
    """``torch.cuda`` records this way until the test is over."""
    Graph.outside.clear()
    fake = {
        "CUDAGraph": Graph, "Stream": Side, "graph": recording, "stream": nothing, "device": nothing,
        "current_stream": Side, "graph_pool_handle": object,
    }  # fmt: skip
    for name, stand_in in fake.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)

"""Lines between processes: laws in shared memory, requests that cannot be sent, an end that is gone."""

from __future__ import annotations

import multiprocessing
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ssd.core.requests import Request
from ssd.pipeline.links import PipeLink
from ssd.pipeline.messages import Reply, WorkerError
from ssd.pipeline.remote import Remote


def line() -> tuple[PipeLink, PipeLink]:
    one, other = multiprocessing.Pipe()
    return PipeLink(one), PipeLink(other)


def test_laws_pass_whatever_their_size_and_stay_until_the_next() -> None:
    one, other = line()
    for shape in ((1, 2, 5), (1, 1, 5), (2, 3, 5)):
        laws = torch.rand(shape)
        one.send(Reply([[1, 2]], laws, [[]], [None]))
        assert other.waiting()
        got = other.receive()
        assert torch.equal(got.probs, laws)
        assert got.tokens == [[1, 2]]
    assert not other.waiting()


def test_a_request_that_cannot_be_sent_is_named() -> None:
    one, _ = line()
    requests = [Request((1,)), Request((1,), processors=(lambda ids, scores: scores,))]
    decoder: Any = SimpleNamespace(requests=requests, text=torch.zeros(2, 4, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"requests\[1\]\.processors: cannot be sent to a worker process"):
        Remote(one).begin(decoder)


def test_an_end_that_is_gone_is_told() -> None:
    one, other = line()
    other.close()
    with pytest.raises(WorkerError, match="the other end"):
        one.receive()

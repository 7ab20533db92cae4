"""A policy that measures both schedules, keeps the faster one, and says so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ssd.certify.tiny_models import P, near, tiny_llama
from ssd.core.chain import Chain, Edge, Level
from ssd.core.generate import generate
from ssd.core.model import CachedModel
from ssd.core.requests import Request, Sampling
from ssd.pipeline import policy
from ssd.pipeline.pipeline import Pipeline
from ssd.pipeline.policy import faster_schedule
from ssd.pipeline.settings import PipelineSettings

TARGET = tiny_llama(0)
REQUESTS = [Request(P, Sampling(0.0), max_new_tokens=8)]


def pair() -> Chain:
    return Chain((Level(CachedModel(near(TARGET, 0.02, 1))), Level(CachedModel(TARGET))), (Edge(2),))


@pytest.mark.parametrize("faster", ["serial", "pipelined"])
def test_the_faster_one_is_kept_and_said(faster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chain, seconds = pair(), {"serial": 0.020, "pipelined": 0.020, faster: 0.010}
    monkeypatch.setattr(policy, "decode_seconds", lambda batch: seconds["pipelined" if batch[0].ahead else "serial"])
    choice = faster_schedule(chain, REQUESTS, PipelineSettings(kind="thread"))
    assert (choice.serial, choice.pipelined) == (seconds["serial"], seconds["pipelined"])
    assert "serial in" in choice.sentence
    if faster == "serial":
        assert choice.schedule == "serial"
        assert choice.sentence.endswith("levels take turns")
    else:
        assert isinstance(choice.schedule, Pipeline)
        assert choice.sentence.endswith("working ahead")
        assert generate(chain, REQUESTS, choice.schedule)[0].ids == generate(pair(), REQUESTS)[0].ids
        choice.schedule.close()


def test_what_cannot_be_timed_is_refused_and_no_worker_is_left() -> None:
    with pytest.raises(ValueError, match="nothing to time"):
        faster_schedule(pair(), [replace(REQUESTS[0], max_new_tokens=1)], PipelineSettings(kind="thread"))

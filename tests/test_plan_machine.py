"""Devices in the simulator: what no schedule may do with them, shared bandwidth, transfers."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from simulated_schedules import (
    CURVE,
    chain_of_three,
    flat,
    per_round,
    pipelined,
    serial,
)

from ssd.plan.events import Worker
from ssd.plan.lookahead import Ahead
from ssd.plan.setting import Machine
from ssd.plan.simulate import simulate

TWO_STREAMS = (Worker("stream 0", "gpu"), Worker("stream 1", "gpu"))
MACHINES = {
    "a device per level": Machine.each(3),
    "drafts on a device": Machine((Worker("b"), Worker("b"), Worker("a"))),
    "two streams": Machine((TWO_STREAMS[1], TWO_STREAMS[1], TWO_STREAMS[0]), (0.5, 0.7, 0.8)),
    "cores with one memory": Machine((Worker("1", memory="m"), Worker("1", memory="m"), Worker("0", memory="m"))),
}


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("force", [None, "hit", "miss"])
@pytest.mark.parametrize("batch", [1, 3])
def test_time_is_conserved(name: str, force: str | None, batch: int) -> None:
    machine = MACHINES[name]
    lower = Ahead(CURVE, 2, force=force) if machine.workers[0] != machine.workers[1] else None
    setting = pipelined(chain_of_three(), lower, Ahead(CURVE, 5, force=force), machine=machine)
    result = simulate(setting, 60, batch)
    assert result.tokens == 60 * batch
    assert sum(r.emitted for row in result.rounds for r in row if r.edge == 1) == result.tokens
    for worker in {w.name for w in machine.workers}:
        own = sorted((s.start, s.end) for s in result.spans if machine.workers[s.level].name == worker)
        assert all(second[0] >= first[1] - 1e-9 for first, second in pairwise(own))
        assert 0 <= result.wasted()[worker] <= result.utilisation()[worker] <= 1 + 1e-9
    # Every pass takes at least its time alone, except the last ones, which the end of the run cuts off.
    shortest = [0.02, 0.1, 1.0]
    for span in result.spans:
        assert span.seconds >= shortest[span.level] - 1e-9 or span.end == result.seconds
    assert result.seconds >= sum(s.seconds for s in result.spans if s.level == 2) - 1e-9


def test_two_devices_bound_the_gain() -> None:
    """Neither device does its useful work in less than that takes, and hits reach the bound."""
    setting = pipelined(serial(flat(0.3, 1.0), [4], [0.8]), Ahead(CURVE, 5, force="hit"), machine=Machine.each(2))
    result = simulate(setting, 800)
    serially = simulate(serial(flat(0.3, 1.0), [4], [0.8]), 800)
    rounds = len(per_round(result))
    assert result.seconds >= rounds * max(1.0, 4 * 0.3)
    assert serially.seconds / result.seconds <= 2
    assert result.speedup <= result.tau(0) / max(1.0, 4 * 0.3)
    assert result.utilisation()["device 0"] > 0.99


def test_two_streams_share_the_bandwidth_of_a_device() -> None:
    def seconds(demand: tuple[float, float], workers: tuple[Worker, Worker]) -> float:
        machine = Machine((workers[1], workers[0]), demand)
        setting = pipelined(
            serial(flat(0.25, 1.0), [2], [0.0]), Ahead(CURVE, 1, force="hit", predict_pass=False), machine=machine
        )
        return simulate(setting, 3).seconds

    apart = seconds((1.0, 1.0), (Worker("a"), Worker("b")))
    # Drafts of 2 and 1, a token each round; the last one needs no draft. A draft takes .25 of its 1 s beside it.
    assert apart == pytest.approx(0.5 + 1 + 1 + 1)
    # 0.25 s of drafting and as much verification take 0.5 s while each goes at half speed: as one after the other.
    assert seconds((1.0, 1.0), TWO_STREAMS) == pytest.approx(apart + 0.25)
    # Together they ask for 1.5 times what there is: 0.25 s of each take 0.375 s.
    assert seconds((0.75, 0.75), TWO_STREAMS) == pytest.approx(apart + 0.125)
    assert seconds((0.5, 0.5), TWO_STREAMS) == pytest.approx(apart)


def test_overlap_gains_nothing_where_a_pass_takes_all_bandwidth() -> None:
    machine = Machine((TWO_STREAMS[1], TWO_STREAMS[1], TWO_STREAMS[0]))
    setting = pipelined(chain_of_three(), None, Ahead(CURVE, 4, force="hit"), machine=machine)
    shared, alone = simulate(setting, 200), simulate(chain_of_three(), 200)
    assert shared.seconds >= alone.seconds - 1e-6
    assert shared.machine.devices == 1


def test_transfers_are_paid_there_and_back() -> None:
    base = serial(flat(0.2, 1.0), [3], [0.6])
    apart = simulate(replace(base, machine=Machine.each(2, transfer=0.05)), 100)
    drafts = sum(r.drafted > 0 for r in apart.rounds[0])
    assert apart.seconds == pytest.approx(simulate(base, 100).seconds + 2 * 0.05 * drafts)

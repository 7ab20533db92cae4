"""Pass times that were measured on one H200, and the rules for those that were not."""

from __future__ import annotations

import pytest

from ssd.plan.events import Engine, Work, Worker
from ssd.plan.h200 import (
    BANDWIDTH,
    COLUMNS,
    CONTENTION,
    SHAPES,
    TWO_STREAMS,
    Widened,
    contention,
    floor_seconds,
    pass_times,
    roofline_knee,
    seconds_by_width,
)


def test_a_measured_shape_keeps_its_times_and_no_pass_beats_its_bandwidth() -> None:
    assert seconds_by_width("7B", "compiled") == {1: 5.88e-3, 8: 4.68e-3}
    assert seconds_by_width("70B", "compiled_70b_graph") == {1: 45.1e-3, 8: 47.5e-3, 16: 47.9e-3}
    assert seconds_by_width("70B", "compiled")[1] == pytest.approx(1.2 * 137e9 / 4.25e12)
    for name in SHAPES:
        for column in COLUMNS:
            assert min(seconds_by_width(name, column).values()) >= floor_seconds(name) * 0.999


def test_another_shape_is_given_its_own_floor_and_the_overhead_of_its_layers() -> None:
    floor = 2.47e9 / BANDWIDTH
    above = (1.32e-3 - 2.07e9 / BANDWIDTH) / 22
    assert seconds_by_width("Llama-3.2-1B", "compiled")[1] == pytest.approx(floor + 16 * above)
    # A target of eight-bit weights has a lower floor than its layers would suggest.
    large = seconds_by_width("Mistral-Large-123B", "graph")[1]
    assert large == pytest.approx(122e9 / BANDWIDTH + 88 * (45.1e-3 - 137e9 / BANDWIDTH) / 80)


def test_time_is_interpolated_then_flat_then_in_proportion() -> None:
    level = pass_times("1B", "graph", knee=32)
    assert level.at(1) == 3.24e-3
    assert level.at(2, 2) == level.at(4)  # tokens count, not how they are spread
    assert level.at(12) == pytest.approx((3.92e-3 + 4.03e-3) / 2)
    assert level.at(16) == level.at(32) == 4.03e-3
    assert level.at(8, 8) == pytest.approx(2 * 4.03e-3)
    assert pass_times("1B", "graph", knee=64).at(8, 8) == 4.03e-3
    assert Widened({1: 1.0}, 10)(10, 1) == 1.0


def test_arithmetic_binds_where_operations_take_as_long_as_bytes() -> None:
    assert roofline_knee("7B") == pytest.approx(989 / 4.25)
    assert roofline_knee("Mistral-Large-123B") == pytest.approx(989 / 4.25 / 2)  # half the bytes, as many operations


def both_streams(demand: float) -> float:
    """Seconds until both passes of ``TWO_STREAMS`` are over in the event engine."""
    engine = Engine()
    target, drafting, _ = TWO_STREAMS

    def work(name: str, seconds: float) -> Work:
        return Work(Worker(name, "gpu"), lambda: seconds, lambda start, end: None, demand)

    def child(process):  # type: ignore[no-untyped-def]
        yield work("drafts", drafting)

    def main(process):  # type: ignore[no-untyped-def]
        other = engine.spawn(child, process)
        yield work("target", target)
        yield other

    engine.run(main)
    return engine.now


def test_two_streams_take_as_long_as_they_were_measured_to_take() -> None:
    target, drafting, together = TWO_STREAMS
    assert both_streams(CONTENTION) == pytest.approx(together)
    assert both_streams(1.0) == pytest.approx(target + drafting)
    assert both_streams(0.5) == pytest.approx(drafting)
    assert contention(1.0, 1.0, 2.0) == 1.0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: seconds_by_width("8B", "graph"), r"shape: '8B'"),
        (lambda: seconds_by_width("7B", "eager"), r"times: 'eager'"),
        (lambda: contention(1.0, 2.0, 3.5), r"contention: 3\.5 s"),
        (lambda: contention(1.0, 2.0, 1.5), r"contention: 1\.5 s"),
    ],
)
def test_what_makes_no_sense_is_refused(make, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=message):
        make()

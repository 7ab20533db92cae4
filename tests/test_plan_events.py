"""The engine of the simulator: workers, waiting, cancelling and shared bandwidth, pass by pass."""

from __future__ import annotations

from typing import Any

import pytest

from ssd.plan.blocks import Block, Fork, Row
from ssd.plan.events import Engine, Flow, Process, Work, Worker

ONE, OTHER = Worker("one", memory="m"), Worker("other", memory="m")


class Log:
    """Notes what ran when."""

    def __init__(self) -> None:
        self.engine = Engine()
        self.ran: list[tuple[str, float, float]] = []

    def work(self, name: str, seconds: float | None, worker: Worker = ONE, demand: float = 1.0) -> Work:
        def end(started: float, ended: float) -> str:
            self.ran.append((name, pytest.approx(started), pytest.approx(ended)))
            return name

        return Work(worker, lambda: seconds, end, demand)


def test_a_worker_runs_one_pass_at_a_time_and_certain_work_first() -> None:
    log = Log()

    def ahead(name: str) -> Any:
        def flow(process: Process) -> Flow:
            assert process.depth == 1
            assert (yield log.work(name, 1.0)) == name

        return flow

    def main(process: Process) -> Flow:
        first, second = (log.engine.spawn(ahead(name), process) for name in ("guess", "other guess"))
        yield 0.5
        yield log.work("certain", 1.0)
        yield first
        yield second
        assert (first.done, second.done) == (True, True)

    log.engine.run(main)
    assert log.ran == [("guess", 0, 1), ("certain", 1, 2), ("other guess", 2, 3)]
    assert log.engine.now == pytest.approx(3)


def test_cancelling_ends_what_runs_after_its_pass_and_never_begins_what_waits() -> None:
    log = Log()

    def child(process: Process) -> Flow:
        assert process.depth == 2
        yield log.work("child", 1.0)

    def ahead(process: Process) -> Flow:
        log.engine.spawn(child, process)
        yield log.work("running", 2.0, OTHER, demand=0.5)
        yield log.work("never", 1.0)

    def main(process: Process) -> Flow:
        yield log.work("first", 1.0, demand=0.5)
        helper = log.engine.spawn(ahead, process)
        yield log.work("second", 1.0, demand=0.5)
        log.engine.cancel(helper)
        assert helper.cancelled
        assert process.children == []
        yield log.work("third", 1.0, demand=0.5)
        yield 5.0

    log.engine.run(main)
    assert log.ran == [("first", 0, 1), ("second", 1, 2), ("running", 1, 3), ("third", 2, 3)]


def test_what_is_promised_is_as_certain_as_what_it_is_for() -> None:
    log = Log()

    def ahead(process: Process) -> Flow:
        yield log.work("a", 1.0)
        yield log.work("b", 1.0)

    def main(process: Process) -> Flow:
        helper = log.engine.spawn(ahead, process)
        log.engine.promote(helper)
        assert helper.depth == 0
        yield helper

    log.engine.run(main)
    assert log.ran == [("a", 0, 1), ("b", 1, 2)]


@pytest.mark.parametrize(
    ("demands", "ends"), [((1.0, 1.0), (2.0, 4.0)), ((0.75, 0.75), (1.5, 3.5)), ((0.5, 0.5), (1, 3))]
)
def test_passes_on_one_memory_slow_each_other(demands: tuple[float, float], ends: tuple[float, float]) -> None:
    """A pass of 1 s beside one of 3 s: until the first ends both go at 1 / D of their speed."""
    log = Log()

    def ahead(process: Process) -> Flow:
        yield log.work("short", 1.0, OTHER, demands[0])

    def main(process: Process) -> Flow:
        log.engine.spawn(ahead, process)
        yield log.work("long", 3.0, ONE, demands[1])

    log.engine.run(main)
    assert log.ran == [("short", 0, ends[0]), ("long", 0, ends[1])]


def test_work_that_nothing_needs_any_more_is_left_out() -> None:
    log = Log()

    def main(process: Process) -> Flow:
        assert (yield log.work("needless", None)) is None
        yield log.work("needed", 1.0)

    log.engine.run(main)
    assert log.ran == [("needed", 0, 1)]


def test_what_still_runs_at_the_end_is_cut_off() -> None:
    log = Log()

    def ahead(process: Process) -> Flow:
        yield log.work("long", 9.0, OTHER, 0.1)

    def main(process: Process) -> Flow:
        log.engine.spawn(ahead, process)
        yield log.work("short", 1.0, ONE, 0.1)

    log.engine.run(main)
    assert log.ran == [("short", 0, 1), ("long", 0, 1)]


def test_waiting_for_what_never_happens_is_an_error() -> None:
    log = Log()

    def ahead(process: Process) -> Flow:
        yield process

    def main(process: Process) -> Flow:
        yield log.engine.spawn(ahead, process)

    with pytest.raises(RuntimeError, match="waits for something that never happens"):
        log.engine.run(main)


def test_every_fork_sees_draws_of_its_own_and_the_right_one_those_of_the_serial_schedule() -> None:
    block = Block(key=7, start=1, limit=20, row=Row([0, 0], 1))
    block.draft = Block(key=8, start=1, limit=19, row=block.row, fates=["plain"] * 3)
    forks = [Fork.of(block, 2, guess, right=False) for guess in range(3)]
    right = Fork.of(block, 2, 0, right=True)
    assert len({fork.draft.key for fork in [*forks, right]}) == 4
    block.emit(1, 2, "", logged=True)
    assert (right.draft.start, right.draft.limit) == (block.next, block.room - 1)

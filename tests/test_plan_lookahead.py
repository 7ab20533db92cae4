"""Guesses made ahead, and settings that make no sense."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product

import pytest
from simulated_schedules import (
    CURVE,
    chain_of_three,
    pipelined,
)

from ssd.plan.acceptance import Constant
from ssd.plan.edge_plan import EdgePlan
from ssd.plan.events import Worker
from ssd.plan.lookahead import Ahead, PowerMiss, TopShares, allocate, outcome_chances
from ssd.plan.setting import Machine
from ssd.plan.simulate import simulate


def test_rows_go_where_they_add_most() -> None:
    chances = outcome_chances([0.9, 0.8, 0.5])
    assert chances == pytest.approx([0.1, 0.18, 0.36, 0.36])
    ahead = Ahead(PowerMiss(0.5, 0.5, 1.0), 5)
    assert allocate(ahead, chances, [True] * 4) == [0, 1, 2, 2]
    assert allocate(ahead, chances, [True, True, False, False]) == [2, 3, 0, 0]
    assert allocate(replace(ahead, fan_out=1), chances, [True] * 4) == [1, 1, 1, 1]
    assert allocate(ahead, chances, [False] * 4) == [0] * 4
    # The first guess of the power law of arXiv 2603.03251 never hits, so it is only taken with a second.
    assert allocate(Ahead(PowerMiss(0.0, 0.0, 1.0), 4), [0.0, 1.0], [True] * 2) == [0, 4]
    assert allocate(Ahead(PowerMiss(0.0, 0.0, 1.0), 1), [0.0, 1.0], [True] * 2) == [0, 0]


@pytest.mark.parametrize("seed", range(10))
def test_no_other_use_of_the_rows_hits_more_often(seed: int) -> None:
    source = random.Random(seed)
    chances = outcome_chances([source.random() for _ in range(3)])
    curves = [sorted(source.random() for _ in range(4)) for _ in range(2)]
    ahead = Ahead(TopShares(tuple(curves[0]), tuple(curves[1])), 5, fan_out=4)
    useful = [source.random() < 0.8 for _ in range(4)]

    def hits(guesses: tuple[int, ...]) -> float:
        ends = ("recovered", "recovered", "recovered", "bonus")
        return sum(p * ahead.curve(f, end) for p, f, end in zip(chances, guesses, ends, strict=True))

    every = [g for g in product(*[range(5) if u else [0] for u in useful]) if sum(g) <= 5]
    guesses = tuple(allocate(ahead, chances, useful))
    assert guesses in every
    assert hits(guesses) == pytest.approx(max(map(hits, every)))


def test_curves() -> None:
    assert PowerMiss(0.6, 0.8, 0.5)(4, "bonus") == pytest.approx(0.9)
    assert PowerMiss(0.6, 0.8, 0.5)(4, "recovered") == pytest.approx(0.8)
    assert TopShares((0.2,), (0.5, 0.7))(9, "bonus") == 0.7
    assert PowerMiss(0.6, 0.8, 0.5)(0, "bonus") == TopShares((0.2,), (0.5,))(0, "bonus") == 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: replace(chain_of_three(), edges=(EdgePlan(2),)), r"edges: 3 levels need 2, got 1"),
        (lambda: replace(chain_of_three(), acceptance=()), r"acceptance: 3 levels need 2, got 0"),
        (lambda: replace(chain_of_three(), machine=Machine.each(2)), r"machine\.workers: 3 levels but 2"),
        (lambda: replace(chain_of_three(), schedule="parallel"), r"schedule: 'parallel'"),
        (lambda: pipelined(chain_of_three(), None, None), r"ahead: 'pipelined' needs an edge"),
        (
            lambda: pipelined(chain_of_three(), None, Ahead(CURVE, 2), machine=chain_of_three().machine),
            r"ahead\[1\]: L0 cannot draft while L2 verifies, both run on 'device 0'",
        ),
        (
            lambda: replace(chain_of_three(), acceptance=(Constant(0.5, "block"), Constant(0.5))),
            r"acceptance\[0\]\.verification: 'block'",
        ),
        (lambda: Machine.each(2, transfer=-1.0), r"machine\.transfer: .* got -1\.0"),
        (lambda: Machine((Worker("a"),), (1.5,)), r"machine\.demand, level 0: 1\.5"),
        (lambda: Machine((Worker("a"), Worker("a", "b"))), r"machine\.workers: two different .* 'a'"),
        (lambda: Worker(""), r"worker\.name"),
        (lambda: Ahead(CURVE, 0), r"ahead\.budget: .* got 0"),
        (lambda: Ahead(CURVE, 2, fan_out=True), r"ahead\.fan_out: .* got True"),
        (lambda: Ahead(CURVE, 2, force="never"), r"ahead\.force: 'never'"),
        (lambda: PowerMiss(1.2, 0.5, 1.0), r"recovered: 1\.2"),
        (lambda: PowerMiss(0.5, 0.5, -1.0), r"exponent: .* got -1\.0"),
        (lambda: TopShares((0.5, 0.4), (0.5,)), r"recovered: \(0\.5, 0\.4\)"),
        (lambda: simulate(chain_of_three(), 0), r"tokens: .* got 0"),
        (lambda: simulate(chain_of_three(), 5, batch=0), r"batch: .* got 0"),
        (lambda: simulate(pipelined(chain_of_three(), None, Ahead(lambda f, end: 2.0 * f, 2)), 50), r"curve: 4\.0"),
    ],
)
def test_what_makes_no_sense_is_refused(make, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=message):
        make()

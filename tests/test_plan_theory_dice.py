"""Closed forms of overlap, insertion and verification by block, against simulations that do not use them.

False alarms: a comparison is with a mean over 30 independent chunks and fails beyond 5.5 standard errors, 6.4e-6
two-sided (Student's t, 29 degrees of freedom); there are fewer than 80, so a new seed would fail the file with
probability below 6e-4. Simulated schedules, whose first draft and last round are not of the formula, may be off by
2 or 3%; their own errors are a third of that. Seeds are fixed.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import replace

import numpy as np
import pytest
from simulated_schedules import flat, serial

from ssd.plan import theory
from ssd.plan.block_bounds import accepted_at_most, accepted_by_block, accepted_by_token, block_verification_range
from ssd.plan.candidates import best_gammas
from ssd.plan.expected_tokens import expected_tokens, standard_speedup
from ssd.plan.insertion import best_pair_speedup, cost_per_token, insertion, triple_speedup
from ssd.plan.lookahead import Ahead, TopShares
from ssd.plan.overlap import overlap_speedup_bound, pipelined_seconds, presumed_speedup, schedule_bounds
from ssd.plan.prediction import predict
from ssd.plan.setting import Machine
from ssd.plan.simulate import simulate

FAR, CHUNKS = 5.5, 30


def deviation(chunks, expected):
    """Standard errors between the mean of chunks and what is expected; 0 for chunks that are exactly that."""
    chunks = np.asarray(chunks)
    error = chunks.std(ddof=1) / len(chunks) ** 0.5
    gap = abs(chunks.mean() - expected)
    return 0.0 if gap < 1e-9 else gap / max(error, 1e-12)


def test_every_function_says_where_it_is_from():
    functions = {name: found for name in theory.__all__ if inspect.isfunction(found := getattr(theory, name))}
    assert len(functions) > 20
    for name, found in functions.items():
        own = inspect.getdoc(found) or ""
        text = f"{own} {inspect.getdoc(inspect.getmodule(found))}"
        assert re.search(r"Source|arXiv|[Ee]quation|Theorem|Corollary", own), name
        assert re.search(r"arXiv\s+\d{4}\.\d{5}|derived\s+here", text), name


# --- overlap ----------------------------------------------------------------------------------------------------------


def pair_ahead(cost, gamma, alpha, hit, machine):
    """L0 drafts for L1 on ``machine``; each outcome of a verification was drafted for with chance ``hit``."""
    ahead = Ahead(TopShares((hit,), (hit,)), gamma + 1, predict_pass=False)
    return replace(serial(flat(cost, 1.0), [gamma], [alpha]), machine=machine, schedule="pipelined", ahead=(ahead,))


def timed(setting, tokens=400):
    """Chunks of (seconds per round, seconds per token, tokens per round), and of hits."""
    runs = [simulate(setting, tokens, seed=seed) for seed in range(CHUNKS)]
    rounds = np.array([len(run.rounds[0]) for run in runs])
    seconds = np.array([run.seconds for run in runs])
    return seconds / rounds, seconds / tokens, tokens / rounds, runs


@pytest.mark.parametrize(
    ("cost", "gamma", "alpha", "hit"), [(0.2, 4, 0.8, 0.6), (0.1, 3, 0.5, 0.25), (0.3, 3, 0.7, 1.0)]
)
def test_a_round_takes_the_longer_of_the_two_on_a_hit_and_both_on_a_miss(cost, gamma, alpha, hit):
    per_round, *_ = timed(pair_ahead(cost, gamma, alpha, hit, Machine.each(2)))
    expected = pipelined_seconds(hit, gamma * cost, 1.0)
    assert per_round.mean() == pytest.approx(expected, rel=0.02)
    wrong = pipelined_seconds(min(1.0, hit + 0.2) if hit < 1 else 0.8, gamma * cost, 1.0)
    assert abs(per_round.mean() - wrong) > 2 * abs(per_round.mean() - expected)


def test_presuming_outcomes_by_dice():
    """Rounds played one by one, with another draft length after a miss than after a hit."""
    dice = np.random.default_rng(1)
    hit, alpha, cost, ahead_cost, lengths, rounds = 0.6, 0.8, 0.1, 1.3, (5, 2), 4000
    speeds = []
    for _ in range(CHUNKS):
        hits = dice.random(rounds) < hit
        gammas = np.where(hits, *lengths)
        kept = np.minimum(dice.geometric(1 - alpha, rounds) - 1, gammas)
        seconds = np.where(hits, max(1.0, ahead_cost), 1 + gammas * cost)
        speeds.append((kept + 1).sum() / seconds.sum())
    tokens = [expected_tokens(alpha, g) for g in lengths]
    found = presumed_speedup(hit, *tokens, ahead_cost, lengths[1] * cost)
    assert deviation(speeds, found) < FAR
    assert deviation(speeds, presumed_speedup(hit, *tokens[::-1], ahead_cost, lengths[1] * cost)) > 2 * FAR


@pytest.mark.parametrize(("cost", "gamma", "alpha"), [(0.1, 4, 0.8), (0.4, 4, 0.8), (0.2, 5, 0.5)])
def test_drafts_that_are_always_ready_reach_the_bound_of_overlap_and_nothing_exceeds_it(cost, gamma, alpha):
    bound = overlap_speedup_bound(alpha, gamma, cost)
    _, per_token, *_ = timed(pair_ahead(cost, gamma, alpha, 1.0, Machine.each(2)))
    assert 1 / per_token.mean() == pytest.approx(bound, rel=0.03)  # the first draft and the cut at the end cost 1%
    for hit in (0.0, 0.5):
        _, per_token, *_ = timed(pair_ahead(cost, gamma, alpha, hit, Machine.each(2)))
        speeds = 1 / per_token
        assert speeds.mean() < bound - FAR * speeds.std(ddof=1) / CHUNKS**0.5


@pytest.mark.parametrize("apart", [1, 2])
def test_simulated_schedules_lie_between_the_bounds(apart):
    """Levels below ``apart`` share a device of their own; serial is the most, certain hits stay above the least."""
    setting = serial(flat(0.05, 0.2, 1.0), [2, 3], [0.75, 0.85])
    workers = Machine.each(2).workers
    machine = Machine(tuple(workers[k >= apart] for k in range(3)))
    found = predict(setting.profile, setting.edges, setting.acceptance)
    bounds = schedule_bounds(found.seconds, [w.name for w in machine.workers])
    _, per_token, *_ = timed(setting)
    assert per_token.mean() == pytest.approx(bounds.most, rel=0.02)
    ahead = Ahead(TopShares((1.0,), (1.0,)), 6, predict_pass=False)
    edges = tuple(ahead if k == apart - 1 else None for k in range(2))
    _, quicker, *_ = timed(replace(setting, machine=machine, schedule="pipelined", ahead=edges))
    assert bounds.least < quicker.mean() + FAR * quicker.std(ddof=1) / CHUNKS**0.5
    assert quicker.mean() < bounds.most * 0.99


# --- insertion --------------------------------------------------------------------------------------------------------


def reduced(dice, alphas, costs, gammas, rounds=3000):
    """Tokens per second of chains whose every level serves the one above from a stream of tokens, nothing lost.

    The serial reduction, played: a level that is asked for n tokens hands on the next n of its stream, which its own
    rounds have filled; what is rejected above was paid for.
    """
    seconds = np.full(20_000, costs[0])  # of each token of the stream
    for alpha, cost, gamma in zip(alphas, costs[1:], gammas, strict=True):
        starts = np.arange(0, len(seconds) - gamma, gamma)[:rounds]
        spent = np.add.reduceat(seconds, starts)[:-1] + cost if gamma else np.full(rounds, cost)
        kept = np.minimum(dice.geometric(1 - alpha, len(spent)) - 1, gamma) + 1
        seconds = np.concatenate([np.full(n, s / n) for n, s in zip(kept, spent, strict=True)])
    return 1 / seconds.mean()


@pytest.mark.parametrize(("c0", "c1", "a01", "a12"), [(0.02, 0.10, 0.75, 0.85), (0.03, 0.165, 0.6, 0.8)])
def test_the_best_triple_by_dice(c0, c1, a01, a12):
    best = triple_speedup(c0, c1, a01, a12)
    middle = {g: (g * c0 + c1) / expected_tokens(a01, g) for g in range(1, 13)}
    g0 = min(middle, key=middle.__getitem__)
    g1 = max(range(1, 25), key=lambda g: standard_speedup(a12, g, middle[g0]))
    dice = np.random.default_rng(2)
    speeds = [reduced(dice, [a01, a12], [c0, c1, 1.0], [g0, g1]) for _ in range(CHUNKS)]
    assert deviation(speeds, best) < FAR
    assert best == pytest.approx(1 / cost_per_token([c0, c1, 1.0], [a01, a12]))
    for other in ((g0, max(1, g1 // 3)), (1, g1), (g0 + 6, g1)):
        slower = np.array([reduced(dice, [a01, a12], [c0, c1, 1.0], other) for _ in range(CHUNKS)])
        assert slower.mean() - FAR * slower.std(ddof=1) / CHUNKS**0.5 < best


def test_inserting_a_level_pays_by_dice_on_the_side_of_the_threshold_that_the_formula_says():
    c0, c1, a01, a02 = 0.02, 0.10, 0.75, 0.72
    needed = insertion(c0, c1, a01, 0.85, a02).mid_alpha_needed
    dice, pair = np.random.default_rng(3), best_pair_speedup(c0, a02)
    gamma = max(range(1, 25), key=lambda g: standard_speedup(a02, g, c0))
    pairs = np.array([reduced(dice, [a02], [c0, 1.0], [gamma]) for _ in range(CHUNKS)])
    assert deviation(pairs, pair) < FAR
    for step, pays in ((-0.03, False), (0.03, True)):
        a12 = needed + step
        middle = cost_per_token([c0, c1], [a01])
        g0 = min(range(1, 13), key=lambda g: (g * c0 + c1) / expected_tokens(a01, g))
        g1 = max(range(1, 25), key=lambda g: standard_speedup(a12, g, middle))
        triples = np.array([reduced(dice, [a01, a12], [c0, c1, 1.0], [g0, g1]) for _ in range(CHUNKS)])
        gaps = triples - pairs
        assert (gaps.mean() > 0) == pays == insertion(c0, c1, a01, a12, a02).pays
        assert abs(gaps.mean()) > FAR * gaps.std(ddof=1) / CHUNKS**0.5


def test_a_real_chain_stays_below_the_reduction_by_what_its_blocks_overshoot():
    """Flat passes, all lengths up to 8, every window: the reduction is an upper bound and not far."""
    profile = flat(0.03, 0.165, 1.0)
    acceptance = serial(profile, [1, 1], [0.6, 0.8]).acceptance
    found = best_gammas(profile, acceptance, windows=("at_least", "exactly"), largest=8).prediction.speedup
    assert 0.93 * triple_speedup(0.03, 0.165, 0.6, 0.8) < found <= triple_speedup(0.03, 0.165, 0.6, 0.8) + 1e-9


# --- verification by block --------------------------------------------------------------------------------------------

LAWS = [((1 / 3, 2 / 3), (2 / 3, 1 / 3)), ((0.5, 0.3, 0.2), (0.2, 0.3, 0.5)), ((0.6, 0.3, 0.1), (0.3, 0.3, 0.4))]


def kept_by_token(dice, target, draft, gamma, rounds):
    """Accepted tokens of rounds that test token by token."""
    tokens = dice.choice(len(draft), (rounds, gamma), p=draft)
    passed = dice.random((rounds, gamma)) * draft[tokens] < target[tokens]
    return np.cumprod(passed, axis=1).sum(axis=1)


def kept_by_block(dice, target, draft, gamma, rounds):
    """Accepted tokens of rounds that follow Algorithm 2 of arXiv 2403.10444, the longest prefix that passes kept."""
    tokens = dice.choice(len(draft), (rounds, gamma), p=draft)
    weight, kept = np.ones(rounds), np.zeros(rounds)
    for i in range(gamma):
        weight = np.minimum(1, weight * target[tokens[:, i]] / draft[tokens[:, i]])
        left = np.maximum(weight[:, None] * target - draft, 0).sum(axis=1)
        last = i == gamma - 1
        chance = (
            weight if last else np.divide(left, left + 1 - weight, out=np.ones(rounds), where=left + 1 - weight > 0)
        )
        kept = np.where(dice.random(rounds) < chance, i + 1, kept)
    return kept


def possible(dice, target, draft, gamma, rounds):
    """Sum over prefixes of the chance that a maximal coupling of the two laws of that prefix keeps it."""
    tokens = dice.choice(len(draft), (rounds, gamma), p=draft)
    return np.minimum(1, np.cumprod(target[tokens] / draft[tokens], axis=1)).sum(axis=1)


@pytest.mark.parametrize("laws", LAWS)
@pytest.mark.parametrize("gamma", [1, 2, 4])
def test_accepted_tokens_by_dice(laws, gamma):
    target, draft = map(np.array, laws)
    dice = np.random.default_rng(4)

    def played(play):
        return [play(dice, target, draft, gamma, 1500).mean() for _ in range(CHUNKS)]

    block = played(kept_by_block)
    assert deviation(played(kept_by_token), accepted_by_token(*laws, gamma)) < FAR
    assert deviation(block, accepted_by_block(*laws, gamma)) < FAR
    assert deviation(played(possible), accepted_at_most(*laws, gamma)) < FAR
    if gamma > 1:  # the rules are told apart, so that none could stand for another
        assert deviation(block, accepted_by_token(*laws, gamma)) > FAR
    alpha = float(np.minimum(target, draft).sum())
    least, most = block_verification_range(alpha, alpha, gamma)
    error = FAR * np.std(block, ddof=1) / CHUNKS**0.5
    assert least - error <= 1 + np.mean(block) <= most + error

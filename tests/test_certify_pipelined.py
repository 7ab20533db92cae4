"""The certificate under the pipelined schedule: a right decoder passes rungs 0 to 4, faults of drafting ahead show."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from ssd.certify import matrix as planting
from ssd.certify.ahead import AheadTwin, check_ahead, every, likeliest
from ssd.certify.bookkeeping import check_bookkeeping
from ssd.certify.cache_free import compare_proposals
from ssd.certify.cases import SCHEDULES, Case, schedule_of_case
from ssd.certify.consistency import contradictions
from ssd.certify.enumerated_settings import edge, setting
from ssd.certify.enumeration import check_enumeration
from ssd.certify.identity import check_identity
from ssd.certify.law import check_law
from ssd.certify.matrix import llamas, matrix
from ssd.certify.pairwise import FACTORS, PIPELINED, pairs, required, sample
from ssd.certify.planted_ahead import PLANTED_AHEAD
from ssd.certify.result import Check
from ssd.certify.schedules import REGIMES, WORKERS, Pipelined, apart, in_turn, with_target
from ssd.certify.subchains import alone, pair, self_draft
from ssd.certify.tiny_models import P, chain_of, near, tiny_llama
from ssd.certify.twin_equality import check_twin
from ssd.core.chain import Chain, Edge
from ssd.core.generate import generate
from ssd.core.model import CachedModel
from ssd.core.ngram import Ngram
from ssd.core.reference import Row
from ssd.core.requests import Request, Sampling

PROMPTS = ((1, 5, 9, 5, 9), (3, 8, 2), (11, 12, 13, 14, 15, 16, 17), (7, 7, 7, 20))
TARGET = tiny_llama(0)


def three() -> Chain:
    return chain_of([near(TARGET, 0.15, 2), near(TARGET, 0.08, 1), TARGET], [Edge(2), Edge(3)])


def two() -> Chain:
    return chain_of([near(TARGET, 0.08, 1), TARGET], [Edge(3)])


def failed(checks: Sequence[Check]) -> list[str]:
    return [f"{c.name}: {c.detail}" for c in checks if not c.passed]


# --- rungs ------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [two, three])
def test_the_rungs_of_a_chain_pass_under_every_regime(make) -> None:
    def climb(schedule: Pipelined) -> list[Check]:
        chain = make()
        return [
            *check_bookkeeping(chain, PROMPTS, tokens=8, gammas=(3,), rows=8, schedule=schedule),
            *check_identity(chain, PROMPTS, tokens=10, batch=4, schedule=schedule),
            *check_law(chain, PROMPTS, length=3, batch=160, repeats=2, schedule=schedule),
        ]

    checks = in_turn(climb, "thread", 0.001)
    assert failed(checks) == []
    assert len({c.name for c in checks}) == len(checks)
    assert {c.name.rpartition("; ")[2] for c in checks} == {*REGIMES}


def test_the_twin_is_the_decoder_under_every_schedule() -> None:
    assert failed(check_twin(60, seed=3, schedule="pipelined")) == []


def test_the_sample_covers_schedules_and_workers() -> None:
    among = FACTORS | PIPELINED
    seen = {pair for c in sample(100, pipelined=True) for pair in pairs(c)}
    assert seen >= {*required(among)}
    for schedule in SCHEDULES[1:]:
        assert all((("schedule", schedule), ("workers", w)) in seen for w in WORKERS)
        assert (("depth", 0), ("schedule", schedule)) not in seen
    assert sample(30) == sample(30, pipelined=False)
    assert not any("schedule" in c for c in sample(30))


def test_hits_and_misses_are_what_is_told() -> None:
    request = [Request(P, Sampling(1.0), seed=s, max_new_tokens=20) for s in range(3)]
    for regime in REGIMES:
        for workers in WORKERS:
            schedule, c = Pipelined(regime, workers=workers), three()
            ahead = generate(c, request, schedule)[0].ahead
            hits, misses = map(sum, zip(*ahead, strict=True))
            assert hits + misses > 0
            assert (hits > 0) == (regime != "misses") or regime == "slow drafts"
            assert regime != "hits" or misses == 0
            schedule.close()


# --- schedules --------------------------------------------------------------------------------


def test_levels_are_shared_out_and_what_cannot_overlap_takes_turns() -> None:
    c, look_up = three(), chain_of([Ngram(), near(TARGET, 0.1, 3), TARGET], [Edge(3), Edge(3)])
    groups = {w: [Pipelined("hits", workers=w).groups(each) for each in (c, look_up, two())] for w in WORKERS}
    pair_of = (range(1), range(1, 2))
    assert groups["target alone"] == [(range(2), range(2, 3)), (range(2), range(2, 3)), pair_of]
    assert groups["each alone"] == [(range(1), range(1, 2), range(2, 3)), (range(2), range(2, 3)), pair_of]
    assert groups["target with the next"] == [(range(1), range(1, 3)), (range(2), range(2, 3)), pair_of]
    schedule = Pipelined("hits")
    for each in (alone(c), pair(look_up.__class__(look_up.levels[:1] + look_up.levels[2:], look_up.edges[:1]))):
        assert schedule.groups(each) == (range(len(each.levels)),)
        assert generate(each, [Request(P, max_new_tokens=3)], schedule)[0].ahead == ()
    assert with_target(c, "serial") == range(3)
    assert with_target(c, schedule) == range(2, 3)


def test_a_pipeline_stays_for_equal_chains_and_goes_with_the_next() -> None:
    c, request = three(), [Request(P, max_new_tokens=4)]
    schedule = Pipelined("hits")
    generate(c, request, schedule)
    first = schedule._pipeline
    generate(replace(c), request, schedule)
    assert schedule._pipeline is first
    generate(pair(c), request, schedule)
    assert schedule._pipeline is not first
    assert first._workers is None
    schedule.close()
    assert schedule._pipeline is None


def test_a_module_of_two_levels_is_copied_for_the_lower() -> None:
    c = self_draft(three(), 2, 3, "token")
    own = apart(c)
    assert own.levels[1] is c.levels[1]
    assert isinstance(own.levels[0].model, CachedModel)
    assert own.levels[0].model.module is not c.levels[1].model.module
    unlike = three()
    assert all(a is b for a, b in zip(apart(unlike).levels, unlike.levels, strict=True))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("luck",), "schedule.regime: 'luck' is not one of hits, misses, slow drafts, slow target"),
        (("hits", "thread", "nobody"), "schedule.workers: 'nobody' is not one of target alone"),
    ],
)
def test_a_wrong_schedule_is_refused(arguments: tuple[str, ...], words: str) -> None:
    with pytest.raises(ValueError, match=f"^{words}"):
        Pipelined(*arguments)


def test_a_wrong_schedule_of_a_case_is_refused() -> None:
    request = (Request((1,)),)
    with pytest.raises(ValueError, match=r"^case.schedule: 'pipelined' is not one of serial, pipelined hits"):
        Case("tables", (), request, schedule="pipelined")
    with pytest.raises(ValueError, match=r"^case.workers: 'some'"):
        Case("tables", (), request, workers="some")
    with schedule_of_case(Case("tables", (), request)) as schedule:
        assert schedule == "serial"


# --- what a generation says -------------------------------------------------------------------


def test_times_are_held_against_the_schedule() -> None:
    c, request = three(), Request(P, Sampling(1.0), max_new_tokens=20)
    schedule = Pipelined("slow target")
    (g,) = generate(c, [request], schedule)
    together = with_target(c, schedule)
    assert contradictions(c, request, g, together) == []
    assert any("the parts of the time" in words for words in contradictions(c, request, g))
    slower = replace(g, seconds=replace(g.seconds, rest=g.seconds.rest + 1))
    assert len(contradictions(c, request, slower, together)) == 1
    (serial,) = generate(c, [request])
    assert contradictions(c, request, serial) == []
    assert any("drafts made ahead" in words for words in contradictions(c, request, replace(serial, ahead=g.ahead)))
    assert any("drafts made ahead" in words for words in contradictions(c, request, replace(g, ahead=()), together))
    schedule.close()


def test_every_draft_that_reaches_the_target_is_compared() -> None:
    rows = [Request(p, Sampling(t), max_new_tokens=12) for p, t in zip(PROMPTS, (1.0, 0.0, 1.3, 0.8), strict=True)]
    for fault in (None, next(f for f in PLANTED_AHEAD if f.name == "slots of a branch not copied")):
        schedule = Pipelined("hits", workers="target alone")
        if fault is None:
            found = compare_proposals(three(), rows, schedule)
            assert found.proposals > 10
            assert (found.faults, found.ties) == ([], [])
        else:
            with fault.active():
                assert compare_proposals(llamas(0.08, 0.05), rows, schedule).faults
        schedule.close()


# --- enumeration ------------------------------------------------------------------------------


def test_the_law_stays_the_targets_with_drafts_made_ahead() -> None:
    checks = check_enumeration(["no draft"], schedule="pipelined")
    assert [c.name for c in checks[1:]] == ["drafts made ahead", "a draft made ahead is the one made later"]
    assert failed(checks) == []
    assert len(check_enumeration(["no draft"])) == 1


class Dropping(AheadTwin):
    """A draft made ahead is thrown away when it begins with token 0."""

    def propose(self, k: int, text: list[int], limit: int, key: int) -> tuple[list[int], list[Row]]:
        hits = self.hits
        tokens, laws = super().propose(k, text, limit, key)
        return ([], []) if self.hits > hits and tokens[:1] == [0] else (tokens, laws)


class Careless(AheadTwin):
    """Drafts made ahead are handed up after the text of another outcome of as many tokens."""

    def round(self, k: int, text: list[int], room: int, key: int) -> tuple[list[int], list[Row], bool]:
        told = super().round(k, text, room, key)
        for length in {len(place[1]) for place in self._made}:
            places = [p for p in self._made if len(p[1]) == length and p[0] == k - 1]
            drafts = [self._made[p] for p in places]
            self._made |= dict(zip(places, [*drafts[1:], *drafts[:1]], strict=True))
        return told


def test_a_draft_dropped_for_its_tokens_shows_in_the_law_and_one_of_another_text_in_the_tokens() -> None:
    law, same = check_ahead(Dropping)
    assert not law.passed
    assert law.value is not None
    assert law.value > 1e-3
    law, same = check_ahead(Careless)
    assert law.passed  # any draft with its own law keeps the target's: only the tokens tell
    assert not same.passed


def test_what_is_predicted_can_come_to_pass() -> None:
    s = setting("predicted", [edge("at_least", 2, "token")], 3, 4)
    twin = AheadTwin(s.levels, s.edges, AheadTwin(s.levels, s.edges, None, every).chooser, every)
    assert set(likeliest(twin, 0, [1, 0], [2, 1])) <= set(every(twin, 0, [1, 0], [2, 1]))
    assert len(every(twin, 0, [1, 0], [2, 1])) == 2 + 2 + 3
    assert likeliest(twin, 0, [1, 0], []) == []


# --- planted faults ---------------------------------------------------------------------------


def test_every_fault_of_drafting_ahead_is_caught() -> None:
    rows = matrix(PLANTED_AHEAD, planting.trials_ahead())
    assert [row["fault"] for row in rows] == [f.name for f in PLANTED_AHEAD]
    assert all(row["caught"] == {2: True} and row["by"] for row in rows), rows
    assert len({f.name for f in PLANTED_AHEAD}) == len(PLANTED_AHEAD) >= 4
    assert all(f.what.endswith(".") and f.what.count(". ") == 0 for f in PLANTED_AHEAD)


# --- the command ------------------------------------------------------------------------------


def test_the_command_under_the_pipelined_schedule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    from experiments import certify, certify_config
    from ssd.bench.json_files import read_json

    monkeypatch.setattr(certify, "kind_of_workers", lambda chain: "thread")  # processes: tests/test_pipeline_failures
    monkeypatch.setattr(certify_config, "kind_of_workers", lambda chain: "thread")
    sizes = ["law.batch=64", "law.length=2", "law.repeats=2", "identity.tokens=6", "identity.prompt_tokens=8"]
    sizes += ["bookkeeping.tokens=6", "bookkeeping.rows=4", "bookkeeping.prompts=2", "identity.prompts=2"]
    arguments = ["chain=tiny_triple", "schedule=pipelined", "rungs=0,3", "matrix=false", f"results_dir={tmp_path}"]
    assert certify.main([*arguments, *sizes]) == 0
    told = read_json(tmp_path / "certify" / "tiny_triple-pipelined" / "certificate.json")
    assert [r["outcome"] for r in told["rungs"]] == ["passed", "passed"]
    assert told["config"]["schedule"] == "pipelined"
    for rung in told["rungs"]:
        assert {c["name"].rpartition("; ")[2] for c in rung["checks"]} == {*REGIMES}
    assert not (tmp_path / "certify" / "tiny_triple").exists()
    assert "passed" in capsys.readouterr().out


def test_arguments_of_the_schedule(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    from experiments import certify
    from experiments.certify_config import read_config

    path = Path(__file__).resolve().parent.parent / "conf" / "certify.yaml"
    if len(os.sched_getaffinity(0)) > 1:
        spec = read_config(path, ["schedule=pipelined"])[0]
        assert (spec.rungs, spec.name) == ((0, 1, 2, 3, 4), "smollm2-pipelined")
    for argument, words in (
        (["schedule=fast"], "schedule: 'fast' is not one of serial, pipelined"),
        (["schedule=pipelined", "rungs=4,5"], "rungs: 5 is not climbed under schedule 'pipelined', only 0, 1, 2, 3, 4"),
    ):
        assert certify.main(argument) == 2
        assert capsys.readouterr().err.startswith(f"error: {words}")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    assert certify.main(["schedule=pipelined"]) == 2
    assert "2 processes but cores [0]" in capsys.readouterr().err

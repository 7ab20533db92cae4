"""Settings of the pipelined schedule: what makes no sense is refused by name, cores are shared out, outcomes learnt."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ssd.core.chain import Chain, Edge, Level
from ssd.core.model import CachedModel
from ssd.core.ngram import Ngram
from ssd.pipeline.outcomes import OutcomeProfile
from ssd.pipeline.pipeline import Pipeline
from ssd.pipeline.settings import PipelineSettings
from ssd.pipeline.start import check_placement
from tests.test_pipeline import MIDDLE, SMALL, TARGET, THREADS, chain, three


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"kind": "fibre"}, "pipeline.kind: 'fibre' is not one of process, thread"),
        ({"force": "luck"}, "pipeline.force: 'luck' is not one of hits, misses"),
        ({"budget": 0}, "pipeline.budget: expected an integer >= 1, got 0"),
        ({"budget": True}, "pipeline.budget: expected an integer >= 1, got True"),
        ({"fan_out": 1.5}, r"pipeline.fan_out: expected an integer >= 1, got 1\.5"),
        ({"delays": (-1.0, 0.0)}, r"pipeline.delays: expected seconds >= 0, got \[-1\.0, 0\.0\]"),
        ({"delays": (float("nan"), 0.0)}, "pipeline.delays: expected seconds >= 0"),
        ({"delays": (float("inf"), 0.0)}, "pipeline.delays: expected seconds >= 0"),
        ({"kind": "thread", "cores": ((0,), (1,))}, "pipeline.cores: .* has no meaning for workers of kind 'thread'"),
    ],
)
def test_a_setting_alone(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=f"^{words}"):
        PipelineSettings(**given)


@pytest.mark.parametrize(
    ("given", "levels", "words"),
    [
        ({}, 1, "schedule: 'pipelined' needs a draft that works while the target verifies"),
        (
            {"workers": ((0, 2), (1,))},
            3,
            r"pipeline.workers: \[\[0, 2\], \[1\]\] do not share out levels 0 to 2 in order",
        ),
        ({"workers": ((0,), (1,))}, 3, "pipeline.workers: .* do not share out levels 0 to 2"),
        ({"workers": ((0, 1), (), (2,))}, 3, "pipeline.workers: .* do not share out levels 0 to 2"),
        ({"workers": ((0, 1, 2),)}, 3, "pipeline.workers: one worker for all 3 levels leaves nothing to overlap"),
        ({"delays": (0.1,)}, 2, "pipeline.delays: 2 workers but 1 entries"),
        ({"cores": ((0,), (1,), (2,))}, 2, "pipeline.cores: 2 workers but 3 entries"),
    ],
)
def test_a_setting_and_the_levels(given: dict[str, Any], levels: int, words: str) -> None:
    with pytest.raises(ValueError, match=f"^{words}"):
        PipelineSettings(**given).groups(levels)


@pytest.mark.parametrize(
    ("cores", "words"),
    [
        (((0,), (9,)), r"pipeline.cores: \[\[0\], \[9\]\] are not among cores \[0, 1, 2\]"),
        (((0,), ()), r"pipeline.cores: \[\[0\], \[\]\] are not among"),
        (((0, 1), (1,)), r"pipeline.cores: a core stands twice in \[\[0, 1\], \[1\]\]"),
    ],
)
def test_cores_that_do_not_fit(cores: Any, words: str) -> None:
    with pytest.raises(ValueError, match=f"^{words}"):
        PipelineSettings(cores=cores).cores_of(2, (0, 1, 2))


def test_cores_are_shared_out_and_the_target_gets_what_is_left() -> None:
    assert PipelineSettings().cores_of(2, (0, 1)) == ((0,), (1,))
    assert PipelineSettings().cores_of(2, (3, 4, 5)) == ((3,), (4, 5))
    assert PipelineSettings().cores_of(3, range(8)) == ((0, 1), (2, 3, 4), (5, 6, 7))
    with pytest.raises(ValueError, match=r"^pipeline.workers: 3 processes but cores \[0, 1\]; two processes on one"):
        PipelineSettings().cores_of(3, (0, 1))


def test_levels_that_cannot_be_where_they_are_told_to() -> None:
    def refused(c: Chain, settings: PipelineSettings, words: str) -> None:
        with pytest.raises(ValueError, match=f"^{words}"):
            Pipeline(c, settings)

    look_up = chain([Ngram(), MIDDLE, TARGET], [Edge(2), Edge(3)])
    refused(look_up, PipelineSettings(((0,), (1, 2)), "thread"), "pipeline.workers: L0 is a look-up")
    shared = chain([SMALL, SMALL, TARGET], [Edge(2), Edge(3)])
    refused(shared, PipelineSettings(((0,), (1, 2)), "thread"), "pipeline.workers: L1 shares its module with a level")
    assert PipelineSettings(((0, 1), (2,)), "thread").groups(3)  # on one worker they take turns
    check_placement(shared, (range(2), range(2, 3)), THREADS)

    class Rigid:
        vocab_size = embeddings = 64
        max_positions = None
        device, dtype, owner = torch.device("cpu"), torch.float64, None

    rigid = Chain((Level(Rigid()), Level(CachedModel(TARGET))), (Edge(2),))
    refused(rigid, THREADS, "pipeline.workers: L0 is a Rigid, which cannot copy slots between rows")
    away = three()
    away.levels[0].model.device = torch.device("meta")
    refused(away, THREADS, "pipeline.workers: L0 is on meta and L1 of the same worker on cpu")
    settings = PipelineSettings(((0,), (1, 2)))
    with pytest.raises(ValueError, match=r"^pipeline\.kind: L0 is on meta; processes are for levels on a CPU"):
        check_placement(away, settings.groups(3), settings)


# --- outcomes ---------------------------------------------------------------------------------


def test_a_profile_learns_how_many_tokens_pass() -> None:
    profile = OutcomeProfile()
    before = profile.chances(3)
    assert sum(before) == pytest.approx(1.0)
    for _ in range(200):
        profile.learn(3, 1, 0)
    chances = profile.chances(3)
    assert sum(chances) == pytest.approx(1.0)
    assert max(range(4), key=chances.__getitem__) == 1
    assert chances[1] > 0.95
    assert before[1] < 0.5
    assert profile.chances(1)[1] > 0.95  # the first token passed every time


def test_a_profile_learns_which_guess_is_right_and_keeps_full_drafts_apart() -> None:
    profile = OutcomeProfile()
    assert profile.share(0, False) > profile.share(1, False) > profile.share(2, False)
    for _ in range(100):
        profile.learn(2, 0, 1)
        profile.learn(2, 2, None)
    assert profile.share(1, False) > 0.9 > 0.1 > profile.share(0, False)
    assert profile.share(0, True) < 0.1
    assert sum(profile.share(rank, False) for rank in range(60)) <= 1 + 1e-9


def test_the_likeliest_outcomes_are_chosen_within_budget_and_fan_out() -> None:
    profile = OutcomeProfile()
    for _ in range(50):
        profile.learn(2, 2, 0)
    guesses, useful = [[5, 6, 7], [8, 9], [1, 2, 3]], [True] * 3
    chosen = profile.choose(guesses, useful, 4, 2)
    assert len(chosen) == 4
    assert chosen[0][:2] == (2, 1)
    assert [g.chance for g in chosen] == sorted((g.chance for g in chosen), reverse=True)
    everything = profile.choose(guesses, useful, 99, 2)
    assert {g[:2] for g in everything} == {(0, 5), (0, 6), (1, 8), (1, 9), (2, 1), (2, 2)}
    assert chosen == everything[:4]
    assert sum(g.chance for g in everything) <= 1
    assert {g.accepted for g in profile.choose(guesses, [True, False, False], 99, 3)} == {0}
    assert profile.choose(guesses, [False] * 3, 4, 2) == []

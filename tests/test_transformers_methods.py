"""The transformers baselines against naive loops, and that nothing leaks into or out of a call."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tiny_baselines import DRAFT, EXPECTED, NAMES, TARGET, greedy, method, run, tiny, tiny_gpt2
from transformers import GenerationConfig

from ssd.bench.shared_weights import full_vocabulary
from ssd.bench.transformers_methods import TransformersPromptLookup
from ssd.certify.tiny_models import P, with_draft_vocabulary
from ssd.certify.tiny_models import greedy as naive
from ssd.core.requests import Request, Sampling


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("gamma", [1, 5])
@pytest.mark.parametrize("draft", [DRAFT, TARGET], ids=["other", "itself"])
def test_greedy_equals_naive_loop(name: str, gamma: int, draft: Any) -> None:
    chosen = method(name, draft=draft, gamma=gamma)
    prompts = [P, (3,), tuple(range(20, 32))]
    generations = chosen.generate([greedy(30, ids) for ids in prompts])
    assert [g.ids for g in generations] == [tuple(naive(TARGET, ids, 30)) for ids in prompts]
    assert all(g.stop_reason == "length" and g.origins == () for g in generations)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("new", range(5))
def test_budget_is_exact(name: str, new: int) -> None:
    generation = run(method(name, gamma=8), greedy(new))
    assert generation.ids == EXPECTED[:new]
    for r in generation.rounds:
        assert r.drafted <= len(P) + new - r.start - 1  # one token of the pass is the target's own
    assert sum(r.emitted for r in generation.rounds) == new
    if new == 0:
        assert (generation.passes[-1].count, generation.seconds.total, generation.arrivals) == (0, 0.0, ())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("index", [1, 2, 4, 6])
@pytest.mark.parametrize("gamma", [2, 8])
def test_end_of_text_inside_a_block(name: str, index: int, gamma: int) -> None:
    end = EXPECTED[index]
    expected = EXPECTED[: EXPECTED.index(end) + 1]
    chosen = method(name, draft=TARGET, gamma=gamma)
    generation = run(chosen, greedy(30, eos_ids=(63 if end != 63 else 62, end)))
    assert (generation.ids, generation.stop_reason) == (expected, "eos")
    assert sum(r.emitted for r in generation.rounds) == len(expected)
    assert generation.arrivals[-1][1] == len(expected)
    ignored = run(chosen, greedy(30, eos_ids=(end,), ignore_eos=True))
    assert (ignored.ids, ignored.stop_reason) == (EXPECTED, "length")


def test_rejected_end_of_text_of_the_draft_ends_nothing() -> None:
    eager = tiny(2, layers=1)
    end = next(token for token in range(64) if token not in EXPECTED)
    with torch.no_grad():
        eager.lm_head.weight[end] = 0
    shifted = full_vocabulary(eager, torch.arange(64), 64)
    shifted.lm_head.register_forward_hook(lambda _m, _a, rows: rows.index_fill(-1, torch.tensor([end]), 1e4))
    generation = run(method("assisted", draft=shifted), greedy(30, eos_ids=(end,)))
    assert generation.ids == EXPECTED
    assert {(r.drafted, r.accepted) for r in generation.rounds[:-1]} == {(1, 0)}


@pytest.mark.parametrize("name", NAMES)
def test_prompt_tokens_that_look_like_padding_are_seen(name: str) -> None:
    ids = (0, 7, 0, 2, 0, 7, 0)
    for stored in (0, 2):
        target = tiny(0)
        target.generation_config = GenerationConfig(pad_token_id=stored, eos_token_id=stored)
        chosen = method(name, target=target, draft=target)
        generation = run(chosen, greedy(20, ids, eos_ids=(2,), ignore_eos=True))
        assert generation.ids == tuple(naive(TARGET, ids, 20))
        if name == "assisted":
            assert all(r.accepted == r.drafted for r in generation.rounds)


class SpelledIds:
    """A tokenizer whose text is ``<id>`` per token."""

    def decode(self, ids: list[int]) -> str:
        return "".join(f"<{i}>" for i in ids)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("last", [1, 2, 4, 7, 8])
def test_stop_string_cuts_inside_a_block(name: str, last: int) -> None:
    chosen = method(name, draft=TARGET, gamma=8, tokenizer=SpelledIds())
    stop = f"{EXPECTED[last - 1]}><{EXPECTED[last]}"
    generation = run(chosen, greedy(30, stop=("never", stop)))
    first = next(n for n in range(1, 31) if stop in SpelledIds().decode(list(EXPECTED[:n])))
    assert (generation.ids, generation.stop_reason) == (EXPECTED[:first], "stop")
    assert sum(r.emitted for r in generation.rounds) == first
    at_once = run(chosen, greedy(30, stop=(stop,), eos_ids=(EXPECTED[first - 1],)))
    assert at_once.stop_reason == ("stop" if EXPECTED[first - 1] not in EXPECTED[: first - 1] else "eos")
    assert run(chosen, greedy(30, stop=(stop,), ignore_eos=True)).ids == EXPECTED


def hidden_defaults() -> GenerationConfig:
    return GenerationConfig(
        repetition_penalty=1.3,
        top_k=5,
        temperature=0.3,
        top_p=0.5,
        do_sample=True,
        max_length=9,
        min_new_tokens=40,
        eos_token_id=EXPECTED[2],
        pad_token_id=5,
        suppress_tokens=[EXPECTED[0]],
        num_assistant_tokens=11,
        num_assistant_tokens_schedule="heuristic",
        assistant_confidence_threshold=0.9,
    )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_stored_generation_config_has_no_effect(name: str, temperature: float) -> None:
    target, draft = tiny(0), tiny(2, layers=1)
    request = Request(P, Sampling(temperature), seed=4, max_new_tokens=25)
    clean = run(method(name, target, draft), request)
    target.generation_config, draft.generation_config = hidden_defaults(), hidden_defaults()
    stored = target.generation_config.to_dict(), draft.generation_config.to_dict()
    before = set(vars(target)), set(vars(draft))
    again = run(method(name, target, draft), request)
    assert (again.ids, again.rounds) == (clean.ids, clean.rounds)
    assert (target.generation_config.to_dict(), draft.generation_config.to_dict()) == stored
    assert (set(vars(target)), set(vars(draft))) == before
    assert not target._forward_hooks
    assert not draft._forward_pre_hooks


@pytest.mark.parametrize("gamma", [1, 2, 5])
@pytest.mark.parametrize("draft", [DRAFT, TARGET], ids=["other", "itself"])
def test_draft_length_is_pinned_over_rounds_and_calls(gamma: int, draft: Any) -> None:
    chosen = method("assisted", draft=draft, gamma=gamma)
    for _ in range(3):
        rounds = run(chosen, greedy(40)).rounds
        left = [len(P) + 40 - r.start - 1 for r in rounds]
        assert [r.drafted for r in rounds] == [min(gamma, n) for n in left]


@pytest.mark.parametrize("name", NAMES)
def test_position_limit_of_the_target(name: str) -> None:
    target = tiny_gpt2(0, 16)
    chosen = method(name, target, target, gamma=5)
    assert run(chosen, greedy(10)).ids == tuple(naive(target, P, 10))
    with pytest.raises(ValueError, match=r"target\.max_position_embeddings: the limit is 16 .* 11 need 17"):
        chosen.generate([greedy(3), greedy(11)])


def test_position_limit_of_the_draft() -> None:
    target, draft = tiny_gpt2(0, 64), tiny_gpt2(1, 16)
    chosen = method("assisted", target, draft, gamma=5)
    assert run(chosen, greedy(11)).ids == tuple(naive(target, P, 11))
    with pytest.raises(ValueError, match=r"draft\.max_position_embeddings: the limit is 16"):
        chosen.generate([greedy(12)])


def test_errors_name_level_field_and_value() -> None:
    with pytest.raises(ValueError, match=r"request\.stop.*'x'.*tokenizer"):
        method("ar").generate([greedy(3, stop=("x",))])
    with pytest.raises(ValueError, match=r"request\.ids: 64 is not one of the 64 ids of the target"):
        method("ar").generate([greedy(3, ids=(1, 64))])
    with pytest.raises(ValueError, match=r"draft\.vocab_size: 72 is not the target's 64"):
        method("assisted", draft=tiny(2, vocab=72))
    with pytest.raises(ValueError, match=r"draft\.model: logits of 40 ids, config\.vocab_size 64"):
        method("assisted", draft=with_draft_vocabulary(tiny(2, layers=1), range(40)))
    with pytest.raises(ValueError, match=r"target\.model.*training mode"):
        method("ar", target=tiny(0).train())
    for name in ("assisted", "lookup"):
        with pytest.raises(ValueError, match="gamma: expected an integer >= 1, got 0"):
            method(name, gamma=0)
    with pytest.raises(ValueError, match="largest"):
        TransformersPromptLookup("lookup", TARGET, 3, largest=0)

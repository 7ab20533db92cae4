"""Logits processors: what they do is what transformers does, on every level and at every position."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
import torch
from tiny_baselines import DRAFT, TARGET, method, run
from transformers.generation import logits_process as library

from ssd.certify.penalties import processed
from ssd.certify.tiny_models import P, chain_of, near, tiny_llama, with_draft_vocabulary
from ssd.core.chain import Chain, Edge, Level
from ssd.core.generate import generate
from ssd.core.model import CachedModel
from ssd.core.ngram import Ngram
from ssd.core.processors import Processors, process
from ssd.core.requests import Request, Sampling

PLAIN = run(method("ar"), Request(P, Sampling(0.0), max_new_tokens=12)).ids
EARLY = next(token for i, token in enumerate(PLAIN[6:], 6) if token not in PLAIN[:i])  # ends the plain output
MIDDLE, SMALL = near(TARGET, 0.1, 5, dtype=torch.float32), near(TARGET, 0.3, 6, dtype=torch.float32)
CHAIN = chain_of([SMALL, MIDDLE, TARGET], [Edge(2), Edge(3)])
PENALTIES = {
    "repetition": {"repetition_penalty": 4.0},
    "reward": {"repetition_penalty": 0.6},
    "words": {"bad_words_ids": (PLAIN[:1], PLAIN[2:4], (P[-1], 11))},
    "bias": {"logit_bias": ((7, 6.0), (9, -50.0))},
    "least": {"min_new_tokens": 15},
    "frequency": {"frequency_penalty": 6.0},
    "presence": {"presence_penalty": 9.0},
    "all": {
        "repetition_penalty": 1.2, "bad_words_ids": ((3, 4), (11,)), "logit_bias": ((7, 2.0),), "min_new_tokens": 5,
        "frequency_penalty": 0.7, "presence_penalty": 0.4,
    },
}  # fmt: skip


def request(new=24, **settings):
    """A greedy request whose end-of-text id is one that comes early."""
    return Request(P, Sampling(0.0, **settings), max_new_tokens=new, eos_ids=(EARLY,))


@pytest.mark.parametrize("name", PENALTIES)
@pytest.mark.parametrize("baseline", ["ar", "assisted"])
def test_every_penalty_is_the_librarys(name, baseline):
    wanted = run(method(baseline, draft=SMALL), request(**PENALTIES[name]))
    (got,) = generate(CHAIN, [request(**PENALTIES[name])])
    assert got.ids == wanted.ids
    assert got.stop_reason == wanted.stop_reason


@pytest.mark.parametrize("name", PENALTIES)
def test_every_penalty_is_that_of_plain_python(name):
    """The library has no frequency and presence penalties; ``ssd.certify.penalties`` writes all of them out again."""
    rng = random.Random(name)
    for _ in range(30):
        text = [*P, *(rng.randrange(64) for _ in range(rng.randrange(20)))]
        scores = [rng.uniform(-4, 4) for _ in range(64)]
        ours = process(torch.tensor(scores, dtype=torch.float64), torch.tensor(text), request(**PENALTIES[name]))
        assert ours.tolist() == pytest.approx(processed(scores, text, request(**PENALTIES[name])), abs=1e-12)


def test_each_penalty_changes_the_output():
    """Otherwise the test above could not fail."""
    plain = generate(CHAIN, [request()])[0].ids
    changed = {name for name, settings in PENALTIES.items() if generate(CHAIN, [request(**settings)])[0].ids != plain}
    assert changed == set(PENALTIES)


LIBRARY = [
    library.NoRepeatNGramLogitsProcessor(2),
    library.SuppressTokensLogitsProcessor([3, 9]),
    library.PrefixConstrainedLogitsProcessor(lambda _, ids: [int(ids[-1]) // 2, int(ids[-1]) // 2 + 7, 12], 1),
    library.ForcedEOSTokenLogitsProcessor(len(P) + 8, 2),
    library.ExponentialDecayLengthPenalty((4, 1.5), [2], len(P)),
    library.SequenceBiasLogitsProcessor([[[5, 9], -8.0], [[11], 3.0]]),
    library.SuppressTokensAtBeginLogitsProcessor([9, 24], len(P)),
    library.WatermarkLogitsProcessor(64, "cpu", bias=3.0),
]


@pytest.mark.parametrize("processor", LIBRARY, ids=lambda p: type(p).__name__)
def test_any_stateless_processor_of_the_library_works(processor):
    wanted = Request(P, Sampling(0.0), max_new_tokens=20, processors=(processor,))
    assert generate(CHAIN, [wanted])[0].ids == run(method("ar"), wanted).ids


class Counting:
    """Forbids another token at every call."""

    calls = 0

    def __call__(self, ids, scores):
        """Scores without the token that the number of calls names."""
        self.calls += 1
        return scores.index_fill(1, torch.tensor([self.calls % 64]), -math.inf)


class Remembering:
    """Same result, but a growing list of what it saw."""

    def __init__(self):
        self.seen = []

    def __call__(self, ids, scores):
        """The scores, unchanged."""
        self.seen.append(ids.shape[1])
        return scores


class Nested:
    """Its memory lies in an object it holds."""

    def __init__(self):
        self.inner = Counting()

    def __call__(self, ids, scores):
        """The scores, unchanged for as long as anyone looks."""
        self.inner.calls += 1
        return scores


def enclosed():
    """A function whose memory lies in its closure."""
    calls = [0]

    def processor(ids, scores):
        calls[0] += 1
        return scores

    return processor


def editing(ids, scores):
    """Writes into the text."""
    ids[:, -1] = 0
    return scores


WATERMARK = library.SynthIDTextWatermarkLogitsProcessor(5, [1, 2, 3], 16, 0, 4, torch.device("cpu"))


@pytest.mark.parametrize(
    ("processor", "why"),
    [
        (Counting(), "Counting keeps state"),
        (Remembering(), "Remembering keeps state"),
        (Nested(), "Nested keeps state"),
        (enclosed(), "function keeps state"),
        (editing, "edits the token ids"),
        (lambda ids, scores: scores * math.nan, "NaN or infinity"),
        (WATERMARK, "SynthIDTextWatermarkLogitsProcessor"),
        (library.UnbatchedClassifierFreeGuidanceLogitsProcessor(1.5, TARGET), "UnbatchedClassifierFreeGuidance"),
        (lambda ids, scores: scores[:, :3], r"\(1, 3\)"),
        (lambda ids: ids, "cannot be called"),
        ("penalty", "not callable"),
    ],
)
def test_others_are_refused_by_name(processor, why):
    with pytest.raises(ValueError, match=rf"requests\[1\]\.processors\[0\].*{why}"):
        generate(CHAIN, [Request(P, max_new_tokens=4), Request(P, max_new_tokens=4, processors=(processor,))])


def test_an_editor_of_its_ids_that_hides_cannot_change_the_text():
    """It edits longer texts only, which nobody tried beforehand."""

    def hiding(ids, scores):
        if ids.shape[1] > len(P) + 1:
            ids[:, -1] = 0
        return scores

    assert generate(CHAIN, [replace(request(), processors=(hiding,))])[0].ids == generate(CHAIN, [request()])[0].ids


def test_end_ids_the_target_lacks_are_not_forbidden():
    ended = replace(request(min_new_tokens=15), eos_ids=(EARLY, 70))
    assert generate(CHAIN, [ended])[0].ids == generate(CHAIN, [request(min_new_tokens=15)])[0].ids


def test_every_level_sees_the_history_of_each_position():
    """A processor that forces the next token from the last leaves nothing to disagree about."""

    def successor(ids, scores):
        allowed = torch.full_like(scores, -math.inf)
        allowed[:, (ids[:, -1] + 1) % 64] = 0.0
        return allowed

    for temperature in (0.0, 1.0):
        chosen = Request(P, Sampling(temperature), max_new_tokens=20, processors=(successor,))
        (got,) = generate(CHAIN, [chosen])
        assert got.ids == tuple((P[-1] + 1 + i) % 64 for i in range(20))
        assert all(r.end != "recovered" for r in got.rounds)  # nobody drafted with an older history


def test_rows_of_a_batch_keep_their_own():
    rows = [request(**settings) for settings in PENALTIES.values()]
    rows.insert(2, replace(request(), ids=(1, 7, 8)))
    alone = [generate(CHAIN, [row])[0].ids for row in rows]
    assert [g.ids for g in generate(CHAIN, rows)] == alone


def test_draft_vocabularies_and_look_ups():
    kept = tuple(range(0, 64, 2))
    small = with_draft_vocabulary(tiny_llama(2, 1, dtype=torch.float32), kept)
    levels = (
        Level(CachedModel(small), draft_to_target=torch.tensor(kept)),
        Level(CachedModel(MIDDLE)),
        Level(CachedModel(TARGET)),
    )
    reduced = Chain(levels, (Edge(2), Edge(3)))
    looking = Chain((Level(Ngram()), Level(CachedModel(TARGET))), (Edge(4),))
    for settings in PENALTIES.values():
        wanted = run(method("ar"), request(**settings)).ids
        assert generate(reduced, [request(**settings)])[0].ids == wanted
        assert generate(looking, [request(**settings)])[0].ids == wanted
    # Only odd ids allowed: the small level has none of them and drafts from its own row.
    odd = request(bad_words_ids=tuple((t,) for t in kept))
    assert generate(reduced, [odd])[0].ids == run(method("ar"), odd).ids


def test_a_target_without_a_permitted_token_is_an_error():
    nothing = replace(request(bad_words_ids=tuple((t,) for t in range(64))), request=4)
    with pytest.raises(ValueError, match=r"requests\[1\]: its processors forbid every token at position 7"):
        generate(CHAIN, [request(), nothing])


def test_a_draft_may_lead_where_the_output_never_goes():
    """After token 3 everything is forbidden, and 3 itself too; the look-up proposes it from the prompt."""
    words = ((3,), *((3, t) for t in range(64)))
    for levels in ([Ngram()], [SMALL]):
        mixed = chain_of([*levels, TARGET], [Edge(3)])
        row = Request((1, 3, 2, 1), Sampling(0.0, bad_words_ids=words), max_new_tokens=12)
        assert generate(mixed, [row])[0].ids == run(method("ar"), row).ids


def test_an_end_of_text_may_be_the_last_word():
    """Nothing is permitted after the end token, which an accepted draft may run past."""

    def silent(ids, scores):
        return scores.masked_fill(ids[:, -1:] == EARLY, -math.inf)

    ended = replace(request(), processors=(silent,))
    (got,) = generate(chain_of([TARGET, TARGET], [Edge(8)]), [ended])
    assert got.ids == generate(CHAIN, [request()])[0].ids
    with pytest.raises(ValueError, match="forbid every token"):
        generate(CHAIN, [replace(ended, ignore_eos=True)])


def test_sampling_with_penalties_has_the_processed_law():
    """2,000 first tokens of a chain; a share is off by five standard deviations with probability below 64 * 6e-7."""
    n = 2_000
    settings = Sampling(1.0, repetition_penalty=4.0, logit_bias=((7, 5.0),))
    rows = [Request(P, settings, sample=i, max_new_tokens=4) for i in range(n)]
    with torch.no_grad():
        raw = TARGET(torch.tensor([P])).logits[0, -1]
    exact = process(raw.clone(), torch.tensor(P), rows[0]).softmax(-1)
    counts = torch.zeros(64)
    for g in generate(CHAIN, rows):
        counts[g.ids[0]] += 1
    bound = 5 * (exact * (1 - exact) / n).sqrt() + 1 / n
    assert ((counts / n - exact).abs() < bound).all()
    assert ((raw.softmax(-1) - exact).abs() > 2 * bound).any()  # the plain law would be noticed


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"repetition_penalty": 0.0}, "repetition_penalty"),
        ({"temperature": None}, "temperature.*None"),
        ({"top_p": None}, "top_p.*None"),
        ({"temperature": 10**400}, "temperature"),
        ({"presence_penalty": 10**400}, "presence_penalty"),
        ({"repetition_penalty": math.inf}, "repetition_penalty"),
        ({"frequency_penalty": "high"}, "frequency_penalty.*'high'"),
        ({"min_new_tokens": -1}, "min_new_tokens.*-1"),
        ({"bad_words_ids": ((),)}, "bad_words_ids"),
        ({"bad_words_ids": ("word",)}, "bad_words_ids.*'word'"),
        ({"logit_bias": ((3, math.inf),)}, "logit_bias: token 3"),
        ({"logit_bias": ((-3, 1.0),)}, "logit_bias"),
        ({"logit_bias": ((3, -math.inf),)}, "logit_bias.*bad_words_ids"),
    ],
)
def test_settings_out_of_range_are_named(settings, why):
    with pytest.raises(ValueError, match=f"sampling.{why}"):
        Sampling(**settings)


def test_tokens_the_target_lacks_are_named():
    for settings in ({"bad_words_ids": ((3, 64),)}, {"logit_bias": ((64, 1.0),)}):
        with pytest.raises(ValueError, match=r"requests\[0\]\.sampling\.\w+: token 64 is outside the target's 64 ids"):
            generate(CHAIN, [Request(P, Sampling(**settings), max_new_tokens=4)])


def test_without_any_nothing_is_processed():
    assert not Processors([Request(P), Request(P, Sampling(0.0, 5, 0.9))], 64, torch.device("cpu")).active
    assert DRAFT is not SMALL

"""Faults that users of other decoders have reported: vocabularies, devices, ties and reused memory.

B24: vocabularies padded to different sizes (vllm-project/vllm #5203, huggingface/transformers #45307).
B26: a draft on another device (huggingface/transformers #35099).
B27: ties (ml-explore/mlx-lm #1470, vllm-project/vllm #7627, hao-ai-lab/LookaheadDecoding #16).
B29: output memory that the next pass overwrites (huggingface/transformers #30775, pytorch/pytorch #160281).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

import ssd.core.generate
from ssd.certify.row_scorer import RowScorer
from ssd.certify.tiny_models import P, chain_of, greedy, next_logits, tiny_llama, with_draft_vocabulary
from ssd.certify.twins import twin_ids
from ssd.core.chain import WINDOWS, Chain, Edge, Level
from ssd.core.decode import Decoder
from ssd.core.generate import generate
from ssd.core.model import CachedModel
from ssd.core.ngram import Ngram
from ssd.core.requests import Override, Request, Sampling

SMALL, MIDDLE, TARGET = tiny_llama(2, layers=1), tiny_llama(1), tiny_llama(0)
PROMPTS = (P, (3, 8, 2), (7,))


def told(chain: Chain, requests: Sequence[Request]) -> list[Any]:
    """Tokens and rounds of every row, overlaps left out."""
    return [(g.ids, [replace(r, overlap=()) for r in g.rounds]) for g in generate(chain, requests)]


class Shouting(CachedModel):
    """Raises the logits of the ids its tokenizer does not have."""

    def score(self, tokens: Tensor, start: Tensor, keep: int) -> Tensor:
        assert tokens.max() < self.embeddings
        logits = super().score(tokens, start, keep)
        logits[..., 64:] += 100
        return logits


class Shared(Decoder):
    """Checks that drafts stay within the shared ids, and their laws too."""

    drafts = 0

    def propose(self, k: int, *rest: Any) -> Any:
        draft = super().propose(k, *rest)
        assert (draft.tokens < 64).all()
        if draft.probs is not None and draft.tokens.numel():
            assert draft.probs.shape[-1] == 64
            real = torch.arange(draft.tokens.shape[1]) < draft.count[:, None]
            assert torch.allclose(draft.probs.sum(-1)[real], torch.ones(()).double())
        Shared.drafts += int(draft.count.sum())
        return draft


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("sizes", [(72, 64), (64, 72), (72, 72, 64), (64, 72, 64), (72, 64, 64), (64, 72, 72)])
def test_b24_padded_vocabularies(sizes: tuple[int, ...], temperature: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Surplus ids are never proposed, never fed to a smaller table; the draft's law is over what is shared."""
    modules = [tiny_llama(i, layers=1 + (i == 0), vocab=v) for i, v in enumerate(sizes[::-1])][::-1]
    target = sizes[-1]
    levels = [Level(Shouting(m) if size > target else CachedModel(m)) for m, size in zip(modules, sizes, strict=True)]
    edges = [Edge(3)] * (len(sizes) - 1)
    chain = chain_of(levels, edges)
    if target == 64:
        monkeypatch.setattr(ssd.core.generate, "Decoder", Shared)
        monkeypatch.setattr(Shared, "drafts", 0)
    requests = [Request(p, Sampling(temperature), request=i, max_new_tokens=10) for i, p in enumerate(PROMPTS)]
    for request, got in zip(requests, generate(chain, requests), strict=True):
        if temperature == 0:
            assert list(got.ids) == greedy(modules[-1], request.ids, 10)
        assert list(got.ids) == twin_ids(chain_of(modules, edges), request)
    assert target != 64 or Shared.drafts > 0


def test_b24_ids_a_draft_cannot_embed_cost_it_acceptance_only() -> None:
    """Prompts made of ids the draft lacks; the target says them too."""
    target = tiny_llama(0, vocab=72)
    chain = chain_of([tiny_llama(1, vocab=64), target], [Edge(3)])
    request = Request((70, 71, 65, 70), Sampling(0), max_new_tokens=30, eos_ids=())
    got = generate(chain, [request])[0]
    assert list(got.ids) == greedy(target, request.ids, 30)
    with pytest.raises(ValueError, match=r"requests\[0\]\.ids: .*72"):
        generate(chain, [Request((72,), max_new_tokens=1)])


HOME = torch.device("cpu")


def place(tensor: Tensor) -> torch.device:
    """Where a tensor pretends to be."""
    return getattr(tensor, "pretended", HOME)


class PretendDevices(TorchFunctionMode):
    """Lets tensors claim a device and refuses operations that mix two, as an accelerator would.

    Everything is computed on the CPU. Zero-dimensional CPU tensors may meet any device, as in torch.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func == torch.Tensor.device.__get__:
            return place(args[0])
        goal = kwargs.pop("device", None)
        if func == torch.Tensor.to:
            goal = next((a for a in args[1:] if isinstance(a, str | torch.device)), goal)
            args = tuple(HOME if isinstance(a, str | torch.device) else a for a in args)
            where = place(args[0]) if goal is None else torch.device(goal)
            if where != place(args[0]):
                args = (args[0].clone(), *args[1:])
        else:
            copies = func in (torch.Tensor.__setitem__, torch.Tensor.copy_)  # these may cross, as in torch
            tensors = [t for t in tree_leaves((args[:1] if copies else args, kwargs)) if isinstance(t, Tensor)]
            places = {place(t) for t in tensors if t.dim() > 0 or place(t) != HOME}
            assert len(places) < 2, f"{getattr(func, '__name__', func)} mixes {sorted(map(str, places))}"
            where = torch.device(goal) if goal is not None else next(iter(places), HOME)
            if goal is not None:
                kwargs["device"] = HOME
        out = func(*args, **kwargs)
        for t in tree_leaves(out):
            if isinstance(t, Tensor):
                t.pretended = where
        return out


def pretending(module: Any, device: str) -> Any:
    """The module with everything it holds claimed by a device."""
    for tensor in [*module.parameters(), *module.buffers()]:
        tensor.pretended = torch.device(device)
    return module


class Own(CachedModel):
    """Asserts that every input is on its own device."""

    def score(self, tokens: Tensor, start: Tensor, keep: int) -> Tensor:
        assert place(tokens) == place(start) == self.device
        logits = super().score(tokens, start, keep)
        assert place(logits) == self.device
        return logits


VOCABULARY = [*range(40, 64), *range(30)]  # not ascending, so it has to be put in order
DEVICES = [("mps:1", "cpu", "mps:0"), ("cpu", "cpu", "mps:0"), ("mps:0", "mps:1", "cpu"), ("mps:0", "mps:0", "mps:0")]


def three_places(devices: Sequence[str], window: str) -> Chain:
    """L0 with a draft vocabulary, L1 and the target, each on its device."""
    modules = [with_draft_vocabulary(tiny_llama(2, layers=1), VOCABULARY), tiny_llama(1), tiny_llama(0)]
    levels = [Level(Own(pretending(m, d), f"L{i}")) for i, (m, d) in enumerate(zip(modules, devices, strict=True))]
    levels[0] = replace(levels[0], draft_to_target=torch.tensor(VOCABULARY), sampling=Override(top_k=9))
    value = 0.4 if window == "confidence" else None
    return Chain(tuple(levels), (Edge(2, window, value), Edge(3, window, value)))


@pytest.mark.parametrize("devices", DEVICES, ids=["-".join(d) for d in DEVICES])
@pytest.mark.parametrize("window", ["at_least", "confidence"])
def test_b26_levels_on_different_devices(devices: tuple[str, ...], window: str) -> None:
    rows = (Sampling(0), Sampling(1.0), Sampling(0.8, top_k=12, top_p=0.95, min_p=0.01))
    for settings in ((rows[0],) * 3, rows) if window == "at_least" else (rows,):
        requests = [Request(p, s, max_new_tokens=8, eos_ids=(19, 20)) for p, s in zip(PROMPTS, settings, strict=True)]
        right = told(three_places(("cpu",) * 3, window), requests)
        with PretendDevices():
            assert told(three_places(devices, window), requests) == right


def test_b26_look_up_beside_a_target_elsewhere() -> None:
    right = told(chain_of([Ngram(), TARGET], [Edge(3)]), [Request(P, max_new_tokens=12)])
    with PretendDevices():
        level = Level(Own(pretending(tiny_llama(0), "mps:0")))
        assert told(chain_of([Ngram(), level], [Edge(3)]), [Request(P, max_new_tokens=12)]) == right


def test_b26_the_pretence_would_notice() -> None:
    with PretendDevices(), pytest.raises(AssertionError, match=r"mixes \['cpu', 'mps:0'\]"):
        torch.zeros(2, device="mps:0") + torch.zeros(2)


class Tied(CachedModel):
    """Output ``copy`` always has the logit of output ``of``."""

    copy = of = 0

    def score(self, tokens: Tensor, start: Tensor, keep: int) -> Tensor:
        logits = super().score(tokens, start, keep)
        logits[..., self.copy] = logits[..., self.of]
        return logits


def tied(module: Any, copy: int, of: int, ids: list[int] | None = None) -> Level:
    """A level with a tie, over the draft vocabulary ``ids`` if there is one."""
    model = Tied(module)
    model.copy, model.of = (copy, of) if ids is None else (ids.index(copy), ids.index(of))
    return Level(model, draft_to_target=None if ids is None else torch.tensor(ids))


FAVOURITE = Counter(t for p in PROMPTS for t in greedy(TARGET, p, 24) if 1 < t < 62).most_common(1)[0][0]


@pytest.mark.parametrize("copy", [1, 62], ids=["copied below", "copied above"])
@pytest.mark.parametrize("mode", ["ar", "ngram", "self", "pair", "triple", "vocabulary", "mixed batch"])
def test_b27_an_exact_tie_goes_to_the_lower_id(mode: str, copy: int) -> None:
    """A token the target likes has a twin, above or below it."""
    low, high = sorted((copy, FAVOURITE))

    level = partial(tied, TARGET, copy, FAVOURITE)
    turned = list(range(64))[::-1]  # a draft vocabulary in which the higher id comes first
    chain = {
        "ar": lambda: chain_of([level()], []),
        "ngram": lambda: chain_of([Ngram(), level()], [Edge(3)]),
        "self": lambda: chain_of([level(), level()], [Edge(4)]),
        "pair": lambda: chain_of([SMALL, level()], [Edge(4)]),
        "triple": lambda: chain_of([level(), MIDDLE, level()], [Edge(2), Edge(3)]),
        "vocabulary": lambda: chain_of(
            [tied(with_draft_vocabulary(tiny_llama(0), turned), copy, FAVOURITE, turned), level()], [Edge(4)]
        ),
    }["self" if mode == "mixed batch" else mode]()
    requests = [Request(p, Sampling(0), max_new_tokens=24) for p in PROMPTS]
    others = [Request(P, Sampling(1.0), max_new_tokens=24)] if mode == "mixed batch" else []
    results = generate(chain, requests + others)[: len(requests)]
    for request, got in zip(requests, results, strict=True):
        text = list(request.ids)
        for token in got.ids:
            logits = next_logits(TARGET, tuple(text))[0, 0].clone()
            logits[copy] = logits[FAVOURITE]
            assert token == (logits == logits.max()).nonzero()[0]
            text.append(token)
    said = {t for g in results for t in g.ids}
    assert (low in said, high in said) == (True, False)
    if mode in ("self", "vocabulary", "mixed batch"):
        assert all(r.accepted == r.drafted for g in results for r in g.rounds)


def test_b27_in_16_bit_only_near_ties_may_differ() -> None:
    """Every token is within four roundings (2**-8 each) of the best logit of a plain pass."""
    modules = [tiny_llama(s, dtype=torch.bfloat16) for s in (2, 1, 0)]
    requests = [Request(p, Sampling(0), max_new_tokens=40) for p in PROMPTS]
    for chain in (chain_of(modules[-1:], []), chain_of(modules, [Edge(2), Edge(4)])):
        for request, got in zip(requests, generate(chain, requests), strict=True):
            with torch.inference_mode():
                logits = modules[-1](torch.tensor([[*request.ids, *got.ids]])).logits[0, len(request.ids) - 1 : -1]
            chosen = logits.float().gather(1, torch.tensor(got.ids)[:, None]).squeeze(1)
            best, scale = logits.float().amax(-1), logits.float().abs().amax(-1)
            assert ((best - chosen) <= 4 * 2**-8 * scale).all()


class Reused(CachedModel):
    """All levels write their logits into one tensor and overwrite it on every call, as graphs may."""

    memory = torch.empty(0)

    def score(self, tokens: Tensor, start: Tensor, keep: int) -> Tensor:
        Reused.memory.fill_(float("nan"))
        logits = super().score(tokens, start, keep)
        out = Reused.memory[: logits.numel()].view(logits.shape)
        return out.copy_(logits)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("window", WINDOWS)
def test_b29_reused_output_memory(window: str, temperature: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reused, "memory", torch.zeros(10_000, dtype=torch.float64))
    edge = Edge(3, window, 0.4 if window == "confidence" else None)
    modules = [SMALL, MIDDLE, TARGET]
    requests = [Request(p, Sampling(temperature), max_new_tokens=10) for p in PROMPTS]
    for batch in (requests, requests[:1]):
        right = generate(chain_of(modules, [edge, edge]), batch)
        got = generate(chain_of([Level(Reused(m)) for m in modules], [edge, edge]), batch)
        assert [(g.ids, g.rounds) for g in got] == [(g.ids, g.rounds) for g in right]


def table_chain(rows: Sequence[Sequence[float]], reuse: bool) -> Chain:
    return Chain(tuple(Level(RowScorer([row] * 3, reuse)) for row in rows), (Edge(3),) * (len(rows) - 1))


def test_b29_frequencies_with_reused_memory() -> None:
    """20,000 first tokens within .015 of the target's law: at most 4e-5 false alarms a frequency, fixed seeds."""
    p2, p1, p0 = (0.5, 0.3, 0.2), (0.2, 0.2, 0.6), (0.6, 0.3, 0.1)
    requests = [Request((0,), request=0, sample=i, max_new_tokens=4) for i in range(20_000)]
    first = torch.zeros(3, dtype=torch.float64)
    for begin in range(0, 20_000, 5_000):
        batch = generate(table_chain([p1, p2], reuse=True), requests[begin : begin + 5_000])
        first += torch.bincount(torch.tensor([g.ids[0] for g in batch]), minlength=3)
    assert (first / 20_000 - torch.tensor(p2)).abs().max() < 0.015
    for rows in ([p1, p2], [p0, p1, p2]):
        with_and_without = [told(table_chain(rows, reuse), requests[:1000]) for reuse in (True, False)]
        assert with_and_without[0] == with_and_without[1]

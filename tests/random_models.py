"""Tiny random models with peaked rows (initializer range 0.5) and their twins."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from table_models import TableScorer
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from ssd.core import randomness as rng
from ssd.core.chain import Chain, Edge, Level
from ssd.core.model import CachedModel
from ssd.core.ngram import Ngram
from ssd.core.reference import Twin, TwinLevel
from ssd.core.requests import Generation, Override, Request
from ssd.core.sampling import LevelSampling, law

VOCAB = 64
P = (1, 5, 9, 5, 9, 5, 9)


def tiny_llama(seed: int, layers: int = 2, vocab: int = VOCAB, dtype: torch.dtype = torch.float64, **shape: Any) -> Any:
    """A random Llama; the global random state is left as it was."""
    settings = {
        "vocab_size": vocab, "hidden_size": 32, "num_hidden_layers": layers, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 64, "max_position_embeddings": 128, "initializer_range": 0.5,
    }  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(LlamaConfig(**{**settings, **shape})).to(dtype).eval()


def near(module: Any, noise: float, seed: int, **shape: Any) -> Any:
    """A random Llama whose weights are the module's plus ``noise`` times its own: a draft that fits it.

    Rows of a larger or smaller vocabulary that the module lacks stay random.
    """
    draft = tiny_llama(seed, **shape)
    with torch.no_grad():
        for mine, theirs in zip(draft.parameters(), module.parameters(), strict=True):
            rows = min(len(mine), len(theirs))
            mine[:rows] = theirs[:rows] + noise * mine[:rows]
    return draft


def with_draft_vocabulary(module: Any, ids: Sequence[int]) -> Any:
    """The module with its head cut down to the rows of ``ids``."""
    rows = module.get_output_embeddings().weight.detach()[list(ids)].clone()
    head = nn.Linear(rows.shape[1], rows.shape[0], bias=False, dtype=rows.dtype)
    head.weight = nn.Parameter(rows)
    module.lm_head = head
    return module


def chain_of(modules: Sequence[Any], edges: Sequence[Edge], **options: Any) -> Chain:
    """A chain of modules, levels or n-grams."""
    levels = [m if isinstance(m, Level) else Level(m if isinstance(m, Ngram) else CachedModel(m)) for m in modules]
    return Chain(tuple(levels), tuple(edges), **options)


@lru_cache(maxsize=100_000)
def next_logits(module: Any, prefix: tuple[int, ...]) -> Tensor:
    """[1, 1, V] after a prefix, by a full pass without a cache; prefixes come back, so they are kept."""
    with torch.inference_mode():
        return module(torch.tensor([prefix]), use_cache=False).logits[:, -1:].clone()


def twin_level(chain: Chain, k: int, request: Request) -> TwinLevel:
    """Level k of a chain as a function of the prefix, computed without a cache."""
    level = chain.levels[k]
    if isinstance(level.model, Ngram):
        return TwinLevel(None, look_up=level.model.look_up)
    own = Override() if k == chain.depth else level.sampling
    sampling = request.sampling.overridden_by(own)
    settings = LevelSampling([sampling], torch.device("cpu"), confidence=True)
    ids = level.draft_to_target
    model = level.model
    if isinstance(model, TableScorer):
        return model.twin(sampling, ids, chain.vocab_size)

    def rows(prefix: list[int]) -> Any:
        logits = next_logits(model.module, tuple(t if t < model.embeddings else 0 for t in prefix))
        return law(logits[..., : chain.output_size(k)], settings)

    def probabilities(prefix: list[int]) -> list[float]:
        result = rows(prefix)
        size = chain.output_size(k)
        own_row = result.probs[0, 0] if result.probs is not None else one_hot(int(result.top), size)
        full = torch.zeros(chain.vocab_size, dtype=own_row.dtype)
        full[slice(size) if ids is None else ids] = own_row
        return full.tolist()

    limit = 10**9 if model.max_positions is None else model.max_positions
    return TwinLevel(probabilities, lambda prefix: float(rows(prefix).confidence), limit)


def one_hot(index: int, size: int) -> Tensor:
    """All mass on one id."""
    return torch.nn.functional.one_hot(torch.tensor(index), size).to(torch.float64)


def twin_ids(chain: Chain, request: Request, index: int = 0) -> list[int]:
    """What the twin generates for a request (no stop rules)."""
    number = index if request.request is None else request.request
    levels = [twin_level(chain, k, request) for k in range(len(chain.levels))]
    root = rng.root_int(request.seed, number, request.sample)
    return Twin(levels, chain.edges).generate(list(request.ids), request.max_new_tokens, root)


def greedy(module: Any, ids: Sequence[int], n: int) -> list[int]:
    """One token at a time, a full pass each, no cache."""
    text = list(ids)
    for _ in range(n):
        with torch.inference_mode():
            text.append(int(module(torch.tensor([text])).logits[0, -1].argmax()))
    return text[len(ids) :]


def assert_consistent(chain: Chain, request: Request, g: Generation) -> None:
    """Everything a ``Generation`` says agrees with itself."""
    top, prompt = chain.depth, len(request.ids)
    position = prompt
    for r in g.rounds:
        assert r.accepted <= r.tested <= r.drafted
        assert r.block_start <= r.start
        assert len(r.overlap) == r.tested
        assert all(0 <= x <= 1 + 1e-6 for x in r.overlap)
        assert r.emitted == r.accepted + (r.end != "stopped")
        assert (r.end == "plain") == (r.drafted == 0)
        assert r.end != "bonus" or r.accepted == r.drafted
        assert r.end != "recovered" or r.accepted < r.drafted
        if r.edge == top - 1:
            assert r.start == position
            position += r.emitted
    own = [r for r in g.rounds if r.edge == top - 1]
    assert sum(r.emitted for r in own) == len(g.ids) == position - prompt
    assert [len(level) for level in g.origins] == [len(g.ids)] * (top + 1)
    assert sum(r.accepted for r in own) == g.origins[top].count("draft")
    for end in ("recovered", "bonus", "plain"):
        assert sum(r.end == end for r in own) == g.origins[top].count(end)
    for fates in zip(*g.origins, strict=True):
        for lower, upper in itertools.pairwise(fates):
            assert (lower is not None) == (upper == "draft")
    assert [n for _, n in g.arrivals] == [sum(r.emitted for r in own[: i + 1]) for i in range(len(own))]
    assert g.first_pass_tokens == (g.arrivals[0][1] if g.arrivals else 0)
    times = [0.0, *(t for t, _ in g.arrivals), g.seconds.total]
    assert times == sorted(times)
    s = g.seconds
    assert math.isclose(s.prefill + sum(s.passes) + s.rest, s.total, abs_tol=1e-9)
    assert min(s.prefill, s.rest, *s.passes) >= 0


def tiny_gpt2(seed: int, layers: int = 2, positions: int = 128, dtype: torch.dtype = torch.float64) -> Any:
    """A random GPT-2, whose learned absolute positions show any shift; the global random state is left as it was."""
    config = GPT2Config(
        vocab_size=VOCAB, n_embd=32, n_layer=layers, n_head=4, n_positions=positions, initializer_range=0.5
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return GPT2LMHeadModel(config).to(dtype).eval()


class RowScorer:
    """A table model whose law depends on the last token only, fast for thousands of rows.

    It checks that a query never sees a slot nobody wrote, and with ``reuse`` hands out one output
    tensor again and again, overwriting it on every call, as a captured graph does.
    """

    def __init__(self, rows: Sequence[Sequence[float]], reuse: bool = False) -> None:
        self.logits = torch.tensor(rows, dtype=torch.float64).log()  # [V, V]
        self.vocab_size = self.embeddings = self.logits.shape[1]
        self.max_positions: int | None = None
        self.device, self.dtype, self.reuse = torch.device("cpu"), torch.float64, reuse
        self.owner: object = None
        self.written = self.buffer = torch.empty(0)

    def allocate(self, batch: int, slots: int) -> None:
        """Forget everything."""
        self.written = torch.zeros(batch, slots, dtype=torch.bool)
        self.buffer = torch.empty(batch, slots, self.vocab_size, dtype=self.dtype)

    def fill(self, tokens: Tensor, start: Tensor) -> None:
        """Note which slots were written."""
        slots = start[:, None] + torch.arange(tokens.shape[1])
        self.written.scatter_(1, slots, True)
        seen = torch.arange(self.written.shape[1]) < start[:, None] + tokens.shape[1]
        assert self.written[seen].all(), "a slot nobody wrote is visible"

    def score(self, tokens: Tensor, start: Tensor, keep: int) -> Tensor:
        """``fill``, and logits [B, keep, V] after each of the last ``keep`` tokens."""
        self.fill(tokens, start)
        logits = self.logits[tokens[:, -keep:]]
        if not self.reuse:
            return logits
        self.buffer.fill_(0.0)
        self.buffer[:, :keep] = logits
        return self.buffer[:, :keep]

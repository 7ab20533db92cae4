"""Eleven model families through the position-addressed cache, against plain forward passes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor

from ssd.certify.tiny_models import P, chain_of, greedy, tiny_llama
from ssd.core.chain import Edge
from ssd.core.generate import generate
from ssd.core.model import CachedModel
from ssd.core.positional import check_model
from ssd.core.requests import Request, Sampling

VOCAB, WINDOW = 64, 8
LLAMA = {
    "vocab_size": VOCAB, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 64, "max_position_embeddings": 64, "initializer_range": 0.5,
    "pad_token_id": 0,
}  # fmt: skip
GPT2 = {
    "vocab_size": VOCAB, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "initializer_range": 0.5,
}  # fmt: skip
GEMMA3 = {
    "head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": WINDOW,
    "layer_types": ["sliding_attention", "full_attention"],
}  # fmt: skip
FAMILIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", "LlamaForCausalLM", LLAMA),
    "mistral": ("MistralConfig", "MistralForCausalLM", {**LLAMA, "sliding_window": WINDOW}),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", LLAMA),
    "qwen2 mixed": (
        "Qwen2Config",
        "Qwen2ForCausalLM",
        {**LLAMA, "use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1},
    ),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM", {**LLAMA, "head_dim": 16}),
    "gemma3": ("Gemma3TextConfig", "Gemma3ForCausalLM", {**LLAMA, **GEMMA3}),
    "phi3": ("Phi3Config", "Phi3ForCausalLM", LLAMA),
    "phi3 window": ("Phi3Config", "Phi3ForCausalLM", {**LLAMA, "sliding_window": WINDOW}),
    "gpt2": ("GPT2Config", "GPT2LMHeadModel", GPT2),
    "gpt_neox": ("GPTNeoXConfig", "GPTNeoXForCausalLM", LLAMA),
    "opt": ("OPTConfig", "OPTForCausalLM", {**LLAMA, "ffn_dim": 64, "word_embed_proj_dim": 32, "init_std": 0.5}),
    "olmo2": ("Olmo2Config", "Olmo2ForCausalLM", LLAMA),
    "granite": ("GraniteConfig", "GraniteForCausalLM", {**LLAMA, "residual_multiplier": 0.7, "logits_scaling": 2.0}),
}
ALL = sorted(FAMILIES)
ROWS = [
    (7, 3, 60, 1, 44, 12, 5, 9, 31, 8, 20, 6, 55, 17, 2, 40, 11, 9, 23, 50),
    (1, 5, 9, 5, 9, 5, 9, 33, 21, 4, 63, 18, 27, 36, 45, 54, 10, 19, 28, 37),
]


@cache
def tiny(family: str, seed: int = 0, dtype: torch.dtype = torch.float32) -> Any:
    config, model, settings = FAMILIES[family]
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return getattr(hf, model)(getattr(hf, config)(**settings)).to(dtype).eval()


def plain(module: Any, ids: tuple[int, ...]) -> Tensor:
    """Logits [T, V] of one row, one pass, no cache."""
    with torch.inference_mode():
        return module(torch.tensor([ids]), use_cache=False).logits[0]


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("family", ALL)
def test_passes_at_different_positions_equal_plain_forwards(family: str, attention: str) -> None:
    """Ragged writes, then drafts that are rejected and overwritten, beyond the window of 8.

    Within 1e-5 of the largest logit, the size of float32 rounding.
    """
    module = tiny(family)
    module.set_attn_implementation(attention)
    expected = [plain(module, row) for row in ROWS]
    model = CachedModel(module, family)
    model.allocate(2, 24)
    text, junk = torch.tensor(ROWS), torch.full((2, 5), 62)
    model.fill(text[:, :5], torch.tensor([0, 0]))
    model.score(junk, torch.tensor([5, 5]), keep=5)
    model.fill(text[:, 5:9], torch.tensor([5, 5]))  # the second row takes all four, the first only two
    at = torch.tensor([7, 9])
    for _ in range(2):
        model.score(junk, at, keep=1)
        logits = model.score(span(text, at, 4), at, keep=3)
        for i, start in enumerate(at.tolist()):
            right = expected[i][start + 1 : start + 4]
            torch.testing.assert_close(logits[i], right, atol=1e-5 * max(1.0, float(right.abs().max())), rtol=0)
        at = at + torch.tensor([1, 4])
    assert module.config._attn_implementation == attention


def span(text: Tensor, start: Tensor, width: int) -> Tensor:
    return text.gather(1, start[:, None] + torch.arange(width))


@pytest.mark.parametrize("family", ALL)
def test_greedy_chain_equals_plain_greedy(family: str) -> None:
    """A stranger drafts for a copy of the target, which is accepted whole wherever it is asked."""
    module = tiny(family, dtype=torch.float64)
    stranger = tiny_llama(9, layers=1) if family != "llama" else tiny("gpt2", 3, torch.float64)
    before = plain(module, ROWS[0])
    chain = chain_of([stranger, module, module.__class__(module.config).double().eval()], [Edge(2), Edge(3)])
    chain.levels[-1].model.module.load_state_dict(module.state_dict())
    requests = [Request(p, Sampling(0), max_new_tokens=24) for p in (P, P[:2], ROWS[0][:12])]
    for request, result in zip(requests, generate(chain, requests), strict=True):
        assert list(result.ids) == greedy(module, request.ids, 24)
        assert all(r.accepted == r.tested for r in result.rounds if r.edge == 1)
    assert torch.equal(plain(module, ROWS[0]), before)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_module_is_ours_only_while_a_pass_runs(attention: str) -> None:
    module = tiny("mistral", seed=5)
    module.set_attn_implementation(attention)
    model = CachedModel(module)
    before = plain(module, ROWS[1])
    generate(chain_of([module, tiny("mistral", seed=6)], [Edge(3)]), [Request(P, max_new_tokens=8)])
    assert module.config._attn_implementation == attention
    assert torch.equal(plain(module, ROWS[1]), before)
    model.allocate(1, 4)
    with pytest.raises(ValueError, match="do not fit its 4 slots"):
        model.score(torch.tensor([ROWS[0][:5]]), torch.tensor([0]), keep=1)
    with pytest.raises(IndexError):  # fails inside the module
        model.score(torch.tensor([[VOCAB]]), torch.tensor([0]), keep=1)
    assert module.config._attn_implementation == attention
    assert torch.equal(plain(module, ROWS[1]), before)


def test_float64_pass_equals_plain_forward_to_rounding() -> None:
    """GPT-2, because the norms of most other families are float32 even in a float64 model."""
    module = tiny("gpt2", dtype=torch.float64)
    model = CachedModel(module)
    model.allocate(1, 20)
    logits = model.score(torch.tensor([ROWS[0]]), torch.tensor([0]), keep=20)
    torch.testing.assert_close(logits[0], plain(module, ROWS[0]), atol=1e-10, rtol=0)


def llama_with(rope: dict[str, Any]) -> Any:
    return hf.LlamaConfig(**LLAMA, rope_parameters={"rope_theta": 10000.0, **rope})


LONGROPE = {"rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [2.0] * 4, "factor": 2.0}
NESTED = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    "full_attention": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0},
}
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "t5": (lambda: hf.T5Config(vocab_size=VOCAB), "decoder-only"),
    "bart": (lambda: hf.BartConfig(vocab_size=VOCAB), "decoder-only"),
    "mamba": (lambda: hf.MambaConfig(vocab_size=VOCAB), "could not be taken back"),
    "mamba2": (lambda: hf.Mamba2Config(vocab_size=VOCAB), "could not be taken back"),
    "falcon_mamba": (lambda: hf.FalconMambaConfig(vocab_size=VOCAB), "could not be taken back"),
    "rwkv": (lambda: hf.RwkvConfig(vocab_size=VOCAB), "could not be taken back"),
    "recurrent_gemma": (lambda: hf.RecurrentGemmaConfig(vocab_size=VOCAB), "could not be taken back"),
    "jamba": (lambda: hf.JambaConfig(vocab_size=VOCAB), "could not be taken back"),
    "zamba2": (lambda: hf.Zamba2Config(vocab_size=VOCAB), "could not be taken back"),
    "lfm2": (
        lambda: hf.Lfm2Config(vocab_size=VOCAB, num_hidden_layers=2, layer_types=["conv", "full_attention"]),
        "could not be taken back",
    ),
    "granitemoehybrid": (lambda: hf.GraniteMoeHybridConfig(vocab_size=VOCAB), "could not be taken back"),
    "qwen3_next": (lambda: hf.Qwen3NextConfig(vocab_size=VOCAB), "could not be taken back"),
    "llama4": (lambda: hf.Llama4TextConfig(vocab_size=VOCAB), "chunked_attention"),
    "dynamic": (lambda: llama_with({"rope_type": "dynamic", "factor": 2.0}), "rope_type 'dynamic'"),
    "longrope": (lambda: llama_with(LONGROPE), "rope_type 'longrope'"),
    "nested": (lambda: hf.Gemma3TextConfig(**LLAMA, **GEMMA3, rope_parameters=NESTED), "rope_type 'dynamic'"),
    "bloom": (lambda: hf.BloomConfig(vocab_size=VOCAB), "ALiBi"),
    "mpt": (lambda: hf.MptConfig(vocab_size=VOCAB), "ALiBi"),
    "falcon": (lambda: hf.FalconConfig(vocab_size=VOCAB, alibi=True), "ALiBi"),
    "roberta": (lambda: hf.RobertaConfig(vocab_size=VOCAB, is_decoder=True), "padding id"),
}


@pytest.mark.parametrize("kind", sorted(REFUSED))
def test_models_that_cannot_rewind_are_refused_by_level(kind: str) -> None:
    config, why = REFUSED[kind]
    with pytest.raises(ValueError, match=rf"^L1\..*{why}"):
        check_model(config(), "L1")


def test_refusal_happens_when_the_level_is_made() -> None:
    module = hf.LlamaForCausalLM(llama_with({"rope_type": "dynamic", "factor": 2.0}))
    with pytest.raises(ValueError, match=r"^L0\.rope_parameters: rope_type 'dynamic'"):
        CachedModel(module, "L0")


def test_models_with_masks_of_their_own_are_refused() -> None:
    """GPT-Neo cuts its local mask by tensor shape, which is right only where all rows are equally long."""
    config = hf.GPTNeoConfig(
        vocab_size=VOCAB, hidden_size=32, num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]]
    )
    with pytest.raises(ValueError, match=r"^L0\.model_type: 'gpt_neo'"):
        CachedModel(hf.GPTNeoForCausalLM(config), "L0")


def test_attention_that_needs_more_than_a_mask_is_an_error() -> None:
    """Gemma 2 caps attention scores, which a fused kernel cannot do silently."""
    config = hf.Gemma2Config(**LLAMA, head_dim=8, query_pre_attn_scalar=8, attn_logit_softcapping=50.0)
    model = CachedModel(hf.Gemma2ForCausalLM(config), "L0")
    model.allocate(1, 4)
    with pytest.raises(ValueError, match="softcap"):
        model.score(torch.tensor([[1, 2]]), torch.tensor([0]), keep=1)

"""Speedups in print: what a prediction should not quietly exceed.

Self-reported figures run about 1.5 to 2 times above independent ones on the same method, and nearly all are
latencies at batch 1.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PublishedSpeed:
    """One published speedup.

    Attributes:
        system: method or engine.
        low, high: range over tasks; equal where one number is stated. "Up to" figures have ``low`` None.
        over: what it is compared with.
        models: draft → target, or the chain.
        hardware, batch, temperature: "not stated" or None where the source does not say.
        source: where it stands.
        provenance: a key of ``ssd.plan.published.PROVENANCE``.
        exact: whether the target's law is kept by construction.
        doubt: why not to rely on it alone.
    """

    system: str
    low: float | None
    high: float
    over: str
    models: str
    hardware: str
    batch: int | None
    temperature: str
    source: str
    provenance: str
    exact: bool = True
    doubt: str | None = None


AR, SD, PAIR = "AR", "standard speculative decoding", "best single draft"
UNSTATED = "not stated"

SPEEDS: tuple[PublishedSpeed, ...] = (
    PublishedSpeed(
        "standard, Leviathan et al.", 2.6, 3.4, AR, "T5-small → T5-XXL, En-De", "1 TPUv4", 1, "1 / 0",
        "arXiv 2211.17192", "second-hand",
    ),
    PublishedSpeed(
        "standard, Chen et al.", 1.92, 2.46, AR, "4B → Chinchilla-70B, XSum and HumanEval", "16 TPUv4", 1,
        "nucleus and greedy", "arXiv 2302.01318", "second-hand",
    ),
    PublishedSpeed(
        "standard, base of SpecDec++", 1.90, 2.07, AR, "Llama-2-chat 7B → 70B", "2 A100-80", 1, "sampling",
        "arXiv 2405.19715", "derived",
    ),
    PublishedSpeed(
        "SpecDec++", 2.04, 2.26, AR, "Llama-2-chat 7B → 70B", "2 A100-80", 1, "sampling", "arXiv 2405.19715",
        "abstract",
    ),
    PublishedSpeed(
        "standard, base of Saguaro", 2.52, 3.44, AR, "Llama-3.2-1B → 3.1-70B", "4 H100", 1, "0", "arXiv 2603.03251",
        "derived",
    ),
    PublishedSpeed(
        "Saguaro", 3.93, 5.50, AR, "Llama-3.2-1B → 3.1-70B", "5 H100", 1, "0", "arXiv 2603.03251", "second-hand",
        doubt="one device more than its baseline: 3.74x per device at its mean of 4.68x",
    ),
    PublishedSpeed(
        "Saguaro", 2.17, 2.29, AR, "Qwen3-0.6B → 32B", "5 H100", 1, "0", "arXiv 2603.03251; Weili-0234/ssd-wl",
        "second-hand", doubt="one device more than its baseline; the lower figure is the reproduction's",
    ),
    PublishedSpeed(
        "PEARL", None, 4.43, AR, "CodeLlama and Llama pairs, 7B → 70B among them", "A100 / H100", 1, "0",
        "arXiv 2408.11850", "abstract", doubt="its tables disagree about one pair (40.72 and 30.34 tokens/s)",
    ),
    PublishedSpeed(
        "AMUSD", 1.31, 1.96, AR, "Llama-3.2-1B → 8B", "2 devices", 1, "0", "arXiv 2410.17375", "read",
    ),
    PublishedSpeed(
        "DSI", 1.29, 1.92, SD, "Vicuna, StarCoder, Phi-3", "one node", 1, UNSTATED, "arXiv 2405.14105", "abstract",
        doubt="simulated",
    ),
    PublishedSpeed(
        "SwiftSpec", 1.75, 1.75, SD, "Llama-3-70B", "8 Hopper", 1, "0", "arXiv 2506.11309", "abstract",
    ),
    PublishedSpeed(
        "TensorRT-LLM draft", 3.55, 3.55, AR, "Llama-3.3-70B and a draft model", "H200", None, UNSTATED,
        "vendor's blog", "abstract", doubt="batch and temperature are not stated",
    ),
    PublishedSpeed(
        "Staged speculative decoding", 3.16, 3.16, AR, "trigram → 40M → GPT-2-L 762M", "RTX 4090", 1, "0",
        "arXiv 2308.04623", "second-hand",
    ),
    PublishedSpeed(
        "CS-Drafting", None, 1.81, SD, "FLAN-T5 family, Llama-2-7B", "counted cost", 1, "0", "arXiv 2312.11462",
        "abstract", exact=False, doubt="cost is counted, not timed; middle levels may be lenient",
    ),
    PublishedSpeed(
        "TriForce", 2.31, 2.31, AR, "68M → sparse cache → Llama-2-7B-128K", "A100", 1, "0.6", "arXiv 2404.11912",
        "second-hand",
    ),
    PublishedSpeed(
        "TriForce", 7.78, 7.78, AR, "the same, weights offloaded", "2 RTX 4090", 1, "0.6", "arXiv 2404.11912",
        "second-hand", doubt="against a baseline bound by offloading",
    ),
    PublishedSpeed(
        "PyramidSD", 1.91, 1.91, SD, "1B → 3B → 8B", "RTX 4090", 1, UNSTATED, "arXiv 2510.12966", "abstract",
        exact=False, doubt="divergence thresholds: the target's law is not kept",
    ),
    PublishedSpeed(
        "Polybasic", 3.31, 4.43, AR, "three models, targets of 7B and 8B", UNSTATED, 1, UNSTATED, "arXiv 2510.26527",
        "abstract",
    ),
    PublishedSpeed(
        "Hierarchical speculative decoding (Globerson et al.)", None, 1.2, PAIR, "hierarchies of drafts", UNSTATED, 1,
        UNSTATED, "arXiv 2510.19705", "abstract",
    ),
    PublishedSpeed(
        "HiSpec", 1.28, 2.01, PAIR, "early-exit models", UNSTATED, None, UNSTATED, "arXiv 2510.01336", "abstract",
        doubt="1.28 is the mean, 2.01 the largest",
    ),
    PublishedSpeed(
        "EAGLE", 2.7, 3.5, AR, "Llama-2-chat-70B", "4 A100-40", 1, "0 and 1", "arXiv 2401.15077", "second-hand",
    ),
    PublishedSpeed(
        "EAGLE-3", 5.51, 6.47, AR, "Vicuna-13B", "2 RTX 3090", 1, "0", "arXiv 2503.01840", "read",
        doubt="mean and peak of self-reported figures; Spec-Bench measures 3.02x",
    ),
    PublishedSpeed(
        "EAGLE-3 on Spec-Bench", 3.02, 3.02, AR, "Vicuna-13B, 6 tasks", "A100", 1, "0", "hemingkx/Spec-Bench", "read",
    ),
    PublishedSpeed(
        "standard on Spec-Bench", 1.52, 1.57, AR, "Vicuna-68M → 7B, 13B, 33B", "A100", 1, "0", "hemingkx/Spec-Bench",
        "read",
    ),
    PublishedSpeed(
        "EAGLE-3 in SGLang", 1.38, 1.81, AR, "Llama-3.1-8B", "H100", None, "0", "arXiv 2503.01840", "second-hand",
        doubt="1.81 at batch 2, 1.38 at batch 64",
    ),
    PublishedSpeed(
        "flashspec", 1.27, 1.67, AR, "Qwen2.5-0.5B → 1.5B", "T4", 1, "0", "flashspec 0.3.1", "read",
    ),
)  # fmt: skip

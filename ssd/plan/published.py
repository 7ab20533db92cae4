"""Acceptance rates and cost ratios in print, with where they come from and how far to trust them.

Rates measured in different ways are different numbers (docs/metrics.md), so every entry says which it is. An
entry with a ``doubt`` has a second column: plan with both and see whether the verdict stands.
Speedups are in ``ssd.plan.published_speeds``.
"""

from __future__ import annotations

from dataclasses import dataclass

from ssd.plan.acceptance import Acceptance, ByPosition, Constant

PROVENANCE = {
    "read": "read in the paper, repository or package itself",
    "abstract": "abstract or arXiv page",
    "second-hand": "quoted by a public note",
    "derived": "arithmetic on numbers the source states",
    "computed": "computed from public traces or backed out of published speedups",
    "assumed": "no usable figure was found; an assumption",
}
PER_TOKEN = "per token"
CONDITIONAL = "by position, given that all earlier ones passed"
UNCONDITIONAL = "by position, share of all rounds"
OF_DRAFTED = "accepted ÷ drafted"
KINDS = (PER_TOKEN, CONDITIONAL, UNCONDITIONAL, OF_DRAFTED)


@dataclass(frozen=True)
class PublishedAcceptance:
    """One published acceptance figure.

    Attributes:
        draft, target: models.
        data: prompts it was measured on.
        temperature: of sampling; None if not stated.
        alphas: one rate, or one per draft position.
        kind: what the rates are, one of ``KINDS``.
        source: where it stands.
        provenance: a key of ``PROVENANCE``.
        doubt: why not to rely on it alone; None if there is no particular reason.
        second: the other column, where there is a doubt that gives one.
    """

    draft: str
    target: str
    data: str
    temperature: float | None
    alphas: tuple[float, ...]
    kind: str
    source: str
    provenance: str
    doubt: str | None = None
    second: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        name = f"{self.draft}→{self.target} on {self.data}"
        if self.kind not in KINDS:
            raise ValueError(f"{name}: kind {self.kind!r} is not one of {', '.join(KINDS)}")
        if self.provenance not in PROVENANCE:
            raise ValueError(f"{name}: provenance {self.provenance!r} is not one of {', '.join(PROVENANCE)}")
        if self.second is not None and self.doubt is None:
            raise ValueError(f"{name}: a second column needs a doubt that explains it")

    def models(self) -> tuple[Acceptance, ...]:
        """Acceptance models of the column, and of the second one if there is one.

        Raises:
            ValueError: for accepted ÷ drafted, which depends on the draft length and is no acceptance rate.
        """
        columns = [self.alphas] if self.second is None else [self.alphas, self.second]
        return tuple(self._model(column) for column in columns)

    def _model(self, column: tuple[float, ...]) -> Acceptance:
        if self.kind == OF_DRAFTED:
            raise ValueError(f"{self.draft}→{self.target}: {OF_DRAFTED} is not an acceptance rate per token")
        if self.kind == UNCONDITIONAL:
            return ByPosition.from_survival(column)
        return Constant(column[0]) if len(column) == 1 else ByPosition(column)


@dataclass(frozen=True)
class PublishedCost:
    """One published cost ratio: seconds of a draft pass ÷ seconds of a pass of the target.

    Attributes:
        seconds: (draft, target) of one pass, where both are stated.
        second: another value for the same pair under other conditions.
    """

    draft: str
    target: str
    hardware: str
    ratio: float
    source: str
    provenance: str
    seconds: tuple[float, float] | None = None
    second: float | None = None
    doubt: str | None = None


def _t5(data: str, temperature: float, *alphas: float) -> list[PublishedAcceptance]:
    source = "arXiv 2211.17192, table 2"
    return [
        PublishedAcceptance(f"T5-{size}", "T5-XXL", data, temperature, (alpha,), PER_TOKEN, source, "second-hand")
        for size, alpha in zip(("small", "base", "large"), alphas, strict=True)
    ]


def _lamda(size: str, alpha: float) -> PublishedAcceptance:
    source = "arXiv 2211.17192, table 3"
    return PublishedAcceptance(f"LaMDA-{size}", "LaMDA-137B", "dialog", 0.0, (alpha,), PER_TOKEN, source, "second-hand")


def _llama2(data: str, alpha: float) -> PublishedAcceptance:
    return PublishedAcceptance(
        "Llama-2-chat-7B",
        "Llama-2-chat-70B",
        data,
        None,
        (alpha,),
        PER_TOKEN,
        "arXiv 2405.19715, backed out of its speedups of standard speculative decoding at c = .165",
        "computed",
        "a speedup of 2.8x, as is also claimed for this pair, needs .845 at c = .10 (second column)",
        (0.845,),
    )


def _llama3(data: str, cheap: float, dear: float) -> PublishedAcceptance:
    return PublishedAcceptance(
        "Llama-3.2-1B",
        "Llama-3.1-70B",
        data,
        0.0,
        (cheap,),
        PER_TOKEN,
        "arXiv 2603.03251, backed out of its speedups of standard speculative decoding",
        "computed",
        "depends on the cost ratio, which is not stated: first column at c = .03, second at c = .08",
        (dear,),
    )


def _eagle(data: str, *alphas: float) -> PublishedAcceptance:
    return PublishedAcceptance(
        "EAGLE", "Llama-3.1-8B", data, 0.0, alphas, CONDITIONAL, "traces of arXiv 2601.11580", "computed"
    )


def _eagle_paper(target: str, *alphas: float) -> PublishedAcceptance:
    doubt = "the quoted rates do not say what they are conditioned on"
    return PublishedAcceptance(
        "EAGLE", target, "MT-bench", 0.0, alphas, CONDITIONAL, "arXiv 2401.15077", "second-hand", doubt
    )


def _dspark(data: str, *shares: float) -> PublishedAcceptance:
    return PublishedAcceptance(
        "DSpark head",
        "Llama-3.2-1B",
        data,
        None,
        shares,
        UNCONDITIONAL,
        "vllm-project/speculators #1135",
        "second-hand",
    )


def _qwen25(data: str, share: float) -> PublishedAcceptance:
    return PublishedAcceptance(
        "Qwen2.5-0.5B", "Qwen2.5-1.5B", data, 0.0, (share,), OF_DRAFTED, "flashspec 0.3.1, T4, fp16", "read"
    )


ACCEPTANCE: tuple[PublishedAcceptance, ...] = (
    *_t5("WMT En-De", 0.0, 0.75, 0.80, 0.82),
    *_t5("WMT En-De", 1.0, 0.62, 0.68, 0.71),
    *_t5("CNN/DM", 0.0, 0.65, 0.73, 0.74),
    *_t5("CNN/DM", 1.0, 0.53, 0.55, 0.56),
    _lamda("100M", 0.61),
    _lamda("2B", 0.71),
    _lamda("8B", 0.75),
    _llama2("Alpaca", 0.77),
    _llama2("GSM8K", 0.81),
    _llama2("HumanEval", 0.80),
    _llama3("HumanEval", 0.78, 0.86),
    _llama3("GSM8K", 0.79, 0.88),
    _llama3("Alpaca", 0.71, 0.80),
    _llama3("UltraFeedback", 0.69, 0.78),
    _eagle("CNN", 0.69, 0.67, 0.66, 0.68, 0.71),
    _eagle("GSM8K", 0.72, 0.67, 0.65, 0.65, 0.65),
    _eagle("InstructCoder", 0.72, 0.73, 0.75, 0.78, 0.80),
    _eagle("ShareGPT", 0.69, 0.66, 0.69, 0.73, 0.76),
    _eagle_paper("Vicuna-7B", 0.79, 0.74, 0.72, 0.73),
    _eagle_paper("Llama-2-70B", 0.75, 0.69, 0.65, 0.64),
    _dspark("HumanEval", 0.84, 0.69, 0.56, 0.46),
    _dspark("writing", 0.62, 0.39, 0.24, 0.16),
    _qwen25("HumanEval", 0.39),
    _qwen25("MT-bench", 0.29),
    PublishedAcceptance(
        "Qwen3-0.6B",
        "Qwen3-4B",
        "4 prompts",
        None,
        (0.43,),
        OF_DRAFTED,
        "sequential-speculative-decoding 0.1.1, gamma 5",
        "read",
        "four prompts, and the text does not say what is divided by what",
    ),
    PublishedAcceptance(
        "Vicuna-68M",
        "Vicuna-7B",
        "Spec-Bench",
        0.0,
        (0.57,),
        PER_TOKEN,
        "Spec-Bench, backed out of 2.28 tokens per step",
        "computed",
        "the draft length is not stated: first column gamma 7, second gamma 4",
        (0.59,),
    ),
    PublishedAcceptance(
        "TinyLlama-1.1B",
        "Llama-2-7B",
        "any",
        None,
        (0.60,),
        PER_TOKEN,
        "none",
        "assumed",
        "no published figure for a 1B draft of a 7B: the range assumed is .60 to .75",
        (0.75,),
    ),
)

COSTS: tuple[PublishedCost, ...] = (
    PublishedCost(
        "Llama-2-7B",
        "Llama-2-70B",
        "2 A100, transformers, bf16",
        0.165,
        "README of SpecDec_pp (arXiv 2405.19715)",
        "derived",
        (0.0209, 0.1264),
    ),
    PublishedCost(
        "Chinchilla-4B",
        "Chinchilla-70B",
        "16 TPUv4",
        0.128,
        "arXiv 2302.01318",
        "second-hand",
        (0.0018, 0.0141),
    ),
    PublishedCost(
        "Qwen3-0.6B",
        "Qwen3-32B",
        "H100",
        0.22,
        "Weili-0234/ssd-wl",
        "second-hand",
        (0.00254, 0.01145),
        doubt="the draft's step is a step of a tree",
    ),
    PublishedCost("T5-small", "T5-XXL", "1 TPUv4", 0.015, "arXiv 2211.17192", "second-hand"),
    PublishedCost(
        "Qwen2.5-0.5B",
        "Qwen2.5-1.5B",
        "T4, compiled",
        0.48,
        "flashspec 0.3.1",
        "read",
        second=0.90,
        doubt="second column: the same pair without compilation",
    ),
    PublishedCost(
        "Llama-3.2-1B",
        "Llama-3.1-70B",
        "H100",
        0.03,
        "none",
        "assumed",
        second=0.14,
        doubt="no published pair of pass times; launch-bound drafts of this size give .03 to .14",
    ),
)

"""Whether outputs repeat themselves: a looping model makes any draft look good.

Distinct n-grams fall with repetition, and so does the number of tokens that need a model at all: the
share that a plain look-up in the text so far would have proposed. Both per bin of length, because
loops come with length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ssd.bench.acceptance import Record, ratio
from ssd.bench.length_bins import BINS, Bin, bin_of, bins_of
from ssd.bench.metrics import distinct_ngrams
from ssd.core.ngram import Ngram

PromptIds = Callable[[Record], Sequence[int]]
PLACES = ("position", "length")


@dataclass
class LookUp:
    """Output tokens and what a look-up would have said about them.

    Attributes:
        tokens: output tokens.
        proposed: those for which some suffix of the text so far had occurred before.
        hits: those it would have predicted.
    """

    tokens: int = 0
    proposed: int = 0
    hits: int = 0

    @property
    def acceptance(self) -> float | None:
        """Hits / tokens; a token without a proposal is a miss."""
        return ratio(self.hits, self.tokens)

    @property
    def precision(self) -> float | None:
        """Hits / proposed."""
        return ratio(self.hits, self.proposed)


def distinct_by_output(records: Iterable[Record], size: int = 4) -> list[tuple[Record, float | None]]:
    """(record, distinct n-grams / n-grams of its output); None for an output shorter than ``size``."""
    return [(record, distinct_ngrams([record], size)) for record in records]


def distinct_by_length(records: Iterable[Record], size: int = 4, bins: Sequence[int] = BINS) -> dict[Bin, float | None]:
    """Distinct n-grams / n-grams of the outputs in each bin of output length, counted within each output.

    Longer outputs repeat more even without looping, which is why bins are not to be pooled.
    """
    groups: dict[Bin, list[Record]] = {each: [] for each in bins_of(bins)}
    for record in records:
        groups[bin_of(len(record["output_ids"]), bins)].append(record)
    return {each: distinct_ngrams(group, size) for each, group in groups.items()}


def ngram_acceptance(
    records: Iterable[Record],
    prompt_ids: PromptIds | None = None,
    *,
    by: str = "position",
    ngram: Ngram | None = None,
    bins: Sequence[int] = BINS,
) -> dict[Bin, LookUp]:
    """Per bin, how many output tokens an n-gram look-up on the text so far would have predicted.

    Args:
        records: any.
        prompt_ids: the prompt's token ids of a record; default the record's own. Where there are none the
            look-up sees the output alone, which is another, smaller number.
        by: ``position`` counts each token in the bin of its place in the output, ``length`` in the bin
            of its whole output's length.
        ngram: suffix lengths, default those of the look-up level (3 down to 1).
        bins: lower bounds, ascending.

    Raises:
        ValueError: if prompt ids do not have the length that the record states.
    """
    if by not in PLACES:
        raise ValueError(f"ngram_acceptance.by: {by!r} is not one of {', '.join(PLACES)}")
    sizes = ngram or Ngram()
    found = {each: LookUp() for each in bins_of(bins)}
    for record in records:
        prompt = (record.get("prompt_ids") or ()) if prompt_ids is None else prompt_ids(record)
        if (prompt or prompt_ids is not None) and len(prompt) != record["prompt_tokens"]:
            raise ValueError(
                f"prompt {record['prompt_id']!r}: {len(prompt)} prompt ids, "
                f"but its record states {record['prompt_tokens']} prompt tokens"
            )
        output = record["output_ids"]
        for place, guess in enumerate(guesses(prompt, output, sizes)):
            tally = found[bin_of(place if by == "position" else len(output), bins)]
            tally.tokens += 1
            tally.proposed += guess is not None
            tally.hits += guess == output[place]
    return found


def guesses(prompt: Sequence[int], output: Sequence[int], ngram: Ngram) -> list[int | None]:
    """What ``ngram.look_up`` would propose for each output token, given everything before it; None for nothing.

    One pass over the text with a table of the latest continuation of every n-gram, where the look-up
    itself searches backwards every time.
    """
    text = [*prompt, *output]
    latest: dict[tuple[int, ...], int] = {}
    found: list[int | None] = []
    for at, token in enumerate(text):
        suffixes = [tuple(text[at - size : at]) for size in range(ngram.largest, ngram.smallest - 1, -1) if size <= at]
        if at >= len(prompt):
            found.append(next((latest[suffix] for suffix in suffixes if suffix in latest), None))
        for suffix in suffixes:
            latest[suffix] = token
    return found

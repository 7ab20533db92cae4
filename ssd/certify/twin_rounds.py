"""The twin with a note of its rounds, as the decoder keeps them, and with stop rules."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from ssd.certify.twins import twin_levels, twin_root
from ssd.core.chain import Chain, Edge
from ssd.core.reference import Row, Twin, TwinLevel
from ssd.core.requests import Override, Request, Round


@dataclass(frozen=True)
class Told:
    """What the twin makes of a request.

    Attributes:
        ids: new tokens up to the stop, the token that causes it included.
        stop_reason: ``eos`` | ``stop`` | ``length``.
        rounds: in order of execution, all edges.
    """

    ids: tuple[int, ...]
    stop_reason: str
    rounds: tuple[Round, ...]


def tell(chain: Chain, request: Request, index: int) -> Told:
    """What the twin makes of a request that stands at ``index`` in its batch.

    Raises:
        ValueError: the processors forbid every token at a position of the output.
    """
    barren: set[tuple[int, ...]] = set()
    levels, start = twin_levels(chain, request, barren), len(request.ids)
    own = [level.sampling for level in chain.levels[:-1]] + [Override()]
    samples = [request.sampling.overridden_by(o).temperature > 0 for o in own]
    twin, root = Noting(levels, chain.edges, samples, start), twin_root(request, index)
    text = list(request.ids)
    while len(text) - start < request.max_new_tokens:
        begin = len(text)
        text += twin.round(chain.depth, text, start + request.max_new_tokens - begin, root)[0]
        for end in range(begin + 1, len(text) + 1):
            reason = stop_reason(chain, request, text[start:end])
            if reason:
                twin.rounds[-1] = shortened(twin.rounds[-1], end - begin)
                return told(text[:end], start, reason, twin.rounds, barren)
    return told(text, start, "length", twin.rounds, barren)


def told(
    text: list[int], start: int, reason: str, rounds: Sequence[Round], barren: Collection[tuple[int, ...]]
) -> Told:
    """The outcome, unless one of the output's tokens had nothing to be chosen from."""
    for at in range(start, len(text)):
        if tuple(text[:at]) in barren:
            raise ValueError(f"processors forbid every token after {text[:at]}")
    return Told(tuple(text[start:]), reason, tuple(rounds))


def stop_reason(chain: Chain, request: Request, new: Sequence[int]) -> str | None:
    """Which rule ends a row with its last token, if one does; a stop string goes before an end-of-text id."""
    if request.ignore_eos:
        return None
    if request.stop and any(s in chain.tokenizer.decode(new) for s in request.stop):
        return "stop"
    return "eos" if new[-1] in request.eos_ids else None


def shortened(r: Round, kept: int) -> Round:
    """A target round of whose tokens the first ``kept`` count."""
    if kept == r.emitted:
        return r
    tested = None if r.tested is None else min(r.tested, kept)
    accepted = min(r.accepted, kept)
    return replace(r, tested=tested, accepted=accepted, emitted=kept, end="stopped", overlap=r.overlap[:kept])


class Noting(Twin):
    """The twin, noting each round of each edge.

    Attributes:
        rounds: those run so far.
        samples: per level, whether it draws rather than takes the likeliest token.
    """

    def __init__(self, levels: Sequence[TwinLevel], edges: Sequence[Edge], samples: Sequence[bool], start: int) -> None:
        super().__init__(levels, edges)
        self.samples = samples
        self.rounds: list[Round] = []
        self._drafted: dict[int, tuple[list[int], list[Row]]] = {}  # by the level that verifies
        self._blocks = {len(edges): start}

    def propose(self, k: int, text: list[int], limit: int, key: int) -> tuple[list[int], list[Row]]:
        """As the twin's."""
        self._blocks[k] = len(text)
        self._drafted[k + 1] = super().propose(k, text, limit, key)
        return self._drafted[k + 1]

    def round(self, k: int, text: list[int], room: int, key: int) -> tuple[list[int], list[Row], bool]:
        """As the twin's."""
        self._drafted[k] = [], []
        tokens, laws, full = super().round(k, text, room, key)
        if k > 0 or not self.edges:
            self._note(k, text, len(tokens) - 1, full)
        return tokens, laws, full

    def _note(self, k: int, text: list[int], accepted: int, full: bool) -> None:
        tokens, drafts = self._drafted[k]
        whole = k > 0 and self.edges[k - 1].verification == "block" and self.samples[k]
        tested = accepted + (not full)
        own = [self.law(k, text + tokens[:i]) for i in range(len(tokens) if whole else tested)]
        overlap = tuple(sum(map(min, *both)) for both in zip(own, drafts, strict=False))
        end = "plain" if not drafts else "bonus" if full else "recovered"
        place = (k - 1, self._blocks[k], len(text), len(drafts))
        self.rounds.append(Round(*place, None if whole else tested, accepted, accepted + 1, end, overlap))

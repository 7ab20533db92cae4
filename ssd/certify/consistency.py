"""Everything a ``Generation`` says must agree with itself."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator

from ssd.core.chain import Chain
from ssd.core.requests import Generation, Request, Round


def contradictions(chain: Chain, request: Request, g: Generation, together: Collection[int] | None = None) -> list[str]:
    """What does not hold of a generation, each claim in words; empty when it agrees with itself.

    Args:
        together: levels that take turns with the target; all of them by default, as under the serial schedule.
            Passes of the others ran beside theirs.
    """
    levels = range(chain.depth + 1)
    claims = itertools.chain(
        _round_claims(chain, request, g),
        _origin_claims(chain, g),
        _clock_claims(g, levels if together is None else together),
        _ahead_claims(chain, g, together is None or len(together) == len(levels)),
    )
    return [words for holds, words in claims if not holds]


def _round_claims(chain: Chain, request: Request, g: Generation) -> Iterator[tuple[bool, str]]:
    top, position = chain.depth, len(request.ids)
    for r in g.rounds:
        for holds, words in _one_round(r):
            yield holds, f"{words}: {r}"
        if r.edge == top - 1:
            yield r.start == position, f"target rounds follow on one another, here {position}: {r}"
            position += r.emitted
    own = [r for r in g.rounds if r.edge == top - 1]
    emitted = sum(r.emitted for r in own)
    yield emitted == len(g.ids), f"{len(g.ids)} tokens came out of target rounds that emitted {emitted}"
    known = [n for _, n in g.arrivals]
    yield known == [sum(r.emitted for r in own[: i + 1]) for i in range(len(own))], f"tokens arrive as emitted: {known}"


def _one_round(r: Round) -> Iterator[tuple[bool, str]]:
    whole = r.emitted if r.end == "stopped" else r.drafted  # a block verified at once knows every overlap it keeps
    tested = whole if r.tested is None else r.tested
    yield r.accepted <= tested <= r.drafted, "accepted <= tested <= drafted"
    yield r.block_start <= r.start, "a round starts within its block"
    yield len(r.overlap) == tested, "one overlap for every token tested, or drafted where whole blocks are"
    yield all(0 <= x <= 1 + 1e-6 for x in r.overlap), "an overlap lies in [0, 1]"
    yield r.emitted == r.accepted + (r.end != "stopped"), "emitted = accepted + the one that follows"
    yield (r.end == "plain") == (r.drafted == 0), "plain means that nothing was drafted"
    yield r.end != "bonus" or r.accepted == r.drafted, "a bonus token needs everything accepted"
    yield r.end != "recovered" or r.accepted < r.drafted, "a recovered token needs a rejection"


def _origin_claims(chain: Chain, g: Generation) -> Iterator[tuple[bool, str]]:
    top = chain.depth
    own = [r for r in g.rounds if r.edge == top - 1]
    lengths = [len(level) for level in g.origins]
    yield lengths == [len(g.ids)] * (top + 1), f"every level knows every token's fate: {lengths}"
    drafts = g.origins[top].count("draft")
    yield sum(r.accepted for r in own) == drafts, f"accepted tokens are the {drafts} of origin draft"
    for end in ("recovered", "bonus", "plain"):
        count = g.origins[top].count(end)
        yield sum(r.end == end for r in own) == count, f"rounds that end as {end} are the {count} of that origin"
    for fates in zip(*g.origins, strict=False):
        agree = all((lower is not None) == (upper == "draft") for lower, upper in itertools.pairwise(fates))
        yield agree, f"a level emitted a token iff the one above drafted it: {fates}"


def _clock_claims(g: Generation, together: Collection[int]) -> Iterator[tuple[bool, str]]:
    first = g.arrivals[0][1] if g.arrivals else 0
    yield g.first_pass_tokens == first, f"first_pass_tokens {g.first_pass_tokens} is the first arrival {first}"
    times = [0.0, *(t for t, _ in g.arrivals), g.seconds.total]
    yield times == sorted(times), f"time goes on: {times}"
    s = g.seconds
    parts = s.prefill + sum(s.passes[k] for k in together) + s.rest
    yield math.isclose(parts, s.total, abs_tol=1e-9), f"the parts of the time, {parts} s, make up {s.total} s"
    yield min(s.prefill, s.rest, *s.passes) >= 0, f"no time is negative: {s}"


def _ahead_claims(chain: Chain, g: Generation, serial: bool) -> Iterator[tuple[bool, str]]:
    edges = 0 if serial else chain.depth
    yield len(g.ahead) == edges, f"drafts made ahead are told of {edges} edges: {g.ahead}"
    yield all(min(edge) >= 0 for edge in g.ahead), f"no count is negative: {g.ahead}"

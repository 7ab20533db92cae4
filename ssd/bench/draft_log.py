"""What transformers' candidate generators proposed, pass by pass, and what became of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor
from transformers import LogitsProcessorList

from ssd.core.requests import Round


class DraftLog:
    """The drafts of one call, as (tokens committed before it, ids [1, T] ending with the draft)."""

    def __init__(self) -> None:
        self._drafts: list[tuple[int, Tensor]] = []

    def __len__(self) -> int:
        return len(self._drafts)

    def watch(self, target: Any, longest: int) -> None:
        """Make ``target``, a throw-away copy, note its drafts here and propose no id past ``longest``.

        The candidate generator also loses the processors it took from the target. An assistant builds
        the same ones again from its settings, and would apply temperature and filters twice; a look-up
        tries them on equal scores, where top-p forbids ids for no reason.
        """
        build: Callable[..., Any] = target._get_candidate_generator

        def watched(**kwargs: Any) -> Any:
            generator = build(**kwargs)
            propose = generator.get_candidates
            generator.logits_processor = LogitsProcessorList()

            def get_candidates(input_ids: Tensor, **options: Any) -> tuple[Tensor, Tensor | None]:
                ids, logits = propose(input_ids, **options)
                if logits is None:  # a look-up, which does not keep to the budget by itself
                    ids = ids[:, :longest]
                self._drafts.append((input_ids.shape[1], ids))
                return ids, logits

            generator.get_candidates = get_candidates
            return generator

        target._get_candidate_generator = watched

    def rounds(self, whole: Sequence[int]) -> tuple[Round, ...]:
        """A Round per target pass, given the prompt and all tokens kept; overlaps are not known.

        The outcome is read off the ids: a recovered token never equals the draft token it replaces.
        """
        starts = [start for start, _ in self._drafts] + [len(whole)]
        rounds = []
        for i, (start, ids) in enumerate(self._drafts):
            draft, emitted = ids[0, start:].tolist(), whole[start : starts[i + 1]]
            if not emitted:  # everything from here on was cut off
                break
            agree = [a == b for a, b in zip(draft, emitted, strict=False)]
            accepted = agree.index(False) if False in agree else len(agree)
            end = "recovered" if accepted < len(draft) else "bonus" if draft else "plain"
            if accepted == len(emitted):
                end = "stopped"
            tested = accepted + (end == "recovered")
            rounds.append(Round(0, start, start, len(draft), tested, accepted, len(emitted), end, ()))
        return tuple(rounds)

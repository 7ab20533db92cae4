"""Negative controls: faults planted in the real decoder, one named function each.

A certificate that passes says something only if a wrong decoder fails it. Each ``Planted`` takes the place
of one function of ``ssd.core`` or ``ssd.pipeline`` while its context is open, wherever the decoder looks that
function up.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import ssd.core
import ssd.pipeline
from ssd.certify import engine_faults as engine
from ssd.certify import twin_faults as twin

Factory = Callable[[Any], Any]
"""From the real function to the faulty one."""


@dataclass(frozen=True)
class TwinFault:
    """The same fault in ``ssd.core.reference.Twin``, for a rung that looks at nothing else.

    Attributes:
        target: dotted name of the function it replaces.
        plant: makes the replacement from the real function.
    """

    target: str
    plant: Factory


@dataclass(frozen=True)
class Planted:
    """A fault of the decoder.

    Attributes:
        name: short and unique.
        target: dotted name of the one function it replaces.
        what: what goes wrong, in one sentence.
        plant: makes the replacement from the real function.
        twin: its counterpart in the twin, where the fault can be told there at all.
    """

    name: str
    target: str
    what: str
    plant: Factory
    twin: TwinFault | None = None

    @contextmanager
    def active(self) -> Iterator[None]:
        """The decoder has the fault inside this context and is itself again afterwards.

        Raises:
            ValueError: ``target`` names nothing that exists.
        """
        with patched(self.name, self.target, self.plant):
            yield

    @contextmanager
    def active_in_twin(self) -> Iterator[None]:
        """The same for the twin; ValueError if the fault has no counterpart there."""
        if self.twin is None:
            raise ValueError(f"planted fault {self.name!r}: the twin has no counterpart of it")
        with patched(self.name, self.twin.target, self.twin.plant):
            yield


@contextmanager
def patched(name: str, target: str, plant: Factory) -> Iterator[None]:
    """``plant(real)`` stands in for ``target`` in every place ``lookups`` finds."""
    places = lookups(name, target)
    kept = [inspect.getattr_static(owner, attribute) for owner, attribute in places]
    static = isinstance(kept[0], staticmethod)
    faulty = plant(getattr(*places[0]))
    try:
        for owner, attribute in places:
            setattr(owner, attribute, staticmethod(faulty) if static else faulty)
        yield
    finally:
        for (owner, attribute), value in zip(places, kept, strict=True):
            setattr(owner, attribute, value)


def lookups(name: str, target: str) -> list[tuple[Any, str]]:
    """Every (owner, attribute) under which the decoder looks up ``target``, its own place first.

    A method has one place, its class. A function has its module and each other module of the two packages that took
    it over by ``from … import``. Names bound elsewhere, as in a rung's own reference, stay what they are.

    Raises:
        ValueError: no such module, class or function; the fault is named.
    """
    module, path = _module_of(name, target)
    owner: Any = module
    for part in path[:-1]:
        owner = _own(name, target, owner, part)
    function = _own(name, target, owner, path[-1])
    if not (inspect.isfunction(function) or isinstance(function, staticmethod)):
        raise ValueError(f"planted fault {name!r}: {target} is a {type(function).__name__}, not a function")
    places = [(owner, path[-1])]
    if isinstance(owner, ModuleType):
        for other in decoder_modules():
            places += [(other, n) for n, v in vars(other).items() if v is function and (other, n) != places[0]]
    return places


def core_modules(package: ModuleType = ssd.core) -> list[ModuleType]:
    """Every module of ``ssd.core``."""
    names = sorted(m.name for m in pkgutil.iter_modules(package.__path__))
    return [importlib.import_module(f"{package.__name__}.{n}") for n in names]


def decoder_modules() -> list[ModuleType]:
    """Every module in which a fault can be planted."""
    return [*core_modules(), *core_modules(ssd.pipeline)]


def _module_of(name: str, target: str) -> tuple[ModuleType, list[str]]:
    """The module a dotted name starts with, and what follows it."""
    for module in decoder_modules():
        if target.startswith(f"{module.__name__}."):
            return module, target[len(module.__name__) + 1 :].split(".")
    raise ValueError(
        f"planted fault {name!r}: {target} is in no module of {ssd.core.__name__} or {ssd.pipeline.__name__}"
    )


def _own(name: str, target: str, owner: Any, part: str) -> Any:
    """What ``owner`` itself, not a base of it, calls ``part``."""
    if part not in vars(owner):
        raise ValueError(f"planted fault {name!r}: {target} does not exist: {owner.__name__} has no {part!r}")
    return vars(owner)[part]


PLANTED: tuple[Planted, ...] = (
    Planted(
        "residual not subtracted",
        "ssd.core.verification.owed",
        "After a rejection the token is drawn from the target's whole law.",
        engine.residual_not_subtracted,
        TwinFault("ssd.core.reference.residual", twin.residual_not_subtracted),
    ),
    Planted(
        "residual not subtracted by block",
        "ssd.core.block_verification.owed",
        "Under block verification the token after a partly kept block is drawn from the target's whole law.",
        engine.residual_not_subtracted,
        TwinFault("ssd.core.reference.Twin.verify_by_block", twin.residual_not_subtracted_by_block),
    ),
    Planted(
        "bonus row at a rejection",
        "ssd.core.verification.owed",
        "The token after a rejection is drawn from the row that belongs behind the last draft token.",
        engine.bonus_row_at_a_rejection,
        TwinFault("ssd.core.reference.Twin.verify_by_token", twin.bonus_row_at_a_rejection),
    ),
    Planted(
        "draft rows of the wrong temperature",
        "ssd.core.decode.assemble",
        "A draft level hands up its rows at twice the temperature it drew at.",
        engine.draft_rows_of_the_wrong_temperature,
        TwinFault("ssd.core.reference.Twin.propose", twin.draft_rows_of_the_wrong_temperature),
    ),
    Planted(
        "the drafter's rows handed up",
        "ssd.core.decode.Decoder._emit",
        "An intermediate level hands up the rows of the level below, L0's to L2, in place of its own.",
        engine.drafters_rows_handed_up,
        TwinFault("ssd.core.reference.Twin.propose", twin.drafters_rows_handed_up),
    ),
    Planted(
        "greedy draft with soft rows",
        "ssd.core.decode.Decoder._emit",
        "Level 0 proposes its most likely token and hands up the law it was meant to draw from.",
        engine.greedy_draft_with_soft_rows,
        TwinFault("ssd.core.reference.Twin.round", twin.greedy_draft_with_soft_rows),
    ),
    Planted(
        "off-by-one verification row",
        "ssd.core.decode.Decoder._score",
        "A draft token is tested against the row behind it.",
        engine.off_by_one_row,
        TwinFault("ssd.core.reference.Twin.verify_by_token", twin.off_by_one_row),
    ),
    Planted(
        "acceptance test not strict",
        "ssd.core.verification.take",
        "At u = 0 a draft token passes although the target gives it probability 0.",
        engine.acceptance_test_not_strict,
    ),
    Planted(
        "token dropped at a correction",
        "ssd.core.decode.advance",
        "A draft block loses the corrected token of a round that had kept tokens before it.",
        engine.token_dropped_at_a_correction,
        TwinFault("ssd.core.reference.Twin.round", twin.token_dropped_at_a_correction),
    ),
    Planted(
        "unlikely token dropped",
        "ssd.core.decode.Decoder.propose",
        "A draft block ends before its last token when that token turned out to have probability below a half.",
        engine.unlikely_token_dropped,
        TwinFault("ssd.core.reference.Twin.propose", twin.unlikely_token_dropped),
    ),
    Planted(
        "bonus token forgotten in a draft's cache",
        "ssd.core.decode.Decoder.round",
        "After a fully accepted round the drafts' caches are believed to reach the bonus token, "
        "though the token before it was never fed.",
        engine.bonus_forgotten_in_the_cache,
    ),
    Planted(
        "stale slot visible",
        "ssd.core.model.CachedModel._mask",
        "Every query sees one slot beyond the last token of its pass.",
        engine.stale_slot_visible,
    ),
    Planted(
        "a neighbour row's length",
        "ssd.core.model.CachedModel._visible",
        "Each row of a batch sees as many slots as the row before it.",
        engine.neighbours_length,
    ),
    Planted(
        "settings of the first row",
        "ssd.core.decode.Decoder._settings",
        "Every row of a batch is decoded with the sampling settings of the first.",
        engine.settings_of_the_first_row,
    ),
    Planted(
        "top-p ignored in verification",
        "ssd.core.decode.Decoder._settings",
        "The target's rows are taken without the request's top-p.",
        engine.top_p_ignored_in_verification,
    ),
    Planted(
        "penalty history of the block's start",
        "ssd.core.processors.Processors.apply",
        "Penalties and forbidden words at every position of a block go by the text before the block.",
        engine.history_of_the_blocks_start,
    ),
    Planted(
        "position-only random keys",
        "ssd.core.randomness.round_key",
        "A uniform depends on row, level and position but not on the round, so rounds share uniforms.",
        engine.position_only_keys,
    ),
    Planted(
        "one uniform for test and draw",
        "ssd.core.randomness.uniform",
        "The draw after a rejection reuses the uniform of the test that failed.",
        engine.one_uniform_for_test_and_draw,
    ),
    Planted(
        "requests share their randomness",
        "ssd.core.randomness.root",
        "Rows that differ in request and sample only are given the same key.",
        engine.requests_share_randomness,
    ),
    Planted(
        "end of text tested at the last token only",
        "ssd.core.generate._Row._stop",
        "An end-of-text id accepted inside a block does not end the row.",
        engine.end_tested_at_the_last_token,
    ),
    Planted(
        "bonus counted as accepted",
        "ssd.core.rounds.RoundLog.rounds",
        "The bonus token of a round is counted among its accepted draft tokens.",
        engine.bonus_counted_as_accepted,
    ),
)

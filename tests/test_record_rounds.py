"""Rounds under block verification: which counts can stand together in a record."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ssd.bench.json_files import plain
from ssd.bench.record_line import fits_together
from ssd.core.requests import Round

WHOLE = Round(0, 4, 4, 3, None, 1, 2, "recovered", (0.5, 0.25, 0.125))


@pytest.mark.parametrize(
    ("change", "fits"),
    [
        ({}, True),
        ({"overlap": ()}, True),
        ({"end": "stopped", "emitted": 1, "overlap": (0.5,)}, True),
        ({"overlap": (0.5, 0.25)}, False),
        ({"accepted": 4, "emitted": 5}, False),
        ({"emitted": 1}, False),
    ],
)
def test_rounds_verified_as_a_whole_have_no_tested_tokens(change, fits):
    entry = plain(replace(WHOLE, **change), "round")
    assert fits_together(entry) is fits

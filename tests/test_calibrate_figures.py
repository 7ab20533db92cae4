"""The heat map of acceptance: which temperature is on which axis, and where a vector is marked."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("matplotlib")
from analysis.calibration_figures import heat_map

ALPHA = {(0.5, 0.7): 0.11, (0.5, 1.0): 0.22, (0.5, 1.6): 0.33, (1.3, 0.7): 0.64, (1.3, 1.6): 0.86}  # draft, verifier


@pytest.fixture(scope="module")
def axes():
    cells = [{"draft_temperature": s, "verifier_temperature": t, "alpha": a} for (s, t), a in ALPHA.items()]
    figure = heat_map(cells[::-1], "L0", "L1", {"equal": (0.5, 0.5), "joint": (1.3, 1.0), "top_down": (0.9, 1.3)})
    return figure.axes[0]


def words(labels):
    return [label.get_text() for label in labels]


def test_the_draft_is_down_and_its_verifier_across_both_rising_away_from_the_origin(axes):
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("temperature of L1", "temperature of L0")
    assert words(axes.get_xticklabels()) == ["0.7", "1", "1.6"]
    assert words(axes.get_yticklabels()) == ["0.5", "1.3"]
    assert axes.get_xlim()[0] < axes.get_xlim()[1]
    assert axes.get_ylim()[0] < axes.get_ylim()[1]
    assert "L0→L1" in axes.get_title(loc="left")


def test_every_field_holds_the_acceptance_of_its_two_temperatures_and_a_missing_one_is_blank(axes):
    (image,) = axes.images
    shown = np.ma.filled(image.get_array().astype(float), np.nan)
    np.testing.assert_array_equal(shown, [[0.11, 0.22, 0.33], [0.64, np.nan, 0.86]])
    assert image.origin == "lower"
    assert {t.get_position(): t.get_text() for t in axes.texts} == {
        (0, 0): ".11", (1, 0): ".22", (2, 0): ".33", (0, 1): ".64", (2, 1): ".86",
    }  # fmt: skip


def test_a_vector_is_marked_at_its_own_temperatures_between_the_steps_if_need_be(axes):
    marks = {line.get_label(): (line.get_xdata()[0], line.get_ydata()[0]) for line in axes.lines}
    assert marks == {
        "equal": (0.0, 0.0),  # a verifier's temperature below the grid is at its end
        "joint": (1.0, 1.0),
        "top-down": (pytest.approx(1.5), pytest.approx(0.5)),
    }

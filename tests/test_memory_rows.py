"""The memory table of a report: bytes as run.json states them."""

from __future__ import annotations

from analysis.memory_rows import memory_rows, process_peak

LEVELS = [
    {"level": "L0", "weight_bytes": 2_000_000, "cache_bytes": 500_000},
    {"level": "L1", "weight_bytes": 10_000_000, "cache_bytes": 1_500_000},
]
RUN = {
    "memory": {
        "methods": {
            "chain": {"levels": LEVELS, "weight_bytes": 11_000_000, "cache_bytes": 2_000_000},
            "ar": {"levels": LEVELS[1:], "weight_bytes": 10_000_000, "cache_bytes": 1_500_000},
        },
        "resident_bytes": 1_234_000_000,
    }
}


def test_a_row_per_level_and_one_for_what_they_share():
    rows = memory_rows(RUN)
    assert [(r["method"], r["level"]) for r in rows] == [
        ("chain", "L0"),
        ("chain", "L1"),
        ("chain", "together"),
        ("ar", "L1"),
    ]
    assert [r["weights"] for r in rows] == [2.0, 10.0, 11.0, 10.0]  # 1 MB is shared
    assert rows[2]["cache"] == 2.0
    assert "1.23 GB" in process_peak(RUN)


def test_packed_copies_are_shown_where_there_are_some():
    levels = [{**LEVELS[0], "packed_bytes": 3_000_000}, {**LEVELS[1], "packed_bytes": 0}]
    told = {"levels": levels, "weight_bytes": 11_000_000, "cache_bytes": 2_000_000, "packed_bytes": 3_000_000}
    assert [r["packed"] for r in memory_rows({"memory": {"methods": {"chain": told}}})] == [3.0, None, 3.0]
    assert {r["packed"] for r in memory_rows(RUN)} == {None}  # of before they were counted


def test_a_run_that_states_no_memory():
    assert memory_rows({}) == []
    assert memory_rows({"memory": None}) == []
    assert process_peak({}) == ""

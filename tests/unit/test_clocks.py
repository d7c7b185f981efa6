"""Offsets of clocks at any time, from a few readings."""

from __future__ import annotations

import pytest

from master.clocks import Reading, offset_at

S = 1_000_000_000


def test_without_a_reading_nothing_is_known() -> None:
    assert offset_at([], 5) is None


def test_one_reading_holds_and_its_bound_grows_with_its_age() -> None:
    found = offset_at([Reading(0, 700, 50)], 2 * S)
    assert found == Reading(2 * S, 700, 50 + 200_000)


def test_a_steady_drift_is_removed() -> None:
    # 20 ppm over 100 s: 2 ms.
    readings = [Reading(0, 1000, 30_000), Reading(100 * S, 1000 + 2_000_000, 50_000)]
    assert offset_at(readings, 50 * S) == Reading(50 * S, 1_001_000, 40_000)
    assert offset_at(readings, 25 * S) == Reading(25 * S, 501_000, 35_000)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_the_reading_that_says_most_is_taken(order: tuple[int, int, int]) -> None:
    # The one at 0.1 s is fresher, but was made while the machine was busy.
    readings = [Reading(0, 100, 20_000), Reading(S // 10, 900_000, 2_000_000), Reading(2 * S, 100, 20_000)]
    found = offset_at([readings[index] for index in order], S)
    assert found == Reading(S, 100, 20_000)


def test_a_fresh_reading_beats_the_line_between_two_poor_ones() -> None:
    readings = [Reading(0, 0, 900_000), Reading(S, 500, 10_000), Reading(2 * S, 0, 900_000)]
    found = offset_at(readings, S)
    assert found is not None and found.offset_ns == 500 and found.bound_ns == 10_000

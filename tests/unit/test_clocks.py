"""Offsets of clocks at any time, from a few readings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pktswarm.master.cluster.clock_offsets import Reading, off_the_line_ns, offset_at, parted
from pktswarm.master.run.clock_readings import Exchange, read_of
from pktswarm.traffic.protocol import clock_identity

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


def test_readings_that_free_clocks_can_have_are_no_fault() -> None:
    assert parted([]) is None and parted([Reading(0, 5, 1)]) is None
    # 100 ppm over 10 s, and what the two bounds explain.
    assert parted([Reading(0, 0, 20_000), Reading(10 * S, 1_050_000, 30_000)]) is None


@pytest.mark.parametrize("order", [1, -1])
def test_a_clock_that_moved_further_than_free_clocks_do_is_told(order: int) -> None:
    readings = [Reading(0, 0, 20_000), Reading(S, 50, 20_000), Reading(10 * S, -1_051_000, 30_000)]
    assert parted(readings[::order]) == (-1_051_050, 9 * S)


def test_a_poor_reading_in_between_hides_nothing() -> None:
    readings = [Reading(0, 0, 1_000), Reading(S, 4_000_000, 9_000_000), Reading(2 * S, 8_000_000, 1_000)]
    assert parted(readings) == (8_000_000, 2 * S)


def test_a_check_that_is_off_the_line_is_told_by_what_no_bound_explains() -> None:
    readings = [Reading(0, 0, 10_000), Reading(10 * S, 0, 10_000)]
    assert off_the_line_ns(readings, []) == 0
    assert off_the_line_ns(readings, [Reading(5 * S, 25_000, 20_000)]) < 0, "explained"
    assert off_the_line_ns(readings, [Reading(5 * S, 100, 20_000), Reading(6 * S, 70_000, 20_000)]) == 40_000
    assert parted(readings, [Reading(6 * S, 70_000, 20_000)]) is None, "within what free clocks part"


def test_one_clock_does_not_drift_from_itself() -> None:
    readings = [Reading(0, 0, 0), Reading(S, 0, 0)]
    assert offset_at(readings, 90 * S) == Reading(90 * S, 0, 0)
    assert off_the_line_ns(readings, [Reading(S // 2, 0, 0)]) == 0


def exchange(offset_ns: int) -> Exchange:
    """A reading with a round trip of 400 ns."""
    return Exchange(1_000, 1_200 + offset_ns, 5_000, 1_400)


@pytest.mark.parametrize(
    ("ours", "offset_ns", "read"),
    [(True, 150, (0, 0)), (False, 150, (150, 200)), (True, 5_000, (5_000, 200))],
    ids=["one clock", "two clocks", "a copied machine: the reading excludes 0"],
)
def test_a_node_on_the_masters_own_clock_has_no_offset(ours: bool, offset_ns: int, read: tuple[int, int]) -> None:
    found = read_of(exchange(offset_ns), ours)
    assert (found.offset_ns, found.bound_ns) == read


def test_the_identity_of_a_clock_is_the_boot_and_the_time_namespace(tmp_path: Path, monkeypatch: Any) -> None:
    for name in ("BOOT_ID", "TIME_NAMESPACE"):
        monkeypatch.setattr(clock_identity, name, tmp_path / name)
    assert clock_identity.clock_identity() == "", "unknown: no node is on our clock"
    (tmp_path / "BOOT_ID").write_text("b\n")
    assert clock_identity.clock_identity() == "b"
    (tmp_path / "TIME_NAMESPACE").symlink_to("time:[4026531834]")
    assert clock_identity.clock_identity() == "b time:[4026531834]"

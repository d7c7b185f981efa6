"""The numbers of a leg that several nodes count."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from pktswarm.traffic import marks
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.task import Leg

LEG = Leg(3, "s", "tx1", "rx1", "stream", intended_packets=640)


def moved(packets: int, number: int = 3) -> Leg:
    return Leg(number, "s", "tx1", "rx1", "stream", intended_packets=packets, also_at=["rx2"])


def test_only_a_leg_that_several_nodes_count_has_marks_and_each_its_own() -> None:
    assert marks.words(LEG) == 0
    assert marks.places("rx1", [moved(640, 1), LEG, moved(65, 9)]) == {1: (0, 11), 9: (11, 3)}


def test_a_leg_of_which_nobody_knows_how_long_it_is_has_none() -> None:
    with pytest.raises(ValueError, match="nobody knows how many packets it has"):
        marks.words(replace(moved(1), intended_packets=None))
    assert marks.words(replace(LEG, intended_packets=None)) == 0


def test_they_travel_as_the_kernel_wrote_them() -> None:
    assert marks.unpack(marks.pack(struct.pack("=3Q", 1, 0, 1 << 63))) == 1 | 1 << 191


def test_more_than_there_is_room_for_is_refused() -> None:
    many = marks.MOST_WORDS * marks.WORD_BITS
    assert marks.places("rx1", [moved(many - 64)])
    with pytest.raises(BadInput, match=r"rx1: streams = 268,?435,?520: too many packets of streams whose users move"):
        marks.places("rx1", [moved(many)])

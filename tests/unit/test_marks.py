"""The numbers of a leg that several nodes count."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from pktswarm.traffic.counting import sequence_bitmap
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.leg import Leg

LEG = Leg(3, "s", "tx1", "rx1", "stream", intended_packets=640)


def moved(packets: int, number: int = 3) -> Leg:
    return Leg(number, "s", "tx1", "rx1", "stream", intended_packets=packets, handover_targets=["rx2"])


def test_only_a_leg_that_several_nodes_count_has_marks_and_each_its_own() -> None:
    assert sequence_bitmap.words(LEG) == 0
    assert sequence_bitmap.places("rx1", [moved(640, 1), LEG, moved(65, 9)]) == {1: (0, 11), 9: (11, 3)}


def test_a_leg_of_which_nobody_knows_how_long_it_is_has_none() -> None:
    with pytest.raises(ValueError, match="its number of packets must be fixed"):
        sequence_bitmap.words(replace(moved(1), intended_packets=None))
    assert sequence_bitmap.words(replace(LEG, intended_packets=None)) == 0


def test_they_travel_as_the_kernel_wrote_them() -> None:
    assert sequence_bitmap.unpack(sequence_bitmap.pack(struct.pack("=3Q", 1, 0, 1 << 63))) == 1 | 1 << 191


def test_more_than_there_is_room_for_is_refused() -> None:
    many = sequence_bitmap.MOST_WORDS * sequence_bitmap.WORD_BITS
    assert sequence_bitmap.places("rx1", [moved(many - 64)])
    with pytest.raises(BadInput, match=r"rx1: streams = 268,?435,?520: too many packets in streams with handovers"):
        sequence_bitmap.places("rx1", [moved(many)])

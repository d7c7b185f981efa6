"""The counter for kernels that interpret it (32-bit ARM): tests of the counter with this object, and what it lacks.

This machine's kernel compiles it. tests/bare/arm.py counts with it on an emulated board, whose kernel interprets it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pktswarm.nodes import availability, libbpf
from pktswarm.traffic.frames.layout import layout
from pktswarm.traffic.leg import Arrival
from test_bit_flips import (
    test_any_damaged_bit_is_one_altered_or_lost_packet as test_any_damaged_bit_is_one_altered_or_lost_packet,
)
from test_xdp_receiver_frames import test_a_stamp_is_found_in_every_shape as test_a_stamp_is_found_in_every_shape
from test_xdp_receiver_frames import (
    test_malformed_frames_never_stop_the_count as test_malformed_frames_never_stop_the_count,
)
from test_xdp_receiver_times import (
    test_latency_and_jitter_follow_the_stamps as test_latency_and_jitter_follow_the_stamps,
)
from test_xdp_receiver_users import test_each_user_is_counted_by_itself as test_each_user_is_counted_by_itself
from xdp_bench import DROP, PASS, Bench, unmatched
from xdp_frames import a_leg, stamped

pytestmark = [
    pytest.mark.single_frames,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to load XDP programs"),
    pytest.mark.skipif(bool(libbpf.missing()), reason=libbpf.missing()),
]
CALL_TAIL_CALL, CALL_LOOP = b"\x85\0\0\0\x0c\0\0\0", b"\x85\0\0\0\xb5\0\0\0"
"""The instructions for bpf_tail_call() and bpf_loop()."""
BOARD = os.uname_result(("Linux", "board", "6.1.0-50-armmp", "#1", "armv7l"))


@pytest.fixture(scope="module")
def program() -> Path:
    return availability.PLAIN_COUNTER


@pytest.fixture(autouse=True)
def board(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its kernel has no types of its own either, and the interpreter."""
    monkeypatch.setattr(os, "uname", lambda: BOARD)
    monkeypatch.setattr(availability, "CONFIGURATION", tmp_path / "config.gz")
    monkeypatch.setattr(libbpf, "KERNEL_TYPES", tmp_path / "vmlinux")


def test_the_object_has_neither_a_tail_call_nor_a_callback() -> None:
    assert CALL_TAIL_CALL in availability.COUNTER.read_bytes()
    plain = availability.PLAIN_COUNTER.read_bytes()
    assert CALL_TAIL_CALL not in plain
    assert CALL_LOOP not in plain


@pytest.mark.parametrize(("legs", "place"), [(1, 0), (2, 1), (300, 0), (300, 299)])
def test_a_damaged_stamp_belongs_to_the_only_leg_with_its_headers(
    bench: Callable[..., Bench], legs: int, place: int
) -> None:
    made = [a_leg("udp4" if number == place else "udp6", number) for number in range(legs)]
    one, frame = bench(*made), bytearray(stamped(made[place], 5))
    frame[layout(bytes(frame)).payload + 9] ^= 1
    assert one.feed([bytes(frame)]) == {DROP: 1}
    assert [one.tally(number).damaged for number in range(legs)] == [int(number == place) for number in range(legs)]


def test_a_damaged_stamp_of_two_legs_with_the_same_headers_belongs_to_none(bench: Callable[..., Bench]) -> None:
    one, frame = bench(a_leg(number=0), a_leg(number=1)), bytearray(stamped(a_leg(number=1), 5))
    frame[layout(bytes(frame)).payload + 9] ^= 1
    assert one.feed([bytes(frame)]) == {PASS: 1}
    assert one.receiver.figures.unmatched()["damaged"] == 1


def test_fragments_are_not_put_together(bench: Callable[..., Bench]) -> None:
    leg = replace(a_leg(), arrives=Arrival(a_leg().frame["headers"], 0))
    assert bench(leg).feed(unmatched()["fragment"]) == {PASS: 1}

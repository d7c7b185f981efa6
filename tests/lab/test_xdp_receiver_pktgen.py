"""The counting program on pktgen's own header, and on what goes on to a capture."""

from __future__ import annotations

import os
import statistics
import struct
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pktswarm.nodes import libbpf
from pktswarm.traffic.counting.kernel_structs import (
    RawTally,
)
from xdp_bench import (
    DROP,
    PASS,
    Bench,
    a_pktgen_leg,
    by_pktgen,
    fed,
    noise_ns,
)
from xdp_frames import (
    a_leg,
    mended,
    stamped,
)

pytestmark = [
    pytest.mark.single_frames,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to load XDP programs"),
    pytest.mark.skipif(bool(libbpf.missing()), reason=libbpf.missing()),
]


@pytest.mark.kernel
def test_pktgens_numbers_tell_loss_duplication_and_order(bench: Callable[..., Bench]) -> None:
    """They begin at 1. A stamped leg beside, and a frame of pktgen's that is nobody's leg."""
    leg, other = a_pktgen_leg(count_packets=300), a_leg(number=1)
    one = bench(leg, other)
    numbers = [n for n in range(1, 301) if n not in (7, 8, 200)]
    numbers[20:22] = numbers[21], numbers[20]
    assert one.feed(by_pktgen(leg, n) for n in [*numbers, 50, 51]) == {DROP: 299}
    one.feed([stamped(other, 0), by_pktgen(leg, 5)[:30] + bytes([10, 9, 9, 9]) + by_pktgen(leg, 5)[34:]])
    found = one.tally()
    assert (found.packets, found.lost(300), found.duplicated, found.reordered) == (299, 3, 2, 1)
    assert (found.invalid_sequence, found.altered) == (0, 0)
    assert one.tally(1).packets == 1 and one.receiver.figures.unmatched()["other"] == 1


def test_pktgens_32_bits_go_on_beyond_their_end(bench: Callable[..., Bench]) -> None:
    """Numbers grow through 2^32 without loss, and 0 is one like any other."""
    leg = a_pktgen_leg()
    one = bench(leg)
    one.feed(by_pktgen(leg, n) for n in (1, 2))
    raw = one.receiver.program.map("tallies").lookup(struct.pack("=I", 0))
    assert raw is not None
    moved = RawTally.from_buffer_copy(raw)
    moved.next = (1 << 32) - 3
    one.receiver.program.map("tallies").update(struct.pack("=I", 0), bytes(moved))
    one.feed(by_pktgen(leg, n) for n in ((1 << 32) - 2, (1 << 32) - 1, 0, 1, 3, 2, 1))
    found = one.tally()
    assert (found.distinct, found.duplicated, found.reordered, found.invalid_sequence) == (2 + 6, 1, 1, 0)
    assert found.highest == (1 << 32) + 2


def test_a_header_of_pktgens_without_its_magic_is_damaged(bench: Callable[..., Bench]) -> None:
    """A number far ahead is not believed, for nothing protects it."""
    leg = a_pktgen_leg()
    one, frame = bench(leg), by_pktgen(leg, 2)
    one.feed([by_pktgen(leg, 1), frame[:42] + b"\0" + frame[43:], frame[:46] + b"\x80" + frame[47:]])
    found = one.tally()
    assert (found.packets, found.distinct, found.damaged, found.invalid_sequence) == (3, 1, 1, 1)
    assert (found.altered, found.altered_by, found.lost(2)) == (1, {"stamp": 1}, 0)


def test_a_damaged_header_before_pktgens_leaves_its_number(bench: Callable[..., Bench]) -> None:
    leg = a_pktgen_leg()
    one, frame = bench(leg), by_pktgen(leg, 1)
    one.feed([frame[:18] + bytes([frame[18] ^ 1]) + frame[19:], by_pktgen(leg, 2)])  # the IPv4 id
    found = one.tally()
    assert (found.distinct, found.damaged, found.altered_by, found.lost(2)) == (2, 0, {"checksum": 1}, 0)


def test_pktgens_time_is_the_senders_realtime(bench: Callable[..., Bench]) -> None:
    leg = a_pktgen_leg()
    realtime_ns = time.time_ns() - time.monotonic_ns() + 7_000_000_000
    one = bench(leg, realtime_ns={"a": realtime_ns})
    least = [50_000_000 * n for n in range(1, 21)]
    most = fed(one, least, lambda n, time_ns: by_pktgen(leg, 1 + n, time_ns + realtime_ns))
    found, us = one.tally(), 1000  # its times are whole microseconds
    assert found.latency is not None and found.jitter is not None
    assert min(least) < found.latency.min_ns <= min(most) + us and max(least) < found.latency.max_ns <= max(most) + us
    assert found.jitter.sd_ns <= statistics.fmean(e * e for e in noise_ns(least, most)) ** 0.5 + us


@pytest.mark.parametrize(
    ("more", "numbered", "latency"),
    [
        ({"rate_pps": 1000.0}, True, False),
        ({"options": {"flags": ["NO_TIMESTAMP"]}}, True, False),
        ({"options": {"clone_skb": 4}}, False, False),
        ({}, True, True),
    ],
)
def test_what_pktgen_does_not_tell_is_not_counted(
    bench: Callable[..., Bench], more: dict[str, Any], numbered: bool, latency: bool
) -> None:
    leg = a_pktgen_leg(**more)
    one = bench(leg, realtime_ns={"a": time.time_ns() - time.monotonic_ns()})
    one.feed(by_pktgen(leg, n, time.time_ns()) for n in (1, 2, 2))
    found = one.tally()
    assert (found.packets, found.distinct) == (3, 2 if numbered else None)
    assert (found.latency is not None) == (found.jitter is not None) == latency
    (count,) = one.receiver.counts()
    assert ("pktgen writes a frame's time before" in count.note) == (numbered and not latency)


def test_without_the_senders_realtime_pktgens_latency_is_not_invented(bench: Callable[..., Bench]) -> None:
    leg = a_pktgen_leg()
    one = bench(leg)
    one.feed(by_pktgen(leg, n, time.time_ns()) for n in (1, 2))
    assert one.tally().latency is None and one.tally().jitter is not None


@pytest.mark.kernel("7")
@pytest.mark.parametrize("every", [1, 2, 7, 1000])
def test_the_first_of_each_so_many_frames_of_a_leg_goes_on(bench: Callable[..., Bench], every: int) -> None:
    legs = [a_leg(), a_pktgen_leg(1), replace(a_leg("vlan", 2), engine="trafgen")]
    one = bench(*legs, mode="capture", capture_every=every)
    for make, leg in ((stamped, legs[0]), (by_pktgen, legs[1]), (stamped, legs[2])):
        verdicts = one.feed(make(leg, n) for n in range(50))
        assert verdicts[PASS] == -(-50 // every) and one.tally(leg.id).packets == 50


def test_what_the_device_is_to_change_is_no_alteration(bench: Callable[..., Bench]) -> None:
    def routed(n: int, ttl: int) -> bytes:
        frame = bytearray(stamped(leg, n))
        frame[6:12], frame[22] = bytes([2, 0, 0, 0, 0, n]), ttl
        return mended(bytes(frame))

    leg = a_leg(expect={"ttl": 63, "src_mac": None})
    one = bench(leg)
    one.feed([routed(0, 63), routed(1, 63), routed(2, 64), routed(3, 62)])
    assert (one.tally().packets, one.tally().altered, one.tally().altered_by) == (4, 2, {"ttl": 2})


@pytest.mark.kernel
@pytest.mark.skipif(time.clock_gettime_ns(time.CLOCK_TAI) == 0, reason="no TAI clock")
def test_with_ptp_the_stamps_are_of_the_tai_clock(bench: Callable[..., Bench]) -> None:
    """On all nodes the same clock: no offset is needed, and a measured one is not added."""
    leg = a_leg()
    one = bench(leg, tai=True, offsets_ns={"a": 5_000_000_000})
    one.feed([stamped(leg, 0, time.clock_gettime_ns(time.CLOCK_TAI) - 3_000_000)])
    found = one.tally().latency
    assert found is not None and 3_000_000 < found.min_ns < 1_000_000_000
    (count,) = one.receiver.counts()
    assert count.first_ns is not None and abs(count.first_ns - time.time_ns()) < 60e9

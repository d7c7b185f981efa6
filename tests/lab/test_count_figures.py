"""What the counting program makes of times, frame by frame and to the last bit, beside the same reckoning in Python.

The program reads the clock itself; after each frame its last transit time, which is exact, is read from its map.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from pktswarm.nodes import libbpf
from pktswarm.traffic.counting import latency_histogram, users
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.schedule.leg_frames import templates_as_sent
from xdp_counter import Counter
from xdp_frames import CHECKED, ETHERNET, SHAPES, a_leg, stamped

pytestmark = [
    pytest.mark.single_frames,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to load XDP programs"),
    pytest.mark.skipif(bool(libbpf.missing()), reason=libbpf.missing()),
]
MS, SECOND, HOUR = 10**6, 10**9, 3600 * 10**9
MOST_NS = 2**32 - 1
"""A larger difference of two transit times is taken as this."""


@pytest.fixture
def counter(program: Path, tmp_path: Path) -> Iterator[Counter]:
    one = Counter(program, tmp_path, a_leg("udp4"))
    yield one
    one.receiver.restore()


def send_late(counter: Counter, late_ns: int) -> int:
    """A frame that was on its way for `late_ns` and some microseconds; its transit time as the program has it."""
    counter.take(stamped(counter.leg, counter.sent, time.monotonic_ns() - late_ns))
    return int(counter.raw().transit_ns)


@dataclass
class Reckoned:
    """RFC 3550, section 6.4.1 and appendix A.8, and the moments of the differences."""

    pairs: int = 0
    total: int = 0
    squares: int = 0
    rfc3550_16: int = 0
    clipped: int = 0

    def take(self, difference: int) -> None:
        size = min(abs(difference), MOST_NS)
        self.pairs += 1
        self.clipped += abs(difference) > MOST_NS
        self.total += size if difference > 0 else -size
        self.squares += size**2
        self.rfc3550_16 += size - ((self.rfc3550_16 + 8) >> 4)


def reckon(counter: Counter, late_ns: list[int]) -> Reckoned:
    reckoned, before = Reckoned(), send_late(counter, late_ns[0])
    for one in late_ns[1:]:
        transit = send_late(counter, one)
        reckoned.take(transit - before)
        before = transit
    return reckoned


@pytest.mark.parametrize(
    "late_ns",
    [
        [0, 1, 0, 7 * MS, 20 * MS, 3 * MS, 3 * MS],
        # The squares of two such differences are more than 64 bits: 46,000 of 20 ms are, too.
        [0, 4 * SECOND, 0, 4 * SECOND, SECOND, 5 * SECOND],
        [0, 5 * SECOND, 0, 5 * SECOND],
    ],
    ids=["milliseconds", "more than 64 bits", "clipped"],
)
def test_jitter_is_that_of_the_transit_times(counter: Counter, late_ns: list[int]) -> None:
    want, raw = reckon(counter, late_ns), counter.raw()
    assert (raw.jitter_pairs, raw.jitter_sum_ns) == (want.pairs, want.total) == (len(late_ns) - 1, want.total)
    assert raw.jitter_squares_high << 64 | raw.jitter_squares_low == want.squares
    assert raw.jitter_rfc3550_16 == want.rfc3550_16
    assert raw.jitter_clipped == want.clipped == (3 if 5 * SECOND in late_ns[:2] else 0)


def test_the_running_estimate_rounds_as_rfc_3550_does(counter: Counter) -> None:
    """Each rest of sixteenths comes, and one half is rounded up."""
    raw, rests, before = counter.raw(), set(), send_late(counter, 0)
    for number in range(64):
        estimate = int(counter.raw().jitter_rfc3550_16)
        transit = send_late(counter, (number % 5) * 1000)
        raw = counter.raw()
        assert raw.jitter_rfc3550_16 == estimate + abs(transit - before) - ((estimate + 8) >> 4)
        rests.add(estimate % 16)
        before = transit
    assert {one < 8 for one in rests} == {True, False}


def test_each_latency_is_in_the_sum_once_and_as_it_is(counter: Counter) -> None:
    seen = []
    for late_ns in (5 * MS, 2 * MS, 9 * SECOND, 1):
        before = int(counter.raw().latency_sum_ns)
        transit = send_late(counter, late_ns)  # the clocks are the same: it is the latency
        raw = counter.raw()
        seen.append(int(raw.latency_sum_ns) - before)
        assert seen[-1] == transit >= late_ns
        assert (raw.latency_min_ns, raw.latency_max_ns, raw.latencies) == (min(seen), max(seen), len(seen))
    assert counter.raw().negative == 0


@pytest.mark.parametrize("late_ns", [0, 130, 1000, 65_000, MS, 70 * MS, 5 * SECOND, 9 * SECOND])
def test_a_latency_is_in_its_bucket(counter: Counter, late_ns: int) -> None:
    transit = send_late(counter, late_ns)
    found = [index for index, frames in enumerate(counter.buckets()) if frames]
    assert found == [latency_histogram.bucket(transit)]
    assert abs(latency_histogram.middle(found[0]) - transit) <= transit * latency_histogram.LARGEST_ERROR


@pytest.mark.parametrize(("ahead_ns", "negative"), [(40 * MS, 0), (2 * SECOND, 1)])
def test_what_is_earlier_than_the_clocks_bound_is_counted_as_negative(
    program: Path, tmp_path: Path, ahead_ns: int, negative: int
) -> None:
    """Clocks may have drifted since they were read: it is possible still, but a percentile cannot be made of it.

    The frame may wait for a processor before it is counted: that makes it late by no more than the whole took.
    """
    # The drift since then is more than 2 s. Before 0, where this machine was not up: the program computes modulo 2^64.
    armed_ns = time.monotonic_ns() - 5 * HOUR
    counter = Counter(program, tmp_path, a_leg("udp4"), armed_ns, bounds_ns={"a": 50 * MS})
    before_ns = time.monotonic_ns()
    send_late(counter, -ahead_ns)
    took_ns = time.monotonic_ns() - before_ns
    raw, bias_ns = counter.raw(), counter.receiver.matching.expectations[0].bias_ns
    counter.receiver.restore()
    assert 50 * MS <= bias_ns < 51 * MS
    assert (raw.latencies, raw.negative, raw.impossible) == (1, negative, 0)
    assert raw.latency_sum_ns == raw.latency_min_ns == raw.transit_ns
    assert -ahead_ns <= int(raw.transit_ns) <= -ahead_ns + took_ns


def a_leg_of_users() -> Leg:
    headers = [ETHERNET, SHAPES["udp4"][1], {"udp": {"src": {"increment": [5000, 5003]}, "dst": 7}}]
    leg = replace(a_leg("udp4", 0, 120), frame={"headers": headers, "payload": {"fill": 0xA5}})
    (template,) = templates_as_sent(leg).values()
    return replace(leg, users=users.of_template("test", "users", template, "udp.src"))


def test_each_users_latencies_are_its_own(program: Path, tmp_path: Path) -> None:
    leg = a_leg_of_users()
    counter = Counter(program, tmp_path, leg)
    seen = []
    for late_ns in (7 * MS, 3 * MS, 5 * MS):
        counter.take(stamped(leg, counter.sent, time.monotonic_ns() - late_ns, CHECKED))
        seen.append(int(counter.raw().transit_ns))
    columns = counter.receiver.figures.users(0)
    counter.receiver.restore()
    assert columns is not None
    found = {name: columns[name][0] for name in columns if "latency" in name or name == "latencies"}
    assert found == {
        "latencies": 3,
        "latency_sum_ns": sum(seen),
        "latency_min_ns": min(seen),
        "latency_max_ns": max(seen),
    }


@pytest.fixture
def sampling(program: Path, tmp_path: Path) -> Iterator[Counter]:
    one = Counter(program, tmp_path, a_leg("udp4"), timed_every=16)
    if one.receiver.program.timed_every == 1:
        pytest.skip("frames are all timed where the counting takes a lock: several receive queues, or ARM")
    yield one
    one.receiver.restore()


def send_fast(counter: Counter, frames: int) -> None:
    for _ in range(frames):
        counter.take(stamped(counter.leg, counter.sent, time.monotonic_ns() - MS))


def test_of_fast_frames_two_in_a_row_are_timed_and_all_are_counted(sampling: Counter) -> None:
    begun_ns = time.monotonic_ns()
    send_fast(sampling, 3200)
    ticks = (time.monotonic_ns() - begun_ns) // MS + 2  # at most 1,000 a second
    tally, raw = sampling.figures().tally, sampling.raw()
    assert (tally.packets, tally.distinct, tally.lost(3200)) == (3200, 3200, 0)
    assert 400 - 2 <= raw.latencies <= 400 + ticks
    assert tally.latency is not None
    assert tally.latency.frames == raw.latencies < 3200
    assert MS <= tally.latency.min_ns <= tally.latency.p50_ns <= tally.latency.max_ns < SECOND
    # Each group of two is a pair; a frame timed at a tick can be next to one of them.
    assert 200 - 2 <= raw.jitter_pairs <= 200 + ticks
    assert sum(sampling.buckets()) == raw.latencies


def test_the_times_of_the_first_and_of_the_last_frame_are_right_to_a_tick(sampling: Counter) -> None:
    before_ns = time.monotonic_ns()
    send_fast(sampling, 5)
    middle_ns = time.monotonic_ns()
    send_fast(sampling, 1000)
    last_ns = time.monotonic_ns()
    send_fast(sampling, 1)
    after_ns = time.monotonic_ns()
    raw = sampling.raw()
    assert before_ns < raw.first_ns < middle_ns
    assert last_ns - 11 * MS < raw.last_ns < after_ns  # the longest tick is 10 ms


def test_each_frame_of_a_slow_stream_is_timed(sampling: Counter) -> None:
    for _ in range(40):
        send_fast(sampling, 1)
        time.sleep(0.011)  # longer than the longest tick of a kernel
    raw = sampling.raw()
    assert (raw.latencies, raw.jitter_pairs) == (40, 39)


def test_a_pair_has_no_other_packet_of_the_stream_between(sampling: Counter) -> None:
    """The transit times alternate: every pair of neighbours differs by 2 ms, and no other pair does."""
    for number in range(1600):
        late_ns = MS if number % 2 else 3 * MS
        sampling.take(stamped(sampling.leg, sampling.sent, time.monotonic_ns() - late_ns))
    raw = sampling.raw()
    assert raw.jitter_pairs > 90
    assert (raw.jitter_squares_low / raw.jitter_pairs) ** 0.5 > 1.9 * MS

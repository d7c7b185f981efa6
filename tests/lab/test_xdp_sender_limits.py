"""The xdp sender at its limits: full rings, refusals, long frames, users, the death of its process."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pktswarm.nodes import availability
from pktswarm.nodes.xdp_features import features
from pktswarm.traffic.frames import stamp
from pktswarm.traffic.frames.build import build_frame
from pktswarm.traffic.frames.description import FrameDescription
from pktswarm.traffic.schedule import due_times
from pktswarm.traffic.schedule.records import LARGEST_BYTES
from wire import EMULATED, Wire, ip
from xdp_ends import send, start
from xdp_sender_ends import (
    ETHERNET,
    UDP,
    USERS,
    a_leg,
    by_user,
    latest_s,
    mended,
    send_and_listen,
)

pytestmark = [
    pytest.mark.usefixtures("live_frames"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root for namespaces"),
    pytest.mark.skipif(bool(availability.xdp_sender()), reason=availability.xdp_sender()),
]


@pytest.mark.kernel
def test_what_is_intended_is_sent(wire: Wire, tmp_path: Path, engine: str) -> None:
    """Rates, a Poisson process and a steady leg side by side."""
    paces: list[dict[str, Any]] = [
        {"rates": [[0, 1000.0], [10**8, 0], [15 * 10**7, 9000.0]], "rates_period_ns": 2 * 10**8},
        {"rate_pps": 20_000.0, "gap_table": due_times.exponential_gaps()},
        {"rates": [[0, 30_000.0], [10**7, 10.0]], "gap_table": due_times.exponential_gaps(), "seed": 9},
    ]
    legs = [a_leg(number=number, duration_s=1.0, **pace) for number, pace in enumerate(paces)]
    intended = [due_times.intended_packets(leg) for leg in legs]
    # By count, for a busy machine may pause for longer than the grace after a duration.
    counted = [replace(leg, duration_s=None, count_packets=n) for leg, n in zip(legs, intended, strict=True)]
    counts = send(wire, tmp_path, [*counted, a_leg(number=3, count_packets=1000, rate_pps=1000.0)], engine=engine)
    assert [count["sent_packets"] for count in counts] == [*intended, 1000]
    assert wire.settled(sum(intended) + 1000)
    for leg, count in zip(legs, counts[:3], strict=True):
        due_ns = due_times.due_times(leg)
        assert abs(count["seconds"] - float(due_ns[-1] - due_ns[0]) / 1e9) <= latest_s(count)


def test_late_frames_of_a_changing_rate_are_skipped_one_by_one(wire: Wire, tmp_path: Path) -> None:
    leg = a_leg(duration_s=0.2, rates=[[0, 1000.0], [10**8, 20e6]], options={"late": "skip"})
    [count] = send(wire, tmp_path, [leg])
    assert count["skipped_packets"] > 0 and count["sent_packets"] > 0 and wire.settled(count["sent_packets"])
    assert count["sent_packets"] + count["skipped_packets"] <= due_times.intended_packets(leg)


def test_a_new_call_to_the_kernel_loses_and_doubles_nothing(wire: Wire, tmp_path: Path, engine: str) -> None:
    leg = a_leg(count_packets=3000, rate_pps=10_000.0)
    [count], arrived = send_and_listen(wire, tmp_path, [leg], most_repeats=200, engine=engine)
    assert int(count["note"].split(" calls to the kernel")[0].split()[-1]) >= 3000 / 200
    sequences = [found.sequence for frame in arrived if (found := stamp.read_stamp(frame[42:]))]
    assert sequences == list(range(3000)) and count["sent_packets"] == 3000


def test_frames_are_counted_by_user(wire: Wire, tmp_path: Path, engine: str) -> None:
    """Users of one leg, then of one whose field runs backwards over two of every three users, then of none."""
    back = {"ipv4": {"src": {"decrement": ["10.0.0.9", "10.0.0.1"], "step": 6}, "dst": "10.0.0.3"}}
    frame: FrameDescription = {"headers": [ETHERNET, back, UDP], "payload": {}}
    legs = [
        a_leg("udp4 varying", 0, count_packets=1003, rate_pps=20_000.0, users=USERS),
        replace(a_leg("udp4", 1, count_packets=301, size_bytes=300, users=USERS), frame=frame),
        a_leg("udp4 varying", 2, count_packets=100),
    ]
    counts, arrived = send_and_listen(wire, tmp_path, legs, engine=engine)
    assert counts[0]["users"] == [201, 201, 201, 200, 200]
    assert counts[1]["users"] == [0, 150, 0, 0, 151] == by_user([frame for frame in arrived if len(frame) == 296])
    assert counts[2]["users"] is None


@pytest.mark.kernel
def test_frames_by_user_less_those_that_a_full_ring_drops(wire: Wire, tmp_path: Path) -> None:
    wire.receive_in_threads()
    legs = [
        a_leg("udp4 varying", 0, count_packets=40_000, rate_pps=5e6, users=USERS, options={"burst": 512}),
        a_leg("udp4 varying", 1, count_packets=5_000, size_bytes=1000, users=replace(USERS, count=6)),
    ]
    counts, arrived = send_and_listen(wire, tmp_path, legs)
    assert counts[0]["failed_packets"] > 0
    assert [sum(count["users"]) for count in counts] == [count["sent_packets"] for count in counts]
    assert sum(count["sent_packets"] for count in counts) == len(arrived)
    assert counts[0]["users"] == by_user([frame for frame in arrived if len(frame) == 96])
    assert counts[1]["users"] == [*by_user([frame for frame in arrived if len(frame) == 996]), 0]


def test_frames_by_user_less_those_that_the_kernel_refuses(wire: Wire, tmp_path: Path) -> None:
    sizes = {"sizes": [[100, 1], [1000, 1]]}
    leg = a_leg("udp4 varying", 0, size_bytes=1000, count_packets=3000, users=USERS, rate_pps=50_000.0, **sizes)
    [count], arrived = send_and_listen(wire, tmp_path, [leg], before_start=["ip", "link", "set", "tx0", "mtu", "600"])
    assert count["failed_packets"] > 1000 and len(arrived) == count["sent_packets"] > 1000
    assert count["users"] == by_user(arrived)


def test_frames_that_a_full_ring_drops_are_made_up_for(wire: Wire, tmp_path: Path) -> None:
    """The receiving end works in a thread of its own, which cannot keep up: its ring overflows."""
    wire.receive_in_threads()
    legs = [a_leg(number=0, count_packets=150_000), a_leg(number=1, count_packets=50_000, size_bytes=1000)]
    counts = send(wire, tmp_path, legs)
    assert [count["sent_packets"] for count in counts] == [150_000, 50_000]
    assert [count["sent_bytes"] for count in counts] == [150_000 * 96, 50_000 * 996]
    assert all(count["failed_packets"] > 0 for count in counts)
    assert wire.settled(200_000)
    assert wire.counter("rx", "bytes") == 150_000 * 96 + 50_000 * 996


@pytest.mark.kernel("None")
@pytest.mark.parametrize("rate", [None, 10_000.0])
def test_frames_that_the_device_does_not_take_are_not_sent(wire: Wire, tmp_path: Path, rate: float | None) -> None:
    """Without GRO and without an XDP program at its other end a veth takes none."""
    off = ["ip", "netns", "exec", wire.receiver, "ethtool", "-K", "rx0", "gro", "off"]
    legs = [a_leg(number=0, count_packets=500, rate_pps=rate), a_leg(number=1, count_packets=300, rate_pps=rate)]
    counts = send(wire, tmp_path, legs, before_start=off)
    assert [(count["sent_packets"], count["failed_packets"]) for count in counts] == [(0, 500), (0, 300)]
    assert wire.counter("rx") == 0


@pytest.mark.skipif(features(1) is None, reason="the kernel does not tell a driver's XDP features (6.3 does)")
def test_an_interface_that_takes_no_live_frames_is_told_before_the_start(wire: Wire, tmp_path: Path) -> None:
    wire.take_live_frames(False)
    process = start(wire, tmp_path, [a_leg(count_packets=1)])
    text, _ = process.communicate(timeout=30)
    assert process.returncode == 9
    assert text.startswith("EngineError xdp: tx0: its other end takes no live frames (ethtool -K … gro on, or an XDP")


@pytest.mark.kernel
def test_the_longest_frames(wire: Wire, tmp_path: Path) -> None:
    for name, interface in ((wire.sender, "tx0"), (wire.receiver, "rx0")):
        ip("-n", name, "link", "set", interface, "mtu", "3500")
    leg = a_leg(size_bytes=LARGEST_BYTES + 4, count_packets=300, payload={"random": True})
    template = build_frame(leg.frame, leg.size_bytes)
    [count], arrived = send_and_listen(wire, tmp_path, [leg])
    assert count["sent_packets"] == len(arrived) == 300
    assert all(frame == mended(template, frame) for frame in arrived)


@pytest.mark.parametrize(
    ("leg", "why"),
    [
        ({"size_bytes": 1600}, "tx0: udp4.size_bytes = 1600: longer than the interface takes (allowed: up to 1522"),
        ({"size_bytes": 1600, "sizes": [[64, 1], [1600, 1]]}, "udp4.size_bytes = 1600: longer than the interface"),
    ],
)
def test_frames_longer_than_the_mtu_are_refused_before_the_start(
    wire: Wire, tmp_path: Path, leg: dict[str, Any], why: str
) -> None:
    process = start(wire, tmp_path, [a_leg(count_packets=1, **leg)])
    text, _ = process.communicate(timeout=30)
    assert process.returncode == 9 and "BadInput" in text and why in text


@pytest.mark.kernel
def test_frames_that_the_kernel_refuses_are_not_sent(wire: Wire, tmp_path: Path) -> None:
    legs = [a_leg(number=0, size_bytes=1000, count_packets=500), a_leg(number=1, size_bytes=100, count_packets=200)]
    long, short = send(wire, tmp_path, legs, before_start=["ip", "link", "set", "tx0", "mtu", "600"])
    assert (long["sent_packets"], long["failed_packets"]) == (0, 500)
    assert (short["sent_packets"], short["failed_packets"]) == (200, 0)
    assert "Message too long" in long["note"]
    assert wire.settled(200)


def test_a_process_that_dies_is_told(wire: Wire, tmp_path: Path) -> None:
    """Killed at its own hard stop: 30 s after the task's limit, which is over before it began."""
    limit_s = -10.0 if EMULATED else -26.0
    process = start(wire, tmp_path, [a_leg(rate_pps=1000.0, duration_s=60.0)], limit_s=limit_s)
    text, _ = process.communicate(timeout=60)
    assert (
        process.returncode == 9 and f"ended before it was stopped: killed at its limit of {limit_s + 30:.0f} s" in text
    )


@pytest.mark.kernel
def test_it_does_not_outlive_its_guard(wire: Wire, tmp_path: Path) -> None:
    process = start(wire, tmp_path, [a_leg(rate_pps=1000.0, duration_s=60.0)], limit_s=60)
    try:
        deadline = time.monotonic() + 60
        while wire.counter("rx") < 10 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert wire.counter("rx") >= 10
    finally:
        process.kill()
        process.wait()
    deadline, before = time.monotonic() + 5, -1
    while (now := wire.counter("rx")) != before:
        assert time.monotonic() < deadline, "it sends on"
        before = now
        time.sleep(0.3)

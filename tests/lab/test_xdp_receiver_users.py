"""The counting program's users, counted one by one."""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from pktswarm.nodes import libbpf
from pktswarm.traffic.counting import users
from pktswarm.traffic.counting.kernel_structs import (
    RawUserRule,
)
from pktswarm.traffic.frames.build import build_frame
from pktswarm.traffic.frames.description import FrameDescription
from pktswarm.traffic.leg import FlowUsers
from xdp_bench import (
    DROP,
    USERS,
    Bench,
    a_leg_of_users,
    of_user,
)
from xdp_frames import (
    ETHERNET,
    UDP,
    a_leg,
    stamped,
)

pytestmark = [
    pytest.mark.single_frames,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to load XDP programs"),
    pytest.mark.skipif(bool(libbpf.missing()), reason=libbpf.missing()),
]


@pytest.mark.parametrize("name", USERS)
@pytest.mark.parametrize("engine", ["xdp", "trafgen"])
def test_each_user_is_counted_by_itself(bench: Callable[..., Bench], name: str, engine: str) -> None:
    """Two legs with the same users' values: each has its own. What is no user's value is counted beside."""
    legs = [a_leg_of_users(name), a_leg_of_users("ipv6.dst", 1)]
    by_number = engine == "xdp"
    one = bench(replace(legs[0], engine=engine), legs[1])
    assert legs[0].users is not None
    draw, count = random.Random(7), legs[0].users.count
    drawn = [draw.choice([0, count - 1, draw.randrange(count)]) for _ in range(700)]
    one.feed(of_user(legs[0], user, n) for n, user in enumerate(drawn))
    one.feed(of_user(legs[1], 3, n) for n in range(5))
    found = one.receiver.figures.users(0)
    assert found is not None
    expected = Counter(drawn)
    assert found["packets"] == [expected[user] for user in range(count)] + [0]
    assert found["bytes"] == [160 * packets for packets in found["packets"]]
    assert found["distinct"] == (found["packets"] if by_number else [0] * (count + 1))
    assert sum(found["packets"]) == one.tally(0).packets == 700
    theirs = one.receiver.figures.users(1)
    assert theirs is not None and (theirs["packets"][3], sum(theirs["packets"])) == (5, 5)


def test_what_is_no_users_value_is_counted_beside(bench: Callable[..., Bench]) -> None:
    """One below the first, one between two, one beyond the last: an altered address."""
    leg = a_leg_of_users("ipv4.src")
    assert leg.users is not None
    one, count = bench(leg), leg.users.count
    frames = [of_user(leg, -1, 0), of_user(leg, count, 1), of_user(leg, 0, 2), of_user(leg, 0, 2)]
    assert one.feed(frames) == {DROP: 4}
    found = one.receiver.figures.users(0)
    assert found is not None
    assert (found["packets"][count], found["packets"][0], found["distinct"][0]) == (2, 2, 1)
    assert sum(found["packets"]) == one.tally().packets == 4


def test_frames_of_several_sizes_are_of_their_users_too(bench: Callable[..., Bench]) -> None:
    """None of them is altered in length."""
    leg = a_leg_of_users("udp.src", size_bytes=256, sizes=[[128, 3], [256, 1]])
    one = bench(leg)
    one.feed(of_user(replace(leg, size_bytes=size), size % 7, n) for n, size in enumerate((128, 256, 128)))
    found = one.receiver.figures.users(0)
    assert found is not None and (found["packets"][128 % 7], found["packets"][256 % 7]) == (2, 1)
    assert found["bytes"][128 % 7] == 2 * 124 and one.tally().altered == 0


def test_a_users_latency_is_of_its_own_frames(bench: Callable[..., Bench]) -> None:
    leg = a_leg_of_users("udp.src")
    one, now = bench(leg), time.monotonic_ns()
    frames = [of_user(leg, 5, 0, now - 4_000_000_000), of_user(leg, 9, 1, now - 9_000_000_000)]
    one.feed([*frames, of_user(leg, 9, 2, now - 1_000_000_000), frames[1]])
    found = one.receiver.figures.users(0)
    assert found is not None
    assert (found["latencies"][5], found["latencies"][9], found["packets"][9]) == (1, 2, 3)
    assert 4_000_000_000 < found["latency_min_ns"][5] == found["latency_max_ns"][5] < 5_000_000_000
    assert 1_000_000_000 < found["latency_min_ns"][9] < 2_000_000_000 < 9_000_000_000 < found["latency_max_ns"][9]
    assert found["latency_sum_ns"][9] == found["latency_min_ns"][9] + found["latency_max_ns"][9]


def test_the_users_of_a_tunnel_are_found_by_teid(bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch) -> None:
    """The program's part, whatever makes the frames: the rule says in which bits of which field a user's value is."""
    leg = a_leg("gtpu session")
    rule = RawUserRule(0x1200, 4, 0xFFFFFFFF, 100, 0, 3, 0)
    monkeypatch.setattr(users, "rule", lambda *_: rule)
    one = bench(replace(leg, users=FlowUsers(field="gtpu.teid", by="teid", first=0x1200, step=4, count=100)))
    frames = [bytearray(stamped(leg, n)) for n in range(3)]
    frames[1][46:50] = (0x1235).to_bytes(4, "big")
    one.feed(bytes(frame) for frame in frames)
    found = one.receiver.figures.users(0)
    assert found is not None and (found["packets"][13], found["packets"][100]) == (2, 1)


@pytest.mark.kernel
def test_65536_users_on_two_legs_each(bench: Callable[..., Bench]) -> None:
    wide = {"ipv4": {"src": {"increment": ["10.60.0.0", "10.60.255.255"]}, "dst": "10.0.0.2"}}
    legs = [a_leg_of_users("ipv4.src"), a_leg_of_users("udp.src", 1)]
    frame: FrameDescription = {"headers": [ETHERNET, wide, UDP], "payload": {"fill": 0}}
    found = users.of_template("test", "users", build_frame(frame, 164), "ipv4.src")
    legs = [replace(leg, frame=frame, users=found) for leg in legs]
    one = bench(*legs)
    one.feed(of_user(leg, user, 0) for leg in legs for user in (0, 65_535))
    counts = one.receiver.counts()
    for count in counts:
        assert count.users is not None
        packets = users.unpack(count.users["packets"])
        assert len(packets) == 65_537 and sum(packets) == 2 and packets[65_535] == packets[0] == 1
    assert len(json.dumps(counts[0].users)) < 100_000

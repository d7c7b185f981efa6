"""The counting program on altered frames, flows without stamps, and captures."""

from __future__ import annotations

import os
import random
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from pktswarm.nodes import libbpf
from pktswarm.traffic.counting.match import Match
from pktswarm.traffic.frames.build import build_frame
from pktswarm.traffic.frames.description import Headers
from pktswarm.traffic.leg import Leg
from xdp_bench import (
    ARP,
    CHANGES,
    DROP,
    PASS,
    Bench,
    at,
)
from xdp_frames import (
    CHECKED,
    ETHERNET,
    IPV4,
    IPV6,
    UDP,
    A,
    B,
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
def test_damaged_payloads_are_exact(bench: Callable[..., Bench]) -> None:
    """Every size modulo 4, and every bit of some frames: 41 altered means 41."""
    for size_bytes in (164, 165, 166, 167, 1518, 3000):
        leg, draw = a_leg(size_bytes=size_bytes), random.Random(size_bytes)
        frames = [bytearray(stamped(leg, n, magic=CHECKED)) for n in range(300)]
        for n in draw.sample(range(300), 41):
            frames[n][draw.randrange(42 + 22, size_bytes - 4)] ^= 1 << draw.randrange(8)
        one = bench(leg)
        one.feed(bytes(frame) for frame in frames)
        found = one.tally()
        assert (found.altered, found.altered_by) == (41, {"payload": 41}), size_bytes
        assert (found.distinct, found.latency and found.latency.frames) == (300, 259)


@pytest.mark.parametrize("cause", CHANGES)
def test_changed_headers_are_told_by_what_changed(bench: Callable[..., Bench], cause: str) -> None:
    shape, change = CHANGES[cause]
    leg = a_leg(shape)
    one = bench(leg, a_leg("udp4", 1))
    frames = [bytearray(stamped(leg, n)) for n in range(500)]
    for n in random.Random(4).sample(range(500), 17):
        change(frames[n])
    one.feed([*(bytes(frame) for frame in frames), *(stamped(a_leg("udp4", 1), n) for n in range(9))])
    found = one.tally()
    assert (found.packets, found.distinct) == (500, 500)
    assert (found.altered, found.altered_by) == (17, {cause: 17})
    assert one.tally(1).altered == 0


def test_congestion_marks_are_no_alteration_and_a_removed_tag_is(bench: Callable[..., Bench]) -> None:
    leg = a_leg("vlan")
    marked = bytearray(stamped(leg, 0))
    marked[19] |= 3
    untagged = stamped(leg, 1)
    one = bench(leg)
    one.feed([mended(bytes(marked)), untagged[:12] + untagged[16:]])
    assert (one.tally().altered, one.tally().altered_by) == (1, {"vlan": 1})


def test_what_the_device_is_to_change_is_expected(bench: Callable[..., Bench]) -> None:
    """A router: its own MAC, a TTL one less. Here the frames that it did *not* change are the altered ones."""
    leg = a_leg(expect={"ttl": 63, "src_mac": None, "dscp": 0, "dst_ip": "10.9.9.9"})
    routed = bytearray(stamped(leg, 0))
    for offset, data in ((6, b"\2\2\2\2\2\2"), (15, b"\0"), (22, b"\x3f"), (30, b"\x0a\x09\x09\x09")):
        at(routed, offset, data)
    one = bench(leg)
    one.feed([mended(bytes(routed)), stamped(leg, 1)])
    assert (one.tally().altered, one.tally().altered_by) == (1, {"dscp": 1, "ttl": 1, "dst_ip": 1})


def test_varying_fields_may_take_their_values_only(bench: Callable[..., Bench]) -> None:
    shape: Headers = [ETHERNET, IPV4, {"udp": {"src": {"increment": [1024, 1031]}, "dst": 2000}}]
    leg = replace(a_leg(), frame={"headers": shape})
    frames = [bytearray(stamped(leg, n)) for n in range(9)]
    for n, frame in enumerate(frames):
        at(frame, 34, struct.pack(">H", 1024 + n))
    one = bench(leg)
    one.feed(mended(bytes(frame)) for frame in frames)
    assert one.tally().altered_by == {"src_port": 1}


@pytest.mark.kernel
def test_unstamped_legs_are_known_by_their_bytes(bench: Callable[..., Bench]) -> None:
    shapes = {
        "plain": [ETHERNET, IPV4, UDP],
        "ports": [ETHERNET, IPV4, {"udp": {"src": {"random": [3000, 3099]}, "dst": 53}}],
        "arp": [ETHERNET, {"arp": {"sender_mac": A, "sender_ip": "10.0.0.1", "target_ip": "10.0.0.2"}}],
        "long": [ETHERNET, IPV6, UDP],
    }
    templates = {name: build_frame({"headers": shape}, 128) for name, shape in shapes.items()}
    matches = {name: Match.from_template(template) for name, template in templates.items()}
    matches["trace"] = Match.rest(A, B, matches.values())
    legs = [
        Leg(number, name, "a", "b", "stream", match=match.to_data())
        for number, (name, match) in enumerate(matches.items())
    ]
    draw, one = random.Random(5), bench(*legs)
    frames = [templates[name].frame(n, draw) for n in range(200) for name in templates]
    ports = bytearray(templates["ports"].data)
    frames += [bytes(ports[:34] + struct.pack(">H", port) + ports[36:]) for port in (2999, 3000, 3099, 3100)]
    frames += [templates["plain"].data[:-1], templates["plain"].data + b"\0", ARP]
    verdicts = one.feed(frames)
    expected = Counter(next((n for n, m in matches.items() if m.matches(frame)), "none") for frame in frames)
    assert expected == {"plain": 200, "ports": 202, "arp": 200, "long": 200, "trace": 4, "none": 1}
    assert {name: one.tally(number).packets for number, name in enumerate(matches)} == {
        name: expected[name] for name in matches
    }
    assert verdicts == {DROP: 806, PASS: 1}
    assert one.tally(0).distinct is None and one.tally(0).lost(300) is None


def test_a_leg_whose_stamps_cannot_be_found_is_counted_by_its_bytes(bench: Callable[..., Bench]) -> None:
    shape: Headers = [ETHERNET, IPV4, UDP, {"raw": {"hex": "0011223344556677"}}]
    template = build_frame({"headers": shape}, 128)
    leg = replace(a_leg(size_bytes=128), frame={"headers": shape}, match=Match.from_template(template).to_data())
    one = bench(leg)
    assert one.feed([template.data] * 3) == {DROP: 3}
    assert (one.tally().packets, one.tally().distinct) == (3, None)
    (count,) = one.receiver.counts()
    assert "counted by its bytes" in count.note and count.received_packets == 3

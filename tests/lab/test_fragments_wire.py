"""Packets in fragments over a wire: what the Linux kernel puts together, and counts where fragments are lost."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from scapy.layers.inet import IP, UDP

from fragmented import a_leg
from pktswarm.nodes import libbpf
from pktswarm.traffic.counting import users
from pktswarm.traffic.frames import stamp
from pktswarm.traffic.frames.description import Headers
from pktswarm.traffic.leg import Leg
from wire import SO_RCVBUFFORCE, Wire, inside, ip
from xdp_ends import Node, send

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to load XDP programs"),
    pytest.mark.skipif(bool(libbpf.missing()), reason=libbpf.missing()),
]


def test_the_linux_kernel_puts_a_tunnels_fragments_together(wire: Wire, tmp_path: Path) -> None:
    """A socket on port 2152 gets each packet once, whole."""
    ip("-n", wire.receiver, "address", "add", "10.92.0.1/24", "dev", "rx0")
    with inside(wire.receiver), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        channel.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 24)
        channel.bind(("10.92.0.1", 2152))
        channel.settimeout(5)
        wire.take_live_frames(True)
        leg = a_leg("container", "outer", 3000, count_packets=500)
        (count,) = send(wire, tmp_path, [leg])
        messages = [channel.recv(65535) for _ in range(500)]
    assert (count["sent_packets"], count["sent_frames"], count["sent_bytes"]) == (500, 1500, 500 * 2996)
    assert count["users"] == [100] * 5
    found = [IP(message[16:]) for message in messages]
    assert [user.src for user in found] == [f"10.45.0.{1 + number % 5}" for number in range(500)]
    assert all(len(message) == 3000 - 4 - 42 for message in messages)
    stamps = [stamp.read_stamp(bytes(user[UDP].payload)) for user in found]
    assert [one.sequence for one in stamps if one is not None] == list(range(500))
    # The stamp's checksum over the rest of the payload: none of it was swapped or lost.
    rest = [bytes(user[UDP].payload)[stamp.CHECKED_BYTES :] for user in found]
    assert all(
        one is not None and one.checksum == stamp.payload_sum(data) for one, data in zip(stamps, rest, strict=True)
    )


@pytest.mark.alone  # beside other tests the sender can be too slow for the receiving thread to lose anything
def test_packets_are_sent_when_all_their_fragments_are(wire: Wire, tmp_path: Path) -> None:
    """The receiving end works in a thread of its own, which cannot keep up: its ring drops fragments of any packet."""
    wire.take_live_frames(True)
    wire.receive_in_threads()
    timed = a_leg("container", "inner", 3372, count_packets=20_000, options={"burst": 512})
    timed = replace(timed, rate_pps=3e6)
    untimed = replace(a_leg("tunnel", "outer", 1600, count_packets=5_000), id=4, rate_pps=None)
    untimed = replace(untimed, frame={"headers": moved(untimed)})
    with Node(wire, None, [patient(timed), patient(untimed)]) as node:
        counts = send(wire, tmp_path, [timed, untimed])
        counted = {"3": counts[0]["sent_packets"], "4": counts[1]["sent_packets"]}
        assert wire.settled(sum(count["sent_frames"] for count in counts))
        tallies, _, received = node.stop()
    assert counts[0]["failed_packets"] > 0
    assert counted["4"] == 5_000  # what was dropped of it was made up for
    assert {number: one["distinct"] for number, one in tallies.items()} == counted
    for count in counts:
        assert sum(count["users"]) == count["sent_packets"]
        assert count["sent_bytes"] == count["sent_packets"] * (1596 if count["leg"] == 4 else 3368)
    here = {one["leg"]: users.unpack(one["users"]["distinct"])[:5] for one in received}
    assert here == {count["leg"]: count["users"] for count in counts}


def patient(leg: Leg) -> Leg:
    """For a receiver that waits for the rest of a packet however long the sender has to do without the processor: no id
    comes round in these tests."""
    return replace(leg, rate_pps=1000.0, count_packets=1_000_000)


def moved(leg: Leg) -> Headers:
    """Its headers with other addresses outside, so that its fragments are not another leg's."""
    headers = list(leg.frame["headers"])
    headers[1] = {"ipv4": {**headers[1]["ipv4"], "src": "10.92.0.13"}}
    return headers


def test_packets_of_which_the_kernel_refuses_a_fragment_are_not_sent(wire: Wire, tmp_path: Path) -> None:
    wire.take_live_frames(True)
    leg = a_leg("tunnel", "outer", 1600, count_packets=300)
    shrink = ["ip", "link", "set", "tx0", "mtu", "600"]
    (count,) = send(wire, tmp_path, [leg], before_start=shrink)
    # Of each the second fragment, of 116 bytes, goes out.
    assert (count["sent_packets"], count["failed_packets"], count["sent_frames"]) == (0, 300, 300)
    assert (count["sent_bytes"], count["users"]) == (0, [0] * 5)
    assert wire.settled(300) and wire.counter("rx", "bytes") == 300 * 116


@pytest.mark.alone
def test_late_packets_are_skipped_whole(wire: Wire, tmp_path: Path) -> None:
    leg = replace(a_leg("tunnel", "inner", 3372, count_packets=200_000, options={"late": "skip"}), rate_pps=4e6)
    with Node(wire, None, [patient(leg)]) as node:
        (count,) = send(wire, tmp_path, [leg])
        assert wire.settled(count["sent_frames"])
        tallies, _, (received,) = node.stop()
    assert count["skipped_packets"] > 0
    assert count["sent_packets"] + count["failed_packets"] + count["skipped_packets"] == 200_000
    assert tallies["3"]["distinct"] == count["sent_packets"]
    # Of one that failed, two of its three fragments may have gone.
    assert received["received_frames"] == count["sent_frames"]
    assert 0 <= count["sent_frames"] - 3 * count["sent_packets"] <= 2 * count["failed_packets"]

"""Captured frames in a UPF's tunnels against those that were sent: what is the UPF's own, and what is not."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import pytest

from pktswarm.traffic.counting.match import Match, stream_of
from pktswarm.traffic.counting.recount import recount_stream
from pktswarm.traffic.counting.tunnel_fields import shape, without_options
from pktswarm.traffic.frames.stamp import Stamp
from pktswarm.traffic.leg import Arrival, Leg
from pktswarm.traffic.schedule.leg_frames import templates_as_received

STREAM = 7
INSIDE: list[dict[str, Any]] = [
    {"ipv4": {"src": "10.93.0.14", "dst": {"increment": ["10.45.0.1", "10.45.0.3"]}}},
    {"udp": {"src": 2000, "dst": 2000}},
]
ETHERNET = {"ethernet": {"src": "02:92:00:00:00:01", "dst": "02:92:00:00:00:02"}}
TUNNEL: list[dict[str, Any]] = [
    {"ipv4": {"src": "10.92.0.1", "dst": "10.92.0.12"}},
    {"udp": {"src": 2152, "dst": 2152, "checksum": 0}},
    {"gtpu": {"teid": {"increment": [1, 3]}}},
]
LEG = Leg(
    STREAM,
    "down",
    "rx1",
    "tx1",
    "stream",
    engine="xdp",
    frame={"headers": [ETHERNET, *INSIDE]},
    size_bytes=200,
    arrives=Arrival([ETHERNET, *TUNNEL, *INSIDE], 36),
    expect={"ttl": None},
)
(TEMPLATE,) = templates_as_received(LEG).values()
SHAPE = shape(TEMPLATE, LEG.expect)
GTPU, USER = 42, 50
"""Where the GTP-U header begins, and the user's packet."""


def frame(number: int = 0) -> bytes:
    made = bytearray(TEMPLATE.at("gtpu.teid", number % 3))
    stamp = Stamp(STREAM, number, 10**12 + number, 0).pack()
    made[USER + 28 : USER + 28 + len(stamp)] = stamp
    return bytes(made)


def with_container(plain: bytes) -> bytes:
    """As a UPF does it that tells the QFI: with its lengths."""
    made = bytearray(plain[:USER] + bytes([0, 0, 0, 0x85, 1, 0, 9, 0]) + plain[USER:])
    made[GTPU] |= 4
    for at in (16, 38, GTPU + 2):
        struct.pack_into(">H", made, at, struct.unpack_from(">H", made, at)[0] + 8)
    return bytes(made)


def altered(frames: list[bytes]) -> int:
    return recount_stream([SHAPE], len(frames), [without_options(one) for one in frames]).altered


def test_with_and_without_a_container_it_is_the_same_packet() -> None:
    frames = [frame(0), with_container(frame(1))]
    assert without_options(frames[1])[USER:] == frame(1)[USER:]
    assert altered(frames) == 0


@pytest.mark.parametrize("at", [15, 18, 19, 22, 34, 35, 40, 41, USER + 8])
def test_what_is_the_upfs_own_may_differ(at: int) -> None:
    """TOS, id, TTL of the outer header; UDP's source port and checksum; the user's TTL, which `expect` lets change."""
    made = bytearray(with_container(frame()))
    made[at + (8 if at >= USER else 0)] ^= 0x55
    assert altered([bytes(made)]) == 0


@pytest.mark.parametrize("at", [0, 6, 12, 26, 30, 36, 43, 46, USER + 9, USER + 12, USER + 20, -1])
@pytest.mark.parametrize("container", [False, True])
def test_nothing_else_may(at: int, container: bool) -> None:
    """MACs and type; the tunnel's ends, port and message type; the user's protocol, address, port and payload."""
    made = bytearray(with_container(frame()) if container else frame())
    made[at + (8 if at >= USER and container else 0)] ^= 0x55
    assert altered([bytes(made)]) == 1


def test_a_user_s_port_may_differ_as_far_as_it_varies() -> None:
    headers = [ETHERNET, *TUNNEL, INSIDE[0], {"udp": {"src": 2000, "dst": {"increment": [49152, 49155]}}}]
    assert LEG.arrives is not None
    leg = replace(LEG, frame={"headers": [ETHERNET, *headers[4:]]}, arrives=replace(LEG.arrives, headers=headers))
    (template,) = templates_as_received(leg).values()
    whole = shape(template, {"ttl": None})
    for port, like in ((49152, True), (49155, True), (49156, False), (2000, False)):
        made = bytearray(frame())
        struct.pack_into(">H", made, USER + 22, port)
        assert recount_stream([whole], 1, [bytes(made)]).altered == (not like)


@pytest.mark.parametrize("at", [38, GTPU + 2])
def test_a_tunnel_with_a_wrong_length_is_altered(at: int) -> None:
    made = bytearray(frame())
    made[at + 1] ^= 1
    assert altered([bytes(made)]) == 1


def test_a_frame_is_known_by_the_number_in_its_stamp() -> None:
    known = Match(b"", b"", stream=STREAM)
    assert Match.from_data(known.to_data()) == known
    assert known.matches(frame()) and known.matches(with_container(frame()))
    assert not Match(b"", b"", stream=STREAM + 1).matches(frame())
    assert stream_of(frame()[:60]) is None and stream_of(b"") is None and stream_of(TEMPLATE.data) is None

"""The data network's echo: frame in, frame out; the proportion to the packet; and behind the counter, over a wire."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scapy.layers.inet import UDP
from scapy.layers.l2 import Ether

from echo_ends import BACK, SHAPES, UP, End, Near, frame, near_end
from pktswarm.nodes import availability
from pktswarm.traffic.counting import echo, users
from pktswarm.traffic.counting.match import Match
from pktswarm.traffic.frames.build import build_frame
from pktswarm.traffic.frames.description import FrameDescription, Headers
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.schedule.leg_frames import templates_as_sent
from wire import A, B, Wire, ethtool, shown
from xdp_ends import Node, send
from xdp_frames import a_leg, stamped

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root for namespaces"),
    pytest.mark.skipif(bool(availability.xdp_sender()), reason=availability.xdp_sender() or "-"),
]
DROP, PASS, REDIRECT = 1, 2, 4


@pytest.fixture
def near(wire: Wire) -> Iterator[Near]:
    with near_end(wire) as one:
        yield one


# --- frame in, frame out ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("copies", [1, 2])
def test_a_frame_is_turned_round_and_nothing_else(wire: Wire, near: Near, shape: str, copies: int) -> None:
    """Checksums are scapy's, of the turned frame. Where there are copies they get their numbers later."""
    number: dict[str, Any] = {"stream": BACK, "sequence": 0} if copies == 1 else {}
    with End(wire, 100 * copies) as end:
        assert end.run(frame(shape)) == [(REDIRECT, frame(shape, turned=True, **number))]
        flow = end.flow()
    assert (flow["received"], flow["due"], flow["made"], flow["left"]) == (1, copies, len(number) // 2, 0)


NOT_TURNED = ("icmp", "mpls", "ip in ip", "gtpu", "gtpu session", "gtpu6", "no transport", "ethernet")


@pytest.mark.parametrize("shape", NOT_TURNED)
@pytest.mark.parametrize("percent", [50, 500])
def test_test_traffic_that_cannot_be_turned_round_ends_and_is_told(
    wire: Wire, near: Near, shape: str, percent: int
) -> None:
    given = stamped(a_leg(shape, UP), 0)
    with End(wire, percent) as end:
        assert end.run(given) == [(DROP, given)]
        flow = end.flow()
    assert (flow["received"], flow["left"], flow["due"]) == (0, 1, 0)


def no_echo() -> dict[str, bytes]:
    whole, ip_at, stamp_at = frame("udp4"), 14, 42
    return {
        "another stream": frame("udp4", stream=UP + 1),
        "no stamp": whole[:stamp_at] + b"XX" + whole[stamp_at + 2 :],
        "a damaged number": whole[: stamp_at + 9] + b"\x04" + whole[stamp_at + 10 :],
        "a damaged time": whole[: stamp_at + 12] + b"\x91" + whole[stamp_at + 13 :],
        "arp": Ether(src=A, dst="ff:ff:ff:ff:ff:ff", type=0x0806).build() + bytes(46),
        "a fragment": whole[: ip_at + 6] + b"\x20\x00" + whole[ip_at + 8 :],
        "the last fragment": whole[: ip_at + 6] + b"\x00\x07" + whole[ip_at + 8 :],
        "header length 4": whole[:ip_at] + b"\x44" + whole[ip_at + 1 :],
        "udp length 7": whole[:38] + b"\x00\x07" + whole[40:],
        "udp length without room for a stamp": whole[:38] + b"\x00\x19" + whole[40:],
        "tcp data offset 4": frame("tcp4")[:46] + b"\x40" + frame("tcp4")[47:],
        "tcp data offset beyond the end": frame("tcp4")[:46] + b"\xf0" + frame("tcp4")[47:],
        "four tags": whole[:12] + b"\x81\x00\x00\x01" * 4 + whole[12:],
    }


@pytest.mark.parametrize("counted", [False, True])
def test_what_is_no_test_traffic_is_the_kernels(wire: Wire, near: Near, counted: bool) -> None:
    """As it came. Behind the counter, which passes them on itself, only what it has counted comes here, and ends."""
    given = list(no_echo().values())
    with End(wire, 100, counted=counted) as end:
        assert end.run(*given) == [(DROP if counted else PASS, one) for one in given]
        flow = end.flow()
    assert (flow["received"], flow["left"], flow["due"]) == (0, 0, 0)


@pytest.mark.parametrize("shape", ["udp4", "tcp6", "qinq"])
def test_a_frame_cut_anywhere_goes_back_only_if_its_stamp_is_whole(wire: Wire, near: Near, shape: str) -> None:
    whole, turned = frame(shape), frame(shape, turned=True)
    stamp_end = whole.index(struct.pack(">HH", 0x5043, UP)) + 18
    with End(wire, 200) as end:
        for size, (verdict, out) in zip(
            range(14, len(whole)), end.run(*(whole[:size] for size in range(14, len(whole)))), strict=True
        ):
            wanted = (PASS, whole[:size]) if size < stamp_end else (REDIRECT, turned[:size])
            assert (verdict, out) == wanted, size


@pytest.mark.parametrize("shape", ["udp4", "tcp6", "vlan"])
def test_every_changed_byte_ends_in_a_verdict(wire: Wire, near: Near, shape: str) -> None:
    whole = frame(shape)
    changed = [whole[:at] + bytes([whole[at] ^ bits]) + whole[at + 1 :] for at in range(54) for bits in (1, 128, 255)]
    with End(wire, 100) as end:
        for given, (verdict, out) in zip(changed, end.run(*changed), strict=True):
            assert verdict in (PASS, DROP, REDIRECT)
            assert len(out) == len(given) and (verdict == REDIRECT or out == given)


def test_an_interface_that_takes_no_frames_from_a_program_is_told(wire: Wire) -> None:
    ethtool(wire.sender, "-K", "tx0", "gro", "off")
    end = End(wire, 100)
    assert end.process.wait(20) == 9
    refusal = "BadInput rx0: echo: frames cannot be sent back: rx0: its other end takes no live"
    assert end.first_words.startswith(refusal)


# --- what goes out ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("percent", [100, 250])
def test_each_copy_has_a_number_of_its_own_and_right_checksums(
    wire: Wire, near: Near, shape: str, percent: int
) -> None:
    due = 4 * percent // 100
    with End(wire, percent) as end:
        near.send([frame(shape, sequence=number) for number in range(4)])
        heard = near.heard(due)
        count = end.counts()
    assert heard == [frame(shape, turned=True, stream=BACK, sequence=number) for number in range(due)]
    assert (count["sent_packets"], count["sent_bytes"], count["failed_packets"]) == (due, sum(map(len, heard)), 0)


@pytest.mark.parametrize("percent", [100, 200])
def test_a_checksum_that_comes_to_zero_is_written_as_ones_in_udp(wire: Wire, near: Near, percent: int) -> None:
    """RFC 768. The payload's last two bytes are chosen so."""
    plain = Ether(frame("plain", turned=True, stream=BACK, sequence=0, more=b"\0" + b"\0\0"))
    more = b"\0" + struct.pack(">H", plain[UDP].chksum)
    wanted = frame("plain", turned=True, stream=BACK, sequence=0, more=more)
    assert Ether(wanted)[UDP].chksum == 0xFFFF
    with End(wire, percent):
        near.send([frame("plain", more=more)])
        assert near.heard(percent // 100)[0] == wanted


@pytest.mark.parametrize("percent", [100, 200])
def test_frames_that_the_interface_refuses_have_failed(wire: Wire, near: Near, percent: int) -> None:
    """Its other end takes no more frames from a program for a while. Each frame is told as what became of it."""
    copies = percent // 100
    with End(wire, percent) as end:
        heard = []
        for takes in (True, False, True):
            near.take_live_frames(takes)
            near.send([frame("udp4")] * 20)
            heard += near.heard(20 * copies * takes)
        flow, count = end.flow(), end.counts()
    assert (flow["received"], flow["due"]) == (60, 60 * copies)
    assert len(heard) == count["sent_packets"] == 40 * copies and count["failed_packets"] == 20 * copies
    assert count["sent_bytes"] == sum(map(len, heard))


@pytest.mark.alone
@pytest.mark.parametrize("percent", [0, 1, 33, 50, 100, 250, 500])
@pytest.mark.parametrize("alone", [True, False])
def test_the_proportion_is_exact_to_the_packet(wire: Wire, near: Near, percent: int, alone: bool) -> None:
    received = 1037 if percent <= 100 else 237
    due = echo.due(received, percent)
    with End(wire, percent, alone=alone) as end:
        before = _sent_by(wire)
        near.send([frame("udp4", sequence=number) for number in range(received)])
        heard = near.heard(due)
        flow, count = end.flow(), end.counts()
    assert abs(due - received * percent / 100) < 1
    assert (flow["received"], flow["due"], flow["made"], flow["sent"]) == (received, due, due, due)
    assert (count["sent_packets"], count["failed_packets"]) == (due, 0)
    assert _sent_by(wire) - before == due, "by the interface's own counter"
    assert heard == [frame("udp4", turned=True, stream=BACK, sequence=number) for number in range(due)]


def _sent_by(wire: Wire) -> int:
    """What rx0 has sent, as tx0 has taken it."""
    return int(shown(wire.receiver, "rx0")["stats64"]["tx"]["packets"])


@pytest.mark.alone
def test_whole_hundreds_are_exact_whatever_comes_after(wire: Wire, near: Near) -> None:
    with End(wire, 33) as end:
        for hundreds in range(1, 6):
            near.send([frame("udp6", sequence=number) for number in range(100)])
            near.heard(33)
            assert end.flow()["sent"] == 33 * hundreds


# --- behind the counter ----------------------------------------------------------------------------------------------

USERS = 50
USER_ADDRESSES = {"increment": ["10.45.0.1", f"10.45.0.{USERS}"]}
UP_HEADERS: Headers = [
    {"ethernet": {"src": A, "dst": B}},
    {"ipv4": {"src": USER_ADDRESSES, "dst": "10.60.0.1"}},
    {"udp": {"src": 5001, "dst": 5001}},
]
BACK_HEADERS: Headers = [
    {"ethernet": {"src": B, "dst": A}},
    {"ipv4": {"src": "10.60.0.1", "dst": USER_ADDRESSES}},
    {"udp": {"src": 5001, "dst": 5001}},
]


def legs(percent: int, **more: Any) -> tuple[Leg, Leg]:
    """50 users' packets, and what comes back of them."""
    up = _leg(UP_HEADERS, "ipv4.src", id=UP, stream="up", source="a", target="b", **more)
    back = _leg(BACK_HEADERS, "ipv4.dst", id=BACK, stream="up-echo", source="b", target="a")
    return up, replace(back, echo_of=UP, echo_percent=percent)


def _leg(headers: Headers, field: str, **more: Any) -> Leg:
    frame: FrameDescription = {"headers": headers}
    match = Match.from_template(build_frame(frame, 64)).to_data()
    leg = Leg(kind="stream", engine="xdp", frame=frame, size_bytes=64, match=match, **more)
    return replace(leg, users=users.of_template("test", "users", templates_as_sent(leg)[64], field))


@pytest.mark.alone
@pytest.mark.kernel("100")
@pytest.mark.parametrize("wire", [1, 2], indirect=True)
@pytest.mark.parametrize("percent", [50, 100, 250])
def test_counted_sent_back_and_received_back_agree(wire: Wire, tmp_path: Path, percent: int) -> None:
    """Sent by the engine, round trip by the sender's own clock: each frame, each user."""
    up, back = legs(percent, rate_pps=20_000.0, count_packets=20_000)
    with (
        Node(wire, None, [back], "tx0", namespace=wire.sender) as gnb,
        Node(wire, None, [up], echoes=[back]) as core,
    ):
        assert (gnb.attached, core.attached) == ("native", "native")
        (sent,) = send(wire, tmp_path, [up])
        there, _, (came, returned) = core.stop()
        here, unmatched, (counted,) = gnb.stop()
    due = 200 * percent
    assert sent["sent_packets"] == there[str(UP)]["distinct"] == came["received_packets"] == 20_000
    assert (returned["leg"], returned["engine"], returned["sent_packets"]) == (BACK, "echo", due)
    found = here[str(BACK)]
    assert (found["packets"], found["distinct"], found["duplicated"], found["altered"]) == (due, due, 0, 0)
    assert found["latency"]["frames"] == due and 0 < found["latency"]["min_ns"] < 1e9
    assert unmatched["unknown_stream"] == 0
    by_user = users.unpack(counted["users"]["distinct"])
    assert [*returned["users"], 0] == by_user and sum(by_user) == due
    assert min(by_user[:USERS]) > 0.7 * due / USERS and max(by_user) < 1.3 * due / USERS


@pytest.mark.alone
@pytest.mark.parametrize("wire", [1, 2], indirect=True)
@pytest.mark.parametrize("percent", [100, 500])
def test_what_the_device_does_not_take_is_not_sent(wire: Wire, tmp_path: Path, percent: int) -> None:
    """As fast as it goes: every frame is sent and heard, or told as failed. 64 frames are taken at once, five times as
    many go back, and the ring at the other end has 256 places. In threads: see docs/decisions/0005."""
    up, back = legs(percent, duration_s=1.0)
    with (
        Node(wire, None, [back], "tx0", namespace=wire.sender) as gnb,
        Node(wire, None, [up], echoes=[back]) as core,
    ):
        wire.receive_in_threads()
        (sent,) = send(wire, tmp_path, [up])
        _, _, (came, returned) = core.stop()
        here, _, _ = gnb.stop()
    assert sent["sent_packets"] == came["received_packets"] > 10_000
    assert returned["sent_packets"] + returned["failed_packets"] == came["received_packets"] * percent // 100
    found = here[str(BACK)]
    assert found["packets"] == found["distinct"] == returned["sent_packets"] == sum(returned["users"])
    if percent > 100:
        assert returned["failed_packets"] > 0, "the test says nothing"

"""Packets in fragments: made by the XDP sender's program, put together by the counting program. What scapy and tshark
make of the fragments is the judge; test_fragments_wire.py has the Linux kernel.
"""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scapy.layers.inet import IP, UDP, defragment, fragment
from scapy.layers.inet6 import IPv6, IPv6ExtHdrFragment, fragment6

from fragmented import ETHERNET, FIRST_ID, OUTER, SHAPES, TUNNEL_BYTES, UDP_HEADER, Cut, a_leg
from pktswarm.nodes import libbpf
from pktswarm.nodes.receivers.xdp import XdpReceiver
from pktswarm.traffic.capture.files import Packet, write_pcap
from pktswarm.traffic.frames import stamp
from pktswarm.traffic.frames.build import build_frame
from pktswarm.traffic.frames.description import Headers
from pktswarm.traffic.leg import Arrival, Leg
from pktswarm.traffic.protocol.task import ReceiveTask
from pktswarm.traffic.schedule import compile as schedule
from pktswarm.traffic.schedule import fragments
from pktswarm.traffic.schedule.assemble import assemble
from wire import B
from xdp_counter import Counter, change, flipped
from xdp_ends import WAYS, loaded, made_by

pytestmark = [
    pytest.mark.single_frames,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to load XDP programs"),
    pytest.mark.skipif(bool(libbpf.missing()), reason=libbpf.missing()),
]
PASS, DROP = 2, 1


def made(leg: Leg, packets: int) -> list[list[bytes]]:
    """The frames of so many packets, as the sender's program makes them."""
    number = fragments.most_frames(leg)
    with loaded(assemble([schedule.compile_leg(leg, 1)]), way=WAYS[leg.engine]) as program:
        frames = made_by(program, number * packets)
        assert program.legs[0].generated == number * packets
        if number > 1:
            assert program.legs[0].packets == packets
            assert program.legs[0].packet_bytes == packets * (leg.size_bytes - 4)
    return [frames[at : at + number] for at in range(0, len(frames), number)]


def cut_at(leg: Leg) -> int:
    """The offset of the IP header whose packet is cut."""
    assert leg.oversize is not None and leg.oversize.cut is not None
    return fragments.head_of(leg.frame["headers"], leg.oversize.cut)[1]


def cut_packet(frame: bytes, leg: Leg) -> bytes:
    """From the IP header that is cut on, without what pads the frame."""
    at = cut_at(leg)
    return frame[at : at + int.from_bytes(frame[at + 2 : at + 4], "big")]


def put_together(frames: list[bytes], leg: Leg) -> bytes:
    """By scapy."""
    (whole,) = defragment([IP(cut_packet(frame, leg)) for frame in frames])
    return bytes(whole)


def without_time(packet: bytes, leg: Leg) -> bytes:
    """And without the check, which makes up for it in every checksum."""
    at = cut_at(leg)
    data, place = bytearray(packet), stamp.payload_offset(leg.frame["headers"]) - at
    data[place + stamp.CHECK_OFFSET : place + stamp.PLAIN_BYTES] = bytes(8)
    return bytes(data)


def sums_are_right(frame: bytes) -> bool:
    """Of every IPv4 header up to the one that is cut."""
    found = IP(frame[14:])
    made_anew = found.copy()
    del made_anew.chksum
    return bool(IP(bytes(made_anew)).chksum == found.chksum)


@pytest.mark.parametrize("size", [1519, 1600, 2991, 3372])
@pytest.mark.parametrize("cut", ["outer", "inner"])
@pytest.mark.parametrize("shape", SHAPES)
def test_what_scapy_puts_together_is_the_whole_packet(shape: str, cut: Cut, size: int, engine: str) -> None:
    leg = replace(a_leg(shape, cut, size), engine=engine)
    whole = [packet for (packet,) in made(replace(leg, oversize=None), 12)]
    for index, (packet, frames) in enumerate(zip(whole, made(leg, 12), strict=True)):
        assert len(frames) > 1 and all(60 <= len(frame) <= 1514 for frame in frames)
        assert {IP(cut_packet(frame, leg)).id for frame in frames} == {FIRST_ID + index}
        assert all(map(sums_are_right, frames))
        together = put_together(frames, leg)
        assert without_time(together, leg) == without_time(cut_packet(packet, leg), leg)
        user = IP(together[TUNNEL_BYTES[shape] if cut == "outer" else 0 :])
        assert user[UDP].len == len(user) - 20
        right = user.copy()
        del right[UDP].chksum
        assert IP(bytes(right))[UDP].chksum == user[UDP].chksum


@pytest.mark.parametrize("cut", ["outer", "inner"])
def test_random_payload_and_python_agree_with_the_kernel(cut: Cut) -> None:
    leg = a_leg("container", cut, 3000, payload={"random": True})
    for frames in made(leg, 5):
        data = bytearray(build_frame(leg.frame, 3000).data)
        at = fragments.head_of(leg.frame["headers"], cut)[1]
        together = put_together(frames, leg)
        data[at:] = together
        # The outer header of an inner cut, and the ids, are those of the first frame.
        head = bytearray(frames[0][:at])
        assert fragments.frames_of(bytes(data[:at]) + together, fragments.parts_of(leg, 3000))[0][at:] == frames[0][at:]
        for ours, theirs in zip(fragments.frames_of(bytes(data), fragments.parts_of(leg, 3000)), frames, strict=True):
            assert ours[at:] == theirs[at:]
        assert head[12:14] == b"\x08\x00"


# --- the receiver ----------------------------------------------------------------------------------------------------


class Bench:
    """The counting program loaded for a leg, and attached nowhere."""

    def __init__(self, leg: Leg, spool: Path) -> None:
        self.leg = leg
        self.receiver = XdpReceiver(ReceiveTask("lo", B, [leg], 60, mode="count", offsets_ns={"a": 0}), spool)
        self.receiver.prepare()
        self.fd = self.receiver.program.counter_fd

    def feed(self, frames: list[bytes]) -> list[int]:
        return [libbpf.run_once(self.fd, frame)[0] for frame in frames]

    @property
    def tally(self) -> Any:
        return self.receiver.figures.tallies()[self.leg.id]

    @property
    def count(self) -> Any:
        return self.receiver.counts()[0]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Callable[[Leg], Bench]]:
    benches: list[Bench] = []

    def make(leg: Leg) -> Bench:
        benches.append(Bench(leg, tmp_path))
        return benches[-1]

    yield make
    for one in benches:
        one.receiver.restore()


def mixed(packets: list[list[bytes]], order: str) -> list[bytes]:
    frames = [frame for packet in packets for frame in packet]
    if order == "backwards":
        return frames[::-1]
    if order == "mixed":
        random.Random(1).shuffle(frames)
    return frames


@pytest.mark.kernel("[container-", "3372-in order")
@pytest.mark.parametrize("order", ["in order", "backwards", "mixed"])
@pytest.mark.parametrize("size", [1519, 3372])
@pytest.mark.parametrize("cut", ["outer", "inner"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_packet_counts_once_when_all_of_it_has_come(
    bench: Callable[[Leg], Bench], shape: str, cut: Cut, size: int, order: str
) -> None:
    leg = a_leg(shape, cut, size, payload={"random": True})
    one, packets = bench(leg), made(leg, 100)
    one.feed(mixed(packets, order))
    tally, count = one.tally, one.count
    assert (tally.packets, tally.distinct, tally.duplicated, tally.altered) == (100, 100, 0, 0)
    assert tally.bytes == 100 * (size - 4)
    assert count.received_frames == sum(map(len, packets))
    assert count.unfinished_packets == 0
    assert (one.receiver.figures.users(3) or {})["distinct"] == [20] * 5 + [0]
    assert tally.latency.frames == 100
    assert (tally.reordered == 0) is (order == "in order")


def test_what_did_not_all_come_is_lost(bench: Callable[[Leg], Bench]) -> None:
    leg = a_leg("container", "outer", 3372)
    one, packets = bench(leg), made(leg, 30)
    for number, frames in enumerate(packets):
        # Each packet lacks another of its three fragments; another one comes twice instead.
        rest = frames[: number % 3] + frames[number % 3 + 1 :]
        verdicts = one.feed([*rest, rest[0]])
        assert verdicts == [DROP if number % 3 else PASS] * 3
    assert (one.tally.packets, one.count.unfinished_packets) == (0, 30)
    assert one.receiver.figures.fragments()["again"] == 30
    assert sum(one.receiver.figures.unmatched().values()) == 0


def test_a_packet_that_comes_twice_is_duplicated(bench: Callable[[Leg], Bench]) -> None:
    leg = a_leg("tunnel", "inner")
    one = bench(leg)
    for frames in made(leg, 10):
        one.feed(frames * 2)
    assert (one.tally.packets, one.tally.distinct, one.tally.duplicated) == (20, 10, 10)


def test_an_id_that_comes_round_does_not_join_two_packets(bench: Callable[[Leg], Bench]) -> None:
    leg = a_leg("tunnel", "outer")
    headers: Headers = [*SHAPES["tunnel"][:1], {"ipv4": {**OUTER["ipv4"], "id": 7}}, *SHAPES["tunnel"][2:]]
    leg = replace(leg, frame={"headers": headers})
    one, packets = bench(leg), made(leg, 10)
    one.feed([frames[0] for frames in packets])
    assert (one.tally.packets, one.count.unfinished_packets) == (0, 10)
    one.feed([packets[9][1]])
    assert (one.tally.packets, one.tally.highest, one.count.unfinished_packets) == (1, 9, 9)


def test_fragments_that_are_far_apart_are_not_one_packets(bench: Callable[[Leg], Bench]) -> None:
    """At 100,000 packets/s ids come round in 0.66 s: a rest is waited for half as long."""
    leg = replace(a_leg("tunnel", "outer"), rate_pps=100_000)
    one, ((first, second),) = bench(leg), made(leg, 1)
    one.feed([second])
    time.sleep(0.35)
    one.feed([first])
    assert (one.tally.packets, one.count.unfinished_packets) == (0, 2)
    one.feed([second])
    assert (one.tally.packets, one.count.unfinished_packets) == (1, 1)


def test_fragments_of_a_upfs_own_making(bench: Callable[[Leg], Bench]) -> None:
    """By scapy: in pieces of other sizes, the tunnel's or the user's, whatever the gNB's node would have made."""
    leg = a_leg("tunnel", "outer", 3000)
    one = bench(leg)
    for number, (frame,) in enumerate(made(replace(leg, oversize=None), 30)):
        size = (100, 568, 1480)[number % 3]
        if number % 2:
            pieces = [frame[:14] + bytes(piece) for piece in fragment(IP(frame[14:]), size)]
        else:
            pieces = [frame[:50] + bytes(piece) for piece in fragment(IP(frame[50:]), size)]
        one.feed(pieces)
    assert (one.tally.packets, one.tally.distinct, one.tally.altered) == (30, 30, 0)


def test_fragments_of_ipv6(bench: Callable[[Leg], Bench]) -> None:
    """From the source of the packet, or of the tunnel: scapy's."""
    inside = {
        "ipv6": {"src": {"increment": ["2001:db8:45::1", "2001:db8:45:4::1"], "step": 2**64}, "dst": "2001:db8::9"}
    }
    leg = replace(
        a_leg(), frame={"headers": [ETHERNET, inside, UDP_HEADER]}, users=None, oversize=None, size_bytes=3000
    )
    leg = replace(leg, arrives=Arrival(leg.frame["headers"]))
    one = bench(leg)
    for number, (frame,) in enumerate(made(leg, 10)):
        packet = IPv6(frame[14:])
        packet = IPv6(src=packet.src, dst=packet.dst) / IPv6ExtHdrFragment(id=number) / packet.payload
        one.feed([frame[:14] + bytes(piece) for piece in fragment6(packet, 1280)])
    assert (one.tally.packets, one.tally.distinct) == (10, 10)
    assert one.tally.bytes == 10 * (3000 - 4)


@pytest.mark.parametrize("order", ["first", "last"])
def test_a_stray_beyond_the_end_makes_up_for_no_fragment(bench: Callable[[Leg], Bench], order: str) -> None:
    leg = a_leg("container", "outer", 3372)
    one = bench(leg)
    for first, middle, last in made(leg, 10):
        at = int.from_bytes(last[20:22], "big") & 0x1FFF
        stray = middle[:20] + (0x2000 | at + 200).to_bytes(2, "big") + middle[22:]
        one.feed([stray, first, last] if order == "first" else [first, last, stray])
    assert (one.tally.packets, one.count.unfinished_packets) == (0, 10)


def mended(frame: bytearray, at: int) -> bytes:
    """With the right checksum in the IPv4 header there."""
    header = IP(bytes(frame[at : at + 20]))
    del header.chksum
    return bytes(frame[:at] + bytes(header) + frame[at + 20 :])


def test_a_fragment_with_a_damaged_header_is_put_to_no_packet(bench: Callable[[Leg], Bench]) -> None:
    """Its id is another packet's: what came of that one would be whole with it, and both would have a wrong end."""
    leg = a_leg("tunnel", "outer")
    one, ((first, second), (other, end)) = bench(leg), made(leg, 2)
    damaged = bytearray(second)
    damaged[14 + 5] ^= (FIRST_ID ^ FIRST_ID + 1) & 0xFF
    assert damaged[18:20] == end[18:20]
    assert one.feed([first, other, bytes(damaged)]) == [DROP, DROP, PASS]
    assert (one.tally.packets, one.receiver.figures.unmatched()["damaged"]) == (0, 1)
    one.feed([end])
    assert (one.tally.packets, one.tally.altered, one.count.unfinished_packets) == (1, 0, 1)


def test_what_is_changed_in_the_first_fragments_headers_is_altered(bench: Callable[[Leg], Bench]) -> None:
    leg = a_leg("container", "inner")
    one = bench(leg)
    for frames in made(leg, 10):
        first = bytearray(frames[0])
        first[58 + 8] = 60  # the user's TTL
        one.feed([mended(first, 58), frames[1]])
    assert (one.tally.altered, one.tally.altered_by) == (10, {"ttl": 10})


@pytest.mark.parametrize("cut", ["outer", "inner"])
@pytest.mark.parametrize("order", ["in order", "backwards"])
def test_a_byte_that_is_changed_in_any_fragment_is_seen(bench: Callable[[Leg], Bench], cut: Cut, order: str) -> None:
    leg = a_leg("container", cut, 3372, payload={"random": True})
    one, packets = bench(leg), made(leg, 60)
    for number, frames in enumerate(packets):
        which = number % 3
        data = bytearray(frames[which])
        data[120 + number if which == 0 else len(data) - 1 - number] ^= 1 << number % 8
        one.feed(mixed([[*frames[:which], bytes(data), *frames[which + 1 :]]], order))
    assert (one.tally.packets, one.tally.altered, one.tally.altered_by) == (60, 60, {"payload": 60})
    assert one.tally.latency is None


def test_a_packet_that_ends_too_early_is_altered(bench: Callable[[Leg], Bench]) -> None:
    """Its UDP header tells another length than its fragments have."""
    leg = a_leg("alone", "inner")
    one, (packet,) = bench(leg), made(replace(leg, oversize=None), 1)
    short = IP(packet[0][14:])
    short = IP(bytes(short)[:1400])
    short.len = 1400
    one.feed([packet[0][:14] + bytes(piece) for piece in fragment(IP(bytes(short)), 800)])
    assert (one.tally.packets, one.tally.altered_by) == (1, {"length": 1, "payload": 1})


UNSEEN: dict[str, set[tuple[int, int]]] = {
    "alone": set(),
    "tunnel": {
        *((34, bit) for bit in range(16)),  # the outer UDP source port
        *((38, bit) for bit in range(32)),  # its length, and the checksum that it does not have
        *((42, bit) for bit in (4,)),  # GTP-U: a spare bit
        *((44, bit) for bit in range(16)),  # its length
        *((49, bit) for bit in (5, 6, 7)),  # the TEID, where it is another user's
    },
}
"""(byte, bit from there on) of a fragment with the headers; the MAC addresses of later ones are not compared."""


@pytest.mark.parametrize(
    ("shape", "cut", "order"), [("alone", "inner", 1), ("tunnel", "outer", -1), ("tunnel", "inner", 1)]
)
def test_a_damaged_bit_of_any_fragment_is_one_altered_or_lost_packet(
    tmp_path: Path, shape: str, cut: Cut, order: int
) -> None:
    leg = a_leg(shape, cut, 260)
    assert leg.oversize is not None
    leg = replace(leg, oversize=replace(leg.oversize, mtu_bytes=200))
    counter = Counter(XdpReceiver.object_file, tmp_path, leg)
    sizes = [8 * len(frame) for frame in made(leg, 1)[0]]
    packets = iter(made(leg, 2 * sum(sizes)))
    unseen: list[set[int]] = [set(), set()]
    for which, bit in ((which, bit) for which, size in enumerate(sizes) for bit in range(size)):
        frames, before = next(packets), counter.figures().moved
        frames[which] = flipped(frames[which], bit)
        counter.take_packet(frames[::order])
        counter.take_packet(next(packets)[::order])
        seen = change(before, counter.figures().moved)
        assert seen in ({}, {"altered": 1}, {"lost": 1}), (which, bit // 8, bit % 8)
        unseen[which] |= set() if seen else {bit}
    counter.receiver.restore()
    headers = {8 * at + bit for at, bit in UNSEEN[shape]}
    assert unseen[0] == headers - ({8 * 49 + bit for bit in (5, 6, 7)} if cut == "inner" else set())
    assert unseen[1] == {*range(96), *(headers if cut == "inner" else ())} - {8 * 49 + bit for bit in (5, 6, 7)}


def test_fragments_of_others_go_on_to_the_host(bench: Callable[[Leg], Bench]) -> None:
    leg = a_leg("alone", "inner")
    one = bench(leg)
    pieces = fragment(IP(src="10.1.1.1", dst="10.1.1.2") / UDP(sport=1, dport=2) / bytes(3000), 1000)
    assert one.feed([bytes(14 - 2) + b"\x08\x00" + bytes(piece) for piece in pieces]) == [PASS] * len(pieces)
    assert one.receiver.figures.unmatched()["fragment"] == len(pieces)
    assert (one.tally.packets, one.count.unfinished_packets) == (0, 0)


def test_fragments_with_lengths_that_cannot_be(bench: Callable[[Leg], Bench]) -> None:
    leg = a_leg("alone", "inner")
    one, ((first, second),) = bench(leg), made(leg, 1)
    cut_short = first[:800]
    odd = bytearray(first)
    odd[16:18] = (1499).to_bytes(2, "big")  # all but the last have a multiple of 8
    empty = bytearray(second)
    empty[16:18] = (20).to_bytes(2, "big")
    assert one.feed([cut_short, mended(odd, 14), mended(empty, 14)]) == [PASS] * 3
    assert one.receiver.figures.unmatched()["malformed"] == 3
    one.feed([first, second])
    assert one.tally.packets == 1


def test_tshark_puts_them_together(tmp_path: Path) -> None:
    shapes: list[tuple[str, Cut]] = [("container", "outer"), ("container", "inner"), ("alone", "inner")]
    for shape, cut in shapes:
        leg = a_leg(shape, cut, 3372)
        frames = [frame for packet in made(leg, 20) for frame in packet]
        path = tmp_path / "fragments.pcap"
        path.write_bytes(write_pcap([Packet(number * 1000, frame) for number, frame in enumerate(frames)]))
        read = ["tshark", "-r", str(path), "-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE"]
        read += ["-T", "fields", "-e", "udp.dstport", "-e", "udp.length", "-e", "udp.checksum.status"]
        lines = subprocess.run([*read, "-Y", "udp.dstport == 5001"], check=True, capture_output=True, text=True).stdout
        told = [line.split("\t") for line in lines.splitlines()]
        user = 3372 - 4 - 14 - 20 - TUNNEL_BYTES[shape]
        assert len(told) == 20
        assert {one[0].split(",")[-1] for one in told} == {"5001"}
        assert {one[1].split(",")[-1] for one in told} == {str(user)}
        assert {one[2].split(",")[-1] for one in told} == {"1"}  # good
        wrong = [*read, "-Y", "ip.checksum.status == 0 || _ws.malformed || ip.fragment.error"]
        assert not subprocess.run(wrong, check=True, capture_output=True, text=True).stdout

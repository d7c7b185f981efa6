"""The XDP sender over one wire between two throwaway namespaces, and its program on single frames."""

from __future__ import annotations

import math
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

from pktswarm.nodes import availability
from pktswarm.nodes.libbpf import kernel, run_once
from pktswarm.nodes.receivers.xdp import XdpReceiver
from pktswarm.nodes.senders.xdp import TAI_KERNEL
from pktswarm.nodes.xdp_features import features
from pktswarm.traffic.capture.files import Packet, write_pcap
from pktswarm.traffic.frames import stamp
from pktswarm.traffic.frames.build import build_frame
from pktswarm.traffic.frames.template import Checksum, Template, VaryingField, get_bits, put_bits
from pktswarm.traffic.leg import FlowUsers, Leg, Timing
from pktswarm.traffic.preview.due_frames import KernelMarks
from pktswarm.traffic.preview.frames import KernelMaker
from pktswarm.traffic.protocol.task import Clock, ReceiveTask
from pktswarm.traffic.random.xorshift import KernelDraw
from pktswarm.traffic.schedule import compile as schedule
from pktswarm.traffic.schedule import leg_frames, sequence, xdp_limits
from pktswarm.traffic.schedule import pace as schedule_pace
from pktswarm.traffic.schedule.assemble import assemble
from pktswarm.traffic.schedule.records import LARGEST_BYTES, NEVER, TURN_LONG, TURN_OF_ONE, TURN_OVER
from wire import EMULATED, A, B, Wire, ip
from xdp_ends import XDP_DROP, XDP_REDIRECT, loaded, made_by, send, start

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root for namespaces"),
    pytest.mark.skipif(bool(availability.xdp_sender()), reason=availability.xdp_sender()),
]

SLOW = "an emulated processor does not keep up"
ETHERNET = {"ethernet": {"src": A, "dst": B}}
IPV4 = {"ipv4": {"src": "10.0.0.1", "dst": "10.0.0.2"}}
IPV6 = {"ipv6": {"src": "fd00::1", "dst": "fd00::2"}}
UDP, TCP = {"udp": {"src": 1000, "dst": 2000}}, {"tcp": {"src": 1000, "dst": 2000}}
VARYING4 = {
    "ipv4": {
        "src": {"increment": ["10.0.0.1", "10.0.0.9"], "step": 2},
        "dst": {"random": ["10.0.0.0", "10.255.255.255"]},
    }
}
VARYING6 = {"ipv6": {"src": "fd00::1", "dst": {"decrement": ["fd00::ffff:ffff", "fd00::5"], "step": 9}}}
VARYING_UDP = {"udp": {"src": {"random": [0, 65535]}, "dst": {"decrement": [20003, 20000]}}}
VARYING_ETHERNET = {"ethernet": {"src": A, "dst": {"increment": ["02:00:00:00:00:01", "02:ff:00:00:00:00"]}}}
SHAPES: dict[str, list[dict[str, Any]]] = {
    "udp4": [ETHERNET, IPV4, UDP],
    "udp4 varying": [ETHERNET, VARYING4, VARYING_UDP],
    "udp6 varying": [ETHERNET, VARYING6, VARYING_UDP],
    "tcp4 varying": [
        ETHERNET,
        VARYING4,
        {"tcp": {"src": {"random": [1, 9]}, "dst": 2, "seq": {"increment": [0, 2**32 - 1], "step": 2**31 + 1}}},
    ],
    "tcp6": [ETHERNET, IPV6, TCP],
    "icmp": [ETHERNET, IPV4, {"icmp": {"id": 7, "sequence": {"increment": [0, 65535]}}}],
    "icmpv6": [ETHERNET, VARYING6, {"icmpv6": {"id": {"random": [0, 65535]}}}],
    "vlan": [VARYING_ETHERNET, {"vlan": {"id": {"increment": [100, 107]}, "priority": 5}}, VARYING4, VARYING_UDP],
    "mpls": [ETHERNET, {"mpls": {"label": {"random": [16, 1048575]}}}, VARYING4, UDP],
    "odd offset": [
        ETHERNET,
        {"ipv4": {"src": "10.0.0.1", "dst": "10.0.0.2", "ttl": {"increment": [1, 255]}, "dscp": {"random": [0, 63]}}},
        UDP,
    ],
    "checksum given": [ETHERNET, VARYING4, {"udp": {"src": {"random": [0, 65535]}, "dst": 1, "checksum": 0xBAD}}],
    "arp": [
        ETHERNET,
        {"arp": {"sender_mac": A, "sender_ip": "10.0.0.1", "target_ip": {"increment": ["10.0.0.2", "10.0.0.9"]}}},
    ],
}


def a_leg(shape: str = "udp4", number: int = 0, **more: Any) -> Leg:
    frame = {"headers": SHAPES[shape], "payload": more.pop("payload", {"fill": 0xA5})}
    return Leg(number, shape, "a", "b", "stream", engine="xdp", frame=frame, **{"size_bytes": 100, **more})


# --- the program on single frames ----------------------------------------------------------------------------------


def frames(compiled: list[schedule.CompiledLeg], number: int, clock: Clock = "monotonic") -> list[bytes]:
    with loaded(assemble(compiled), clock) as program:
        return made_by(program, number)


def mended(template: Template, frame: bytes) -> bytes:
    """The frame with its checksums computed over whole data."""
    data = bytearray(frame)
    template.mend(data)
    return bytes(data)


def check_fields(template: Template, frame: bytes, index: int) -> None:
    for field in template.fields:
        found = get_bits(frame, field.bit, field.width_bits)
        if field.drawn or field.link is not None:
            assert field.first <= found <= field.last
        else:
            assert found == field.value(index, random.Random())


@pytest.mark.kernel("-100-", "payload1")
@pytest.mark.parametrize("payload", [{"fill": 0xA5}, {"random": True}, {"hex": "00112233445566778899aabbccddee"}])
@pytest.mark.parametrize("size", [100, 101, 1000])
@pytest.mark.parametrize("shape", SHAPES)
def test_frames_are_as_the_template_says(shape: str, size: int, payload: dict[str, Any]) -> None:
    leg = a_leg(shape, 3, size_bytes=size, payload=payload)
    template = build_frame(leg.frame, size)
    assert not xdp_limits.unable(leg)
    made = frames([schedule.compile_leg(leg, 1)], 40)
    start = stamp.payload_offset(leg.frame["headers"])
    for index, frame in enumerate(made):
        assert frame == mended(template, frame)
        check_fields(template, frame, index)
        free = start
        if leg_frames.stamped(leg):
            found = stamp.read_stamp(frame[start:])
            assert found is not None and found[:2] == (3, index)
            free += leg_frames.stamp_bytes(leg)
            if found.checksum is not None:
                assert found.checksum % 0xFFFFFFFF == stamp.payload_sum(frame[free:])
            assert (found.checksum is None) == (free == start + stamp.PLAIN_BYTES)
        constant = [at for at in range(len(frame)) if not start <= at < free and not template.varying_mask[at]]
        sums = {c.offset_bytes + i for c in template.checksums for i in (0, 1)}
        assert all(frame[at] == template.data[at] for at in constant if at not in sums)
    # With less room than that two may be alike: a reading of the clock stands for several frames.
    if payload == {"random": True} and len(made[0]) - free >= 8:
        assert len({frame[free:] for frame in made}) == len(made)


@pytest.mark.kernel("sizes2-payload1")
@pytest.mark.parametrize("payload", [{"fill": 0xA5}, {"random": True}])
@pytest.mark.parametrize("sizes", [[[68, 1]], [[69, 1], [1001, 1]], [[70, 1], [71, 1], [1518, 1]]])
def test_the_receiver_sees_one_altered_byte(sizes: list[list[int]], payload: dict[str, Any], tmp_path: Path) -> None:
    more = {"sizes": sizes, "expect": {"length": None}}  # of several lengths
    leg = a_leg("udp4 varying", 3, size_bytes=sizes[-1][0], payload=payload, **more)
    made = frames([schedule.compile_leg(leg, 1)], 60)
    receiver = XdpReceiver(ReceiveTask("lo", B, [leg], 60, mode="count", offsets_ns={"a": 0}), tmp_path)
    receiver.prepare()
    try:
        program = receiver.program.counter_fd
        for frame in made:
            run_once(program, frame)
        tally = receiver.figures.tallies()[3]
        assert (tally.packets, tally.distinct, tally.altered) == (60, 60, 0), tally.altered_by
        longer = [frame for frame in made if len(frame) > 64] or made
        for altered, frame in enumerate(longer[:8], 1):
            where = random.Random(altered).randrange(60 if len(frame) == 64 else 64, len(frame))
            run_once(program, frame[:where] + bytes([frame[where] ^ 0x10]) + frame[where + 1 :])
            tally = receiver.figures.tallies()[3]
            assert (tally.altered_by or {})["payload"] == tally.altered == altered
    finally:
        receiver.restore()


def test_udp_checksums_in_the_eyes_of_tshark(tmp_path: Path) -> None:
    """Of checked stamps over noise, which nobody here computed."""
    if not shutil.which("tshark"):
        pytest.skip("tshark is not installed")
    made = []
    for shape, size in (("udp4 varying", 101), ("udp6 varying", 999), ("tcp4 varying", 600)):
        leg = a_leg(shape, 3, size_bytes=size, payload={"random": True})
        assert leg_frames.stamp_bytes(leg) == stamp.CHECKED_BYTES
        made += frames([schedule.compile_leg(leg, 1)], 50)
    (tmp_path / "made.pcap").write_bytes(write_pcap([Packet(n, frame) for n, frame in enumerate(made)]))
    options = ["-o", "udp.check_checksum:TRUE", "-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE"]
    fields = [word for name in ("ip", "udp", "tcp") for word in ("-e", f"{name}.checksum.status")]
    command = ["tshark", "-r", str(tmp_path / "made.pcap"), *options, "-T", "fields", *fields]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    assert {line.replace("\t", "") for line in lines} == {"11", "1"} and len(lines) == 150


@pytest.mark.kernel
@pytest.mark.skipif(kernel() < TAI_KERNEL, reason="TAI in XDP programs needs Linux 6.1")
@pytest.mark.parametrize(("clock", "number"), [("monotonic", time.CLOCK_MONOTONIC), ("ptp", time.CLOCK_TAI)])
def test_stamps_tell_the_clock_that_was_asked_for(clock: Clock, number: int) -> None:
    before_ns = time.clock_gettime_ns(number)
    leg = a_leg(size_bytes=200)
    template = build_frame(leg.frame, 200)
    made = frames([schedule.compile_leg(leg, 1)], 20, clock)
    times = [found.time_ns for frame in made if (found := stamp.read_stamp(frame[42:]))]
    times = [before_ns + (time_ns - before_ns) % 2**stamp.NUMBER_BITS for time_ns in times]
    in_order = [before_ns, *times, time.clock_gettime_ns(number)]
    assert len(times) == 20 and in_order == sorted(in_order)
    assert all(frame == mended(template, frame) for frame in made)


def test_a_udp_checksum_of_zero_is_sent_as_ones() -> None:
    def leg(ports: list[int]) -> Leg:
        headers = [ETHERNET, IPV4, {"udp": {"src": {"increment": ports}, "dst": 1}}]
        frame = {"headers": headers, "payload": {}}
        return Leg(0, "s", "a", "b", "stream", frame=frame, size_bytes=100, options={"stamp": False})

    # Each step of the port takes one from the checksum, so this port brings it to 0.
    port = int.from_bytes(build_frame(leg([0, 9]).frame, 100).data[40:42], "big")
    made = frames([schedule.compile_leg(leg([port - 1, port + 1]), 1)], 6)
    assert [frame[40:42].hex() for frame in made] == ["0001", "ffff", "fffe"] * 2


def test_random_fields_reach_all_of_their_range() -> None:
    headers = [ETHERNET, IPV4, {"udp": {"src": {"random": [10, 13]}, "dst": 1}}]
    leg = Leg(0, "s", "a", "b", "stream", frame={"headers": headers}, size_bytes=100)
    ports = [int.from_bytes(frame[34:36], "big") for frame in frames([schedule.compile_leg(leg, 1)], 2000)]
    assert all(400 < ports.count(port) < 600 for port in range(10, 14))


def test_a_checksum_over_another_checksum_stays_right() -> None:
    """An outer UDP checksum over an inner IPv4 and UDP, as in a tunnel; the inner addresses vary, one oddly placed."""
    outer = Checksum(40, ((26, 34), (34, 101)), 17 + 67, True)
    inner_ip, inner_udp = Checksum(61, ((51, 71),)), Checksum(77, ((63, 71), (71, 101)), 17 + 30, True)
    fields = (
        VaryingField("inner src", 63, 4, "random", 0, 2**32 - 1, 1, 0, 32),
        VaryingField("odd byte", 86, 1, "increment", 0, 255, 1, 0, 8),
        VaryingField("teid", 46, 4, "increment", 1, 1000, 1, 0, 32),
    )
    data = bytearray(random.Random(1).randbytes(101))
    for one in (inner_ip, inner_udp, outer):
        one.mend(data)
    template = Template(bytes(data), fields, (outer, inner_ip, inner_udp), (0, 0), bytes(101), bytes(101))
    leg = a_leg(size_bytes=105, options={"stamp": False})
    made = frames([schedule.compile_stream(leg, [template], 1)], 300)
    assert len(set(made)) == 300
    assert all(frame == mended(template, frame) for frame in made)


def test_legs_share_the_interface_by_their_rates() -> None:
    """Due times a second back, so all are due: the order is that of the due times."""
    rates = [100.0, 300.0, 50.0]
    legs = [a_leg(number=number, rate_pps=rate) for number, rate in enumerate(rates)]
    made = frames([schedule.compile_leg(leg, 1) for leg in legs], 450)
    numbers = [found.stream for frame in made if (found := stamp.read_stamp(frame[42:]))]
    assert [numbers.count(number) for number in range(3)] == [100, 300, 50]
    assert sorted(numbers[:9]) == [0, 0, 1, 1, 1, 1, 1, 1, 2]


@pytest.mark.kernel
def test_sizes_mix_by_their_weights_and_each_frame_is_whole() -> None:
    leg = a_leg("udp4 varying", 3, size_bytes=1518, sizes=[[64, 7], [594, 4], [1518, 1]], payload={"random": True})
    made = frames([schedule.compile_leg(leg, 1)], 1200)
    templates = {size - 4: build_frame(leg.frame, size) for size in (64, 594, 1518)}
    for index, frame in enumerate(made):
        assert frame == mended(templates[len(frame)], frame)
        check_fields(templates[len(frame)], frame, index)
        found = stamp.read_stamp(frame[42:])
        assert found is not None and found.sequence == index
    shares = [sum(len(frame) == size for frame in made) for size in (60, 590, 1514)]
    assert 620 < shares[0] < 780 and 330 < shares[1] < 470 and 60 < shares[2] < 140


OUTER = [ETHERNET, IPV4, {"udp": {"src": 2152, "dst": 2152}}]
TEID = {"gtpu": {"teid": {"increment": [1, 7]}}}
LINKED4 = {
    "ipv4": {
        "src": {"with": "gtpu.teid", "increment": ["10.60.0.1", "10.60.0.31"], "step": 5},
        "dst": {"list": ["10.9.0.1", "192.168.7.9", "10.9.0.2"]},
    }
}
LINKED6 = {
    "ipv6": {"src": {"with": "gtpu.teid", "list": [f"fd00::{n}:9" for n in (5, 1, 7, 9, 2, 4, 6)]}, "dst": "fd00::2"}
}
SESSION = [{"gtpu_options": {}}, {"pdu_session": {"qfi": {"pick": [1, 5, 9], "weights": [2, 1, 4]}}}]
NEW_SHAPES: dict[str, list[dict[str, Any]]] = {
    "gtpu": [*OUTER, TEID, LINKED4, VARYING_UDP],
    "gtpu session": [*OUTER, TEID, *SESSION, LINKED6, TCP],
    "gtpu outer without": [ETHERNET, IPV4, {"udp": {"src": 2152, "dst": 2152, "checksum": 0}}, TEID, LINKED4, UDP],
    "gtpu in gtpu": [
        *OUTER,
        TEID,
        {"ipv6": {"src": {"with": "3.gtpu.teid", "increment": ["fd00::1", "fd00::7"]}, "dst": "fd00::9"}},
        {"udp": {"src": 2152, "dst": 2152}},
        {"gtpu": {"teid": {"with": "3.gtpu.teid", "decrement": [9, 3]}}},
    ],
    "users drawn": [*OUTER, {"gtpu": {"teid": {"random": [1, 7]}}}, LINKED4, UDP],
    "users by weight": [
        *OUTER,
        {"gtpu": {"teid": {"pick": [11, 12, 13], "weights": [1, 1, 5]}}},
        {"ipv4": {"src": {"with": "gtpu.teid", "decrement": ["10.60.0.9", "10.60.0.7"]}, "dst": "10.9.0.1"}},
        {"udp": {"src": {"with": "4.ipv4.src", "list": [70, 60, 50]}, "dst": 2}},
    ],
    "users in turns, of several servers and ports": [
        *OUTER[:-1],
        {"udp": {"src": {"with": "gtpu.teid", "wrap": True, "increment": [49152, 49155]}, "dst": 2152, "checksum": 0}},
        {"gtpu": {"teid": {"increment": [11, 16], "every": 3}}},
        {
            "ipv4": {
                "src": {"with": "gtpu.teid", "increment": ["10.60.0.1", "10.60.0.6"]},
                "dst": {"with": "2.udp.src", "wrap": True, "list": ["10.9.0.7", "10.9.0.1", "10.9.0.4"]},
            }
        },
        {"udp": {"src": {"increment": [70, 73], "every": 18}, "dst": 2}},
    ],
    "wrong sums": [
        ETHERNET,
        {"ipv4": {**VARYING4["ipv4"], "checksum": {"off_by": 1}}},
        {"udp": {**VARYING_UDP["udp"], "checksum": {"off_by": -7}}},
    ],
    "wrong sum inside": [
        *OUTER,
        TEID,
        {"ipv4": {**LINKED4["ipv4"], "checksum": {"off_by": 0x1234}}},
        {"udp": {**VARYING_UDP["udp"], "checksum": {"off_by": 65534}}},
    ],
    "wrong lengths": [
        ETHERNET,
        {"ipv4": {**VARYING4["ipv4"], "length": {"off_by": -4}}},
        {"udp": {**VARYING_UDP["udp"], "length": {"off_by": 3}}},
    ],
    "wrong lengths inside": [
        *OUTER,
        {"gtpu": {"teid": 5, "length": {"off_by": 1}}},
        {"ipv6": {**LINKED6["ipv6"], "src": "fd00::1", "length": {"off_by": -1}}},
        VARYING_UDP,
    ],
}


@pytest.mark.kernel("161", "payload1", "gtpu")
@pytest.mark.parametrize("payload", [{"fill": 0xA5}, {"random": True}])
@pytest.mark.parametrize("size", [160, 161])
@pytest.mark.parametrize("shape", [*SHAPES, *NEW_SHAPES])
def test_frames_are_the_templates_byte_for_byte(shape: str, size: int, payload: dict[str, Any]) -> None:
    headers = {**SHAPES, **NEW_SHAPES}[shape]
    frame = {"headers": headers, "payload": payload}
    leg = Leg(0, shape, "a", "b", "stream", frame=frame, size_bytes=size, options={"stamp": False})
    assert not xdp_limits.unable(leg)
    template, compiled = build_frame(frame, size), schedule.compile_leg(leg, 5)
    draw = KernelDraw(compiled.record.random)
    assert frames([compiled], 100) == [template.frame(index, draw) for index in range(100)]


@pytest.mark.parametrize("sizes", [{}, {"sizes": [[160, 3], [301, 2]]}, {"sizes": [[301, 1]], "sizes_in_turn": True}])
@pytest.mark.parametrize("payload", [{"fill": 0xA5}, {"random": True}])
@pytest.mark.parametrize("shape", [*SHAPES, *NEW_SHAPES])
def test_frames_are_those_of_a_preview(shape: str, payload: dict[str, Any], sizes: dict[str, Any]) -> None:
    frame = {"headers": {**SHAPES, **NEW_SHAPES}[shape], "payload": payload}
    leg = Leg(3, shape, "a", "b", "stream", engine="xdp", frame=frame, size_bytes=301, seed=7, **sizes)
    made = frames([schedule.compile_leg(leg, schedule_pace.seed_of(leg))], 60)
    assert [len(one) + 4 for one in made] == KernelMarks(leg).take(60)[0].tolist()
    maker, start = KernelMaker(leg), stamp.payload_offset(frame["headers"])
    for one in made:
        found = stamp.read_stamp(one[start:])  # the time in it is the only thing that a preview does not know
        assert maker.frame(found.time_ns if found else 0, len(one) + 4, 0) == one


@pytest.mark.parametrize("shape", NEW_SHAPES)
def test_a_stamp_leaves_every_checksum_as_right_or_wrong_as_it_was(shape: str) -> None:
    frame = {"headers": NEW_SHAPES[shape], "payload": {"random": True}}
    leg = Leg(3, shape, "a", "b", "stream", frame=frame, size_bytes=161)
    template, start = build_frame(frame, 161), stamp.payload_offset(frame["headers"])
    for index, one in enumerate(frames([schedule.compile_leg(leg, 5)], 50)):
        found = stamp.read_stamp(one[start:])
        assert found is not None and found[:2] == (3, index)
        assert one == mended(template, one)


def test_a_udp_checksum_that_would_be_wrong_as_zero_is_sent_as_ones() -> None:
    def leg(first: int, last: int) -> Leg:
        udp = {"src": {"increment": [first, last]}, "dst": 1, "checksum": {"off_by": 9}}
        frame = {"headers": [ETHERNET, IPV4, {"udp": udp}], "payload": {}}
        return Leg(0, "s", "a", "b", "stream", frame=frame, size_bytes=100, options={"stamp": False})

    port = int.from_bytes(build_frame(leg(0, 9).frame, 100).data[40:42], "big")
    made = frames([schedule.compile_leg(leg(port - 1, port + 1), 1)], 6)
    assert [frame[40:42].hex() for frame in made] == ["0001", "ffff", "fffe"] * 2


def test_sizes_in_turn() -> None:
    leg = a_leg("udp4 varying", size_bytes=1518, sizes=[[64, 1], [1518, 2], [512, 1]], sizes_in_turn=True)
    made = frames([schedule.compile_leg(leg, 1)], 9)
    assert [len(frame) + 4 for frame in made] == [64, 1518, 1518, 512, 64, 1518, 1518, 512, 64]
    assert all(frame == mended(build_frame(leg.frame, len(frame) + 4), frame) for frame in made)


def test_legs_with_lists_and_sizes_keep_to_their_own_part_of_the_table() -> None:
    ports = {"src": {"pick": [700, 65535, 80, 9000]}, "dst": {"with": "udp.src", "increment": [1, 4]}}
    headers = [ETHERNET, IPV4, {"udp": ports}]
    leg = Leg(0, "s", "a", "b", "stream", size_bytes=110, frame={"headers": headers, "payload": {}})
    other = a_leg(size_bytes=100, sizes=[[64, 1], [100, 1]], number=1)
    made = [frame for frame in frames([schedule.compile_leg(one, 1) for one in (other, leg)], 400) if len(frame) == 106]
    pairs = {(int.from_bytes(frame[36:38], "big"), int.from_bytes(frame[34:36], "big")) for frame in made}
    assert pairs == {(1, 700), (2, 65535), (3, 80), (4, 9000)}


# --- when frames are due -------------------------------------------------------------------------------------------


# --- sequences -----------------------------------------------------------------------------------------------------

PORT_USERS = {"udp": {"src": {"increment": [5000, 5006]}, "dst": 2000}}
SEQUENCE_SHAPES: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "udp4": ("udp.src", [ETHERNET, VARYING4, PORT_USERS]),
    "udp6": ("udp.src", [ETHERNET, IPV6, PORT_USERS]),
    "tcp4": ("tcp.dst", [ETHERNET, IPV4, {"tcp": {"src": 1, "dst": {"list": [9, 8, 7, 60000, 5, 4, 3]}}}]),
    "tcp6": ("tcp.dst", [ETHERNET, IPV6, {"tcp": {"src": 1, "dst": {"decrement": [9, 3]}}}]),
    "vlan": (
        "ipv4.src",
        [
            ETHERNET,
            {"vlan": {"id": 9}},
            {"ipv4": {"src": {"increment": ["10.0.0.1", "10.0.0.7"]}, "dst": "10.1.1.1"}},
            UDP,
        ],
    ),
    "gtpu": ("gtpu.teid", [*OUTER, TEID, LINKED4, VARYING_UDP]),
    "gtpu session": ("gtpu.teid", [*OUTER, TEID, *SESSION, LINKED6, TCP]),
    "gtpu outer without": (
        "gtpu.teid",
        [ETHERNET, IPV4, {"udp": {"src": 2152, "dst": 2152, "checksum": 0}}, TEID, LINKED4, UDP],
    ),
    "gtpu in gtpu": ("3.gtpu.teid", NEW_SHAPES["gtpu in gtpu"]),
    "wrong on purpose": (
        "udp.src",
        [
            ETHERNET,
            {"ipv4": {**IPV4["ipv4"], "checksum": {"off_by": 1}}},
            {"udp": {**PORT_USERS["udp"], "length": {"off_by": 3}}},
        ],
    ),
    "no user": ("", [ETHERNET, IPV4, UDP]),
    "icmpv6": ("icmpv6.id", [ETHERNET, IPV6, {"icmpv6": {"id": {"increment": [1, 7]}}}]),
}


def a_sequence(shape: str, sizes: list[int], **more: Any) -> tuple[Leg, sequence.Records]:
    user_field, headers = SEQUENCE_SHAPES[shape]
    draw = random.Random(7)
    users = [draw.randrange(7) if user_field else 0 for _ in sizes]
    records = sequence.make([1000 * number for number in range(len(sizes))], users, sizes)
    leg = Leg(
        3,
        shape,
        "a",
        "b",
        "stream",
        frame={"headers": headers, "payload": {}},
        size_bytes=max(sizes),
        sizes=sequence.sizes_bytes(records),
        sequence_file="leg-3.sequence",
        user_field=user_field,
        count_packets=len(sizes),
        intended_packets=len(sizes),
    )
    return replace(leg, **more), records


def expected(leg: Leg, records: sequence.Records) -> list[bytes]:
    """Each as the template of its size has it, its counters but the user's one further with each frame."""
    draw, made = KernelDraw(schedule.compile_leg(leg, 5, sequence=records).record.random), []
    for index, record in enumerate(records):
        template = build_frame(leg.frame, int(record["frame_bytes"]) + 4)
        data, positions = bytearray(template.data), list[int]()
        for one in template.fields:
            own = int(record["user"]) if one.name == leg.user_field else None
            linked = positions[one.link] if one.link is not None else own
            positions.append(one.position(index, draw) if linked is None else linked)
            put_bits(data, one.bit, one.width_bits, one.at(positions[-1]))
        made.append(mended(template, bytes(data)))
    return made


SOME_SIZES = [200, 1514, 161, 160, 1514, 173, 999, 1000, 160, 512, 201, 1513, 160, 1514] * 4


@pytest.mark.parametrize("shape", SEQUENCE_SHAPES)
def test_frames_of_a_sequence_are_the_templates_of_their_sizes_and_users(shape: str) -> None:
    leg, records = a_sequence(shape, SOME_SIZES, options={"stamp": False})
    assert not xdp_limits.unable(leg)
    made = frames([schedule.compile_leg(leg, 5, sequence=records)], len(records))
    assert made == expected(leg, records)


@pytest.mark.parametrize("shape", SEQUENCE_SHAPES)
def test_stamped_frames_of_a_sequence_keep_their_checksums(shape: str) -> None:
    leg, records = a_sequence(shape, SOME_SIZES)
    start = stamp.payload_offset(leg.frame["headers"])
    for index, one in enumerate(frames([schedule.compile_leg(leg, 5, sequence=records)], len(records))):
        template = build_frame(leg.frame, len(one) + 4)
        found = stamp.read_stamp(one[start:])
        assert found is not None and found[:2] == (3, index)
        assert one == mended(template, one)


@pytest.mark.skipif(not shutil.which("tshark"), reason="tshark is not there")
@pytest.mark.parametrize("shape", ["udp4", "udp6", "tcp4", "tcp6", "gtpu", "gtpu session", "gtpu in gtpu"])
def test_lengths_and_checksums_of_a_sequence_in_the_eyes_of_tshark(shape: str, tmp_path: Path) -> None:
    leg, records = a_sequence(shape, SOME_SIZES)
    made = frames([schedule.compile_leg(leg, 5, sequence=records)], len(records))
    (tmp_path / "made.pcap").write_bytes(write_pcap([Packet(n, one) for n, one in enumerate(made)]))
    options = [w for name in ("ip", "udp", "tcp") for w in ("-o", f"{name}.check_checksum:TRUE")]
    fields = ["ip.checksum.status", "udp.checksum.status", "tcp.checksum.status", "_ws.malformed", "frame.len"]
    command = ["tshark", "-r", str(tmp_path / "made.pcap"), *options, "-T", "fields"]
    command += [word for name in fields for word in ("-e", name)]
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = [line.split("\t") for line in told.stdout.splitlines()]
    assert [int(row[4]) for row in rows] == records["frame_bytes"].tolist()
    for row in rows:
        assert set("".join(row[:3]).replace(",", "")) == {"1"}, "1 is good, 0 bad, 2 not checked"
        assert row[3] == ""


@pytest.mark.parametrize("shape", SEQUENCE_SHAPES)
def test_frames_of_a_sequence_are_those_of_a_preview(shape: str) -> None:
    leg, records = a_sequence(shape, SOME_SIZES)
    maker, start = KernelMaker(leg), stamp.payload_offset(leg.frame["headers"])
    made = frames([schedule.compile_leg(leg, schedule_pace.seed_of(leg), sequence=records)], len(records))
    for one, user in zip(made, records["user"].tolist(), strict=True):
        found = stamp.read_stamp(one[start:])
        assert maker.frame(found.time_ns if found else 0, len(one) + 4, user) == one


def test_a_sequence_and_streams_keep_to_their_own_records() -> None:
    one, first = a_sequence("udp4", [200, 100, 300], options={"stamp": False})
    two, second = a_sequence("tcp4", [400, 500], options={"stamp": False})
    compiled = [schedule.compile_leg(leg, 5, sequence=records) for leg, records in ((one, first), (two, second))]
    made = frames(compiled, 5)
    assert sorted(made) == sorted([*expected(one, first), *expected(two, second)])


def due_in_the_kernel(leg: Leg, most: int) -> tuple[list[int], int]:
    """Each frame's due time, from the start, which is so long ago that nothing waits: an hour, or when the machine came
    up. Ends where the leg does, or with what is due by now: the second figure.
    """
    whole = assemble([schedule.compile_leg(leg, schedule_pace.seed_of(leg))])
    now_ns = time.monotonic_ns()
    start_ns = max(1, now_ns - 4000 * 10**9)
    due = []
    with loaded(whole, start_ns=start_ns) as program:
        program.legs[0].give_up_ns = NEVER
        while len(due) < most and program.state.due_ns[0] < now_ns:
            due_ns = program.state.due_ns[0]
            verdict, _ = run_once(program.fd, bytes(96))
            if verdict == XDP_REDIRECT:
                due.append(due_ns - start_ns)
            assert not program.state.broken
    return due, now_ns - start_ns


def test_a_turn_of_one_ends_with_its_first_frame() -> None:
    legs = [a_leg(number=number, rates=[[0, 1000.0]], count_packets=3) for number in range(2)]
    whole = assemble([schedule.compile_leg(leg, schedule_pace.seed_of(leg)) for leg in legs])
    with loaded(whole, start_ns=max(1, time.monotonic_ns() - 10**9)) as program:
        program.state.turn = TURN_OF_ONE
        assert [run_once(program.fd, bytes(96))[0] for _ in range(3)] == [XDP_REDIRECT, XDP_DROP, XDP_DROP]
        assert program.state.turn == TURN_OVER
        program.state.turn = TURN_LONG
        verdicts = [run_once(program.fd, bytes(96))[0] for _ in range(8)]
        assert verdicts.count(XDP_REDIRECT) == 5, "each of the two legs' three frames, once"


WALK = [[n * 5_000_000, 80_000.0 + 40_000 * math.sin(n / 16)] for n in range(100)]
SHORT = [[n * 1_000_000, 90.0 + 80 * math.sin(n / 16)] for n in range(100)]
PACES: dict[str, dict[str, Any]] = {
    "steady": {"rates": [[0, 12_345.6]]},
    "walk": {"rates": WALK, "rates_period_ns": 500_000_000},
    "shorter than gaps": {"rates": SHORT, "rates_period_ns": 100_000_000, "duration_s": 20.0},
    "silence first": {"rates": [[0, 0], [5 * 10**8, 9e3], [9 * 10**8, 0], [10**9, 3.0]], "rates_period_ns": 2 * 10**9},
    "silence at the end": {"rates": [[0, 9e3], [10**8, 0]]},
    "far apart": {"rates": [[0, 0.1], [2 * 10**8, 2e6], [2 * 10**8 + 500_000, 1.0]], "rates_period_ns": 3 * 10**8},
    "burst": {"rates": [[0, 1000.0], [123_456_789, 33_333.3]], "options": {"burst": 7}},
    "100 million": {"rates": [[0, 1e8], [20_000, 7e7]], "rates_period_ns": 33_333, "duration_s": 0.0002},
    "a count": {"rates": [[0, 1000.0]], "count_packets": 77},
    "slow": {"rates": [[0, 0.1], [10**11, 0.04]], "duration_s": 3000.0},
}


@pytest.mark.kernel("burst")
@pytest.mark.parametrize("random_gaps", [False, True])
@pytest.mark.parametrize("name", PACES)
def test_due_times_are_those_that_numpy_computes(name: str, random_gaps: bool) -> None:
    table = schedule_pace.exponential_gaps(1000) if random_gaps else []
    leg = a_leg(number=3, **{"duration_s": 4.0, **PACES[name]}, gap_table=table, seed=5)
    assert xdp_limits.unable(leg) == ""
    wanted = schedule_pace.due_times(leg).tolist()
    assert len(wanted) > 5
    found, until_ns = due_in_the_kernel(leg, 20_000)
    assert found == [due_ns for due_ns in wanted[:20_000] if due_ns < until_ns] and len(found) > 1


def test_due_times_of_a_poisson_process() -> None:
    leg = a_leg(rate_pps=14e6, gap_table=schedule_pace.exponential_gaps(), count_packets=20_000)
    assert due_in_the_kernel(leg, 30_000)[0] == schedule_pace.due_times(leg).tolist()


# --- over a wire ---------------------------------------------------------------------------------------------------

LISTENER = """
import socket, sys, time
ear = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
ear.bind(("rx0", 0))
ear.setsockopt(socket.SOL_SOCKET, 33, 512 << 20)  # SO_RCVBUFFORCE: a live frame weighs a page, whatever its size
ear.settimeout(0.2)
print("ready", flush=True)
over = False
def end(*_):
    global over
    over = True
import signal
signal.signal(signal.SIGTERM, end)
while True:
    try:
        print(ear.recv(9000).hex())
    except TimeoutError:
        if over:
            break
"""


@pytest.fixture(autouse=True)
def live_frames(request: pytest.FixtureRequest) -> None:
    """Where there is a wire, its far end takes them."""
    if "wire" in request.fixturenames:
        request.getfixturevalue("wire").take_live_frames(True)


def send_and_listen(wire: Wire, spool: Path, legs: list[Leg], **extra: Any) -> tuple[list[dict[str, Any]], list[bytes]]:
    words = ["ip", "netns", "exec", wire.receiver, sys.executable, "-c", LISTENER]
    listener = subprocess.Popen(words, stdout=PIPE, text=True)
    try:
        assert listener.stdout is not None and listener.stdout.readline() == "ready\n"
        # What it prints is read at the end; until then its socket holds what the pipe has no room for.
        counts = send(wire, spool, legs, **extra)
        listener.terminate()
        text, _ = listener.communicate(timeout=120)
        return counts, [bytes.fromhex(line) for line in text.split()]
    finally:
        listener.kill()
        listener.wait()


def told_s(count: dict[str, Any], words: str) -> float:
    """A time of the engine's own note: by how much it was late, for how long it did not look."""
    found = re.search(rf"{words} ([\d.]+) us", count["note"])
    assert found is not None, count["note"]
    return (float(found[1]) + 0.1) / 1e6


def latest_s(count: dict[str, Any]) -> float:
    """No frame goes before it is due, and none later than this: so much may a busy machine take, and it is told."""
    return told_s(count, "at most")


def away_s(count: dict[str, Any]) -> float:
    return told_s(count, "away at most")


@pytest.mark.kernel
def test_every_frame_arrives_as_it_was_made(wire: Wire, tmp_path: Path) -> None:
    leg = a_leg("udp4 varying", 5, count_packets=2000, rate_pps=20_000.0)
    template = build_frame(leg.frame, leg.size_bytes)
    [count], arrived = send_and_listen(wire, tmp_path, [leg])
    assert (count["sent_packets"], count["failed_packets"], count["sent_bytes"]) == (2000, 0, 2000 * 96)
    assert wire.counter("tx") == wire.counter("rx") == len(arrived) == 2000
    times = []
    for index, frame in enumerate(arrived):
        found = stamp.read_stamp(frame[42:])
        assert found is not None and found[:2] == (5, index)
        assert frame == mended(template, frame)
        check_fields(template, frame, index)
        times.append(found.time_ns)
    assert times[0] == count["started_ns"] and times == sorted(times)
    due_ns = [count["started_ns"] - count["delay_ns"] + 50_000 * index for index in range(2000)]
    late_ns = [time_ns - due for time_ns, due in zip(times, due_ns, strict=True)]
    assert min(late_ns) >= 0 and abs(max(late_ns) / 1e9 - latest_s(count)) < 1e-6


@pytest.mark.kernel
def test_frames_of_several_sizes_do_not_show_through_each_other(wire: Wire, tmp_path: Path) -> None:
    """Pages are used again and again, by legs of other sizes too."""
    sizes = (64, 1518, 200, 65)
    legs = [a_leg(number=n, size_bytes=size, count_packets=400) for n, size in enumerate(sizes)]
    counts, arrived = send_and_listen(wire, tmp_path, legs)
    assert [count["sent_packets"] for count in counts] == [400] * 4
    for leg in legs:
        template = build_frame(leg.frame, leg.size_bytes)
        own = [frame for frame in arrived if len(frame) == leg.size_bytes - 4]
        assert len(own) == 400
        for frame in own:
            assert frame == mended(template, frame)
            assert frame[64:] == template.data[64:] and frame[:34] == template.data[:34]


def a_trace_leg(spool: Path, packets: list[Packet], mode: str = "original", value: float = 1.0, **more: Any) -> Leg:
    number = more.pop("number", 0)
    (spool / f"{number}.pcap").write_bytes(write_pcap(packets))
    timing = replace(more.pop("timing", Timing()), mode=mode, value=value)
    count = {"count_packets": len(packets)} if "duration_s" not in more else {}
    return Leg(number, "t", "a", "b", "trace", trace_file=f"{number}.pcap", timing=timing, **{**count, **more})


def a_recording(packets: int, seed: int = 1) -> list[Packet]:
    """Exponential gaps of 100 us on average; every size up to 1514; not TCP, which the receiver would merge."""
    draw, time_ns, made = random.Random(seed), 10**18, []
    for number in range(packets):
        body = draw.randbytes(draw.randrange(4, 1500))
        made.append(
            Packet(time_ns, bytes.fromhex("02000000000b02000000000a88b5") + number.to_bytes(4, "big") + body[4:])
        )
        time_ns += round(draw.expovariate(1 / 100_000))
    return made


@pytest.mark.kernel
def test_a_trace_is_replayed_byte_for_byte(wire: Wire, tmp_path: Path) -> None:
    packets = a_recording(2000)
    [count], arrived = send_and_listen(wire, tmp_path, [a_trace_leg(tmp_path, packets)])
    assert arrived == [packet.data for packet in packets]
    assert (count["sent_packets"], count["sent_bytes"]) == (2000, sum(len(packet.data) for packet in packets))
    recorded_s = (packets[-1].time_ns - packets[0].time_ns) / 1e9
    assert abs(count["seconds"] - recorded_s) <= latest_s(count)


def test_passes_of_a_trace_follow_each_other(wire: Wire, tmp_path: Path) -> None:
    packets = a_recording(100)
    leg = a_trace_leg(tmp_path, packets, count_packets=250, timing=Timing(period_ns=200_000_000, lead_ns=50_000_000))
    [count], arrived = send_and_listen(wire, tmp_path, [leg])
    assert arrived == [packet.data for packet in (packets * 3)[:250]]
    recorded_s = 2 * 0.2 + (packets[49].time_ns - packets[0].time_ns) / 1e9
    assert abs(count["seconds"] - recorded_s) <= latest_s(count)
    assert 0 <= count["delay_ns"] / 1e9 - 0.05 <= latest_s(count)


def complete(count: dict[str, Any], packets: int) -> bool:
    """All that were due in the duration, less what the interface's full ring dropped; fewer only if the machine took
    the processor away beyond its end's grace."""
    short_s = max(away_s(count), latest_s(count)) - schedule.GRACE_NS / 1e9
    made = count["sent_packets"] + count["failed_packets"]
    return bool(made == packets or (made < packets and short_s > 0))


def test_a_duration_ends_a_trace(wire: Wire, tmp_path: Path) -> None:
    leg = a_trace_leg(tmp_path, a_recording(10), "pps", 1000.0, duration_s=0.2)
    [count] = send(wire, tmp_path, [leg])
    assert complete(count, 200)


def test_what_the_file_leaves_out_is_sent_as_zeros(wire: Wire, tmp_path: Path) -> None:
    packets = a_recording(300)
    leg = a_trace_leg(tmp_path, packets, "top")
    data = bytearray(write_pcap([Packet(packet.time_ns, packet.data[:40]) for packet in packets]))
    at = 24
    for packet in packets:
        data[at + 12 : at + 16] = struct.pack("<I", len(packet.data))
        at += 16 + len(packet.data[:40])
    (tmp_path / "0.pcap").write_bytes(data)
    _, arrived = send_and_listen(wire, tmp_path, [leg])
    assert arrived == [packet.data[:40] + bytes(len(packet.data[40:])) for packet in packets]


def test_traces_and_streams_on_one_interface(wire: Wire, tmp_path: Path) -> None:
    first, second = a_recording(500), a_recording(700, seed=2)
    legs = [
        a_trace_leg(tmp_path, first, number=0),
        a_leg(number=1, count_packets=500, rate_pps=10_000.0, size_bytes=1518, sizes=[[64, 1], [1518, 1]]),
        a_trace_leg(tmp_path, second, "multiplier", 2.0, number=2),
        a_leg(number=3, count_packets=0),
    ]
    counts, arrived = send_and_listen(wire, tmp_path, legs)
    assert [count["sent_packets"] for count in counts] == [500, 500, 700, 0]
    replayed = sorted(frame for frame in arrived if frame[12:14] == b"\x88\xb5")
    assert replayed == sorted(packet.data for packet in first + second)
    assert sum(count["sent_bytes"] for count in counts) == sum(map(len, arrived))


@pytest.mark.parametrize("rate", [1000.0, pytest.param(100_000.0, marks=pytest.mark.skipif(EMULATED, reason=SLOW))])
def test_the_rate_holds(wire: Wire, tmp_path: Path, rate: float) -> None:
    [count] = send(wire, tmp_path, [a_leg(count_packets=int(rate), rate_pps=rate)])
    assert count["sent_packets"] == rate
    assert abs(count["seconds"] - (rate - 1) / rate) <= latest_s(count)


def test_a_duration_ends_a_leg_without_a_count(wire: Wire, tmp_path: Path) -> None:
    [count] = send(wire, tmp_path, [a_leg(duration_s=0.3)])
    assert count["sent_packets"] > 100 and wire.settled(count["sent_packets"])
    assert 0.299 - away_s(count) < count["delay_ns"] / 1e9 + count["seconds"] <= 0.3


def test_legs_with_and_without_a_rate(wire: Wire, tmp_path: Path) -> None:
    legs = [a_leg(number=0, duration_s=0.5), a_leg(number=1, duration_s=0.5, rate_pps=1000.0)]
    fast, paced = send(wire, tmp_path, legs)
    assert complete(paced, 500)
    assert wire.settled(fast["sent_packets"] + paced["sent_packets"])
    assert fast["sent_packets"] > 2 * paced["sent_packets"]


def test_what_cannot_be_kept_up_with_is_skipped(wire: Wire, tmp_path: Path) -> None:
    [count] = send(wire, tmp_path, [a_leg(duration_s=0.3, rate_pps=100e6, options={"late": "skip"})])
    passed = count["sent_packets"] + count["failed_packets"] + count["skipped_packets"]
    assert wire.settled(count["sent_packets"]) and count["late_packets"] == 0
    # Nothing is skipped any more that fell due while nobody looked and the duration's grace ended.
    unseen = max(0.0, away_s(count) - schedule.GRACE_NS / 1e9) * 100e6
    assert count["skipped_packets"] > 0 and 0 <= 30_000_000 - passed <= unseen + 100_000


def test_what_is_caught_up_is_counted_as_late_and_what_did_not_leave_is_not(wire: Wire, tmp_path: Path) -> None:
    wire.receive_in_threads()
    [count] = send(wire, tmp_path, [a_leg(count_packets=200_000, rate_pps=100e6)])
    assert count["failed_packets"] > 0 and count["skipped_packets"] == 0
    # It takes 2 ms in theory, so but for the first all are late.
    assert 0.5 * count["sent_packets"] < count["late_packets"] <= count["sent_packets"]


@pytest.mark.kernel
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor")
def test_two_processors_share_the_legs(wire: Wire, tmp_path: Path) -> None:
    """Each with its own frames, its own dropped ones, and the other's seen by neither."""
    wire.receive_in_threads()
    two = {"cores": 2}
    legs = [
        a_leg("udp4 varying", 0, count_packets=60_000, users=USERS, options=two),
        a_leg("udp4 varying", 1, count_packets=50_000, users=USERS, size_bytes=200),
        a_leg(number=2, count_packets=500, rate_pps=20_000.0),
        a_leg(number=3, count_packets=700, rate_pps=20_000.0),
    ]
    counts = send(wire, tmp_path, legs)
    assert [count["leg"] for count in counts] == [0, 1, 2, 3]
    assert [count["sent_packets"] for count in counts[:2]] == [60_000, 50_000]
    assert all(sum(count["users"]) == count["sent_packets"] for count in counts[:2])
    assert all(c["sent_packets"] + c["failed_packets"] == n for c, n in zip(counts[2:], (500, 700), strict=True))
    cpus = [count["note"].split("on processor ")[1].split(";")[0] for count in counts]
    assert cpus[0] != cpus[1]
    assert wire.settled(sum(count["sent_packets"] for count in counts))


def test_more_processors_than_there_are(wire: Wire, tmp_path: Path) -> None:
    legs = [a_leg(number=number, count_packets=1, options={"cores": 64}) for number in range(64)]
    process = start(wire, tmp_path, legs)
    text, _ = process.communicate(timeout=30)
    assert process.returncode == 9
    assert "tx0: cores = 64: more processors than this node has (allowed: up to" in text


@pytest.mark.kernel
def test_what_is_intended_is_sent(wire: Wire, tmp_path: Path) -> None:
    """Rates, a Poisson process and a steady leg side by side."""
    paces: list[dict[str, Any]] = [
        {"rates": [[0, 1000.0], [10**8, 0], [15 * 10**7, 9000.0]], "rates_period_ns": 2 * 10**8},
        {"rate_pps": 20_000.0, "gap_table": schedule_pace.exponential_gaps()},
        {"rates": [[0, 30_000.0], [10**7, 10.0]], "gap_table": schedule_pace.exponential_gaps(), "seed": 9},
    ]
    legs = [a_leg(number=number, duration_s=1.0, **pace) for number, pace in enumerate(paces)]
    intended = [schedule_pace.intended_packets(leg) for leg in legs]
    # By count, for a busy machine may pause for longer than the grace after a duration.
    counted = [replace(leg, duration_s=None, count_packets=n) for leg, n in zip(legs, intended, strict=True)]
    counts = send(wire, tmp_path, [*counted, a_leg(number=3, count_packets=1000, rate_pps=1000.0)])
    assert [count["sent_packets"] for count in counts] == [*intended, 1000]
    assert wire.settled(sum(intended) + 1000)
    for leg, count in zip(legs, counts[:3], strict=True):
        due_ns = schedule_pace.due_times(leg)
        assert abs(count["seconds"] - float(due_ns[-1] - due_ns[0]) / 1e9) <= latest_s(count)


def test_late_frames_of_a_changing_rate_are_skipped_one_by_one(wire: Wire, tmp_path: Path) -> None:
    leg = a_leg(duration_s=0.2, rates=[[0, 1000.0], [10**8, 20e6]], options={"late": "skip"})
    [count] = send(wire, tmp_path, [leg])
    assert count["skipped_packets"] > 0 and count["sent_packets"] > 0 and wire.settled(count["sent_packets"])
    assert count["sent_packets"] + count["skipped_packets"] <= schedule_pace.intended_packets(leg)


def test_a_new_call_to_the_kernel_loses_and_doubles_nothing(wire: Wire, tmp_path: Path) -> None:
    leg = a_leg(count_packets=3000, rate_pps=10_000.0)
    [count], arrived = send_and_listen(wire, tmp_path, [leg], most_repeats=200)
    assert int(count["note"].split(" calls to the kernel")[0].split()[-1]) >= 3000 / 200
    sequences = [found.sequence for frame in arrived if (found := stamp.read_stamp(frame[42:]))]
    assert sequences == list(range(3000)) and count["sent_packets"] == 3000


USERS = FlowUsers("ipv4.src", "src_ip", 0x0A000001, 2, 5)


def by_user(frames: list[bytes]) -> list[int]:
    found = [(int.from_bytes(frame[26:30], "big") - 0x0A000001) // 2 for frame in frames]
    return [found.count(user) for user in range(5)]


def test_frames_are_counted_by_user(wire: Wire, tmp_path: Path) -> None:
    """Users of one leg, then of one whose field runs backwards over two of every three users, then of none."""
    back = {"ipv4": {"src": {"decrement": ["10.0.0.9", "10.0.0.1"], "step": 6}, "dst": "10.0.0.3"}}
    frame = {"headers": [ETHERNET, back, UDP], "payload": {}}
    legs = [
        a_leg("udp4 varying", 0, count_packets=1003, rate_pps=20_000.0, users=USERS),
        replace(a_leg("udp4", 1, count_packets=301, size_bytes=300, users=USERS), frame=frame),
        a_leg("udp4 varying", 2, count_packets=100),
    ]
    counts, arrived = send_and_listen(wire, tmp_path, legs)
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
    assert process.returncode == 9 and "ended before it was stopped, exit 137" in text


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

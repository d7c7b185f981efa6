"""Filters in pcap syntax in front of the counting program: the translation says of every frame what libpcap says."""

from __future__ import annotations

import ctypes
import os
import random
import struct
from pathlib import Path

import pytest

from pktswarm.nodes import libbpf
from pktswarm.nodes.receivers.xdp import XdpReceiver
from pktswarm.traffic.capture import cbpf, ebpf
from pktswarm.traffic.capture import filter as pcap
from pktswarm.traffic.errors import EngineError
from pktswarm.traffic.frames.build import build_frame
from pktswarm.traffic.protocol.task import ReceiveTask
from xdp_frames import SHAPES, B, a_leg, stamped

pytestmark = [
    pytest.mark.single_frames,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to load XDP programs"),
    pytest.mark.skipif(bool(libbpf.missing()), reason=libbpf.missing()),
    pytest.mark.skipif(bool(pcap.missing()), reason=pcap.missing()),
]
PASS, DROP = 2, 1
EXPRESSIONS = [
    "udp",
    "tcp",
    "icmp or arp",
    "ip6",
    "host 10.0.0.1",
    "src net 10.0.0.0/8 and dst port 2000",
    "not (udp port 2000)",
    "portrange 1000-1999",
    "vlan",
    "vlan 10 and udp",
    "vlan 20 and vlan 10 and ip6",
    "mpls 16 and mpls 17",
    "greater 150",
    "less 100 or len > 1000",
    "len - 14 = ip[2:2]",
    "ether[12:2] = 0x800 and ip[8] < 65",
    "ip[(ip[0] & 0xf) * 4 : 2] = 1000",
    "udp[8:2] = 0x5053",
    "udp[8:4] & 0xffff0000 = 0x50530000",
    "ip[6:2] & 0x1fff = 0 and udp[4:2] > 8",
    "ether proto 0x88a8 or ether multicast",
    "ether[len - 1] = 0xa5",
    "ip[2:2] / 7 * 7 = ip[2:2]",
    "ip[2:2] / (ip[1] & 1) = 3",
    "ip[2:2] % 5 = 1",
    "(ether[5] << 4) ^ ether[11] | 1 = 0xbb",
    "ip[2:2] >> ip[1] = 0",
    "ether[4:4] << ether[5] = 0",
    "tcp[tcpflags] & tcp-ack != 0",
    "ip6 proto 17 and ip6[7] = 9",
    "ip proto 4 or ip proto 41",
    "udp port 2152 and udp[12:4] = 0x1234",
    "ether src 02:00:00:00:00:0a and ether dst 02:00:00:00:00:0b",
    "broadcast or ip multicast",
    "host 10.0.0.1 and (port 1000 or port 2000 or icmp) and not net 172.16.0.0/12 and len <= 1518",
    "ether[0xffff] = 1",
    "-ether[0] = 0",
    "ether[ether[12:4]] = 0",
]


class Header(ctypes.Structure):
    """struct pcap_pkthdr."""

    _fields_ = (("time", ctypes.c_long * 2), ("captured", ctypes.c_uint32), ("length", ctypes.c_uint32))


def libpcap_accepts(program: cbpf.Program, frame: bytes) -> bool:
    raw = (pcap.RawInstruction * len(program))(*(pcap.RawInstruction(*one) for one in program))
    whole = pcap.RawProgram(len(program), raw)
    header = Header(captured=len(frame), length=len(frame))
    return bool(pcap.library().pcap_offline_filter(ctypes.byref(whole), ctypes.byref(header), frame))


class Filter:
    """A filter loaded in front of the counting program, attached nowhere."""

    def __init__(self, program: cbpf.Program, spool: Path) -> None:
        self.leg = a_leg()
        task = ReceiveTask("lo", B, [self.leg], 60, mode="count", filter_program=ebpf.to_hex(ebpf.translate(program)))
        self.receiver = XdpReceiver(task, spool)
        try:
            self.receiver.prepare()
        except EngineError:
            self.receiver.restore()
            raise
        self.fd = self.receiver.program.entry_fd

    def accepts(self, frame: bytes) -> bool:
        """Whether it got to the counting program: as one of the leg's, or as a stranger."""
        before = self.receiver.figures.unmatched()["filtered"]
        libbpf.run_once(self.fd, frame)
        return self.receiver.figures.unmatched()["filtered"] == before


@pytest.fixture(scope="module")
def frames() -> list[bytes]:
    """Every shape, whole, damaged and cut off, and noise."""
    draw = random.Random(11)
    whole = [stamped(a_leg(shape, size_bytes=draw.choice([164, 300])), 0) for shape in SHAPES]
    whole += [
        bytes.fromhex("ffffffffffff02000000000a0806") + bytes(46),
        build_frame({"headers": SHAPES["udp4"]}, 1518).data,
    ]
    made = list(whole)
    for _ in range(60):
        frame = bytearray(draw.choice(whole))
        for _ in range(draw.randint(1, 4)):
            frame[draw.randrange(min(60, len(frame)))] = draw.choice([0, 0xFF, draw.randrange(256)])
        made += [bytes(frame), bytes(frame[: draw.randrange(14, len(frame))])]
    return made + [draw.randbytes(draw.randrange(14, 200)) for _ in range(30)]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_it_says_what_libpcap_says(expression: str, frames: list[bytes], tmp_path: Path) -> None:
    program = pcap.compile_ethernet(expression, "test")
    one = Filter(program, tmp_path)
    try:
        for frame in frames:
            assert one.accepts(frame) == libpcap_accepts(program, frame), frame.hex()
    finally:
        one.receiver.restore()


def random_program(draw: random.Random) -> cbpf.Program:
    """Any instruction that libpcap's interpreter has, jumps forward only, every scratch word stored first."""
    made = [cbpf.Instruction(code, 0, 0, word) for word in range(3) for code in (0x02, 0x03)]

    def small() -> int:
        return draw.choice([0, 1, 2, 12, 14, 23, 30, 40, 90, draw.randrange(200), draw.randrange(1 << 32)])

    size = draw.randrange(6, 40)
    while len(made) < size:
        kind = draw.randrange(12)
        if kind < 4:
            made.append(cbpf.Instruction(draw.choice([0x20, 0x28, 0x30, 0x40, 0x48, 0x50]), 0, 0, small() & 0x7FFFFFFF))
        elif kind < 5:
            made.append(cbpf.Instruction(draw.choice([0x80, 0x00, 0x01, 0x81, 0xB1]), 0, 0, small() & 0x7FFFFFFF))
        elif kind < 6:
            made.append(cbpf.Instruction(draw.choice([0x60, 0x61, 0x02, 0x03]), 0, 0, draw.randrange(3)))
        elif kind < 8:
            made.append(cbpf.Instruction(draw.choice([0x07, 0x87, 0x84]), 0, 0, 0))
        elif kind < 10:
            code = draw.choice([0x00, 0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0x90, 0xA0]) | draw.choice([4, 12])
            made.append(cbpf.Instruction(code, 0, 0, small() or 1))
        else:
            code, room = draw.choice([0x15, 0x25, 0x35, 0x45, 0x1D, 0x2D, 0x3D, 0x4D]), size - len(made)
            made.append(cbpf.Instruction(code, draw.randrange(room), draw.randrange(room), small()))
    return [*made, cbpf.Instruction(draw.choice([0x16, 0x06]), 0, 0, 1)]


@pytest.mark.parametrize("seed", range(40))
def test_programs_of_any_instruction_do_the_same(seed: int, frames: list[bytes], tmp_path: Path) -> None:
    draw = random.Random(seed)
    program = random_program(draw)
    one = Filter(program, tmp_path)
    try:
        for frame in [*draw.sample(frames, 60), *(draw.randbytes(draw.randrange(14, 120)) for _ in range(30))]:
            assert one.accepts(frame) == libpcap_accepts(program, frame), (program, frame.hex())
    finally:
        one.receiver.restore()


@pytest.mark.kernel
def test_what_matches_counts_and_the_rest_passes(tmp_path: Path) -> None:
    one = Filter(pcap.compile_ethernet("udp and ip[8] = 64", "test"), tmp_path)
    try:
        right = stamped(one.leg, 0)
        wrong = bytearray(stamped(one.leg, 1))
        wrong[22] = 63
        assert libbpf.run_once(one.fd, right) == (DROP, right)
        assert libbpf.run_once(one.fd, bytes(wrong)) == (PASS, bytes(wrong))
        assert one.receiver.figures.unmatched() == dict.fromkeys(one.receiver.figures.unmatched(), 0) | {"filtered": 1}
        assert one.receiver.figures.tallies()[0].packets == 1
    finally:
        one.receiver.restore()


@pytest.mark.kernel
def test_a_program_that_the_kernel_refuses_is_told_with_its_words() -> None:
    instruction = struct.pack("=BBhi", 0xBF, 0x51, 0, 0)  # r1 = r5, which nobody has set
    with pytest.raises(EngineError, match="rejected the program bad") as refusal:
        libbpf.load_program("bad", instruction + struct.pack("=BBhi", 0x95, 0, 0, 0))
    assert "R5 !read_ok" in str(vars(refusal.value))

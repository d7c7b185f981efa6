"""Trace bytes come from anywhere: malformed captures and frames through the readers and the whole rewriting.

A short run is part of the suite. A million inputs, each to be made again from its number alone:

    .venv/bin/python tests/fuzz/test_fuzz_traces.py --inputs 1000000

What must hold: an error is one BadInput that names the file; nothing hangs; what is accepted can be split, rewritten
(and then has right checksums, which a second rewriting would otherwise mend), written, and read again as it was.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import socket
import struct
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pktswarm.traffic.capture.files import Packet
from pktswarm.traffic.capture.trace import read_packets
from pktswarm.traffic.dependence import analyse, read_arrivals
from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.frames.dissect import dissect
from pktswarm.traffic.leg import Shift
from pktswarm.traffic.replay.files import pcap_bytes
from pktswarm.traffic.replay.prepare import Gtpu, Nodes, Prepared, Settings, frames_of, prepare
from pktswarm.traffic.replay.shift import shifted
from pktswarm.traffic.replay.table import pool

NODES = Nodes(bytes.fromhex("020000000001"), bytes.fromhex("020000000002"), bytes([10, 9, 0, 1]), bytes([10, 9, 0, 2]))
POOLS = Settings(users=pool("10.60.0.1"), servers=pool("10.70.0.1"))
SETTINGS = (
    Settings(),
    POOLS,
    replace(POOLS, oversize="cut", mtu_bytes=600),
    replace(POOLS, gtpu=Gtpu(teid=9, sequence=True, qfi=3), tag=b"\x81\x00\x00\x64"),
)
HANG_S = 5.0
SHORT_RUN = 4000
WORDS = (0, 1, 2, 4, 8, 11, 12, 13, 16, 20, 27, 28, 31, 32, 60, 0x7F, 0x80, 0xFF, 0x100, 0x7FFF, 0x8000, 0xFFFF)
WORDS_32 = (*WORDS, 0x10000, 262_144, 262_145, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF)


class Hang(Exception):
    """An input took more of a processor than HANG_S."""


# --- Frames ----------------------------------------------------------------------------------------------------------


def ipv4(protocol: int, l4: bytes, identification: int = 0, place: int = 0, options: bytes = b"") -> bytes:
    total = 20 + len(options) + len(l4)
    head = struct.pack(">BBHHHBBH", 0x45 + len(options) // 4, 0, total, identification, place, 64, protocol, 0)
    return head + socket.inet_aton("1.1.1.1") + socket.inet_aton("2.2.2.2") + options + l4


def ipv6(protocol: int, l4: bytes) -> bytes:
    return b"\x60\0\0\0" + struct.pack(">HBB", len(l4), protocol, 64) + bytes(15) + b"\x01" + bytes(15) + b"\x02" + l4


def ethernet(kind: int, body: bytes, tags: bytes = b"") -> bytes:
    return bytes.fromhex("0a00000000020a0000000001") + tags + kind.to_bytes(2, "big") + body


def udp(payload: bytes, source: int = 1000, target: int = 53) -> bytes:
    return struct.pack(">HHHH", source, target, 8 + len(payload), 0x1234) + payload


TCP = struct.pack(">HHIIBBHHH", 40000, 443, 1, 2, 0x60, 24, 500, 7, 0) + b"\x01\x01\x01\x00" + b"data!"
GTP = b"\x34\xff\0\x20\0\0\0\x09\0\0\0\x85\x01\0\x05\0"
FRAMES = [
    ethernet(0x0800, ipv4(17, udp(b"payload"))),
    ethernet(0x0800, ipv4(6, TCP, options=b"\x94\x04\0\0")) + bytes(3),
    ethernet(0x0800, ipv4(1, b"\x08\0\0\0\0\x01\0\x01ping")),
    ethernet(0x0800, ipv4(17, udp(bytes(24)), 77, 0x2000)),
    ethernet(0x0800, ipv4(17, bytes(24), 77, 4)),
    ethernet(0x0800, ipv4(17, udp(GTP + ipv4(6, TCP), 2152, 2152))),
    ethernet(0x0800, ipv4(17, udp(GTP + ipv6(17, udp(b"inner")), 2152, 2152))),
    ethernet(0x0800, ipv4(4, ipv4(17, udp(b"tunnelled")))),
    ethernet(0x0800, ipv4(17, udp(b"tagged")), b"\x81\0\0\x05"),
    ethernet(0x86DD, ipv6(17, udp(b"twice")), b"\x88\xa8\0\x05\x81\0\0\x06"),
    ethernet(0x86DD, ipv6(6, TCP)),
    ethernet(0x86DD, ipv6(58, b"\x80\0\0\0\0\x01\0\x01ping")),
    ethernet(0x86DD, ipv6(0, b"\x2b\0\x01\x04\0\0\0\0" + b"\x11\x02\0\x01" + bytes(20) + udp(b"routed"))),
    ethernet(0x86DD, ipv6(44, b"\x11\0\0\x01\0\0\0\x07" + udp(bytes(16)))),
    ethernet(0x86DD, ipv6(44, b"\x11\0\0\x18\0\0\0\x07" + bytes(16))),
    ethernet(0x0806, bytes.fromhex("0001080006040001") + bytes(20)),
    ethernet(0x8847, b"\0\x01\x01\x40" + ipv4(17, udp(b"mpls"))),
    ethernet(0x88CC, bytes(46)),
]


def changed(frame: bytes, source: random.Random) -> bytes:
    """With one to four faults: a byte, a length, an end too early or too late, another frame's tail."""
    data = bytearray(frame)
    for _ in range(source.choice((1, 1, 2, 4))):
        at = source.randrange(max(1, min(len(data), 90)))
        kind = source.randrange(7)
        if kind == 0:
            data[at : at + 1] = bytes([source.randrange(256)])
        elif kind == 1:
            data[at : at + 2] = source.choice(WORDS).to_bytes(2, "big")
        elif kind == 2:
            del data[max(at, source.choice((0, 14, 14, 14, 14, 14, 14, 14))) :]
        elif kind == 3:
            data += bytes(source.choice((1, 7, 60, 1500)))
        elif kind == 4:
            data[at:] = source.choice(FRAMES)[at:]
        elif kind == 5:
            data[12:12] = source.choice((b"\x81\0\0\x01", b"\x91\0\0\x02", b"\x88\xa8"))
        else:
            del data[at : at + source.choice((1, 2, 4, 8))]
    return bytes(data)


# --- Files -----------------------------------------------------------------------------------------------------------


def pcap(packets: list[Packet], source: random.Random) -> bytes:
    order, magic = source.choice("<>"), source.choice((0xA1B2C3D4, 0xA1B23C4D))
    link_type = source.choice((0x2400_0001, 0xF400_0001, 101, 113)) if source.random() < 0.1 else 1
    data = struct.pack(f"{order}IHHiIII", magic, 2, 4, 0, 0, 65535, link_type)
    for packet in packets:
        seconds, rest = divmod(packet.time_ns, 10**9)
        data += struct.pack(f"{order}IIII", seconds, rest, len(packet.data), len(packet.data)) + packet.data
    return data


def block(order: str, kind: int, body: bytes) -> bytes:
    body += bytes(-len(body) % 4)
    return struct.pack(f"{order}II", kind, len(body) + 12) + body + struct.pack(f"{order}I", len(body) + 12)


def option(order: str, source: random.Random) -> bytes:
    code, value = source.choice(((9, b"\x09"), (9, b"\x06"), (9, b"\x8a"), (9, b"\xff"), (9, b"\x7f"), (14, bytes(8))))
    if source.random() < 0.1:
        value = source.randbytes(source.randrange(10))
    return struct.pack(f"{order}HH", code, len(value)) + value + bytes(-len(value) % 4)


def pcapng(packets: list[Packet], source: random.Random) -> bytes:
    order, data = source.choice("<>"), b""
    for number, packet in enumerate(packets):
        if not number or source.random() < 0.1:
            order = source.choice("<>")
            data += block(order, 0x0A0D0D0A, struct.pack(f"{order}IHHq", 0x1A2B3C4D, 1, 0, -1))
            options = option(order, source) if source.random() < 0.5 else b""
            data += block(order, 1, struct.pack(f"{order}HHI", 1, 0, 0) + options)
        high, low = packet.time_ns >> 32, packet.time_ns & 0xFFFF_FFFF
        size = len(packet.data)
        kind = source.choice((6, 6, 6, 6, 6, 6, 6, 6, 2, 3)) if source.random() < 0.2 else 6
        data += block(order, kind, struct.pack(f"{order}IIIII", 0, high, low, size, size) + packet.data)
    return data


def damaged(data: bytes, source: random.Random) -> bytes:
    changed_ = bytearray(data)
    for _ in range(source.choice((1, 1, 2, 5))):
        at = source.randrange(max(1, len(changed_))) // 4 * 4
        kind = source.randrange(6)
        if kind == 0:
            changed_[at : at + 1] = bytes([source.randrange(256)])
        elif kind == 1:
            changed_[at : at + 4] = source.choice(WORDS_32).to_bytes(4, "little" if source.random() < 0.6 else "big")
        elif kind == 2:
            del changed_[source.randrange(max(1, len(changed_))) :]
        elif kind == 3:
            del changed_[at : at + source.choice((1, 4, 16))]
        elif kind == 4:
            changed_[at:at] = changed_[: source.choice((4, 24, 28, 60))]
        else:
            changed_[at : at + 2] = source.choice(WORDS).to_bytes(2, "little")
    return bytes(changed_)


def made(seed: int, number: int) -> bytes:
    """Input `number`: the same bytes whenever it is asked for."""
    source = random.Random(f"{seed}:{number}")
    place = source.choice(("frames", "frames", "file", "both", "random")) if number % 20 else "random"
    if place == "random" and number % 5 == 0:
        return source.choice((b"", b"\xd4\xc3\xb2\xa1", b"\x0a\x0d\x0d\x0a", b"\x4d\x3c\xb2\xa1")) + source.randbytes(
            source.randrange(200)
        )
    frames = [source.choice(FRAMES) for _ in range(source.randrange(1, 7))]
    if place != "file":
        frames = [changed(frame, source) for frame in frames]
    packets = [Packet(10**15 + n * source.randrange(10**9), frame) for n, frame in enumerate(frames)]
    data = source.choice((pcap, pcapng))(packets, source)
    return damaged(data, source) if place in ("file", "both") else data


# --- What must hold --------------------------------------------------------------------------------------------------


def tried(path: Path) -> str:
    """What became of the input: "refused" or "rewritten". Anything else is an exception."""
    _analysed(path)
    try:
        read_packets(path)
    except BadInput as error:
        assert str(error).startswith(str(path)) and "\n" not in str(error), error
    size = path.stat().st_size
    settings = replace(SETTINGS[size % len(SETTINGS)], headers_only=size % 5 == 0, where=path)
    try:
        found = prepare(path, settings)
    except BadInput as error:
        assert str(error).startswith(str(path)) and "\n" not in str(error), error
        return "refused"
    _rewritten(path, found)
    return "rewritten"


def _rewritten(path: Path, found: Prepared) -> None:
    sent = np.unique(found.pieces.columns.number)
    assert len(sent) + sum(found.parsed.left_out.values()) == found.parsed.total
    frames = frames_of(found, np.arange(len(found.due.order)), NODES)
    assert (frames.length == found.frame_bytes).all() and (np.diff(frames.time_ns) >= 0).all()
    for one in (frames, shifted(frames, Shift(3, 70_000, 5, 7))):
        listed = [one.frame(row) for row in range(len(one))]
        assert all(frame[:12] == NODES.server_mac + NODES.user_mac for frame in listed)
        assert all(_headers_sum_up(frame) for frame in listed)
        path.write_bytes(pcap_bytes(one))
        again = prepare(path, Settings(headers_only=found.settings.headers_only))
        assert again.parsed.total == len(again.due.order) == len(one)
        every = np.arange(len(again.due.order))
        assert frames_of(again, every, NODES).mended == 0, "a rewritten checksum was not right"


def _headers_sum_up(frame: bytes) -> bool:
    """Whether the IPv4 header, where there is one, adds up to all ones: RFC 1071 as it is written there."""
    header = dissect(frame)
    if header.version != 4:
        return True
    total: int = sum(struct.unpack(f">{(header.l4 - header.l3) // 2}H", frame[header.l3 : header.l4]))
    return total > 0 and total % 0xFFFF == 0


def _analysed(path: Path) -> None:
    try:
        analyse(read_arrivals(path).times_ns)
    except BadInput as error:
        assert str(error).startswith(str(path))


def run(seed: int, first: int, inputs: int, folder: Path) -> Counter[str]:
    """Raises what an input raises, with its number; the input is left in `folder`."""
    path, outcomes = folder / "input.pcap", Counter[str]()
    before = signal.signal(signal.SIGPROF, _hang)
    try:
        for number in range(first, first + inputs):
            data = made(seed, number)
            path.write_bytes(data)
            signal.setitimer(signal.ITIMER_PROF, HANG_S)
            try:
                outcomes[tried(path)] += 1
            except Exception as error:
                signal.setitimer(signal.ITIMER_PROF, 0)
                path.write_bytes(data)
                error.add_note(f"input {number} of seed {seed}: {path}")
                raise
            signal.setitimer(signal.ITIMER_PROF, 0)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    return outcomes


def memory_folder() -> Path:
    """In memory where there is such a place: a disk waits each time that a file is written anew."""
    memory = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix="pktswarm-fuzz-", dir=memory if memory.is_dir() else None))


def _hang(*_: object) -> None:
    raise Hang


# --- The runs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, 2])
def test_malformed_captures_are_refused_or_rewritten_right(seed: int) -> None:
    folder = memory_folder()
    outcomes = run(seed, 0, SHORT_RUN // 2, folder)
    shutil.rmtree(folder)
    assert outcomes["refused"] > SHORT_RUN // 20 and outcomes["rewritten"] > SHORT_RUN // 20, "both ways are reached"


def for_ever(path: Path) -> str:
    while True:
        pass


def test_a_hang_would_be_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(run.__globals__, "HANG_S", 0.05)
    monkeypatch.setitem(run.__globals__, "tried", for_ever)
    with pytest.raises(Hang) as caught:
        run(1, 3, 1, tmp_path)
    assert "input 3 of seed 1" in caught.value.__notes__[0]


def main() -> None:
    parser = argparse.ArgumentParser(description="Malformed captures through the readers and the rewriting.")
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=3)
    arguments = parser.parse_args()
    folder = memory_folder()
    begun, outcomes = time.monotonic(), Counter[str]()
    for first in range(arguments.first, arguments.first + arguments.inputs, 10_000):
        outcomes += run(arguments.seed, first, min(10_000, arguments.first + arguments.inputs - first), folder)
        print(f"{sum(outcomes.values()):,} inputs in {time.monotonic() - begun:,.0f} s: {dict(outcomes)}", flush=True)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()

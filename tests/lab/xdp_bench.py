"""The counting program, loaded for some flows and fed frame by frame through the kernel's test run."""

from __future__ import annotations

import struct
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pktswarm.nodes import availability, libbpf
from pktswarm.traffic.counting import users
from pktswarm.traffic.counting.match import Match
from pktswarm.traffic.counting.tally import Tally
from pktswarm.traffic.frames.build import build_frame
from pktswarm.traffic.frames.description import FrameDescription, Headers
from pktswarm.traffic.frames.template import put_bits
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.task import ReceiveTask
from pktswarm.traffic.schedule.leg_frames import templates_as_sent
from xdp_frames import (
    ETHERNET,
    IPV4,
    SHAPES,
    UDP,
    B,
    a_leg,
    armed,
    mended,
    stamped,
)

PASS, DROP = 2, 1


@pytest.fixture(scope="session")
def program() -> Path:
    """The shipped program; tests/repo/test_objects.py compares it with its source."""
    return availability.COUNTER


class Bench:
    """The program loaded for some legs and attached nowhere."""

    def __init__(self, program: Path, legs: list[Leg], spool: Path, **task: Any) -> None:
        self.receiver = armed(program=program)(
            ReceiveTask("lo", B, legs, 60, **{"mode": "count", "offsets_ns": {"a": 0}, **task}), spool
        )
        self.receiver.prepare()
        self.fd = self.receiver.program.counter_fd

    def feed(self, frames: Iterable[bytes]) -> Counter[int]:
        """The verdicts. A frame that goes on is as it was."""
        verdicts: Counter[int] = Counter()
        for frame in frames:
            verdict, out = libbpf.run_once(self.fd, frame)
            assert out == frame
            verdicts[verdict] += 1
        return verdicts

    def tally(self, leg: int = 0) -> Tally:
        return self.receiver.figures.tallies()[leg]


@pytest.fixture
def bench(program: Path, tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(*legs: Leg, **task: Any) -> Bench:
        made.append(Bench(program, list(legs), tmp_path, **task))
        return made[-1]

    yield make
    for one in made:
        one.receiver.restore()


class Oracle:
    """What the figures have to be, by definition: nothing is forgotten."""

    def __init__(self) -> None:
        self.seen: set[int] = set()
        self.duplicated = self.reordered = self.next = 0

    def take(self, sequence: int) -> None:
        if sequence in self.seen:
            self.duplicated += 1
            return
        self.reordered += sequence < self.next
        self.next = max(self.next, sequence + 1)
        self.seen.add(sequence)


ARP = bytes.fromhex("ffffffffffff02000000000a0806") + bytes(46)


def unmatched() -> dict[str, list[bytes]]:
    whole, others = stamped(a_leg(), 0), stamped(a_leg("tcp4"), 0)
    fragment = whole[:20] + b"\x20\x00" + whole[22:]
    return {
        "other": [ARP, build_frame({"headers": SHAPES["udp4"]}, 164).data, whole[:60]],
        "unknown_stream": [stamped(a_leg(number=9), 0)],
        "fragment": [fragment],
        "malformed": [whole[:30], whole[:14] + b"\x44" + whole[15:], whole[:38] + b"\0\7" + whole[40:]],
        "damaged": [others[:62] + b"\x80" + others[63:]],
    }


def ipv6_options(sizes: list[int], broken: bool = False) -> bytes:
    """A stamped frame with hop-by-hop, routing and destination options of so many 8 octets before its UDP header."""
    plain = stamped(a_leg("udp6"), 0)
    kinds = [0, 43, 60][: len(sizes)]
    following = [*kinds[1:], 17]
    parts = [bytes([then, size - 1]) + bytes(8 * size - 2) for then, size in zip(following, sizes, strict=True)]
    options = b"".join(parts)
    length = len(plain) - 54 + len(options) if not broken else 12
    return plain[:18] + struct.pack(">HB", length, kinds[0]) + plain[21:54] + options + plain[54:]


def at(frame: bytearray, offset: int, data: bytes) -> None:
    frame[offset : offset + len(data)] = data


CHANGES: dict[str, tuple[str, Callable[[bytearray], None]]] = {
    "dst_mac": ("udp4", lambda f: at(f, 5, b"\x0c")),
    "src_mac": ("udp4", lambda f: at(f, 11, b"\x0c")),
    "vlan": ("vlan", lambda f: at(f, 15, b"\x0b")),
    "dscp": ("udp4", lambda f: at(f, 15, b"\x00")),
    "ttl": ("udp4", lambda f: at(f, 22, b"\x01")),
    "src_ip": ("udp4", lambda f: at(f, 29, b"\x09")),
    "dst_ip": ("udp6", lambda f: at(f, 53, b"\x09")),
    "src_port": ("udp4", lambda f: at(f, 34, b"\x00\x01")),
    "dst_port": ("tcp6", lambda f: at(f, 56, b"\x00\x01")),
    "teid": ("gtpu session", lambda f: at(f, 46, b"\x00\x00\x43\x21")),
    "mpls": ("mpls", lambda f: f.__delitem__(slice(14, 18))),
    "length": ("udp4", lambda f: at(f, 38, struct.pack(">H", 100))),
}


def fed(one: Bench, delays_ns: list[int], make: Callable[[int, int], bytes]) -> list[int]:
    """A frame for each delay, made by number and time, whose time is so long ago; how late each may be at most, for the
    machine may pause between the stamp and the program."""
    most_ns = []
    for number, delay_ns in enumerate(delays_ns):
        now_ns = time.monotonic_ns()
        one.feed([make(number, now_ns - delay_ns)])
        most_ns.append(time.monotonic_ns() - now_ns + delay_ns)
    return most_ns


def noise_ns(least: list[int], most: list[int]) -> list[int]:
    """By how much each J(n) may differ from that of the delays."""
    return [max(pair) for pair in pairwise(b - a for a, b in zip(least, most, strict=True))]


def structs(object_file: Path) -> dict[str, tuple[int, dict[str, int]]]:
    """Of the object's BTF: each struct's size and the byte offsets of its members."""
    data = section(object_file.read_bytes(), b".BTF")
    header_bytes, type_at, type_bytes, text_at = struct.unpack_from("<4xIIII", data)
    text, at_, end = header_bytes + text_at, header_bytes + type_at, header_bytes + type_at + type_bytes

    def word(offset: int) -> str:
        return data[text + offset : data.index(b"\0", text + offset)].decode()

    found: dict[str, tuple[int, dict[str, int]]] = {}
    each, more = {4: 12, 5: 12, 6: 8, 13: 8, 15: 12, 19: 12}, {1: 4, 3: 12, 14: 4, 17: 4}
    while at_ < end:
        name, info, size = struct.unpack_from("<III", data, at_)
        kind, count = info >> 24 & 31, info & 0xFFFF
        at_ += 12
        if kind in (4, 5):
            members = [struct.unpack_from("<III", data, at_ + 12 * n) for n in range(count)]
            found[word(name)] = (size, {word(one): (bits & 0xFFFFFF) // 8 for one, _, bits in members})
        at_ += each.get(kind, 0) * count + more.get(kind, 0)
    return found


def section(elf: bytes, name: bytes) -> bytes:
    (table,) = struct.unpack_from("<Q", elf, 40)
    entry_bytes, count, names = struct.unpack_from("<HHH", elf, 58)
    headers = [struct.unpack_from("<IIQQQQ", elf, table + n * entry_bytes) for n in range(count)]
    text = headers[names][4]
    for title, _, _, _, offset, size in headers:
        if elf[text + title :].startswith(name + b"\0"):
            return elf[offset : offset + size]
    raise AssertionError(name)


USERS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "ipv4.src": (
        {"ipv4": {"src": {"increment": ["10.1.0.0", "10.1.2.0"], "step": 2}, "dst": "10.0.0.2"}},
        UDP,
        "src_ip",
    ),
    "ipv6.dst": ({"ipv6": {"src": "fd00::1", "dst": {"increment": ["fd00::100", "fd00::300"]}}}, UDP, "dst_ip"),
    "udp.src": (IPV4, {"udp": {"src": {"increment": [5000, 5999]}, "dst": 7}}, "src_port"),
    "udp.dst": (IPV4, {"udp": {"src": 9, "dst": {"increment": [0, 65530], "step": 10}}}, "dst_port"),
}


def a_leg_of_users(name: str, number: int = 0, **more: Any) -> Leg:
    network, transport, by = USERS[name]
    frame: FrameDescription = {"headers": [ETHERNET, network, transport], "payload": {"fill": 0xA5}}
    template = build_frame(frame, 164)
    found = users.of_template("test", "users", template, name)
    assert found.by == by
    match = Match.from_template(template).to_data()
    leg = Leg(number, name, "a", "b", "stream", "xdp", frame=frame, size_bytes=164, match=match, users=found)
    return replace(leg, **more)


def of_user(leg: Leg, user: int, sequence: int, time_ns: int = 0) -> bytes:
    """A stamped frame of the leg's user; user -1 is nobody's value."""
    assert leg.users is not None
    (one,) = build_frame(leg.frame, leg.size_bytes).fields
    value = leg.users.first + user * leg.users.step + (leg.users.step > 1) * (user < 0)
    data = bytearray(stamped(leg, sequence, time_ns))
    put_bits(data, one.bit, one.width_bits, value % (1 << one.width_bits))
    return mended(bytes(data))


def a_pktgen_leg(number: int = 0, **more: Any) -> Leg:
    shape: Headers = [ETHERNET, {"ipv4": {"src": "10.0.0.1", "dst": "10.0.0.2"}}, UDP]
    leg = Leg(number, "pktgen", "a", "b", "stream", "pktgen", frame={"headers": shape}, size_bytes=128, **more)
    (template,) = templates_as_sent(leg).values()
    return replace(leg, match=Match.from_template(template).to_data())


def by_pktgen(leg: Leg, sequence: int, realtime_ns: int = 0) -> bytes:
    """As captured from it in the virtual machine: TTL 32, no UDP checksum, its header, then zeros."""
    (template,) = templates_as_sent(leg).values()
    seconds, rest = divmod(realtime_ns, 10**9)
    header = struct.pack(">IIII", 0xBE9BE955, sequence & 0xFFFFFFFF, seconds, rest // 1000)
    return template.data[:42] + header + bytes(len(template.data) - 58)

"""Instances of a trace as the XDP sender's program makes them: byte for byte those of traffic.replay.shift."""

from __future__ import annotations

import os
import random
import struct
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pktswarm.nodes import availability
from pktswarm.nodes.libbpf import run_once
from pktswarm.traffic.leg import Leg, RandomStart, Shift, Timing
from pktswarm.traffic.preview.frames import packets, recording
from pktswarm.traffic.replay import files
from pktswarm.traffic.replay.frames import Frames
from pktswarm.traffic.replay.prepare import Gtpu, Instances, Settings
from pktswarm.traffic.replay.table import pool
from pktswarm.traffic.schedule import trace
from pktswarm.traffic.schedule.assemble import Schedule, compile_schedule
from recordings import checksums_right, ipv4, ipv6, made, prepared, reference_checksum, tcp, udp
from wire import Wire
from xdp_ends import XDP_DROP, loaded, made_by
from xdp_sender_ends import send_and_listen

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root for namespaces"),
    pytest.mark.skipif(bool(availability.xdp_sender()), reason=availability.xdp_sender()),
]

POOLS = Settings(users=pool("10.60.0.1"), servers=pool("10.70.0.1"))
TUNNEL = replace(POOLS, gtpu=Gtpu(teid=0xFFFFFFF0 - 300, sequence=True, qfi=9))
SETTINGS = {
    "pools": POOLS,
    "nodes' addresses": Settings(),
    "tunnel": TUNNEL,
    "tunnel and tag": replace(TUNNEL, tag=b"\x81\x00\x00\x64"),
    "headers only": replace(TUNNEL, headers_only=True),
}
SHIFTS = [
    Shift(),
    Shift(user=7),
    Shift(server=0xFFFF),
    Shift(port=65_000),
    Shift(teid=300),
    Shift(user=0xF3C3_FFFE, server=1, port=1, teid=0xFFFF_FFFF),
]


def six(user: int, server: int, protocol: int, sum_at: int, l4: bytes, extension: bytes = b"") -> bytes:
    """With the checksum that belongs to it."""
    ends = bytes(15) + bytes([user]), bytes(15) + bytes([100 + server])
    kind = 0 if extension else protocol
    pseudo = b"".join(ends) + struct.pack(">IHBB", len(l4), 0, 0, protocol)
    summed = reference_checksum(pseudo + l4)
    return ipv6(*ends, kind, extension + l4[:sum_at] + summed.to_bytes(2, "big") + l4[sum_at + 2 :])


def one_of_each(user: int, server: int, port: int, up: bool, body: bytes) -> list[bytes]:
    """TCP, UDP with and without checksum, ICMP and ICMPv6 over IPv4 and IPv6 (one behind a routing
    header), a user who talks to a user."""
    ends = f"1.1.0.{user}", 4000 + port, f"2.2.0.{server}", 443
    ends = ends if up else ends[2:] + ends[:2]
    ports, datagram = struct.pack(">HH", 4000 + port, 443), udp(*ends, body)
    return [
        datagram,
        tcp(*ends, body),
        datagram[:40] + bytes(2) + datagram[42:],
        six(user, server, 17, 6, ports + struct.pack(">HH", 8 + len(body), 0) + body),
        six(user, server, 6, 16, ports + bytes(8) + b"\x50\x10\xff\xff\0\0\0\0" + body),
        six(user, server, 58, 2, b"\x80\0\0\0\0\x01\0\x02" + body),
        six(user, server, 17, 6, ports + struct.pack(">HH", 8, 0), b"\x11\0\x01\x04\0\0\0\0"),
        ipv6(
            bytes(16),
            bytes(15) + b"\x07",
            43,
            struct.pack(">BBBBI", 17, 2, 0, 1, 0) + bytes(16) + ports + b"\0\x08\x12\x34",
        ),
        ipv4(ends[0], ends[2], b"\x08\0\xf7\xff\0\0\0\0", 1),
        udp(f"1.1.0.{user}", 99, f"1.1.0.{user % 8 + 1}", 98, body),
    ]


def a_recording(number: int = 400) -> list[bytes]:
    """In both directions, with and without tags, and a datagram in fragments."""
    draw, frames = random.Random(5), []
    for index in range(number):
        given = draw.randrange(1, 9), draw.randrange(1, 4), index % 50, draw.random() < 0.6
        frame = draw.choice(one_of_each(*given, draw.randbytes(draw.randrange(700))))
        tags = draw.choice([b"", b"", b"\x81\x00\x00\x05", b"\x88\xa8\x00\x06\x81\x00\x00\x05"])
        frames.append(frame[:12] + tags + frame[12:])
    whole = udp("1.1.0.1", 7, "2.2.0.2", 8, bytes(77))[34:]
    frames.insert(9, ipv4("1.1.0.1", "2.2.0.2", whole[:64], 17, 3, 0x2000))
    frames.insert(20, ipv4("1.1.0.1", "2.2.0.2", whole[64:], 17, 3, 8))
    return frames


def trace_file(folder: Path, settings: Settings, frames: list[bytes] | None = None) -> Frames:
    built = made(prepared(folder, frames or a_recording(), settings))
    (folder / "0.pcap").write_bytes(files.pcap_bytes(built))
    (folder / "0.rows.npy").write_bytes(files.row_bytes(built))
    return built


def a_leg(frames: Frames, shift: Shift, number: int = 0, **timing: Any) -> Leg:
    pace = Timing(**{"value": 200.0, "period_ns": 10**7, **timing})
    leg = Leg(number, "t", "a", "b", "trace", engine="xdp", trace_file="0.pcap", timing=pace, shift=shift)
    return replace(leg, count_packets=len(frames))


def compiled(legs: list[Leg], folder: Path) -> Schedule:
    def read(leg: Leg) -> Frames:
        return files.mapped_frames(files.trace_path(leg, folder))

    def none(leg: Leg) -> Any:
        raise AssertionError(leg)

    return compile_schedule(legs, read, none)


def run(whole: Schedule, number: int) -> list[bytes]:
    with loaded(whole) as program:
        return made_by(program, number)


def by_reference(legs: list[Leg], folder: Path) -> list[bytes]:
    """In the order of due times: of two that are due at once the leg with the lower number first."""
    return [packet.data for packet in packets((leg, recording(leg, folder)) for leg in legs)]


@pytest.mark.kernel("tunnel and tag")
@pytest.mark.parametrize("name", SETTINGS)
def test_instances_are_the_references_byte_for_byte(name: str, tmp_path: Path) -> None:
    frames = trace_file(tmp_path, SETTINGS[name])
    legs = [a_leg(frames, shift, number) for number, shift in enumerate(SHIFTS)]
    expected = by_reference(legs, tmp_path)
    assert run(compiled(legs, tmp_path), len(expected)) == expected
    assert len(expected) == len(SHIFTS) * len(frames) == len(SHIFTS) * 402


def test_a_udp_checksum_that_an_instance_brings_to_zero_is_sent_as_ones(tmp_path: Path) -> None:
    def sent(word: bytes) -> bytes:
        frames = trace_file(tmp_path, POOLS, [udp("1.1.1.1", 1000, "2.2.2.2", 53, word)])
        leg = a_leg(frames, Shift(7, 9, 11))
        assert run(compiled([leg], tmp_path), 1) == by_reference([leg], tmp_path)
        return by_reference([leg], tmp_path)[0]

    # What the checksum lacks to 0 goes into the payload.
    frame = sent(sent(bytes(2))[40:42])
    assert frame[40:42] == b"\xff\xff" and checksums_right(frame)


@pytest.mark.kernel
@pytest.mark.parametrize("start", ["together", "spread", "random"])
def test_instances_start_as_the_scenario_says(start: str, tmp_path: Path) -> None:
    frames = trace_file(tmp_path, replace(TUNNEL, instances=Instances(5)))
    legs = []
    for number in range(5):
        drawn = {"random": RandomStart(number, 5_000_000, 3)} if number else {}
        timings: dict[str, dict[str, Any]] = {"spread": {"lead_ns": 2_000_000 * number}, "random": drawn}
        shift = Shift(8 * number, 3 * number, 0, 8 * number)
        leg = a_leg(frames, shift, number, **timings.get(start, {}))
        legs.append(replace(leg, repeat=2, count_packets=2 * len(frames)))
    expected = by_reference(legs, tmp_path)
    whole = compiled(legs, tmp_path)
    assert len(whole.stores) == 1 and len(whole.records) == (5 if start == "random" else 1)
    assert run(whole, len(expected)) == expected


def test_instances_on_a_wire(wire: Wire, tmp_path: Path) -> None:
    """Not TCP, which the receiver would merge; and no tags, which its card takes out."""
    recorded = [udp(f"1.1.0.{n % 9 + 1}", 5000, "2.2.0.1", 443, random.Random(n).randbytes(n)) for n in range(400)]
    frames = trace_file(tmp_path, TUNNEL, recorded)
    legs = [a_leg(frames, Shift(9 * n, n, 0, 9 * n), n, value=1.0, lead_ns=n * 1000) for n in range(4)]
    wire.take_live_frames(True)
    counts, arrived = send_and_listen(wire, tmp_path, legs)
    assert [count["sent_packets"] for count in counts] == [400] * 4
    assert Counter(arrived) == Counter(by_reference(legs, tmp_path))


@pytest.mark.parametrize("place", ["address", "header_sum", "port", "sum", "teid"])
def test_a_place_beyond_the_frame_is_never_written(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(frames: Frames) -> Any:
        found = places(frames)
        found[place] = frames.length[:, None] - 1 if place == "address" else frames.length - 1
        return found

    places = trace.places
    monkeypatch.setattr(trace, "places", wrong)
    frames = trace_file(tmp_path, TUNNEL, [udp("1.1.1.1", 1, "2.2.2.2", 2, bytes(40))])
    with loaded(compiled([a_leg(frames, Shift(1))], tmp_path)) as program:
        assert run_once(program.fd, b"\xee" * 300)[0] == XDP_DROP and program.state.broken

"""Stamped frames of every shape, made in Python; and the counting program, compiled."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from pktswarm.nodes.receivers.xdp import XdpReceiver
from pktswarm.traffic.counting.match import Match
from pktswarm.traffic.frames.build import build_frame
from pktswarm.traffic.frames.description import FrameDescription, Headers
from pktswarm.traffic.frames.layout import layout
from pktswarm.traffic.frames.template import Template
from pktswarm.traffic.leg import Leg

ROOT = Path(__file__).parents[2]
A, B = "02:00:00:00:00:0a", "02:00:00:00:00:0b"
ETHERNET = {"ethernet": {"src": A, "dst": B}}
IPV4 = {"ipv4": {"src": "10.0.0.1", "dst": "10.0.0.2", "dscp": 46}}
IPV6 = {"ipv6": {"src": "fd00::1", "dst": "fd00::2", "traffic_class": 184, "hop_limit": 9}}
UDP = {"udp": {"src": 1000, "dst": 2000}}
TCP = {"tcp": {"src": 1000, "dst": 2000, "flags": "ack"}}
GTPU = {"udp": {"src": 2152, "dst": 2152}}
PLAIN, CHECKED = 0x5053, 0x5043


def inner(size_bytes: int) -> bytes:
    """A user's own IPv4 UDP packet."""
    shape = [ETHERNET, {"ipv4": {"src": "10.45.0.2", "dst": "10.60.0.1", "ttl": 61}}, {"udp": {"src": 7, "dst": 8}}]
    return build_frame({"headers": shape}, size_bytes).data[14:]


def gtpu(options: str, user: bytes) -> dict[str, Any]:
    """G-PDU with TEID 0x1234; `options`: what follows the first 8 bytes, as hex."""
    flags = 0x30 if not options else 0x34 if options[6:8] != "00" else 0x32
    return {"raw": {"hex": f"{flags:02x}ff{len(user) + len(options) // 2:04x}00001234{options}{user[:28].hex()}"}}


SHAPES: dict[str, Headers] = {
    "udp4": [ETHERNET, IPV4, UDP],
    "udp6": [ETHERNET, IPV6, UDP],
    "tcp4": [ETHERNET, IPV4, TCP],
    "tcp6": [ETHERNET, IPV6, TCP],
    "icmp": [ETHERNET, IPV4, {"icmp": {"id": 7}}],
    "vlan": [ETHERNET, {"vlan": {"id": 10, "priority": 3}}, IPV4, UDP],
    "qinq": [ETHERNET, {"svlan": {"id": 20}}, {"vlan": {"id": 10}}, IPV6, UDP],
    "mpls": [ETHERNET, {"mpls": {"label": 16}}, {"mpls": {"label": 17}}, IPV4, UDP],
    "ethernet": [ETHERNET],
    "no transport": [ETHERNET, IPV4],
    "ip in ip": [ETHERNET, IPV4, {"ipv6": {"src": "fd00::1", "dst": "fd00::2"}}, UDP],
    "gtpu": [ETHERNET, IPV4, GTPU, gtpu("", inner(128))],
    "gtpu6": [ETHERNET, IPV6, GTPU, gtpu("", inner(108))],
    "gtpu sequence": [ETHERNET, IPV4, GTPU, gtpu("00010000", inner(124))],
    "gtpu session": [ETHERNET, IPV4, GTPU, gtpu("00000085" + "01000900", inner(120))],
    "gtpu by fields": [
        ETHERNET,
        IPV6,
        GTPU,
        {"gtpu": {"teid": 0x1234}},
        {"gtpu_options": {}},
        {"pdu_session": {"qfi": 9}},
        {"ipv4": {"src": "10.45.0.2", "dst": "10.60.0.1", "ttl": 61}},
        {"udp": {"src": 7, "dst": 8}},
    ],
    "gtpu extensions": [ETHERNET, IPV4, GTPU, gtpu("00000085" + "0100098501000940" + "01086800", inner(112))],
}


def mended(frame: bytes) -> bytes:
    """The frame with right checksums in each IPv4 header and in the innermost transport header (RFC 1071)."""
    data, found = bytearray(frame), layout(frame)
    for at_sum in found.ipv4_sums:
        at = at_sum - 10
        _put_sum(data, at_sum, bytes(data[at : at + (data[at] & 15) * 4]))
    place, protocol = found.transport_sum, found.counted["protocol"]
    if place is not None:
        end = found.payload + found.payload_bytes
        start = place - {1: 2, 6: 16, 17: 6, 58: 2}[protocol]
        ends = [
            bytes(data[bit // 8 : (bit + bits) // 8]) for bit, bits in (found.spans["src_ip"], found.spans["dst_ip"])
        ]
        pseudo = b"".join(ends) + struct.pack(">HI", protocol, end - start) if protocol != 1 else b""
        _put_sum(data, place, bytes(data[start:end]) + bytes((end - start) % 2) + pseudo, place - start)
    return bytes(data)


def _put_sum(data: bytearray, place: int, covered: bytes, within: int = 10) -> None:
    """`within`: where in `covered` the checksum is."""
    covered = covered[:within] + b"\0\0" + covered[within + 2 :]
    value = 0xFFFF - int.from_bytes(covered + bytes(len(covered) % 2), "big") % 0xFFFF
    data[place : place + 2] = (value or 0xFFFF).to_bytes(2, "big")


def reordered(numbers: Iterable[int]) -> int:
    """RFC 4737, 3.3, of sequence numbers as they came: those below the next expected one; copies are not looked at."""
    expected, count = 0, 0
    for number in dict.fromkeys(numbers):
        count += number < expected
        expected = max(expected, number + 1)
    return count


def armed(at_ns: int = 0, program: Path = XdpReceiver.object_file) -> type[XdpReceiver]:
    """A receiver to which frames may have been on their way since then; 0: since its clock began."""
    return type("Armed", (XdpReceiver,), {"object_file": program, "_armed_ns": lambda receiver: at_ns})


def a_leg(shape: str = "udp4", number: int = 0, size_bytes: int = 164, **more: Any) -> Leg:
    frame: FrameDescription = {"headers": SHAPES[shape], "payload": {"fill": 0xA5}}
    match = Match.from_template(build_frame(frame, size_bytes)).to_data()
    leg = Leg(number, shape, "a", "b", "stream", "xdp", frame=frame, size_bytes=size_bytes, match=match)
    return replace(leg, **more)


def checksum(data: bytes) -> int:
    data += bytes(-len(data) % 4)
    total: int = sum(struct.unpack(f">{len(data) // 4}I", data))
    return total % 0xFFFFFFFF


@lru_cache
def _template(frame: str, size_bytes: int) -> tuple[Template, int]:
    """The leg's frame and where its payload starts."""
    template = build_frame(json.loads(frame), size_bytes)
    return template, layout(template.data).payload


def stamped(leg: Leg, sequence: int, time_ns: int = 0, magic: int = PLAIN) -> bytes:
    """A frame of the leg with a stamp at the start of its payload, its checksums right."""
    template, at = _template(json.dumps(leg.frame), leg.size_bytes)
    data = bytearray(template.data)
    words = [magic, leg.id, *struct.unpack(">3H", sequence.to_bytes(6, "big"))]
    words += [0, *struct.unpack(">3H", (time_ns % 2**48).to_bytes(6, "big"))]
    words[5] = 0xFFFF - sum(words) % 0xFFFF
    data[at : at + 18] = struct.pack(">9H", *words)
    if magic == CHECKED:
        data[at + 18 : at + 22] = struct.pack(">I", checksum(bytes(data[at + 22 :])))
    template.mend(data)
    return bytes(data)

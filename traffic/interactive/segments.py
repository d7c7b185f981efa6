"""Frames that the recording host had merged (GRO, TSO), cut again into segments that fit the MTU."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable

from traffic.capture_file import Packet
from traffic.checksum import checksum, pseudo_header
from traffic.dissect import TCP, Dissected, dissect

FIN_AND_PSH, CWR = 0x09, 0x80


def cut(packets: list[Packet], mtu_bytes: int) -> tuple[list[Packet], int]:
    """All packets, and how many were cut. A segment is as long as the longest of its sender that fits."""
    headers = [dissect(packet.data) for packet in packets]
    longest: dict[Hashable, int] = defaultdict(int)
    for packet, header in zip(packets, headers, strict=True):
        if _is_segment(header) and header.end - header.l3 <= mtu_bytes:
            sender = _sender(packet.data, header)
            longest[sender] = max(longest[sender], header.end - _payload(packet.data, header))
    result: list[Packet] = []
    merged = 0
    for packet, header in zip(packets, headers, strict=True):
        if not _is_segment(header) or header.end - header.l3 <= mtu_bytes:
            result.append(packet)
            continue
        merged += 1
        room = mtu_bytes - (_payload(packet.data, header) - header.l3)
        # A sender's longest that fits may be a short request of its own: then the MTU says more.
        length = longest[_sender(packet.data, header)]
        result += _segments(packet, header, length if room // 2 < length <= room else room)
    return result, merged


def _is_segment(header: Dissected) -> bool:
    return header.has_transport and header.protocol == TCP and header.fragment is None


def _sender(frame: bytes, header: Dissected) -> Hashable:
    source, target = header.addresses
    return frame[source], frame[target], frame[header.l4 : header.l4 + 4]


def _payload(frame: bytes, header: Dissected) -> int:
    """Where it starts."""
    return header.l4 + (frame[header.l4 + 12] >> 4) * 4


def _segments(packet: Packet, header: Dissected, length: int) -> list[Packet]:
    start = _payload(packet.data, header)
    places = range(start, header.end, length)
    return [
        Packet(packet.time_ns, _segment(packet.data, header, number, slice(at, min(at + length, header.end))))
        for number, at in enumerate(places)
    ]


def _segment(frame: bytes, header: Dissected, number: int, payload: slice) -> bytes:
    start, l3, l4 = _payload(frame, header), header.l3, header.l4
    made = bytearray(frame[:start] + frame[payload])
    sequence = int.from_bytes(frame[l4 + 4 : l4 + 8], "big") + payload.start - start
    made[l4 + 4 : l4 + 8] = (sequence % (1 << 32)).to_bytes(4, "big")
    # As a network card does it: the end of the data is the last segment's, the reduced window the first one's.
    made[l4 + 13] &= 0xFF & ~((FIN_AND_PSH if payload.stop < header.end else 0) | (CWR if number else 0))
    if header.version == 4:
        identification = int.from_bytes(frame[l3 + 4 : l3 + 6], "big") + number
        made[l3 + 2 : l3 + 4] = (len(made) - l3).to_bytes(2, "big")
        made[l3 + 4 : l3 + 6] = (identification % (1 << 16)).to_bytes(2, "big")
        made[l3 + 10 : l3 + 12] = bytes(2)
        made[l3 + 10 : l3 + 12] = checksum(bytes(made[l3:l4])).to_bytes(2, "big")
    else:
        made[l3 + 4 : l3 + 6] = (len(made) - l3 - 40).to_bytes(2, "big")
    made[l4 + 16 : l4 + 18] = bytes(2)
    source, target = header.addresses
    pseudo = pseudo_header(bytes(made[source]), bytes(made[target]), TCP, len(made) - l4)
    made[l4 + 16 : l4 + 18] = checksum(pseudo + bytes(made[l4:])).to_bytes(2, "big")
    return bytes(made)

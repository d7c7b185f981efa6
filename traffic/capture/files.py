"""Capture files as packets: read through their index (traffic.capture.index), written as pcap or pcapng."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from pktswarm.traffic.capture import filter as pcap
from pktswarm.traffic.capture.constants import (
    BYTE_ORDER_MAGIC,
    ENHANCED_PACKET,
    INTERFACE_DESCRIPTION,
    LINKTYPE_ETHERNET,
    LINKTYPE_RAW,
    NS_PER_S,
    OPTION_COMMENT,
    OPTION_IF_TSRESOL,
    PCAP_MAGIC_NS,
    SECTION_HEADER,
    SNAPLEN_BYTES,
)


class Packet(NamedTuple):
    """A frame without FCS, and its time on the wire: nanoseconds since 1970 or since a start."""

    time_ns: int
    data: bytes


class RawPacket(NamedTuple):
    """A packet of a capture file. `wire_bytes` exceeds len(data) if the snap length cut the frame."""

    time_ns: int
    data: bytes
    wire_bytes: int
    link_type: int


def link_type_name(link_type: int) -> str:
    """`DLT_RAW (101)` for 101."""
    # It is 101 in every file; libpcap uses the number of its operating system.
    if link_type == LINKTYPE_RAW:
        return f"DLT_RAW ({link_type})"
    name = "" if pcap.missing() else pcap.link_name(link_type)
    return f"{'DLT_' + name if name else 'unknown'} ({link_type})"


def read_capture(path: Path) -> list[RawPacket]:
    """Reads every packet of a capture file in the file's order; a file can contain none. Raises BadInput."""
    # A node only writes captures, without NumPy.
    from pktswarm.traffic.capture.index import index_capture

    index = index_capture(path)
    columns = (index.time_ns, index.start, index.captured_bytes, index.wire_bytes, index.link_type)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [RawPacket(time, index.data[at : at + size], wire, kind) for time, at, size, wire, kind in rows]


def write_pcap(packets: Iterable[Packet]) -> bytes:
    """A pcap file of Ethernet frames with nanosecond times, little-endian."""
    return b"".join(pcap_parts(packets))


def pcap_parts(packets: Iterable[Packet]) -> Iterator[bytes]:
    """The pieces of write_pcap()."""
    yield struct.pack("<IHHiIII", PCAP_MAGIC_NS, 2, 4, 0, 0, SNAPLEN_BYTES, LINKTYPE_ETHERNET)
    for packet in packets:
        seconds, rest_ns = divmod(packet.time_ns, NS_PER_S)
        yield struct.pack("<IIII", seconds, rest_ns, len(packet.data), len(packet.data)) + packet.data


def write_pcapng(packets: list[Packet], comment: str = "") -> bytes:
    """A pcapng file with one Ethernet interface and nanosecond times, little-endian, without the name of a machine."""
    section = struct.pack("<IHHq", BYTE_ORDER_MAGIC, 1, 0, -1)
    if comment:
        section += _option(OPTION_COMMENT, comment.encode()) + bytes(4)
    interface = struct.pack("<HHI", LINKTYPE_ETHERNET, 0, SNAPLEN_BYTES)
    interface += _option(OPTION_IF_TSRESOL, b"\x09") + bytes(4)
    parts = [_as_block(SECTION_HEADER, section), _as_block(INTERFACE_DESCRIPTION, interface)]
    for time_ns, data in packets:
        head = struct.pack("<IIIII", 0, time_ns >> 32, time_ns & 0xFFFF_FFFF, len(data), len(data))
        parts.append(_as_block(ENHANCED_PACKET, head + _padded(data)))
    return b"".join(parts)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("<HH", code, len(value)) + _padded(value)


def _as_block(kind: int, body: bytes) -> bytes:
    size = struct.pack("<I", len(body) + 12)
    return struct.pack("<I", kind) + size + body + size

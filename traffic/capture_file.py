"""Capture files as they are: pcap and pcapng, either byte order, any time resolution, any number of interfaces.

Own parsers over dpkt's constants, because dpkt's readers hide what matters here: how long a frame was before the
snap length cut it, where a file is truncated, and (pcapng) the clock of each interface.
Format: draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from dpkt import pcap, pcapng

from traffic.errors import BadInput

NS_PER_S = 1_000_000_000
ETHERNET = pcap.DLT_EN10MB
LINKTYPE_RAW = 101
SNAPLEN_BYTES = 262_144
PCAP_NS_PER_TICK = {pcap.TCPDUMP_MAGIC: 1000, pcap.TCPDUMP_MAGIC_NANO: 1}
ENDS_WITHIN_PACKET = "is truncated: it ends inside packet {}"
CAPTURE_FORMATS = "pcap or pcapng"


class Packet(NamedTuple):
    """A frame without FCS, and when it was (or is to be) on the wire: nanoseconds since 1970 or since a start."""

    time_ns: int
    data: bytes


class RawPacket(NamedTuple):
    """A packet as the file has it. `wire_bytes` exceeds len(data) where the snap length cut the frame."""

    time_ns: int
    data: bytes
    wire_bytes: int
    link_type: int


@dataclass
class Interface:
    """A pcapng interface: its link type and its clock."""

    link_type: int
    snaplen_bytes: int
    ticks_per_s: int = 1_000_000
    offset_s: int = 0

    def time_ns(self, ticks: int) -> int:
        return self.offset_s * NS_PER_S + ticks * NS_PER_S // self.ticks_per_s


def link_type_name(link_type: int) -> str:
    """`DLT_RAW (101)` for 101."""
    # In files it is 101 everywhere; dpkt has the number of the system that it runs on.
    if link_type == LINKTYPE_RAW:
        return f"DLT_RAW ({link_type})"
    names = [name for name, value in vars(pcap).items() if name.startswith("DLT_") and value == link_type]
    return f"{names[0] if names else 'unknown'} ({link_type})"


def read_capture(path: Path) -> list[RawPacket]:
    """Every packet of a capture file, in the file's order; none is an empty list. Raises BadInput."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise BadInput(path, "there is no such file") from None
    except OSError as error:
        raise BadInput(path, f"cannot be read: {error.strerror}") from None
    if not data:
        raise BadInput(path, "is empty", allowed=CAPTURE_FORMATS)
    magic = data[:4]
    if int.from_bytes(magic, "big") == pcapng.PCAPNG_BT_SHB:
        return list(_pcapng_packets(path, data))
    for order in "<>":
        ns_per_tick = PCAP_NS_PER_TICK.get(struct.unpack(f"{order}I", magic)[0]) if len(magic) == 4 else None
        if ns_per_tick:
            return list(_pcap_packets(path, data, order, ns_per_tick))
    raise BadInput(path, "is not a capture file", value=magic.hex(), allowed=CAPTURE_FORMATS)


def _pcap_packets(path: Path, data: bytes, order: str, ns_per_tick: int) -> Iterator[RawPacket]:
    if len(data) < 24:
        raise BadInput(path, "is truncated: it ends inside the file header")
    # The upper bits of the link type tell the length of a frame check sequence, where one was captured.
    link_field = struct.unpack_from(f"{order}I", data, 20)[0]
    fcs_bytes = 2 * (link_field >> 28) if link_field & 0x0400_0000 else 0
    header = struct.Struct(f"{order}IIII")
    at, number = 24, 0
    while at < len(data):
        number += 1
        if at + 16 > len(data):
            raise BadInput(path, ENDS_WITHIN_PACKET.format(number))
        seconds, ticks, captured, wire = header.unpack_from(data, at)
        at += 16 + captured
        if captured > max(SNAPLEN_BYTES, wire):
            raise BadInput(path, f"packet {number} says it has {captured} bytes: the file is damaged")
        if at > len(data):
            raise BadInput(path, ENDS_WITHIN_PACKET.format(number))
        frame = _without_fcs(data[at - captured : at], wire, fcs_bytes)
        yield RawPacket(seconds * NS_PER_S + ticks * ns_per_tick, frame, wire - fcs_bytes, link_field & 0xFFFF)


def _without_fcs(frame: bytes, wire_bytes: int, fcs_bytes: int) -> bytes:
    return frame[: wire_bytes - fcs_bytes] if fcs_bytes else frame


def _pcapng_packets(path: Path, data: bytes) -> Iterator[RawPacket]:
    order, at, number = "<", 0, 0
    interfaces: list[Interface] = []
    while at < len(data):
        if data[at : at + 4] == b"\x0a\x0d\x0d\x0a":
            order, interfaces = _section_order(path, data, at), []
        kind, body = _block(path, data, at, order, number)
        at += len(body) + 12
        if kind == pcapng.PCAPNG_BT_IDB:
            interfaces.append(_interface(body, order))
        elif kind in (pcapng.PCAPNG_BT_EPB, pcapng.PCAPNG_BT_PB, pcapng.PCAPNG_BT_SPB):
            number += 1
            try:
                yield _pcapng_packet(kind, body, order, interfaces)
            except (struct.error, IndexError, ValueError) as error:
                raise BadInput(path, f"packet {number} cannot be read: {error}") from None


def _section_order(path: Path, data: bytes, at: int) -> str:
    for order in "<>":
        if len(data) >= at + 12 and struct.unpack_from(f"{order}I", data, at + 8)[0] == pcapng.BYTE_ORDER_MAGIC:
            return order
    raise BadInput(path, "is not a capture file: its section header has no byte order", allowed=CAPTURE_FORMATS)


def _block(path: Path, data: bytes, at: int, order: str, packets_before: int) -> tuple[int, bytes]:
    """The type and the body of the block at `at`; a block is type, length, body, length."""
    truncated = BadInput(path, ENDS_WITHIN_PACKET.format(packets_before + 1))
    if at + 12 > len(data):
        raise truncated
    kind, size = struct.unpack_from(f"{order}II", data, at)
    if size < 12 or size % 4:
        raise BadInput(path, f"a block after packet {packets_before} says it has {size} bytes: the file is damaged")
    if at + size > len(data):
        raise truncated
    return kind, data[at + 8 : at + size - 4]


def _interface(body: bytes, order: str) -> Interface:
    link_type, _, snaplen = struct.unpack_from(f"{order}HHI", body)
    interface = Interface(link_type, snaplen)
    for code, value in _options(body[8:], order):
        if code == pcapng.PCAPNG_OPT_IF_TSRESOL:
            # The top bit chooses between a power of ten and a power of two.
            interface.ticks_per_s = 2 ** (value[0] & 0x7F) if value[0] & 0x80 else 10 ** value[0]
        elif code == pcapng.PCAPNG_OPT_IF_TSOFFSET:
            interface.offset_s = struct.unpack(f"{order}q", value)[0]
    return interface


def _options(data: bytes, order: str) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(data):
        code, size = struct.unpack_from(f"{order}HH", data, at)
        if code == pcapng.PCAPNG_OPT_ENDOFOPT:
            return
        yield code, data[at + 4 : at + 4 + size]
        at += 4 + (size + 3) // 4 * 4


def _pcapng_packet(kind: int, body: bytes, order: str, interfaces: list[Interface]) -> RawPacket:
    if kind == pcapng.PCAPNG_BT_SPB:
        raise ValueError("it has no time (a simple packet block)")
    if kind == pcapng.PCAPNG_BT_EPB:
        index, high, low, captured, wire = struct.unpack_from(f"{order}IIIII", body)
    else:
        index, _, high, low, captured, wire = struct.unpack_from(f"{order}HHIIII", body)
    if 20 + captured > len(body):
        raise ValueError(f"it says it has {captured} bytes, its block has fewer")
    if index >= len(interfaces):
        raise ValueError(f"its interface {index} is not described")
    interface = interfaces[index]
    return RawPacket(interface.time_ns(high << 32 | low), body[20 : 20 + captured], wire, interface.link_type)


def write_pcap(packets: list[Packet]) -> bytes:
    """A pcap file with nanosecond times, little endian, Ethernet."""
    parts = [struct.pack("<IHHiIII", pcap.TCPDUMP_MAGIC_NANO, 2, 4, 0, 0, SNAPLEN_BYTES, ETHERNET)]
    for packet in packets:
        seconds, rest_ns = divmod(packet.time_ns, NS_PER_S)
        parts += [struct.pack("<IIII", seconds, rest_ns, len(packet.data), len(packet.data)), packet.data]
    return b"".join(parts)


def write_pcapng(packets: list[Packet], comment: str = "") -> bytes:
    """A pcapng file with one Ethernet interface and nanosecond times, little endian; it names no machine."""
    section = struct.pack("<IHHq", pcapng.BYTE_ORDER_MAGIC, 1, 0, -1)
    if comment:
        section += _option(pcapng.PCAPNG_OPT_COMMENT, comment.encode()) + bytes(4)
    interface = struct.pack("<HHI", ETHERNET, 0, SNAPLEN_BYTES)
    interface += _option(pcapng.PCAPNG_OPT_IF_TSRESOL, b"\x09") + bytes(4)
    parts = [_as_block(pcapng.PCAPNG_BT_SHB, section), _as_block(pcapng.PCAPNG_BT_IDB, interface)]
    for time_ns, data in packets:
        head = struct.pack("<IIIII", 0, time_ns >> 32, time_ns & 0xFFFF_FFFF, len(data), len(data))
        parts.append(_as_block(pcapng.PCAPNG_BT_EPB, head + _padded(data)))
    return b"".join(parts)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("<HH", code, len(value)) + _padded(value)


def _as_block(kind: int, body: bytes) -> bytes:
    size = struct.pack("<I", len(body) + 12)
    return struct.pack("<I", kind) + size + body + size

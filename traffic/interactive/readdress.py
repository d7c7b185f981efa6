"""A share of a trace readdressed to the two nodes that replay it, every checksum mended.

Changed: both MACs, both IP addresses (also those that ARP asks and tells), the checksums that cover them, and a port
where two flows would otherwise become one. Untouched: everything else, VLAN tags and what a payload embeds included.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Hashable
from dataclasses import dataclass, field

from traffic.capture_file import Packet
from traffic.checksum import amended, checksum, pseudo_header, same
from traffic.dissect import CHECKSUM_AT, ETH_ARP, ICMP, UDP, Dissected, dissect
from traffic.errors import PktswarmError
from traffic.interactive.flows import flow_keys

FIRST_FREE_PORT = 49152
"""Ports from here on belong to nobody: RFC 6335 section 6."""
ARP_BYTES = 28

Tuple = tuple[tuple[int, int], bytes, bytes]
"""IP version and protocol, source port, target port: all that tells flows apart between two nodes."""


@dataclass(frozen=True)
class Endpoint:
    """A node's addresses. Without `ipv6`, IPv6 packets get fd00::a.b.c.d, made from the IPv4 address."""

    mac: str
    ipv4: str
    ipv6: str = ""

    @property
    def mac_bytes(self) -> bytes:
        return bytes.fromhex(self.mac.replace(":", ""))

    def address(self, version: int) -> bytes:
        if version == 4:
            return ipaddress.IPv4Address(self.ipv4).packed
        if self.ipv6:
            return ipaddress.IPv6Address(self.ipv6).packed
        return b"\xfd" + bytes(11) + ipaddress.IPv4Address(self.ipv4).packed


@dataclass
class Rewritten:
    """The packets to send, and what the user is told about them."""

    packets: list[Packet] = field(default_factory=list)
    mended: int = 0
    """Packets whose checksum was wrong in the recording (left to the network card) and is right now."""
    moved_flows: int = 0
    """Flows that got another port, because another flow has the same ports in this share."""
    opaque: int = 0
    """Packets of which only the MACs were changed: no IP, damaged, or inside MPLS or PPPoE."""


def rewrite(packets: list[Packet], source: Endpoint, target: Endpoint) -> Rewritten:
    """All `packets`, whatever their direction was, as sent by `source` to `target`."""
    result = Rewritten()
    macs = target.mac_bytes + source.mac_bytes
    addresses = {version: (source.address(version), target.address(version)) for version in (4, 6)}
    keys = flow_keys([packet.data for packet in packets])
    ports = _Ports()
    for packet, key in zip(packets, keys, strict=True):
        header = dissect(packet.data)
        frame = bytearray(packet.data)
        frame[0:12] = macs
        if header.version:
            new_ports = ports.of(key, packet.data, header)
            result.mended += _readdress(frame, header, addresses[header.version], new_ports)
        else:
            result.opaque += not _readdress_arp(frame, header, source, target)
        result.packets.append(Packet(packet.time_ns, bytes(frame)))
    result.moved_flows = ports.moved_flows
    return result


class _Ports:
    """Keeps flows apart that had only their addresses to tell them apart.

    The later flow gives way: its higher port (the client's, mostly) becomes a free one; of two equal ports
    (2152 to 2152) only the source port, so that the receiver still knows the protocol by its port.
    """

    def __init__(self) -> None:
        self._taken: dict[Tuple, Hashable] = {}
        self._moved: dict[Hashable, bytes] = {}
        """The new port of each flow that gave way."""

    @property
    def moved_flows(self) -> int:
        return len(self._moved)

    def of(self, flow: Hashable, frame: bytes, header: Dissected) -> bytes:
        """The source and the target port that this packet is sent with, two bytes each; empty where it has none."""
        if not header.has_ports:
            return b""
        kind = header.version, header.protocol
        source, target = frame[header.l4 : header.l4 + 2], frame[header.l4 + 2 : header.l4 + 4]
        if flow not in self._moved:
            if self._claim(flow, kind, source, target):
                return source + target
            self._moved[flow] = self._free_port(kind, min(source, target))
        if source >= target:
            source = self._moved[flow]
        else:
            target = self._moved[flow]
        self._claim(flow, kind, source, target)
        return source + target

    def _claim(self, flow: Hashable, kind: tuple[int, int], source: bytes, target: bytes) -> bool:
        """Takes both directions for `flow`; False where another flow has one of them."""
        directions: list[Tuple] = [(kind, source, target), (kind, target, source)]
        if any(self._taken.get(direction, flow) != flow for direction in directions):
            return False
        self._taken.update(dict.fromkeys(directions, flow))
        return True

    def _free_port(self, kind: tuple[int, int], other: bytes) -> bytes:
        for number in range(FIRST_FREE_PORT, 1 << 16):
            port = number.to_bytes(2, "big")
            if (kind, port, other) not in self._taken:
                return port
        raise PktswarmError(f"no free port is left: over {(1 << 16) - FIRST_FREE_PORT} flows to one port")


def _readdress(frame: bytearray, header: Dissected, addresses: tuple[bytes, bytes], ports: bytes) -> bool:
    """Changes addresses and ports in place; True if a checksum had been wrong."""
    was_wrong = not (_ip_right(frame, header) and _transport_right(frame, header))
    covered = _covered(frame, header)
    source_at, target_at = header.addresses
    frame[source_at], frame[target_at] = addresses
    if ports:
        frame[header.l4 : header.l4 + 4] = ports
    if header.version == 4:
        frame[header.l3 + 10 : header.l3 + 12] = _ip_checksum(frame, header).to_bytes(2, "big")
    _mend_transport(frame, header, covered)
    return was_wrong


def _ip_checksum(frame: bytearray, header: Dissected) -> int:
    header_bytes = bytearray(frame[header.l3 : header.l3 + (frame[header.l3] & 15) * 4])
    header_bytes[10:12] = b"\0\0"
    return checksum(bytes(header_bytes))


def _ip_right(frame: bytearray, header: Dissected) -> bool:
    if header.version != 4:
        return True
    return same(_ip_checksum(frame, header), int.from_bytes(frame[header.l3 + 10 : header.l3 + 12], "big"))


def _checksum_place(frame: bytearray, header: Dissected) -> slice | None:
    """Where the transport checksum stands; None where there is none, or UDP uses none (RFC 768, RFC 6935)."""
    if not header.has_transport:
        return None
    at = header.l4 + CHECKSUM_AT[header.protocol]
    if header.protocol == UDP and frame[at : at + 2] == b"\0\0":
        return None
    return slice(at, at + 2)


def _is_whole(frame: bytearray, header: Dissected) -> bool:
    """Whether everything that the transport checksum covers is in this frame, and under these addresses."""
    if header.fragment is not None or header.source_routed:
        return False
    return header.protocol != UDP or _udp_bytes(frame, header) == header.end - header.l4


def _udp_bytes(frame: bytearray, header: Dissected) -> int:
    return int.from_bytes(frame[header.l4 + 4 : header.l4 + 6], "big")


def _transport_checksum(frame: bytearray, header: Dissected) -> int:
    """The right checksum of a whole packet as it is now."""
    segment = bytearray(frame[header.l4 : header.end])
    at = CHECKSUM_AT[header.protocol]
    segment[at : at + 2] = b"\0\0"
    source_at, target_at = header.addresses
    pseudo = pseudo_header(bytes(frame[source_at]), bytes(frame[target_at]), header.protocol, len(segment))
    value = checksum(bytes(segment) if header.protocol == ICMP else pseudo + bytes(segment))
    return value or (0xFFFF if header.protocol == UDP else 0)


def _transport_right(frame: bytearray, header: Dissected) -> bool:
    place = _checksum_place(frame, header)
    if place is None or not _is_whole(frame, header):
        return True
    return same(_transport_checksum(frame, header), int.from_bytes(frame[place], "big"))


def _covered(frame: bytearray, header: Dissected) -> bytes:
    """The fields that are rewritten and that the transport checksum covers."""
    if not header.has_transport or header.protocol == ICMP:
        return b""
    source_at, target_at = header.addresses
    # Behind a routing header the checksum is about the last stop, which stands there and is not rewritten.
    addresses = frame[source_at] if header.source_routed else frame[source_at] + frame[target_at]
    return bytes(addresses + (frame[header.l4 : header.l4 + 4] if header.has_ports else b""))


def _mend_transport(frame: bytearray, header: Dissected, old_covered: bytes) -> None:
    place = _checksum_place(frame, header)
    if place is None:
        return
    if _is_whole(frame, header):
        value = _transport_checksum(frame, header)
    else:
        value = amended(int.from_bytes(frame[place], "big"), old_covered, _covered(frame, header))
        value = value or (0xFFFF if header.protocol == UDP else 0)
    frame[place] = value.to_bytes(2, "big")


def _readdress_arp(frame: bytearray, header: Dissected, source: Endpoint, target: Endpoint) -> bool:
    """ARP for IPv4 over Ethernet tells the sending node's own addresses, so that it poisons no cache."""
    arp = frame[header.l3 : header.l3 + ARP_BYTES]
    if header.ethertype != ETH_ARP or len(arp) < ARP_BYTES or arp[:6] != b"\0\1\x08\0\x06\x04":
        return False
    arp[8:14], arp[14:18] = source.mac_bytes, source.address(4)
    arp[24:28] = target.address(4)
    if any(arp[18:24]):
        arp[18:24] = target.mac_bytes
    frame[header.l3 : header.l3 + ARP_BYTES] = arp
    return True

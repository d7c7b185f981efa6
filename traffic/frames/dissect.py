"""Places of the headers of a recorded frame: Ethernet, VLAN tags, IPv4 or IPv6, TCP, UDP, ICMP."""

from __future__ import annotations

from dataclasses import dataclass

VLAN_TYPES = (0x8100, 0x88A8, 0x9100)
ETH_IPV4, ETH_IPV6, ETH_ARP = 0x0800, 0x86DD, 0x0806
TCP, UDP, ICMP, ICMP6 = 6, 17, 1, 58
CHECKSUM_AT = {TCP: 16, UDP: 6, ICMP: 2, ICMP6: 2}
"""Protocol → the offset of the checksum in its header."""
HEADER_BYTES = {TCP: 20, UDP: 8, ICMP: 8, ICMP6: 8}

_HOP_BY_HOP, _ROUTING, _FRAGMENT, _DESTINATION = 0, 43, 44, 60


@dataclass(frozen=True)
class Dissected:
    """The places of a frame's headers. `version` is 4 or 6, or 0 without a whole IP header."""

    ethertype: int
    l3: int
    """Offset of the network header."""
    version: int = 0
    protocol: int = 0
    l4: int = 0
    """Offset of the transport header."""
    end: int = 0
    """End of the IP packet; Ethernet padding follows."""
    fragment: int | None = None
    """The identification of a fragmented datagram; None for a whole one."""
    first: bool = True
    """False for a fragment without a transport header."""
    source_routed: bool = False
    """An IPv6 routing header has segments left: the checksum covers the last one's address, not the header's."""

    @property
    def addresses(self) -> tuple[slice, slice]:
        """The places of source and target address."""
        if self.version == 4:
            return slice(self.l3 + 12, self.l3 + 16), slice(self.l3 + 16, self.l3 + 20)
        return slice(self.l3 + 8, self.l3 + 24), slice(self.l3 + 24, self.l3 + 40)

    @property
    def has_transport(self) -> bool:
        """Whether the frame contains a whole TCP, UDP, ICMP or ICMPv6 header."""
        return self.version != 0 and self.first and self.l4 + HEADER_BYTES.get(self.protocol, 1 << 30) <= self.end

    @property
    def has_ports(self) -> bool:
        return self.has_transport and self.protocol in (TCP, UDP)


def dissect(frame: bytes) -> Dissected:
    at = 12
    ethertype = int.from_bytes(frame[at : at + 2], "big")
    while ethertype in VLAN_TYPES:
        at += 4
        ethertype = int.from_bytes(frame[at : at + 2], "big")
    l3 = at + 2
    if ethertype == ETH_IPV4:
        return _ipv4(frame, l3)
    if ethertype == ETH_IPV6:
        return _ipv6(frame, l3)
    return Dissected(ethertype, l3)


def _ipv4(frame: bytes, l3: int) -> Dissected:
    if len(frame) < l3 + 20 or frame[l3] >> 4 != 4:
        return Dissected(ETH_IPV4, l3)
    header_bytes = (frame[l3] & 15) * 4
    total = int.from_bytes(frame[l3 + 2 : l3 + 4], "big")
    if header_bytes < 20 or total < header_bytes or l3 + total > len(frame):
        return Dissected(ETH_IPV4, l3)
    place = int.from_bytes(frame[l3 + 6 : l3 + 8], "big")
    more, offset = place & 0x2000, place & 0x1FFF
    identification = int.from_bytes(frame[l3 + 4 : l3 + 6], "big") if more or offset else None
    return Dissected(ETH_IPV4, l3, 4, frame[l3 + 9], l3 + header_bytes, l3 + total, identification, offset == 0)


def _ipv6(frame: bytes, l3: int) -> Dissected:
    end = l3 + 40 + int.from_bytes(frame[l3 + 4 : l3 + 6], "big")
    if len(frame) < max(end, l3 + 40) or frame[l3] >> 4 != 6:
        return Dissected(ETH_IPV6, l3)
    protocol, at = frame[l3 + 6], l3 + 40
    fragment, first, source_routed = None, True, False
    while first and protocol in (_HOP_BY_HOP, _ROUTING, _FRAGMENT, _DESTINATION) and at + 8 <= end:
        size = (frame[at + 1] + 1) * 8
        if protocol == _FRAGMENT:
            size = 8
            place = int.from_bytes(frame[at + 2 : at + 4], "big")
            # An "atomic" fragment (RFC 6946) is a whole packet that merely carries the header.
            fragment = int.from_bytes(frame[at + 4 : at + 8], "big") if place & 0xFFF9 else None
            first = place & 0xFFF8 == 0
        source_routed |= protocol == _ROUTING and frame[at + 3] > 0
        protocol, at = frame[at], at + size
    return Dissected(ETH_IPV6, l3, 6, protocol, min(at, end), end, fragment, first, source_routed)

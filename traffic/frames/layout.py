"""Places of the header fields and the payload of a frame, as the counting program in the kernel finds them.

In a tunnel they are those of the innermost IP header (kernel/count_parse.h).
"""

from __future__ import annotations

from dataclasses import dataclass

from pktswarm.traffic.frames.template import get_bits

TAG_TYPES = (0x8100, 0x88A8)
MPLS, IPV4, IPV6 = 0x8847, 0x0800, 0x86DD
GTPU_PORT, G_PDU = 2152, 255
EXTENSIONS6, FRAGMENT6 = (0, 43, 60), 44
SUM_PLACES = {1: 2, 6: 16, 17: 6, 58: 2}
"""Protocol → the offset of the checksum in the header of ICMP, TCP, UDP or ICMPv6."""


@dataclass(frozen=True)
class Layout:
    """`spans`: name in struct fields → (first bit, bits). `counted`: its counters. `payload`: offset of the payload."""

    spans: dict[str, tuple[int, int]]
    counted: dict[str, int]
    payload: int
    payload_bytes: int
    ipv4_sums: tuple[int, ...] = ()
    """Offset of the checksum of each IPv4 header."""
    transport_sum: int | None = None
    """Offset of the checksum of the innermost UDP, TCP or ICMP header."""


def layout(frame: bytes) -> Layout:
    """The layout of a well-formed frame, as kernel/count_parse.h finds it; IndexError or ValueError for others."""
    return _Reader(frame).read()


class _Reader:
    def __init__(self, frame: bytes) -> None:
        self.frame, self.at, self.left = frame, 14, len(frame) - 14
        self.spans: dict[str, tuple[int, int]] = {"dst_mac": (0, 48), "src_mac": (48, 48)}
        self.counted = {"tags": 0, "labels": 0, "ip_version": 0}
        self.ipv4_sums: list[int] = []
        self.transport_sum: int | None = None

    def number(self, offset: int, size: int) -> int:
        if self.at + offset + size > len(self.frame):
            raise ValueError(f"the frame ends at {len(self.frame)}")
        return int.from_bytes(self.frame[self.at + offset : self.at + offset + size], "big")

    def span(self, name: str, bit: int, bits: int) -> None:
        self.spans[name] = (self.at * 8 + bit, bits)

    def read(self) -> Layout:
        kind = self._tags(get_bits(self.frame, 96, 16))
        if kind == MPLS:
            self._labels()
            kind = IPV6 if self.number(0, 1) >> 4 == 6 else IPV4
        self.left = len(self.frame) - self.at
        more = kind in (IPV4, IPV6)
        while more:
            more = self._transport(self._ip())
        return Layout(self.spans, self.counted, self.at, self.left, tuple(self.ipv4_sums), self.transport_sum)

    def _tags(self, kind: int) -> int:
        while kind in TAG_TYPES and self.counted["tags"] < 3:
            if self.counted["tags"] < 2:
                self.span(("vlan_outer", "vlan_inner")[self.counted["tags"]], 0, 16)
            kind = self.number(2, 2)
            self.counted["tags"] += 1
            self.at += 4
        return kind

    def _labels(self) -> None:
        bottom = 0
        while not bottom:
            bottom = self.number(0, 4) & 0x100
            self.counted["labels"] += 1
            self.at += 4

    def _ip(self) -> int:
        version = self.number(0, 1) >> 4
        self.counted["ip_version"] = version
        return self._ipv6() if version == 6 else self._ipv4()

    def _ipv4(self) -> int:
        header = (self.number(0, 1) & 15) * 4
        for name, bit, bits in (("tos", 8, 8), ("ttl", 64, 8), ("src_ip", 96, 32), ("dst_ip", 128, 32)):
            self.span(name, bit, bits)
        self.ipv4_sums.append(self.at + 10)
        self.left = self.number(2, 2) - header
        if self.number(6, 2) & 0x3FFF:
            raise ValueError("a fragment")
        protocol = self.number(9, 1)
        self.at += header
        return protocol

    def _ipv6(self) -> int:
        for name, bit, bits in (("tos", 4, 8), ("ttl", 56, 8), ("src_ip", 64, 128), ("dst_ip", 192, 128)):
            self.span(name, bit, bits)
        self.left, protocol = self.number(4, 2), self.number(6, 1)
        self.at += 40
        while protocol in EXTENSIONS6:
            protocol, size = self.number(0, 1), (self.number(1, 1) + 1) * 8
            self.at, self.left = self.at + size, self.left - size
        if protocol == FRAGMENT6:
            raise ValueError("a fragment")
        return protocol

    def _transport(self, protocol: int) -> bool:
        """Returns whether another IP header follows."""
        self.counted["protocol"] = protocol
        self.spans.pop("src_port", None)
        self.spans.pop("dst_port", None)
        place = SUM_PLACES.get(protocol)
        self.transport_sum = None if place is None else self.at + place
        if protocol in (4, 41):
            return True
        if protocol in (1, 58):
            self._skip(8)
        if protocol not in (6, 17):
            return False
        self.span("src_port", 0, 16)
        self.span("dst_port", 16, 16)
        if protocol == 6:
            self._skip((self.number(12, 1) >> 4) * 4)
            return False
        port, self.left = self.number(2, 2), self.number(4, 2) - 8
        self.at += 8
        return port == GTPU_PORT and self._gtpu()

    def _skip(self, size: int) -> None:
        self.at, self.left = self.at + size, self.left - size

    def _gtpu(self) -> bool:
        if self.left < 8 or self.number(0, 1) >> 4 != 3 or self.number(1, 1) != G_PDU:
            return False
        self.span("teid", 32, 32)
        flags = self.number(0, 1)
        self.at += 8
        if flags & 7:
            following = self.number(3, 1) if flags & 4 else 0
            self.at += 4
            while following:
                size = self.number(0, 1) * 4
                following = self.number(size - 1, 1)
                self.at += size
        return True

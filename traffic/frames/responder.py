"""Responses for the addresses that a node proxies: ARP, neighbour discovery and GTP-U path management.

RFC 826, RFC 4861 and 3GPP TS 29.281, section 7. Frames are Ethernet frames without FCS and without VLAN tags.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address

from pktswarm.traffic.frames.address_set import AddressSet
from pktswarm.traffic.frames.checksum import checksum
from pktswarm.traffic.frames.headers import GTPU_PORT
from pktswarm.traffic.frames.neighbours import (
    ADVERTISEMENT,
    ARP,
    ARP_REPLY,
    ARP_REQUEST,
    HOP_LIMIT,
    ICMPV6,
    IPV6,
    SOLICITATION,
    TARGET_LINK_LAYER,
    packed_mac,
    question,
)

ETHERNET_BYTES, IPV4_BYTES, IPV6_BYTES, UDP_BYTES, GTPU_BYTES = 14, 20, 40, 8, 8
OPTIONAL_BYTES = 4
"""Optional fields of a GTP-U header, present if any of the flags E, S and PN is set."""
IPV4 = b"\x08\x00"
UDP = 17
SOLICITED, OVERRIDE = 0x40, 0x20
"""Flags of a neighbour advertisement."""
ALL_NODES = IPv6Address("ff02::1").packed
TTL = 64
ECHO_REQUEST, ECHO_RESPONSE, ERROR_INDICATION, END_MARKER = 1, 2, 26, 254
RECOVERY = b"\x0e\x00"
"""Recovery, the one information element of an Echo Response; its restart counter is 0 (TS 29.281, section 7.2.2)."""
TEID_DATA = 16
"""Type of the element TEID Data I, the unknown tunnel of an Error Indication: 4 bytes follow."""
MOST_TEIDS = 16
"""TEIDs of Error Indications and End Markers that are reported by value; all are counted."""
MOST_ENDED = 1 << 17
"""TEIDs whose End Markers are counted one by one."""
MOST_GREETINGS = 256
"""Addresses of a node that ask for a neighbour; a neighbour has to ask for others itself."""


@dataclass
class ResponderCounts:
    """Frames received for the addresses of a node. `counts`: by kind ("arp", "neighbour" and "echo" are answered,
    "error_indication" and "end_marker" only counted); `teids`: the first TEIDs of the last two; `ended`: End Markers by
    TEID; `missed`: frames that the socket dropped."""

    counts: Counter[str] = field(default_factory=Counter)
    teids: dict[str, list[int]] = field(default_factory=dict)
    ended: Counter[int] = field(default_factory=Counter)
    missed: int = 0

    def note(self, kind: str, teid: int | None = None) -> None:
        self.counts[kind] += 1
        if teid is not None and len(known := self.teids.setdefault(kind, [])) < MOST_TEIDS and teid not in known:
            known.append(teid)

    def note_end(self, teid: int) -> None:
        self.note("end_marker", teid)
        if teid in self.ended or len(self.ended) < MOST_ENDED:
            self.ended[teid] += 1


class Responder:
    """Answers for `addresses` (traffic.frames.address_set) with `mac`. ValueError for an invalid address."""

    def __init__(self, mac: str, addresses: Iterable[str]) -> None:
        self.mac = packed_mac(mac)
        self.addresses = AddressSet.parse(addresses)
        self.received = ResponderCounts()

    def greetings(self, target: str) -> Iterator[bytes]:
        """An ARP request or neighbour solicitation for `target` from each address of its IP version, at most
        MOST_GREETINGS. The target learns the sender's address from it (RFC 826), and sends no request of its own."""
        if not target:
            return
        version = ip_address(target).version
        same = AddressSet(one for one in self.addresses.ranges if one[0] == version)
        for own in same.addresses(MOST_GREETINGS):
            yield question(self.mac, str(own), target)

    def answer(self, frame: bytes) -> bytes | None:
        """Returns the frame that answers this one, or None. Counts the frame in `received`."""
        match frame[12:14]:
            case b"\x08\x06":
                return self._arp(frame)
            case b"\x08\x00":
                return self._ipv4(frame)
            case b"\x86\xdd":
                return self._ipv6(frame)
        return None

    def _arp(self, frame: bytes) -> bytes | None:
        asked = frame[38:42]
        if len(frame) < 42 or frame[14:22] != ARP_REQUEST or asked not in self.addresses:
            return None
        self.received.note("arp")
        sender = frame[22:32]
        body = ARP_REPLY + self.mac + asked + sender
        return (sender[:6] + self.mac + ARP + body).ljust(60, b"\0")

    def _ipv4(self, frame: bytes) -> bytes | None:
        if len(frame) < ETHERNET_BYTES + IPV4_BYTES:
            return None
        header = (frame[14] & 15) * 4
        source, target = frame[26:30], frame[30:34]
        at = ETHERNET_BYTES + header
        fragment = int.from_bytes(frame[20:22], "big") & 0x3FFF
        if header < IPV4_BYTES or frame[23] != UDP or fragment or target not in self.addresses:
            return None
        reply = self._gtpu(frame[at:], target, source)
        if reply is None:
            return None
        fixed = bytearray(
            b"\x45\0" + (IPV4_BYTES + len(reply)).to_bytes(2, "big") + bytes([0, 0, 0, 0, TTL, UDP, 0, 0])
        )
        fixed += target + source
        fixed[10:12] = checksum(bytes(fixed)).to_bytes(2, "big")
        whole = _with_checksum(reply, 6, target + source + bytes([0, UDP]) + len(reply).to_bytes(2, "big"))
        return (frame[6:12] + self.mac + IPV4 + bytes(fixed) + whole).ljust(60, b"\0")

    def _ipv6(self, frame: bytes) -> bytes | None:
        at = ETHERNET_BYTES + IPV6_BYTES
        if len(frame) < at:
            return None
        protocol, source, target = frame[20], frame[22:38], frame[38:54]
        if protocol == ICMPV6:
            return self._neighbour(frame, source)
        reply = self._gtpu(frame[at:], target, source) if protocol == UDP and target in self.addresses else None
        return None if reply is None else self._in_ipv6(frame[6:12], target, source, UDP, reply, TTL)

    def _neighbour(self, frame: bytes, source: bytes) -> bytes | None:
        """Answers a solicitation that no router forwarded; one from :: (duplicate address detection) to all nodes."""
        message = frame[ETHERNET_BYTES + IPV6_BYTES :]
        asked = message[8:24]
        if len(message) < 24 or message[0] != SOLICITATION or frame[21] != HOP_LIMIT or asked not in self.addresses:
            return None
        self.received.note("neighbour")
        from_somebody = any(source)
        flags = OVERRIDE | (SOLICITED if from_somebody else 0)
        body = bytes([ADVERTISEMENT, 0, 0, 0, flags, 0, 0, 0]) + asked + TARGET_LINK_LAYER + self.mac
        to = source if from_somebody else ALL_NODES
        return self._in_ipv6(
            frame[6:12] if from_somebody else b"\x33\x33" + to[12:], asked, to, ICMPV6, body, HOP_LIMIT
        )

    def _in_ipv6(self, to: bytes, source: bytes, target: bytes, protocol: int, body: bytes, hops: int) -> bytes:
        pseudo = source + target + len(body).to_bytes(4, "big") + bytes([0, 0, 0, protocol])
        whole = _with_checksum(body, 6 if protocol == UDP else 2, pseudo)
        fixed = b"\x60\0\0\0" + len(body).to_bytes(2, "big") + bytes([protocol, hops]) + source + target
        return to + self.mac + IPV6 + fixed + whole

    def _gtpu(self, datagram: bytes, own: bytes, other: bytes) -> bytes | None:
        """The UDP datagram that answers a GTP-U message, with checksum 0; a message without an answer is counted."""
        if len(datagram) < UDP_BYTES + GTPU_BYTES or int.from_bytes(datagram[2:4], "big") != GTPU_PORT:
            return None
        message = datagram[UDP_BYTES : int.from_bytes(datagram[4:6], "big")]
        least = GTPU_BYTES + (OPTIONAL_BYTES if message[:1] and message[0] & 7 else 0)
        if len(message) < least or message[0] >> 4 != 3:  # version 1, GTP and not GTP'
            return None
        match message[1]:
            case 1:
                self.received.note("echo")
                return _echo_response(datagram[0:2], message)
            case 26:
                self.received.note("error_indication", _unknown_teid(message))
            case 254:
                self.received.note_end(int.from_bytes(message[4:8], "big"))
        return None


def _echo_response(port: bytes, request: bytes) -> bytes:
    """An Echo Response from port 2152 to the request's port (TS 29.281, section 4.4.2.2), with its sequence number."""
    sequence = request[8:10] if request[0] & 2 else b"\0\0"
    body = sequence + b"\0\0" + RECOVERY
    message = bytes([0x32, ECHO_RESPONSE]) + len(body).to_bytes(2, "big") + bytes(4) + body
    length = UDP_BYTES + len(message)
    return GTPU_PORT.to_bytes(2, "big") + port + length.to_bytes(2, "big") + b"\0\0" + message


def _unknown_teid(message: bytes) -> int | None:
    """The TEID in an Error Indication (TS 29.281, section 7.3.1), if it is in the first element."""
    at = _elements_at(message)
    if at is None or len(message) < at + 5 or message[at] != TEID_DATA:
        return None
    return int.from_bytes(message[at + 1 : at + 5], "big")


def _elements_at(message: bytes) -> int | None:
    """Offset of the information elements, behind optional fields and extension headers (TS 29.281, section 5.2)."""
    if not message[0] & 7:
        return GTPU_BYTES
    at = GTPU_BYTES + OPTIONAL_BYTES
    following = message[at - 1] if message[0] & 4 else 0
    while following:
        size = message[at] * 4 if at < len(message) else 0
        if not size or at + size > len(message):
            return None
        at += size
        following = message[at - 1]
    return at


def _with_checksum(body: bytes, at: int, pseudo: bytes) -> bytes:
    """`body` with the checksum over itself and the pseudo header written at `at`, which must be 0."""
    return body[:at] + (checksum(pseudo + body) or 0xFFFF).to_bytes(2, "big") + body[at + 2 :]

"""Questions for the MAC address of a neighbour, and their answers: ARP (RFC 826) and neighbour discovery (RFC 4861).

Frames are Ethernet frames without FCS and without VLAN tags.
"""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address

from pktswarm.traffic.frames.checksum import checksum

ARP, IPV6 = b"\x08\x06", b"\x86\xdd"
BROADCAST = b"\xff" * 6
ARP_REQUEST = bytes.fromhex("0001080006040001")
ARP_REPLY = bytes.fromhex("0001080006040002")
ICMPV6, SOLICITATION, ADVERTISEMENT = 58, 135, 136
SOURCE_LINK_LAYER, TARGET_LINK_LAYER = b"\x01\x01", b"\x02\x01"
"""Type and length of the options of a solicitation and of an advertisement."""
SOLICITED_NODE = IPv6Address("ff02::1:ff00:0").packed[:13]
HOP_LIMIT = 255
"""Hop limit of neighbour discovery: proof that no router forwarded the packet."""
ETHERNET_BYTES, IPV6_BYTES = 14, 40


def packed_mac(mac: str) -> bytes:
    return bytes.fromhex(mac.replace(":", ""))


def question(mac: bytes, source: str, target: str) -> bytes:
    """A broadcast ARP request, or a neighbour solicitation, for `target` from the address `source` of this node.

    The target learns the address of the sender from it. ValueError: the two are not of one IP version.
    """
    own, asked = ip_address(source), ip_address(target)
    if own.version != asked.version:
        raise ValueError(f"{source} cannot ask for {target}")
    if own.version == 4:
        body = ARP_REQUEST + mac + own.packed + bytes(6) + asked.packed
        return (BROADCAST + mac + ARP + body).ljust(60, b"\0")
    group = SOLICITED_NODE + asked.packed[13:]
    body = bytes([SOLICITATION, 0, 0, 0, 0, 0, 0, 0]) + asked.packed + SOURCE_LINK_LAYER + mac
    return b"\x33\x33" + group[12:] + mac + IPV6 + in_ipv6(own.packed, group, body)


def in_ipv6(source: bytes, target: bytes, message: bytes) -> bytes:
    """An IPv6 packet of neighbour discovery with its checksum, whose place in `message` must be 0."""
    pseudo = source + target + len(message).to_bytes(4, "big") + bytes([0, 0, 0, ICMPV6])
    summed = message[:2] + checksum(pseudo + message).to_bytes(2, "big") + message[4:]
    return b"\x60\0\0\0" + len(message).to_bytes(2, "big") + bytes([ICMPV6, HOP_LIMIT]) + source + target + summed


def answer(frame: bytes) -> tuple[str, str] | None:
    """(address, MAC) of an ARP reply or a neighbour advertisement; None for any other frame."""
    if frame[12:14] == ARP and frame[14:22] == ARP_REPLY and len(frame) >= 42:
        return str(ip_address(frame[28:32])), frame[22:28].hex(":")
    if frame[12:14] != IPV6 or len(frame) < ETHERNET_BYTES + IPV6_BYTES + 24:
        return None
    message = frame[ETHERNET_BYTES + IPV6_BYTES :]
    if frame[20] != ICMPV6 or frame[21] != HOP_LIMIT or message[0] != ADVERTISEMENT:
        return None
    # A router may leave the option out of the answer to a unicast question: then its own MAC address holds.
    mac = _option(message[24:], TARGET_LINK_LAYER) or frame[6:12]
    return str(ip_address(message[8:24])), mac.hex(":")


def _option(options: bytes, kind: bytes) -> bytes:
    while len(options) >= 8:
        size = options[1] * 8
        if options[:2] == kind:
            return options[2:8]
        if not size:
            break
        options = options[size:]
    return b""

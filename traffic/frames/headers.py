"""The table of headers: for each field its place, its default and the values that a scenario can give.

traffic.frames.check and traffic.frames.build read it; docs/headers.md describes it to users.
Sources: IEEE 802.3, 802.1Q, RFC 3032 (MPLS), RFC 826 (ARP), RFC 791 (IPv4), RFC 8200 (IPv6), RFC 792 (ICMP),
RFC 4443 (ICMPv6), RFC 768 (UDP), RFC 9293 (TCP), 3GPP TS 29.281, 5 (GTP-U), 3GPP TS 38.415, 5.5 (PDU session).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import field
from functools import lru_cache

from pktswarm.traffic.frames.description import Headers
from pktswarm.traffic.plain import plain

Kind = str
"""Notation of a value: "number", "mac", "ipv4", "ipv6" or "flags"."""

TCP_FLAGS = {"fin": 1, "syn": 2, "rst": 4, "psh": 8, "ack": 16, "urg": 32, "ece": 64, "cwr": 128}
ALLOWED = {
    "mac": "a MAC address such as 02:00:00:00:00:01",
    "ipv4": "an IPv4 address such as 10.0.0.1",
    "ipv6": "an IPv6 address such as fd00::1",
    "flags": "a number from 0 to 255, or names out of " + ", ".join(TCP_FLAGS),
}


@plain
class Field:
    """`bit` counts from the header's first bit. `default` None: required. `auto`: computed unless it is given.

    `identity`: a receiver can match frames by it, because no device on the path is expected to change it.
    """

    bit: int
    width: int
    default: int | None = 0
    kind: Kind = "number"
    auto: bool = False
    identity: bool = False

    @property
    def largest(self) -> int:
        return (1 << self.width) - 1

    @property
    def allowed(self) -> str:
        return ALLOWED.get(self.kind, f"a whole number from 0 to {self.largest}")

    def parse(self, value: object) -> int:
        """The value as a number that fits the field. Raises ValueError otherwise."""
        number = _PARSERS[self.kind](value)
        if not 0 <= number <= self.largest:
            raise ValueError(f"out of range: {number}")
        return number


@plain
class Header:
    """`next_headers` maps the header that may follow to the value that `next_field` then takes. `counts_itself`: its
    field `length` counts the header too, not only what is behind it."""

    size_bytes: int
    fields: Mapping[str, Field]
    next_field: str = ""
    next_headers: Mapping[str, int] = field(default_factory=dict)
    next_default: int = 0
    """The value of `next_field` before raw bytes or the payload: one reserved for experiments."""
    counts_itself: bool = True


def _number(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError("not a whole number")
    return value if isinstance(value, int) else int(value, 0)


def _mac(value: object) -> int:
    if not isinstance(value, str) or not re.fullmatch(r"[0-9a-fA-F]{2}([:-][0-9a-fA-F]{2}){5}", value):
        raise ValueError("not a MAC address")
    return int(re.sub("[:-]", "", value), 16)


def _ipv4(value: object) -> int:
    if not isinstance(value, str):
        raise ValueError("not an IPv4 address")
    return _address(value, 4)


def _ipv6(value: object) -> int:
    if not isinstance(value, str):
        raise ValueError("not an IPv6 address")
    return _address(value, 6)


@lru_cache(65536)
def _address(text: str, version: int) -> int:
    """Cached: every frame size parses the list of users' addresses again."""
    return int(ipaddress.IPv4Address(text) if version == 4 else ipaddress.IPv6Address(text))


def _flags(value: object) -> int:
    names = value.replace(",", " ").split() if isinstance(value, str) else value
    if not isinstance(names, list) or any(name not in TCP_FLAGS for name in names):
        return _number(value)
    return sum({TCP_FLAGS[name] for name in names})


_PARSERS = {"number": _number, "mac": _mac, "ipv4": _ipv4, "ipv6": _ipv6, "flags": _flags}

_ETHERTYPES = {
    **{"vlan": 0x8100, "svlan": 0x88A8, "mpls": 0x8847, "arp": 0x0806, "ipv4": 0x0800, "ipv6": 0x86DD},
    "pppoe": 0x8864,
}
_TUNNELLED = {"ethernet": 0x6558, "ipv4": 0x0800, "ipv6": 0x86DD, "mpls": 0x8847}
"""Transparent Ethernet Bridging (RFC 7637, RFC 8926), and the types of what has no Ethernet header."""
# IEEE 802 Local Experimental EtherType 1; RFC 3692 protocol number.
_EXPERIMENTAL_ETHERTYPE = 0x88B5
_EXPERIMENTAL_PROTOCOL = 253
_LCP = 0xC021  # of PPP, which has no protocol for experiments
_PROTOCOLS = {"ipv4": 4, "tcp": 6, "udp": 17, "ipv6": 41, "gre": 47, "esp": 50, "l2tpv3": 115}

FCS_BYTES = 4
"""The frame check sequence at the end of each frame."""
GTPU_PORT, G_PDU, PDU_SESSION = 2152, 255, 0x85
VXLAN_PORT, GENEVE_PORT = 4789, 6081


def _tag() -> Header:
    return Header(
        4,
        {
            # A capture on Linux loses the outermost tag; only a constant tag can be restored.
            "priority": Field(0, 3, identity=True),
            "dei": Field(3, 1, identity=True),
            "id": Field(4, 12, identity=True),
            "type": Field(16, 16, auto=True, identity=True),
        },
        "type",
        _ETHERTYPES,
        _EXPERIMENTAL_ETHERTYPE,
    )


def _echo(echo_request: int) -> Header:
    return Header(
        8,
        {
            "type": Field(0, 8, echo_request, identity=True),
            "code": Field(8, 8, identity=True),
            "checksum": Field(16, 16, auto=True),
            "id": Field(32, 16, identity=True),
            "sequence": Field(48, 16),
        },
    )


HEADERS: dict[str, Header] = {
    "ethernet": Header(
        14,
        {
            "dst": Field(0, 48, None, "mac", identity=True),
            "src": Field(48, 48, None, "mac", identity=True),
            "type": Field(96, 16, auto=True, identity=True),
        },
        "type",
        _ETHERTYPES,
        _EXPERIMENTAL_ETHERTYPE,
    ),
    "vlan": _tag(),
    "svlan": _tag(),
    "mpls": Header(
        4,
        {
            "label": Field(0, 20, None, identity=True),
            "tc": Field(20, 3),
            "bottom": Field(23, 1, auto=True, identity=True),
            "ttl": Field(24, 8, 64),
        },
        "bottom",
        {"mpls": 0, "ipv4": 1, "ipv6": 1},
        1,
    ),
    "arp": Header(
        28,
        {
            "hardware_type": Field(0, 16, 1, identity=True),
            "protocol_type": Field(16, 16, 0x0800, identity=True),
            "hardware_size": Field(32, 8, 6, identity=True),
            "protocol_size": Field(40, 8, 4, identity=True),
            "operation": Field(48, 16, 1, identity=True),
            "sender_mac": Field(64, 48, None, "mac", identity=True),
            "sender_ip": Field(112, 32, None, "ipv4", identity=True),
            "target_mac": Field(144, 48, 0, "mac", identity=True),
            "target_ip": Field(192, 32, None, "ipv4", identity=True),
        },
    ),
    "ipv4": Header(
        20,
        {
            "version": Field(0, 4, 4, identity=True),
            "header_words": Field(4, 4, 5, identity=True),
            "tos": Field(8, 8),
            "dscp": Field(8, 6),
            "ecn": Field(14, 2),
            "length": Field(16, 16, auto=True),
            "id": Field(32, 16),
            "df": Field(49, 1),
            "mf": Field(50, 1),
            "fragment": Field(51, 13),
            "ttl": Field(64, 8, 64),
            "protocol": Field(72, 8, auto=True, identity=True),
            "checksum": Field(80, 16, auto=True),
            "src": Field(96, 32, None, "ipv4", identity=True),
            "dst": Field(128, 32, None, "ipv4", identity=True),
        },
        "protocol",
        {**_PROTOCOLS, "icmp": 1, "igmp": 2},
        _EXPERIMENTAL_PROTOCOL,
    ),
    "ipv6": Header(
        40,
        {
            "version": Field(0, 4, 6, identity=True),
            "traffic_class": Field(4, 8),
            "flow_label": Field(12, 20),
            "length": Field(32, 16, auto=True),
            "next_header": Field(48, 8, auto=True, identity=True),
            "hop_limit": Field(56, 8, 64),
            "src": Field(64, 128, None, "ipv6", identity=True),
            "dst": Field(192, 128, None, "ipv6", identity=True),
        },
        "next_header",
        {**_PROTOCOLS, "icmpv6": 58},
        _EXPERIMENTAL_PROTOCOL,
        counts_itself=False,
    ),
    "icmp": _echo(8),
    "icmpv6": _echo(128),
    "udp": Header(
        8,
        {
            "src": Field(0, 16, None, identity=True),
            "dst": Field(16, 16, None, identity=True),
            "length": Field(32, 16, auto=True),
            "checksum": Field(48, 16, auto=True),
        },
        next_headers={"gtpu": GTPU_PORT, "vxlan": VXLAN_PORT, "geneve": GENEVE_PORT},
    ),
    "tcp": Header(
        20,
        {
            "src": Field(0, 16, None, identity=True),
            "dst": Field(16, 16, None, identity=True),
            "seq": Field(32, 32),
            "ack": Field(64, 32),
            "header_words": Field(96, 4, 5),
            "flags": Field(104, 8, TCP_FLAGS["ack"], "flags"),
            "window": Field(112, 16, 65535),
            "checksum": Field(128, 16, auto=True),
            "urgent": Field(144, 16),
        },
    ),
    "gtpu": Header(
        8,
        {
            "version": Field(0, 3, 1, identity=True),
            "pt": Field(3, 1, 1, identity=True),
            "e": Field(5, 1, auto=True, identity=True),
            "s": Field(6, 1, auto=True, identity=True),
            "pn": Field(7, 1, auto=True, identity=True),
            "type": Field(8, 8, G_PDU, identity=True),
            "length": Field(16, 16, auto=True),
            "teid": Field(32, 32, None, identity=True),
        },
        next_headers={"gtpu_options": 0, "ipv4": 0, "ipv6": 0},
        counts_itself=False,
    ),
    "gtpu_options": Header(
        4,
        {"sequence": Field(0, 16), "npdu": Field(16, 8), "next_type": Field(24, 8, auto=True, identity=True)},
        "next_type",
        {"pdu_session": PDU_SESSION, "ipv4": 0, "ipv6": 0},
    ),
    "pdu_session": Header(
        4,
        {
            # In units of 4 bytes.
            "length": Field(0, 8, 1, identity=True),
            "pdu_type": Field(8, 4, identity=True),
            "ppp": Field(16, 1),
            "rqi": Field(17, 1),
            "qfi": Field(18, 6, identity=True),
            "next_type": Field(24, 8, auto=True, identity=True),
        },
        "next_type",
        {"ipv4": 0, "ipv6": 0},
    ),
    "vxlan": Header(  # RFC 7348, section 5
        8,
        {
            "flags": Field(0, 8, 8, identity=True),
            "reserved": Field(8, 24),
            "vni": Field(32, 24, None, identity=True),
            "reserved2": Field(56, 8),
        },
        next_headers={"ethernet": 0},
    ),
    "geneve": Header(  # RFC 8926, section 3.4, without options
        8,
        {
            "version": Field(0, 2, identity=True),
            "options_words": Field(2, 6, identity=True),
            "oam": Field(8, 1, identity=True),
            "critical": Field(9, 1, identity=True),
            "reserved": Field(10, 6),
            "type": Field(16, 16, auto=True, identity=True),
            "vni": Field(32, 24, None, identity=True),
            "reserved2": Field(56, 8),
        },
        "type",
        _TUNNELLED,
        _EXPERIMENTAL_ETHERTYPE,
    ),
    "gre": Header(  # RFC 2784, section 2; RFC 2890. NVGRE (RFC 7637) is one with a key and an inner Ethernet header
        4,
        {
            "k": Field(2, 1, auto=True, identity=True),
            "s": Field(3, 1, auto=True, identity=True),
            "version": Field(13, 3, identity=True),
            "type": Field(16, 16, auto=True, identity=True),
        },
        "type",
        {"gre_key": 0, "gre_sequence": 0, **_TUNNELLED},
        _EXPERIMENTAL_ETHERTYPE,
    ),
    "gre_key": Header(4, {"key": Field(0, 32, None, identity=True)}, next_headers={"gre_sequence": 0, **_TUNNELLED}),
    "gre_sequence": Header(4, {"sequence": Field(0, 32)}, next_headers=_TUNNELLED),
    "l2tpv3": Header(  # RFC 3931, section 4.1.1.1: over IP, without a cookie
        4, {"session": Field(0, 32, None, identity=True)}, next_headers={"ethernet": 0}
    ),
    "pppoe": Header(  # RFC 2516, section 4
        6,
        {
            "version": Field(0, 4, 1, identity=True),
            "type": Field(4, 4, 1, identity=True),
            "code": Field(8, 8, identity=True),
            "session": Field(16, 16, None, identity=True),
            "length": Field(32, 16, auto=True),
        },
        next_headers={"ppp": 0},
        counts_itself=False,
    ),
    "ppp": Header(  # RFC 1661, section 2
        2,
        {"protocol": Field(0, 16, auto=True, identity=True)},
        "protocol",
        {"ipv4": 0x0021, "ipv6": 0x0057},
        _LCP,
    ),
    "igmp": Header(  # RFC 2236, section 2
        8,
        {
            "type": Field(0, 8, 0x16, identity=True),
            "response_time": Field(8, 8),
            "checksum": Field(16, 16, auto=True),
            "group": Field(32, 32, None, "ipv4", identity=True),
        },
    ),
    "esp": Header(8, {"spi": Field(0, 32, None, identity=True), "sequence": Field(32, 32)}),  # RFC 4303, section 2
}
"""Every header but `raw`, which has no fields."""

OVERLAPPING = {"ipv4": [("tos", "dscp"), ("tos", "ecn")]}
"""Two names for the same bits: a frame description can give only one of them."""


def may_follow(below: str, above: str) -> bool:
    """Whether `above` can follow `below`; raw bytes follow anything but raw."""
    if below == "raw":
        return False
    return above == "raw" or above in HEADERS[below].next_headers


def gtpu_flag(name: str, above: Headers) -> int:
    """The flag `e`, `s` or `pn` of a GTP-U header, by the two headers that follow it.

    Any flag adds the optional fields (TS 29.281, section 5.1). `e` is set before an extension header, `s` and `pn` with
    their field, and `s` also where the optional fields have no other flag.
    """
    options = above[0].get("gtpu_options") if above else None
    if options is None:
        return 0
    extended = bool(options.get("next_type", "pdu_session" in (above[1] if len(above) > 1 else ())))
    numbered = "sequence" in options or not (extended or "npdu" in options)
    return int({"e": extended, "s": numbered, "pn": "npdu" in options}[name])


def gre_field(name: str, above: Headers) -> int:
    """The flag `k` or `s` of a GRE header, or its `type`, by the headers that follow it: key and sequence number are
    there if their flags are set (RFC 2890, section 2)."""
    names = [next(iter(one)) for one in above]
    options = [one for one in names[:2] if one in ("gre_key", "gre_sequence")]
    if name == "type":
        inner = names[len(options)] if len(names) > len(options) else ""
        return _TUNNELLED.get(inner, _EXPERIMENTAL_ETHERTYPE)
    return int({"k": "gre_key", "s": "gre_sequence"}[name] in options)

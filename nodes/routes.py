"""The interface towards an address, by the kernel's own look-up (rtnetlink), which includes rules and all tables."""

from __future__ import annotations

import ipaddress
import socket
import struct
from collections.abc import Iterator

from pktswarm.nodes.netlink import attributes

# linux/netlink.h, linux/rtnetlink.h
_ROUTE, _REQUEST, _DUMP = 0, 1, 0x300
_ERROR, _DONE = 2, 3
_GETROUTE, _UNICAST = 26, 1
_DESTINATION, _OUT, _MULTIPATH = 1, 4, 9
_ROUTE_HEADER, _NEXT_HOP = "=BBBBBBBBI", "=HBBi"
_HEADER_BYTES, _ROUTE_BYTES, _HOP_BYTES = 16, 12, 8


def defaults() -> set[int]:
    """The numbers of the interfaces that carry a default route, IPv4's or IPv6's."""
    found: set[int] = set()
    for family in (socket.AF_INET, socket.AF_INET6):
        request = struct.pack(_ROUTE_HEADER, family, 0, 0, 0, 0, 0, 0, 0, 0)
        for length, kind, route in _ask(request, _REQUEST | _DUMP):
            if length == 0 and kind == _UNICAST:
                found |= _outs(route)
    return found


def towards(host: str) -> set[int]:
    """The interfaces that lead to a host's addresses; empty where nothing does, or its name is not known."""
    found: set[int] = set()
    for address in _addresses(host):
        family = socket.AF_INET if address.version == 4 else socket.AF_INET6
        request = struct.pack(_ROUTE_HEADER, family, address.max_prefixlen, 0, 0, 0, 0, 0, 0, 0)
        request += struct.pack("=HH", 4 + len(address.packed), _DESTINATION) + address.packed
        found |= {out for _, _, route in _ask(request, _REQUEST) for out in _outs(route)}
    return found


def _addresses(host: str) -> set[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    try:
        answers = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return set()
    return {ipaddress.ip_address(str(answer[4][0]).split("%")[0]) for answer in answers}


def _ask(request: bytes, flags: int) -> Iterator[tuple[int, int, dict[int, bytes]]]:
    """Prefix length, type and attributes of each route in the answer."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _ROUTE) as link:
        link.send(struct.pack("=IHHII", _HEADER_BYTES + len(request), _GETROUTE, flags, 1, 0) + request)
        while True:
            for kind, body in _messages(link.recv(1 << 20)):
                if kind in (_ERROR, _DONE):  # an error: nothing leads there
                    return
                yield body[1], body[7], attributes(body[_ROUTE_BYTES:])
            if not flags & _DUMP:
                return


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + _HEADER_BYTES <= len(data):
        length, kind = struct.unpack_from("=IH", data, at)
        yield kind, data[at + _HEADER_BYTES : at + length]
        at += max(_HEADER_BYTES, -(-length // 4) * 4)


def _outs(route: dict[int, bytes]) -> set[int]:
    found = {struct.unpack("=i", route[_OUT])[0]} if _OUT in route else set()
    hops, at = route.get(_MULTIPATH, b""), 0
    while at + _HOP_BYTES <= len(hops):
        length, _, _, index = struct.unpack_from(_NEXT_HOP, hops, at)
        found.add(index)
        at += max(_HOP_BYTES, -(-length // 4) * 4)
    return found

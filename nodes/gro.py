"""GRO that merges nothing: a veth interface needs GRO to take frames of XDP, and a size limit keeps it from merging."""

from __future__ import annotations

import socket
import struct

from pktswarm.nodes.netlink import attributes

# linux/netlink.h, linux/rtnetlink.h, linux/if_link.h
_ROUTE, _REQUEST, _NEWLINK, _GETLINK, _GRO_MAX_SIZE = 0, 1, 16, 18, 58
_HEADER, _LINK = "=IHHII", "=BBHiII"
_HEADER_BYTES, _LINK_BYTES = 16, 16
_NOTHING = 1
"""Bytes: no frame is as small, so none is merged."""


def merges(interface: str) -> bool:
    """Whether GRO of `interface`, if it is on, can merge frames. A kernel before 5.19 does not report a limit.

    True for an interface that is not there.
    """
    try:
        index = socket.if_nametoindex(interface)
    except OSError:
        return True
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _ROUTE) as link:
        request = struct.pack(_LINK, socket.AF_UNSPEC, 0, 0, index, 0, 0)
        link.send(struct.pack(_HEADER, _HEADER_BYTES + len(request), _GETLINK, _REQUEST, 1, 0) + request)
        answer = link.recv(1 << 16)
    length, kind = struct.unpack_from("=IH", answer)
    if kind != _NEWLINK:
        return True
    found = attributes(answer[_HEADER_BYTES + _LINK_BYTES : length])
    return _GRO_MAX_SIZE not in found or int(struct.unpack("=I", found[_GRO_MAX_SIZE])[0]) > _NOTHING

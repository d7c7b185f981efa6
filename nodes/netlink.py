"""Netlink's attributes (linux/netlink.h), as every family of it has them."""

from __future__ import annotations

import struct


def attributes(data: bytes) -> dict[int, bytes]:
    """Type → value; of several of a type the last."""
    found, at = {}, 0
    while at + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, at)
        found[kind] = data[at + 4 : at + length]
        at += max(4, -(-length // 4) * 4)
    return found

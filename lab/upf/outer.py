"""Builds the outer headers of a GTP-U message, from port 2152 to port 2152, from the Ethernet type on."""

from __future__ import annotations

import socket
import struct

from pktswarm.lab.upf.waiting import GTPU_PORT

TTL = 64


def in_ipv4(source: bytes, target: bytes, message: bytes) -> bytes:
    """Returns the message without checksums, which are not verified."""
    udp = _udp(message)
    fixed = struct.pack(">HBBHHHBBH", 0x0800, 0x45, 0, 20 + len(udp), 0, 0, TTL, socket.IPPROTO_UDP, 0)
    return fixed + source + target + udp


def in_ipv6(source: bytes, target: bytes, message: bytes) -> bytes:
    udp = _udp(message)
    covered = source + target + udp + bytes(len(udp) % 2)
    total: int = sum(struct.unpack(f">{len(covered) // 2}H", covered))
    check = 0xFFFF - (total + len(udp) + socket.IPPROTO_UDP) % 0xFFFF  # RFC 8200, 8.1; never 0
    fixed = struct.pack(">HIHBB", 0x86DD, 6 << 28, len(udp), socket.IPPROTO_UDP, TTL)
    return fixed + source + target + udp[:6] + check.to_bytes(2, "big") + udp[8:]


def _udp(message: bytes) -> bytes:
    return struct.pack(">HHHH", GTPU_PORT, GTPU_PORT, 8 + len(message), 0) + message

"""Announces a receiver to the switch, which otherwise never learns its port and floods all traffic to it."""

from __future__ import annotations

import functools
import socket

INTERVAL_S = 60.0
ETHERTYPE_RARP = 0x8035


def announcement(mac: str) -> bytes:
    """A reverse ARP request (RFC 903) for its own address, broadcast, padded to 60 bytes without FCS.

    It teaches a switch the port and claims no IP address; virtual machines announce themselves so after moving.
    """
    own = bytes.fromhex(mac.replace(":", ""))
    fixed = (1).to_bytes(2, "big") + (0x0800).to_bytes(2, "big") + bytes([6, 4]) + (3).to_bytes(2, "big")
    body = fixed + own + bytes(4) + own + bytes(4)
    return (b"\xff" * 6 + own + ETHERTYPE_RARP.to_bytes(2, "big") + body).ljust(60, b"\0")


def announce(interface: str, mac: str) -> None:
    _socket().sendto(announcement(mac), (interface, 0))


@functools.cache
def _socket() -> socket.socket:
    """A socket that receives nothing, kept as long as this process: the closing of a packet socket takes 16 ms, in
    which the kernel waits for all its readers."""
    return socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)

"""The Internet checksum."""

from __future__ import annotations


def checksum(data: bytes) -> int:
    """Internet checksum (RFC 1071). 2**16 is 1 modulo 0xffff: a number modulo 0xffff is the sum of its 16-bit words."""
    total = int.from_bytes(data + bytes(len(data) % 2), "big")
    return 0xFFFF - (total % 0xFFFF or 0xFFFF)

"""The Internet checksum (RFC 1071), recomputed over whole data or amended for changed fields (RFC 1624)."""

from __future__ import annotations


def checksum(data: bytes) -> int:
    """16 bits as they stand on the wire, for `data` whose own checksum field is zero.

    The sum of 16-bit words with end-around carry is the remainder by 0xFFFF of all of them as one number, which
    Python finds many times faster than it adds words.
    """
    number = int.from_bytes(data + bytes(len(data) % 2), "big")
    total = number % 0xFFFF or (0xFFFF if number else 0)
    return 0xFFFF - total


def amended(old_checksum: int, old_fields: bytes, new_fields: bytes) -> int:
    """A checksum that was right for `old_fields` made right for `new_fields`: RFC 1624, equation 3.

    For data that is not all here (the first fragment of a datagram). Both fields have the same even length.
    """
    total = ~old_checksum & 0xFFFF
    for at in range(0, len(old_fields), 2):
        total += ~int.from_bytes(old_fields[at : at + 2], "big") & 0xFFFF
        total += int.from_bytes(new_fields[at : at + 2], "big")
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def same(first: int, second: int) -> bool:
    """Whether two checksums mean the same: 0 and 0xFFFF are one value in ones' complement."""
    return first == second or {first, second} == {0, 0xFFFF}


def pseudo_header(source: bytes, target: bytes, protocol: int, length_bytes: int) -> bytes:
    """What TCP, UDP and ICMPv6 add to their checksum: RFC 9293 section 3.1 (IPv4), RFC 8200 section 8.1 (IPv6)."""
    if len(source) == 4:
        return source + target + bytes((0, protocol)) + length_bytes.to_bytes(2, "big")
    return source + target + length_bytes.to_bytes(4, "big") + bytes((0, 0, 0, protocol))

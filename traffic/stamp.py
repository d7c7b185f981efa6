"""The stamp: the first payload bytes of a stamped frame. The C table of the same layout is kernel/pktswarm.h.

| offset | bytes | field                                                                     |
| ------ | ----- | ------------------------------------------------------------------------- |
| 0      | 2     | magic: PLAIN, or CHECKED when a checksum of the payload behind it follows |
| 2      | 2     | stream: the leg's number                                                  |
| 4      | 6     | sequence number of the leg's frame, from 0                                |
| 10     | 8     | transmit time, ns of the sender's CLOCK_MONOTONIC (TAI where asked)       |
| 18     | 4     | (CHECKED only) payload_sum() of the rest of the payload                   |
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from traffic.headers import HEADERS

PLAIN, CHECKED = 0x5053, 0x5043
PLAIN_BYTES, CHECKED_BYTES = 18, 22
STREAM_OFFSET, SEQUENCE_OFFSET, TIME_OFFSET, CHECKSUM_OFFSET = 2, 4, 10, 18
LARGEST_STREAM = 0xFFFF
_PLAIN = struct.Struct(">HHHIQ")
_CHECKSUM = struct.Struct(">I")


class Stamp(NamedTuple):
    stream: int
    sequence: int
    time_ns: int
    checksum: int | None = None

    def pack(self) -> bytes:
        magic = PLAIN if self.checksum is None else CHECKED
        high, low = self.sequence >> 32, self.sequence & 0xFFFFFFFF
        data = _PLAIN.pack(magic, self.stream, high, low, self.time_ns)
        return data if self.checksum is None else data + _CHECKSUM.pack(self.checksum)


def read_stamp(payload: bytes) -> Stamp | None:
    """The stamp that a payload begins with; None if there is none."""
    if len(payload) < PLAIN_BYTES:
        return None
    magic, stream, high, low, time_ns = _PLAIN.unpack_from(payload)
    if magic == PLAIN:
        return Stamp(stream, high << 32 | low, time_ns)
    if magic != CHECKED or len(payload) < CHECKED_BYTES:
        return None
    return Stamp(stream, high << 32 | low, time_ns, _CHECKSUM.unpack_from(payload, CHECKSUM_OFFSET)[0])


def payload_sum(data: bytes) -> int:
    """Big-endian 32-bit words, the last one padded with zeros, added modulo 2**32 - 1; never 0xffffffff, which is 0."""
    return int.from_bytes(data + bytes(-len(data) % 4), "big") % 0xFFFFFFFF


def payload_offset(headers: list[dict[str, Any]]) -> int:
    """Where the payload of a checked frame begins."""
    parts = [next(iter(entry.items())) for entry in headers]
    return sum(len(bytes.fromhex(one["hex"])) if name == "raw" else HEADERS[name].size_bytes for name, one in parts)


def least_size_bytes(headers: list[dict[str, Any]], stamp_bytes: int = PLAIN_BYTES) -> int:
    """The smallest frame with these headers that holds a stamp, FCS included."""
    return max(64, payload_offset(headers) + stamp_bytes + 4)

"""The stamp: the first payload bytes of a stamped frame. The C table of the same layout is kernel/pktswarm.h.

| offset | bytes | field                                                                     |
| ------ | ----- | ------------------------------------------------------------------------- |
| 0      | 2     | magic: PLAIN, CHECKED or SUMMED                                           |
| 2      | 2     | stream: the leg's number                                                  |
| 4      | 6     | sequence number of the leg's frame, from 0                                |
| 10     | 2     | check: it makes the sum of the nine 16-bit words 0xffff (RFC 1071)        |
| 12     | 6     | transmit time in ns, low 48 bits: CLOCK_MONOTONIC, or TAI with clock: ptp |
| 18     | 4     | (not PLAIN) payload_sum() of the rest of the payload                      |

SUMMED is CHECKED in a recorded packet whose Internet checksums are right.
The check detects any single damaged bit of the stamp, with and without other checksums in the frame. The sum of the
words is the same in every stamp, so no Internet checksum over a stamp depends on its number and time.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from pktswarm.traffic.frames.description import Headers
from pktswarm.traffic.frames.headers import FCS_BYTES
from pktswarm.traffic.frames.placement import LEAST_SIZE_BYTES, headers_bytes

PLAIN, CHECKED, SUMMED = 0x5053, 0x5043, 0x5055
PLAIN_BYTES, CHECKED_BYTES = 18, 22
STREAM_OFFSET, SEQUENCE_OFFSET, CHECK_OFFSET, TIME_OFFSET, CHECKSUM_OFFSET = 2, 4, 10, 12, 18
LARGEST_STREAM = 0xFFFF
LAYOUT_VERSION = 2
"""Version of the layout above; stamps in captures of another version cannot be read."""
NUMBER_BITS = 48
"""Width of the sequence number and of the time."""
_HEAD = struct.Struct(">HH")
_CHECKSUM = struct.Struct(">I")


class Stamp(NamedTuple):
    stream: int
    sequence: int
    time_ns: int
    checksum: int | None = None
    summed: bool = False
    """Whether the Internet checksums of the packet's headers are right; those of a recorded packet can be wrong."""

    def pack(self) -> bytes:
        magic = PLAIN if self.checksum is None else SUMMED if self.summed else CHECKED
        time_ns = self.time_ns % (1 << NUMBER_BITS)
        without = magic << 16 | self.stream, self.sequence, time_ns
        # The number modulo 0xffff is the sum of its 16-bit words, carries added. 0 and 0xffff both verify: the kernel's
        # write_stamp() writes 0.
        check = -sum(without) % 0xFFFF
        data = without[0].to_bytes(4, "big") + self.sequence.to_bytes(6, "big") + check.to_bytes(2, "big")
        data += time_ns.to_bytes(6, "big")
        return data if self.checksum is None else data + _CHECKSUM.pack(self.checksum)


def read_stamp(payload: bytes) -> Stamp | None:
    """Returns the stamp at the beginning of a payload, with the low 48 bits of its time; None without a valid one."""
    if len(payload) < PLAIN_BYTES or int.from_bytes(payload[:PLAIN_BYTES], "big") % 0xFFFF:
        return None
    magic, stream, sequence, time_ns = _fields(payload)
    if magic == PLAIN:
        return Stamp(stream, sequence, time_ns)
    if magic not in (CHECKED, SUMMED) or len(payload) < CHECKED_BYTES:
        return None
    checksum = _CHECKSUM.unpack_from(payload, CHECKSUM_OFFSET)[0]
    return Stamp(stream, sequence, time_ns, checksum, magic == SUMMED)


def _fields(payload: bytes) -> tuple[int, int, int, int]:
    """Magic, stream, sequence number and time."""
    magic, stream = _HEAD.unpack_from(payload)
    sequence = int.from_bytes(payload[SEQUENCE_OFFSET:CHECK_OFFSET], "big")
    return magic, stream, sequence, int.from_bytes(payload[TIME_OFFSET:PLAIN_BYTES], "big")


def payload_sum(data: bytes) -> int:
    """Big-endian 32-bit words, the last one padded with zeros, added modulo 2**32 - 1; never 0xffffffff, which is 0."""
    return int.from_bytes(data + bytes(-len(data) % 4), "big") % 0xFFFFFFFF


def payload_offset(headers: Headers) -> int:
    """The offset of the payload of a checked frame."""
    return headers_bytes(headers)


def least_size_bytes(headers: Headers, stamp_bytes: int = PLAIN_BYTES) -> int:
    """The smallest frame with these headers that holds a stamp, FCS included."""
    return max(LEAST_SIZE_BYTES, headers_bytes(headers) + stamp_bytes + FCS_BYTES)

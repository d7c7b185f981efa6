"""Frames longer than the MTU, which the recording host merged from segments, cut into segments again.

A segment is a row that refers to the recorded packet, without a copy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pktswarm.traffic.errors import BadInput
from pktswarm.traffic.frames.dissect import TCP
from pktswarm.traffic.ragged import repeat
from pktswarm.traffic.replay.parse import ETHERNET_BYTES, Columns

Integers = NDArray[np.int64]
TAG_BYTES = 4
LEAST_SEGMENT_BYTES = 536
"""Default MSS (RFC 9293, section 3.7.1)."""


@dataclass(frozen=True)
class Pieces:
    """The part of its recorded packet that each row sends: the whole packet, or a segment of its payload."""

    columns: Columns
    """The columns, with `end` and `length` of the segment."""
    skip: Integers
    """Payload bytes before this segment; 0 for a whole packet."""
    index: Integers
    """Number of the segment, from 0."""
    last: NDArray[np.bool_]
    cut: int = 0
    """Number of recorded packets that are cut."""
    too_long: int = 0
    """Number of recorded packets that are left out."""

    def take(self, rows: NDArray[Any] | slice) -> Pieces:
        """Some of the rows, in that order; all rows in their order without a copy, to save memory."""
        if isinstance(rows, np.ndarray) and _all_in_order(rows, len(self.index)):
            return self
        parts = (self.skip[rows], self.index[rows], self.last[rows])
        return Pieces(self.columns.take(rows), *parts, self.cut, self.too_long)


def _all_in_order(rows: NDArray[Any], length: int) -> bool:
    return len(rows) == length and rows.dtype != np.bool_ and bool((rows == np.arange(length)).all())


def whole(columns: Columns) -> Pieces:
    none = np.zeros(len(columns), np.int64)
    return Pieces(columns, none, none, np.ones(len(columns), np.bool_))


def longest(columns: Columns, mtu_bytes: int, overhead: Integers) -> Integers:
    """Maximum frame bytes of each packet: the MTU, the Ethernet header and one VLAN tag, as Linux allows, minus the
    bytes of the tunnel."""
    tags = columns.l3 - ETHERNET_BYTES
    return mtu_bytes + ETHERNET_BYTES + np.minimum(tags, TAG_BYTES) - overhead


def cut(columns: Columns, room: Integers) -> Pieces:
    """Cuts every packet longer than its `room` into segments; leaves out fragments and packets that are not TCP."""
    too_long = columns.length > room
    if not too_long.any():
        return whole(columns)
    able = too_long & (columns.protocol == TCP) & columns.has_l4 & (columns.fragment < 0)
    able &= (columns.end > columns.head_end) & (columns.head_end < room)
    segment = _segment_bytes(columns, room, too_long, able)
    payload = columns.end - columns.head_end
    pieces = np.where(able, -(-payload // np.maximum(segment, 1)), 1)
    kept = ~too_long | able
    rows = repeat(np.flatnonzero(kept), pieces[kept])
    index = np.arange(len(rows)) - repeat(np.cumsum(pieces[kept]) - pieces[kept], pieces[kept])
    skip = index * segment[rows] * able[rows]
    found = columns.take(rows)
    last = index == pieces[rows] - 1
    stop = np.where(able[rows], np.minimum(found.head_end + segment[rows], found.end - skip), found.end)
    length = np.where(able[rows], stop, found.length)
    return Pieces(
        replace(found, end=stop, length=length),
        skip,
        index,
        last,
        int(np.count_nonzero(able)),
        int(np.count_nonzero(too_long & ~able)),
    )


def skip_long(columns: Columns, room: Integers) -> Pieces:
    kept = columns.length <= room
    found = whole(columns.take(kept))
    return Pieces(found.columns, found.skip, found.index, found.last, 0, int(np.count_nonzero(~kept)))


def _segment_bytes(columns: Columns, room: Integers, too_long: NDArray[np.bool_], able: NDArray[np.bool_]) -> Integers:
    """The payload size of each packet's segments: the largest uncut one of its direction of the flow, if that is full
    size; else as much as there is room for."""
    payload = columns.end - columns.head_end
    seen = np.zeros(int(columns.channel.max()) + 1, np.int64)
    single = ~too_long & columns.has_l4 & (columns.protocol == TCP)
    np.maximum.at(seen, columns.channel[single], payload[single])
    most = room - columns.head_end
    found = seen[columns.channel]
    return np.where((found >= LEAST_SEGMENT_BYTES) & (found <= most), found, np.maximum(most, 1)) * able + ~able


def refuse_long(
    path: Path, length: Integers, tag_bytes: Integers, number: Integers, mtu_bytes: int, interface: str
) -> None:
    """BadInput for the first frame that `interface` cannot send. As in Linux (packet_snd in af_packet.c) one VLAN tag
    does not count towards the MTU, a second one does."""
    long = np.flatnonzero(length > mtu_bytes + ETHERNET_BYTES + np.minimum(tag_bytes, TAG_BYTES))
    if not len(long):
        return
    first = int(long[0])
    more = f" (and {len(long) - 1} more)" if len(long) > 1 else ""
    problem = (
        f"packet {number[first]}{more} is longer than the MTU of {interface}: the recording host had merged segments "
        "(cut them: oversize), or the interface needs a larger MTU"
    )
    allowed = f"{mtu_bytes + ETHERNET_BYTES} bytes, an MTU of {mtu_bytes} and the Ethernet header"
    raise BadInput(path, problem, value=f"{length[first]} bytes", allowed=allowed)

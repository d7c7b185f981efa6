"""The frames of a trace as one store of bytes and one array for each of their properties."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pktswarm.traffic.frames.stamp import CHECKED_BYTES

Integers = NDArray[np.int64]
Bytes = NDArray[np.uint8]
ALIGN_BYTES = 8
CHUNK_PACKETS = 1 << 12
STAMP_BYTES = CHECKED_BYTES + 2
"""See traffic.replay.stamps."""
NOT_COVERED = 4
"""Flag in Frames.ends."""


@dataclass
class Frames:
    """Frames in the order of sending. The bytes of frame n stand in `store` from place[n] on."""

    store: Bytes
    place: Integers
    """Multiples of 8."""
    length: Integers
    """Bytes of the frame, without FCS."""
    stored: Integers
    """Bytes of it that are in the store; zeros stand for the rest."""
    time_ns: Integers
    """When it is due in a pass, from the start of the trace."""
    ip_at: Integers
    """Where the IP header of the user's packet stands in the frame."""
    l4_at: Integers
    """Its ports, where they may be changed; 0: it has none."""
    sum_at: Integers
    """Its TCP, UDP or ICMPv6 checksum, which covers addresses; 0: there is none to keep right."""
    teid_at: Integers
    """The TEID of its tunnel; 0: none."""
    down: Integers
    """1: from the server to the user."""
    ends: Integers
    """1 where the source is a server, 2 where the target is one, 4 where the checksum is not about the target that
    stands in the header (behind an IPv6 routing header); the sum of these."""
    flow: Integers
    """Number of its flow's direction (channel)."""
    number: Integers
    """Of the recorded packet, from 1."""
    stamp_at: Integers
    """Where its stamp begins (traffic.replay.stamps); 0: it has none."""
    mended: int = 0
    """Packets whose checksum was wrong in the recording (left to the network card)."""

    def __len__(self) -> int:
        return len(self.place)

    def frame(self, row: int) -> bytes:
        at, stored = int(self.place[row]), int(self.stored[row])
        return bytes(self.store[at : at + stored]).ljust(int(self.length[row]), b"\0")

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
    """Frames in the order of sending. `store` contains the bytes of frame n from place[n] on."""

    store: Bytes
    place: Integers
    """Offset in `store`, a multiple of 8."""
    length: Integers
    """Bytes of the frame, without FCS."""
    stored: Integers
    """Bytes of the frame in the store; the rest are zeros."""
    time_ns: Integers
    """Due time in a pass, from the start of the trace."""
    ip_at: Integers
    """Offset of the IP header of the user's packet."""
    l4_at: Integers
    """Offset of the ports; 0: none."""
    sum_at: Integers
    """Offset of the TCP, UDP or ICMPv6 checksum, which covers the addresses; 0: none."""
    teid_at: Integers
    """Offset of the TEID of the tunnel; 0: none."""
    down: Integers
    """1: from the server to the user."""
    ends: Integers
    """Flags: 1, the source is a server; 2, the target is a server; 4, the checksum does not cover the header's target
    address (IPv6 routing header)."""
    flow: Integers
    """Number of the channel (one direction of a flow)."""
    number: Integers
    """Number of the recorded packet, from 1."""
    stamp_at: Integers
    """Offset of the stamp (traffic.replay.stamps); 0: none."""
    mended: int = 0
    """Packets with a wrong recorded checksum, as with checksum offload."""

    def __len__(self) -> int:
        return len(self.place)

    def frame(self, row: int) -> bytes:
        at, stored = int(self.place[row]), int(self.stored[row])
        return bytes(self.store[at : at + stored]).ljust(int(self.length[row]), b"\0")
